"""Proven tail bounds of the two laws and of sums of independent draws.

Chernoff's bound P(|X| >= t) <= 2 exp(-h(t)) with h(t) = max over s of (s t - ln E exp(s X)):

    skellam            ln E exp(s X) = v (cosh s - 1),   h(t) = t asinh(t/v) - (sqrt(t^2 + v^2) - v)
    discrete_gaussian  ln E exp(s X) <= v s^2 / 2,       h(t) >= t^2 / (2v)

The logarithms of moment generating functions add, so n independent draws of variance v obey the bound at variance n v.

Sources: the generating function of the Poisson law; Canonne, Kamath and Steinke (2004.00010), which shows that the
discrete Gaussian is sub-Gaussian with its own parameter.
"""

import math


def chernoff_exponent(law: str, variance: float, distance: float) -> float:
    """The exponent h with P(|X| >= distance) <= 2 exp(-h).

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter of the law, or the sum of those of independent draws; positive.
        distance: t >= 0.
    """
    square = distance * distance
    if law == "discrete_gaussian":
        return square / (2.0 * variance)
    # sqrt(t^2 + v^2) - v = t^2 / (sqrt(t^2 + v^2) + v), without cancellation for t much smaller than v.
    return distance * math.asinh(distance / variance) - square / (math.hypot(distance, variance) + variance)


def tail_bound(law: str, variance: float, log_probability: float) -> int:
    """Smallest integer t for which Chernoff's bound gives ln P(|X| >= t) <= log_probability.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: as in `chernoff_exponent`.
        log_probability: natural logarithm of a probability, below 0.
    """
    # Bisection up to t = L/3 + sqrt(L^2/9 + 2vL) with L = ln 2 - log_probability, which suffices because for both laws
    # h(t) >= t^2 / (2v + 2t/3) (Bernstein: cosh s - 1 <= (s^2/2) / (1 - s/3)). The factor 1 + 1e-9 covers the rounding
    # of floats.
    target = (math.log(2.0) - log_probability) * (1.0 + 1e-9)
    low, high = 0, math.ceil(target / 3.0 + math.sqrt(target * target / 9.0 + 2.0 * variance * target)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if chernoff_exponent(law, variance, middle) >= target:
            high = middle
        else:
            low = middle
    return high
