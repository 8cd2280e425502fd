"""Privacy loss distributions of releases on a grid, by dp-accounting, with work that is known before it begins.

The distributions and their compositions are dp-accounting's. What is here keeps their cost in bounds: the loss of a
sampled Gaussian is worked out at all grid points at once instead of one by one, it is kept for several counts of the
same release, and many thousands of releases are composed in two stages, whose tails are cut where the sum of them
stays negligible. All of it only moves mass to infinite loss, so epsilon stays an upper bound.
"""

import math
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float64

MOST_RELEASES = 10**7
"""Releases of one kind beyond which no grid is both fine enough and short enough."""

MANY_RELEASES = 10_000
"""Releases beyond which the grid is sized for all of them together, and a short grid is composed in two stages."""

# Mass that a composition may move to infinite loss.
_TAIL = 1e-15


def gaussian_losses(noise_multiplier: float, rate: float, grid: float) -> Any:
    """The `PrivacyLossDistribution` of one Gaussian release that samples users at `rate`, below 1."""
    return _gaussian(float(noise_multiplier), float(rate), float(grid))


@lru_cache(maxsize=4)
def _gaussian(noise_multiplier: float, rate: float, grid: float) -> Any:
    pld = import_module("dp_accounting.pld")
    kinds = pld.privacy_loss_mechanism.AdjacencyType
    return pld.privacy_loss_distribution.PrivacyLossDistribution(
        *(_one_direction(pld, noise_multiplier, rate, grid, kind) for kind in (kinds.REMOVE, kinds.ADD))
    )


def _one_direction(pld: Any, noise_multiplier: float, rate: float, grid: float, kind: Any) -> Any:
    mechanism = pld.privacy_loss_mechanism
    loss = mechanism.GaussianPrivacyLoss(noise_multiplier, sampling_prob=rate, adjacency_type=kind)
    bounds = loss.connect_dots_bounds()
    lowest, highest = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
    epsilons = np.arange(lowest, highest + 1) * grid
    deltas = _deltas(loss, epsilons, noise_multiplier, rate, removed=kind == mechanism.AdjacencyType.REMOVE)
    return pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, lowest, highest, deltas)


def _deltas(
    loss: Any, epsilons: Float64[np.ndarray, " points"], noise_multiplier: float, rate: float, *, removed: bool
) -> Float64[np.ndarray, " points"]:
    """Delta of one release at every epsilon, as `loss.get_delta_for_epsilon` gives it point by point.

    The loss is above epsilon up to some output x, at which the loss of the release without sampling is log(1 +
    (e^epsilon - 1) / rate) where a user is removed, and minus that of -epsilon where one is added.
    """
    sign = 1.0 if removed else -1.0
    inside = sign * epsilons > math.log1p(-rate)
    deltas: np.ndarray = -np.expm1(epsilons) if removed else np.zeros_like(epsilons)
    unsampled = sign * np.log1p(np.expm1(sign * epsilons[inside]) / rate)
    cutoffs = -0.5 * sign - unsampled * noise_multiplier**2
    deltas[inside] = loss.mu_upper_cdf(cutoffs) - np.exp(epsilons[inside] + loss.mu_lower_log_cdf(cutoffs))
    return np.asarray(np.clip(deltas, 0.0, 1.0))


def composed(losses: Any, count: int, points: float) -> Any:
    """`count` releases of the same `PrivacyLossDistribution`, of about so many grid points, together.

    Raises:
        OverflowError: more than `MOST_RELEASES`.
    """
    if count > MOST_RELEASES:
        raise OverflowError(f"{count} releases are more than the {MOST_RELEASES} whose losses are composed")
    # dp-accounting works out points^count as a whole number where there are at most 1000 points.
    if count <= MANY_RELEASES or points > 2000:
        return losses.self_compose(count)
    stage = math.isqrt(count)
    times, left = divmod(count, stage)
    whole = losses.self_compose(stage, _TAIL / times).self_compose(times, _TAIL)
    return whole.compose(losses.self_compose(left, _TAIL), _TAIL) if left else whole
