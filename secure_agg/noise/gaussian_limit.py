"""Skellam noise next to rounded Gaussian noise of its variance, and the epsilon that follows.

A sum of whole numbers that has Gaussian noise added and is rounded afterwards is the Gaussian mechanism, whose delta is
known exactly, where Renyi divergences lose a tenth of epsilon on the way to (epsilon, delta). So a release whose noise
is close to rounded Gaussian noise is nearly that mechanism. Closeness is in t, where t^2 is twice the squared Hellinger
distance; t^2 adds up over coordinates, and over releases also where later ones depend on earlier ones.

What follows. An event of chance a and b under the Gaussian mechanism and its neighbour has a chance of at most
a + 2t sqrt a + t^2 under the release, and at least b - 2t sqrt b under its neighbour. With a <= e^(epsilon - gamma) b +
delta_G(epsilon - gamma) for any gamma > 0, and the largest value over b,

    delta(epsilon) <= delta_G(epsilon - gamma) + 2t + t^2 + t^2 e^epsilon / (1 - e^-gamma).

How close. Let v be the variance, p(k) = e^-v I_k(v) the law, g(k) the mass that N(0, v) has within 1/2 of k, and
z = k / sqrt v. Write w = sqrt(v^2 + k^2), and tilt p until its mean is k:

    p(k) = exp(w - v - k asinh(k / v)) q,
    q = 1/2pi * integral over [-pi, pi] of e^(-w (1 - cos t)) cos(k (t - sin t)) dt.

The exponent is -k^2 / 2v plus something in [0, k^4 / 24v^3], as its second derivative is -1/w and 1/v - u^2 / 2v^3 <=
1 / sqrt(v^2 + u^2) <= 1/v. With t^2/2 - t^4/24 <= 1 - cos t <= t^2/2, 1 - cos t >= 2 t^2 / pi^2, |t - sin t| <= t^3/6,

    1 - 15 k^2 / 72w^3 - 2 Phi(-pi sqrt w) <= q sqrt(2 pi w) <= 1 + 1.2 / w,

and log w - log v is in [0, z^2 / 2v]. Last, g(k) over the density at k is within [-1/8v, z^2 / 8v] in the logarithm. So

    |log p(k) - log g(k)| <= R(z) / v,    R(z) = z^4 / 24 + .376 z^2 + 1.33    for |z| <= 12 and v >= 10^6.

The squared Hellinger distance of p and g is at most E_g[(R / 2v)^2] / 2 * 1.01 + e^-70, less than .54 / v^2 + e^-70, as
Chernoff's bound leaves both laws less than 4 e^-71.9 beyond |z| = 12. So d coordinates have t <= sqrt d (1.04 / v +
e^-34).
"""

import math
from collections.abc import Callable

MIN_VARIANCE = 1e6
"""Variance below which nothing is proven here."""

_ROUNDING = 1e-9
_MAX_EPSILON = 600.0
_GAPS = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
"""Values of gamma to choose from."""


def distance_from_gaussian(variance: float, coordinates: int) -> float:
    """Bound on t, how far Skellam noise is from rounded Gaussian noise.

    Args:
        variance: of one coordinate, in steps^2.
        coordinates: d.

    Returns:
        At most 1, which bounds nothing.
    """
    if variance < MIN_VARIANCE:
        return 1.0
    return min(1.0, math.sqrt(coordinates) * (1.04 / variance + math.exp(-34.0)))


def epsilon_near_gaussian(mu: float, distance: float, delta: float) -> float:
    """Epsilon of releases that are near Gaussian mechanisms; infinite where they are not near enough.

    Args:
        mu: of all the Gaussian mechanisms together: the root of the sum of (L2 distance / standard deviation)^2.
        distance: t of all releases together, the root of the sum of their squares.
        delta: in (0, 1).
    """
    if mu == 0.0 or 8.0 * distance >= delta:
        return math.inf if mu else 0.0
    return min(_with_gap(mu, distance, delta, gamma) for gamma in _GAPS)


def _with_gap(mu: float, distance: float, delta: float, gamma: float) -> float:
    """The same for one gamma."""
    apart = -math.expm1(-gamma)

    def enough(epsilon: float) -> bool:
        grown = distance**2 * (1.0 + math.exp(epsilon) / apart)
        return gaussian_delta(mu, epsilon - gamma) + 2.0 * distance + grown <= delta

    # Up to the epsilon at which the last term alone takes a quarter of delta.
    highest = min(_MAX_EPSILON, math.log(delta * apart / 4.0) - 2.0 * math.log(distance)) if distance else _MAX_EPSILON
    return _smallest(enough, highest) if highest > 0.0 and enough(highest) else math.inf


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of the Gaussian mechanism (Balle and Wang 2018, theorem 8), rounded up where numbers get too small."""
    lost = _normal_tail(epsilon / mu + mu / 2.0)
    kept = _normal_tail(epsilon / mu - mu / 2.0)
    return kept - (math.exp(epsilon + math.log(lost)) if lost else 0.0) * (1.0 - _ROUNDING)


def _smallest(enough: Callable[[float], bool], highest: float) -> float:
    """The smallest number that is enough, from above, where all between it and `highest` are."""
    lowest = 0.0
    if enough(lowest):
        return lowest
    while highest - lowest > _ROUNDING * highest:
        middle = (lowest + highest) / 2.0
        lowest, highest = (lowest, middle) if enough(middle) else (middle, highest)
    return highest


def _normal_tail(x: float) -> float:
    """Chance that a standard normal number is above x."""
    return math.erfc(x / math.sqrt(2.0)) / 2.0
