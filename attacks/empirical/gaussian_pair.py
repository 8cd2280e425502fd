"""Epsilon between two normal distributions, for arrays of pairs."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Float64
from scipy.special import log_ndtr

from attacks.empirical._checks import check_gaussian_delta

MAX_EPSILON = 1000.0
"""Largest reported estimate; anything larger means that the worlds are distinguishable."""

PerPair: TypeAlias = Float64[np.ndarray, "*pairs"]


def gaussian_pair_epsilon(
    mean: Float[np.ndarray, "*pairs"],
    sd: Float[np.ndarray, "*pairs"],
    null_mean: Float[np.ndarray, "*pairs"],
    null_sd: Float[np.ndarray, "*pairs"],
    delta: float,
) -> PerPair:
    """Smallest epsilon at which N(mean, sd^2) and N(null_mean, null_sd^2) are (epsilon, delta)-close, in both orders.

    Arrays of one shape, all pairs at once by bisection. 0 where delta alone covers the difference, and
    :data:`MAX_EPSILON` stands for anything above.

    Args:
        mean: Mean of the one law.
        sd: Its standard deviation; 0 for a point, which anybody can tell.
        null_mean: Mean of the other.
        null_sd: Its standard deviation, above 0.
        delta: In (0, 1).

    Raises:
        ValueError: If delta is outside its range, or a standard deviation is.
    """
    check_gaussian_delta(delta)
    if not (np.all(sd >= 0) and np.all(null_sd > 0)):
        raise ValueError("Got a negative standard deviation, or a null without any; pass laws that scatter.")
    scale = np.maximum(sd / null_sd, 1e-30)
    shift = (mean - null_mean) / null_sd
    low, high = np.zeros_like(scale), np.full_like(scale, MAX_EPSILON)
    # All pairs are bisected at once; 45 halvings bring the interval of 1,000 below 1e-10.
    for _ in range(45):
        middle = (low + high) / 2
        apart = gaussian_pair_delta(shift, scale, middle) > delta
        low, high = np.where(apart, middle, low), np.where(apart, high, middle)
    covered = gaussian_pair_delta(shift, scale, np.zeros_like(scale)) <= delta
    return np.where(covered, 0.0, high)


def gaussian_pair_delta(shift: PerPair, scale: PerPair, epsilon: PerPair) -> PerPair:
    """Larger of both hockey-stick divergences between N(shift, scale^2) and N(0, 1) at epsilon.

    max over both orders of P[L > eps] - e^eps Q[L > eps], where the log-ratio L = ln p/q is a quadratic of the score,
    so that L > eps is the inside or the outside of its two roots.

    Args:
        shift: Difference of the means, in standard deviations of the second law.
        scale: Standard deviation of the first law over that of the second, above 0.
        epsilon: At least 0.
    """
    return np.asarray(np.maximum(_one_order(shift, scale, epsilon), _one_order(-shift / scale, 1 / scale, epsilon)))


def _one_order(shift: PerPair, scale: PerPair, epsilon: PerPair) -> PerPair:
    """P[L > eps] - e^eps Q[L > eps] for P = N(shift, scale^2), Q = N(0, 1): L - eps = a y^2 + b y + c."""
    precision = scale**-2
    a = (1 - precision) / 2
    # Equal scales make the quadratic linear; a tiny curvature keeps one formula for both cases.
    a = np.where(np.abs(a) < 1e-14, 1e-14, a)
    b = np.where(np.abs(shift) < 1e-100, 0.0, shift) * precision
    c = -(shift * b) / 2 - np.log(scale) - epsilon
    discriminant = b**2 - 4 * a * c
    root = np.sqrt(np.maximum(discriminant, 0))
    # The root of larger size first, the other one from the product of roots, so that neither cancels.
    far = -(b + np.where(b >= 0, root, -root)) / 2
    first = far / a
    second = np.divide(c, far, out=first.copy(), where=discriminant > 0)
    low, high = np.minimum(first, second), np.maximum(first, second)
    outside = a > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        here = _log_probability((low - shift) / scale, (high - shift) / scale, outside)
        there = _log_probability(low, high, outside)
        # L > eps makes P the likelier of the two: only rounding could give a positive logarithm.
        ratio = np.where(np.isneginf(here), 0.0, np.minimum(0.0, epsilon + there - here))
    return np.asarray(np.exp(here) * -np.expm1(ratio))


def _log_probability(low: PerPair, high: PerPair, outside: Bool[np.ndarray, "*pairs"]) -> PerPair:
    """Logarithm of what N(0, 1) has outside of low and high, or between them."""
    return np.where(outside, _log_outside(low, high), _log_inside(low, high))


def _log_inside(low: PerPair, high: PerPair) -> PerPair:
    """Logarithm of Phi(high) - Phi(low), taken in whichever tail is the smaller."""
    right = low + high > 0
    larger = log_ndtr(np.where(right, -low, high))
    smaller = log_ndtr(np.where(right, -high, low))
    return np.asarray(larger + np.log(-np.expm1(np.minimum(0.0, smaller - larger))))


def _log_outside(low: PerPair, high: PerPair) -> PerPair:
    """Logarithm of Phi(low) + Phi(-high)."""
    return np.asarray(np.minimum(0.0, np.logaddexp(log_ndtr(low), log_ndtr(-high))))
