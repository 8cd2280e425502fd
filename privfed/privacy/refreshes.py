"""A year of refreshes: what each may cost, what the ledger says after it, and what earlier releases still give.

A refresh is one more release of what a method asks for, over everybody, with Gaussian noise; a user takes part in all
k of them. With mu the distance of two unit Gaussians that epsilon and delta of the whole year allow (Balle and Wang
2018), k equal releases are mu / sqrt(k) each, because Gaussian releases add up in mu^2. That is for histories that may
change in any way between refreshes, and it cannot be beaten there: let C be any mixing of the k releases before white
noise is added, M = C^T C, and let every release of a user have norm 1. A user whose uploads are orthogonal to one
another moves the mix by sqrt(sum_j M_jj), and release j comes back with variance (M^-1)_jj >= 1 / M_jj in units of that
noise, so the noisiest of them has at least sum_i M_ii / min_j M_jj >= k times the variance of a single release.
Correlated noise between releases of whole histories therefore buys nothing.

Two things do help.

**Pooling** (post-processing): where release i still holds a part s_i of what is asked for now, weighting the releases
by s_i is the best linear estimate, and its mu is that of one release times sqrt(sum_i s_i^2). Nothing is lost where
nothing changes: k releases of mu / sqrt(k) are worth one of mu.

**Running totals**: where a device spends one unit of norm over the whole year, each refresh asks only for what is new
and the server adds up. A running total is then a prefix sum, for which noise that is correlated between refreshes pays
(Dwork, Naor, Pitassi and Rothblum 2010, and Chan, Shi and Song 2011, for the tree; Fichtenberger, Henzinger and
Upadhyay 2023 for the square root of the prefix matrix, whose coefficients are c_0 = 1, c_j = c_(j-1) (2j - 1) / (2j)).
The claim holds for a device that spends its norm at one refresh and for any division of it over several, because the
norm of a mixed sum is convex in how it is divided. `privfed.contracts.running_totals` is the form that devices and
servers run: devices mix, so that noise is fresh in every sum and can be added in shares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
from jaxtyping import Float64

from privfed.contracts import RunningTotals, square_root
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.errors import PlanError
from privfed.privacy.gaussian_budget import solve_gaussian

Noise = Literal["increments", "tree", "square_root"]
"""How the noise of running totals is made: for each increment by itself, for the nodes of a binary tree, or correlated
by the square root of the prefix matrix."""

MOST_REFRESHES = 10_000
"""Releases of a year that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """One release of a year.

    Attributes:
        number: counted from 1.
        noise_multiplier: of this release, on everything that it asks for together.
        mu: of this release alone, the inverse of that.
        epsilon: of the year up to and with this release.
        pooled_mu: of the best pool of all releases so far.
    """

    number: int
    noise_multiplier: float
    mu: float
    epsilon: float
    pooled_mu: float


def year(epsilon: float, delta: float, refreshes: int, kept: float = 1.0) -> tuple[Refresh, ...]:
    """The ledger of a year of equal releases of whole histories.

    Args:
        epsilon: of the year, at delta, for one user who takes part in all of them.
        delta: probability with which it may fail.
        refreshes: k, releases of the year.
        kept: part of what a release holds that is still asked for at the next one, in [0, 1]; 1: nothing changes.

    Raises:
        PlanError: a value out of range.
    """
    _count(refreshes)
    if refreshes > MOST_REFRESHES:
        raise PlanError(
            f"refreshes = {refreshes:,} is not allowed: a year of at most {MOST_REFRESHES:,} releases is listed one "
            "by one; for more of them, `privfed budget gaussian --rounds` gives the noise and the total"
        )
    if not 0 <= kept <= 1:
        raise PlanError(f"kept = {kept!r} is not allowed: it is the part of a release that stays true, from 0 to 1")
    z = solve_gaussian(epsilon, refreshes, 1.0, delta, thorough=False).budget.noise_multiplier
    # Of a part s that stays true, 1 + s^2 + s^4 + ... of the releases so far is worth something now.
    worth = accumulate(range(1, refreshes), lambda held, _: 1 + kept**2 * held, initial=1.0)
    return tuple(
        Refresh(number, z, 1 / z, gaussian_epsilon(math.sqrt(number) / z, delta), math.sqrt(held) / z)
        for number, held in enumerate(worth, start=1)
    )


def pooled_mu(mu: float, held: Sequence[float]) -> float:
    """What releases of mu each are worth together for what is asked for now.

    Args:
        mu: of each release.
        held: s_i, the part of what is asked for now that each release holds; 1 for the newest.
    """
    return mu * math.hypot(*held)


def pooling_weights(held: Sequence[float]) -> Float64[np.ndarray, " releases"]:
    """Weights, for releases of equal noise, of the unbiased pool with the least variance: s_i / sum of s^2.

    Args:
        held: as for `pooled_mu`.

    Raises:
        PlanError: no release holds anything of what is asked for.
    """
    parts = np.asarray(held, dtype=np.float64)
    if not (parts**2).sum() > 0:
        raise PlanError("no release holds any of what is asked for now, so there is nothing to pool: ask again")
    return np.asarray(parts / (parts**2).sum())


def running_total_factor(refreshes: int, noise: Noise) -> float:
    """Standard deviation of the noisiest running total of a year, in units of that of a single release of the same mu.

    Args:
        refreshes: k, how often the total is published.
        noise: how it is made.

    Raises:
        PlanError: fewer than one refresh.
    """
    _count(refreshes)
    if noise == "increments":
        return math.sqrt(refreshes)
    if noise == "tree":
        levels = refreshes.bit_length()
        nodes = max(number.bit_count() for number in range(1, refreshes + 1))
        return math.sqrt(levels * nodes)
    return RunningTotals(refreshes).factor


def correlated_noise(
    refreshes: int, coordinates: int, noise_multiplier: float, rng: np.random.Generator
) -> Float64[np.ndarray, "refreshes coordinates"]:
    """Noise to add to the exact running totals of a year, in clip norms, correlated by `square_root`.

    Args:
        refreshes: k.
        coordinates: numbers in a total.
        noise_multiplier: z = 1 / mu of the year.
        rng: source of the white noise.
    """
    column = square_root(refreshes)
    white = rng.standard_normal((refreshes, coordinates)) * (noise_multiplier * np.linalg.norm(column))
    mixing = np.array([[column[i - j] if i >= j else 0.0 for j in range(refreshes)] for i in range(refreshes)])
    mixed: np.ndarray = mixing @ white
    return mixed


def _count(refreshes: int) -> None:
    if refreshes < 1:
        raise PlanError(f"refreshes = {refreshes} is not allowed: a year has at least one")
