"""Before a run with Gaussian noise: what a noise multiplier adds up to, and which one a total allows.

One release is the sum of the uploads of a round, each clipped to L2 norm C, plus noise of standard deviation z C.
Neighbours are the data with one user and without (add or remove one), and every user joins a round by its own secret
inclusion of probability `rate`, so `rounds` releases are `rounds` Poisson-sampled Gaussian mechanisms of multiplier z.

A plan does not need the ledger's last digit. Searching, and budgets that are not `thorough`, use the same accountant
(privacy loss distributions, PLD) on a coarser grid, which can only make epsilon larger: by about one part in 10,000,
and by up to one in 50 where millions of rounds meet tiny rates. Beyond ten million sampled rounds, or where a grid
would take seconds, the looser bound (RDP) is the answer. A `thorough` budget is what the ledger would claim,
with one check more: Opacus' PRV, which loads torch, or the closed form where nobody is sampled.

With rate = 1 all rounds together are one Gaussian mechanism of multiplier z / sqrt(rounds), whose delta is known in
closed form (Balle and Wang 2018, theorem 8). It starts the search, and is the whole search where nobody is sampled.
"""

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import lru_cache
from typing import TYPE_CHECKING

import scipy
from pydantic import BaseModel, ConfigDict

from privfed.privacy.accounting import PLD, account, at_most, looser_bounds, pld_epsilon, widest
from privfed.privacy.closed_forms import gaussian_delta
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.epsilon import MIN_DELTA
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

MAX_EPSILON = 500.0
"""Nothing is accounted beyond it: such a total protects nothing."""

_HOPELESS = 2e4
_POINTS_PER_LOSS = 60.0
_POINTS_PER_RUN = 2e4
_POINTS_AT_MOST = 5e4
_COARSEST_GRID = 0.05
_SLACK = 1e-3
_DIGITS = 4
_NEXT = 1e-6


class GaussianBudget(BaseModel):
    """What `rounds` noised sums cost any one user.

    Attributes:
        noise_multiplier: standard deviation of the noise on the sum over the L2 clip norm.
        rounds: releases.
        rate: probability with which a user takes part in a round, in secret and independently.
        delta: probability with which `epsilon` may fail.
        epsilon: total at delta, by `accountant`.
        accountant: how epsilon was computed.
        cross_check: epsilon by the accountants that checked it.
    """

    model_config = ConfigDict(frozen=True)
    noise_multiplier: float
    rounds: int
    rate: float
    delta: float
    epsilon: float
    accountant: str
    cross_check: dict[str, float]


class GaussianSolution(BaseModel):
    """The noise multiplier that keeps a total.

    Attributes:
        target: total epsilon that was asked for.
        budget: the smallest noise multiplier, to four digits, whose total at delta stays at or below the target.
    """

    model_config = ConfigDict(frozen=True)
    target: float
    budget: GaussianBudget


def gaussian_budget(
    noise_multiplier: float, rounds: int, rate: float, delta: float, *, thorough: bool = True
) -> GaussianBudget:
    """Total privacy loss of `rounds` noised sums.

    Args:
        noise_multiplier: standard deviation of the noise on the sum over the L2 clip norm.
        rounds: releases.
        rate: probability of a user's secret inclusion, in (0, 1].
        delta: probability with which epsilon may fail, in [1e-10, 1).
        thorough: account as the ledger does (seconds, with one check more) instead of on a coarser grid.

    Raises:
        PlanError: a value out of range, or noise so small that epsilon exceeds 500.
        AccountingError: accountants disagree.
    """
    _check(rounds, rate, delta, noise_multiplier=noise_multiplier)
    about = _about(noise_multiplier, rounds, rate, delta)
    if about > MAX_EPSILON:
        raise PlanError(
            f"noise_multiplier = {noise_multiplier:g} over {rounds:,} rounds is not accounted: epsilon is about "
            f"{about:,.0f}, and one above {MAX_EPSILON:,.0f} protects nothing; use more noise or fewer rounds"
        )
    return _budget(noise_multiplier, rounds, rate, delta, thorough=thorough)


def solve_gaussian(
    epsilon: float, rounds: int, rate: float, delta: float, *, thorough: bool = True
) -> GaussianSolution:
    """The smallest noise multiplier, to four digits, whose `rounds` noised sums cost at most `epsilon`.

    Args:
        epsilon: total that no user may exceed, at most 500.
        rounds: releases.
        rate: probability of a user's secret inclusion, in (0, 1].
        delta: probability with which epsilon may fail, in [1e-10, 1).
        thorough: account the answer as the ledger does; the search is the same.

    Raises:
        PlanError: a value out of range.
        AccountingError: accountants disagree.
    """
    _check(rounds, rate, delta, epsilon=epsilon)
    if epsilon > MAX_EPSILON:
        raise PlanError(
            f"epsilon = {epsilon:g} is not allowed: a total above {MAX_EPSILON:,.0f} protects nothing, so ask for "
            "less, or use no noise and say so"
        )
    taking_part = -math.expm1(rounds * math.log1p(-rate)) if rate < 1.0 else 1.0
    if taking_part <= delta:
        raise PlanError(
            f"delta = {delta:g} needs no noise for any epsilon: a user takes part in {rounds:,} rounds at rate "
            f"{rate:g} at all with probability {taking_part:.2g}, which delta excuses; choose a delta below that"
        )
    root = _root(epsilon, rounds, rate, delta)
    enough = _four_digits(root, ROUND_CEILING)
    while _planned(enough, rounds, rate, delta) > epsilon:
        enough = _four_digits(enough * (1.0 + _NEXT), ROUND_CEILING)
    while _planned(less := _four_digits(enough * (1.0 - _NEXT), ROUND_FLOOR), rounds, rate, delta) <= epsilon:
        enough = less
    return GaussianSolution(target=epsilon, budget=_budget(enough, rounds, rate, delta, thorough=thorough))


def epsilon_by_rounds(noise_multiplier: float, rounds: Iterable[int], rate: float, delta: float) -> dict[int, float]:
    """How epsilon grows: the total, on the coarser grid, after each of `rounds` that keeps it at 500 or below.

    Raises:
        PlanError: a value out of range.
    """
    counts = tuple(rounds)
    for count in counts:
        _check(count, rate, delta, noise_multiplier=noise_multiplier)
    hopeless = _looser(noise_multiplier, max(counts, default=1), rate, delta)[1] > _HOPELESS
    total = _about if hopeless else _planned
    totals = {count: total(noise_multiplier, count, rate, delta) for count in counts}
    return {count: total for count, total in totals.items() if total <= MAX_EPSILON}


def _budget(noise_multiplier: float, rounds: int, rate: float, delta: float, *, thorough: bool) -> GaussianBudget:
    if thorough:
        result = account(_event(noise_multiplier, rounds, rate), delta)
        epsilon, accountant, checks = result.epsilon, result.accountant, dict(result.cross_check)
    else:
        accountant, epsilon = _named(noise_multiplier, rounds, rate, delta)
        name, bound = _looser(noise_multiplier, rounds, rate, delta)
        checks = {name: bound} if accountant == PLD else {}
        at_most(accountant, epsilon, name, bound, _SLACK * bound)
    return GaussianBudget(
        noise_multiplier=noise_multiplier,
        rounds=rounds,
        rate=rate,
        delta=delta,
        epsilon=epsilon,
        accountant=accountant,
        cross_check=checks,
    )


def _root(epsilon: float, rounds: int, rate: float, delta: float) -> float:
    """About where the total meets `epsilon`; log epsilon is nearly straight in log noise."""
    max_clients = math.sqrt(rounds) / _distance(epsilon, delta)
    if rate == 1.0:
        return max_clients

    def excess(log_noise: float) -> float:
        return math.log(max(_planned(math.exp(log_noise), rounds, rate, delta), 1e-3 * epsilon) / epsilon)

    # Sampling never hurts, so `most` is enough noise; its share `rate` is about right where noise is plenty.
    high = math.log(max_clients * (1.0 + _SLACK))
    low = min(high, math.log(max(rate * max_clients, 0.5)))
    while excess(high) > 0.0:
        high += _SLACK
    while excess(low) <= 0.0:
        high, low = low, low - 0.5
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=2e-5))


def _distance(epsilon: float, delta: float) -> float:
    """The distance mu of two unit Gaussians that are exactly (epsilon, delta) apart."""

    def excess(log_mu: float) -> float:
        return gaussian_delta(math.exp(log_mu), epsilon) - delta

    return math.exp(scipy.optimize.brentq(excess, math.log(1e-12), math.log(1e6), xtol=1e-12))


def _event(noise_multiplier: float, rounds: int, rate: float) -> "DpEvent":
    event = Gaussian(noise_multiplier=noise_multiplier)
    return Composition((Releases(event, rounds, rate if rate < 1.0 else None),)).event()


def _planned(noise_multiplier: float, rounds: int, rate: float, delta: float) -> float:
    """The total, on the coarser grid."""
    return _named(noise_multiplier, rounds, rate, delta)[1]


def _named(noise_multiplier: float, rounds: int, rate: float, delta: float) -> tuple[str, float]:
    """The total and its accountant: PLD, or the looser bound where PLD gives out."""
    pld = _coarsely(noise_multiplier, rounds, rate, delta)
    return (PLD, pld) if pld < math.inf else _looser(noise_multiplier, rounds, rate, delta)


@lru_cache(maxsize=256)
def _coarsely(noise_multiplier: float, rounds: int, rate: float, delta: float) -> float:
    """PLD on a grid of 1/60 of the spread of one release's loss; coarser for many rounds and for tiny rates."""
    if rate == 1.0:
        noise_multiplier, rounds = noise_multiplier / math.sqrt(rounds), 1
    spread = min(rate * math.sqrt(math.expm1(min(noise_multiplier**-2, 700.0))), 1.0 / noise_multiplier)
    release = _event(noise_multiplier, 1, rate).event
    finest = widest(release) / _POINTS_AT_MOST
    grid = min(max(spread / _POINTS_PER_LOSS, spread * math.sqrt(rounds) / _POINTS_PER_RUN, finest), _COARSEST_GRID)
    return pld_epsilon(((release, rounds),), delta, grid)


@lru_cache(maxsize=256)
def _looser(noise_multiplier: float, rounds: int, rate: float, delta: float) -> tuple[str, float]:
    """The bound besides PLD, by name."""
    (named,) = looser_bounds(((_event(noise_multiplier, 1, rate).event, rounds),), delta).items()
    return named


def _about(noise_multiplier: float, rounds: int, rate: float, delta: float) -> float:
    """The total, or a bound where noise is so small that the distributions would fill the memory."""
    _, bound = _looser(noise_multiplier, rounds, rate, delta)
    return bound if bound > _HOPELESS else _planned(noise_multiplier, rounds, rate, delta)


def _four_digits(value: float, rounding: str) -> float:
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal_from_float(value))


def _check(rounds: int, rate: float, delta: float, **positive: float) -> None:
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(f"{name} = {value!r} is not allowed: it must be a finite number above 0")
    if rounds < 1:
        raise PlanError(f"rounds = {rounds!r} is not allowed: it must be at least 1")
    if not 0 < rate <= 1:
        raise PlanError(f"rate = {rate!r} is not allowed: it must be above 0 and at most 1")
    if not MIN_DELTA <= delta < 1:
        raise PlanError(f"delta = {delta!r} is not allowed: it must be in [{MIN_DELTA:g}, 1)")
