"""Renyi divergence curves of the two laws on a sum, and what they say about (epsilon, delta).

All norms are in steps of the grid, all variances in steps^2. D2 and D1 are the L2 and L1 distances of two neighbouring
sums, d the coordinates, v the variance parameter of the noise on the sum.

Skellam (2110.04995, the theorem on its Renyi divergence, added up over coordinates), at whole orders a > 1:

    D_a <= a D2^2 / (2v) + min{ ((2a - 1) D2^2 + 6 D1) / (4v^2),  3 D1 / (2v) }.

The theorem is stated for whole orders. Between them the curve is carried on by the convexity of (a - 1) D_a in a, with
the value 0 at a = 1.

Sum of n discrete Gaussians of variance v/n >= 1/4 each (2102.06387, the theorem on convolutions), at every order, with
l2 = D2 / sqrt v and l1 = D1 / sqrt v:

    D_a <= min{ a/2 l2^2 + tau d,  a/2 (l2^2 + 2 l1 tau + tau^2 d),  a/2 (l2 + sqrt(d) tau)^2 },
    tau  = 10 * sum over k = 1..n-1 of exp(-2 pi^2 (v/n) k / (k+1)).

The first of the three can be checked by hand. Write P for the sum and Q for the discrete Gaussian of variance v.
Poisson summation gives ln(P/Q) in each coordinate a range of at most w = sum of ln((1 + e_k) / (1 - e_k)) <= tau/2,
where e_k = 2 sum over m >= 1 of exp(-2 pi^2 m^2 (v/n) k/(k+1)). So the privacy loss of P is that of Q, which is linear
in the noise, up to w per coordinate; and the noise is sub-Gaussian (2004.00010). Hence D_a <= a/2 l2^2 + w d.

From D_a to epsilon: proposition 12 of Canonne, Kamath and Steinke (2004.00010), the same as theorem 21 of Balle et al.
(1905.09982):  epsilon = D_a + ln(1 - 1/a) - (ln delta + ln a) / (a - 1), at the best order.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secure_agg.errors import ConfigurationError

ORDERS: NDArray[np.float64] = np.unique(
    np.concatenate([np.linspace(1.01, 2.0, 100), np.linspace(2.0, 64.0, 621), np.round(np.geomspace(64.0, 1e7, 600))])
)
"""Orders from which epsilon is taken."""

_SMALLEST_SHARE = 0.25


def skellam_curve(orders: ArrayLike, variance: float, l2: float, l1: float) -> NDArray[np.float64]:
    """Renyi divergence bound of Skellam noise.

    Args:
        orders: [orders], each above 1.
        variance: v on the sum, positive.
        l2: D2.
        l1: D1.

    Returns:
        [orders].

    Raises:
        ConfigurationError: an order that is not above 1.
    """
    order = _accept_orders(orders)
    below = np.floor(order)
    share = order - below
    lower = (below - 1.0) * _skellam_at(below, variance, l2, l1)
    upper = below * _skellam_at(below + 1.0, variance, l2, l1)
    return np.asarray(((1.0 - share) * lower + share * upper) / (order - 1.0))


def gaussian_sum_curve(
    orders: ArrayLike, variance: float, summands: int, coordinates: int, l2: float, l1: float
) -> NDArray[np.float64]:
    """Renyi divergence bound of a sum of discrete Gaussians.

    Args:
        orders: [orders], each above 1.
        variance: v on the sum, positive; each summand has v / summands.
        summands: n.
        coordinates: d.
        l2: D2.
        l1: D1.

    Returns:
        [orders]; infinite where a sum of several has summands of variance below 1/4, for which nothing is proven.

    Raises:
        ConfigurationError: an order that is not above 1.
    """
    order = _accept_orders(orders)
    if summands > 1 and variance / summands < _SMALLEST_SHARE:
        return np.full_like(order, np.inf)
    tau = gaussian_sum_gap(variance / summands, summands)
    deviation = math.sqrt(variance)
    far, wide = l2 / deviation, l1 / deviation
    correlated = min(far**2 + 2.0 * wide * tau + tau**2 * coordinates, (far + math.sqrt(coordinates) * tau) ** 2)
    return np.minimum(order / 2.0 * far**2 + tau * coordinates, order / 2.0 * correlated)


def gaussian_sum_gap(share_variance: float, summands: int) -> float:
    """tau: how far a sum of discrete Gaussians may be from one, per coordinate."""
    k = np.arange(1.0, summands)
    return float(10.0 * np.exp(-2.0 * math.pi**2 * share_variance * k / (k + 1.0)).sum())


def epsilon_of_curve(orders: ArrayLike, curve: ArrayLike, delta: float) -> float:
    """The smallest epsilon that the curve gives at delta; never negative, infinite where the curve is.

    Args:
        orders: [orders], each above 1.
        curve: [orders].
        delta: in (0, 1).

    Raises:
        ConfigurationError: an order that is not above 1.
    """
    order = _accept_orders(orders)
    epsilon = np.asarray(curve) + np.log1p(-1.0 / order) - (math.log(delta) + np.log(order)) / (order - 1.0)
    return max(0.0, float(epsilon.min()))


def _skellam_at(order: NDArray[np.float64], variance: float, l2: float, l1: float) -> NDArray[np.float64]:
    """The theorem, at whole orders."""
    beyond = np.minimum(((2.0 * order - 1.0) * l2**2 + 6.0 * l1) / (4.0 * variance**2), 3.0 * l1 / (2.0 * variance))
    return np.asarray(order * l2**2 / (2.0 * variance) + beyond)


def _accept_orders(orders: ArrayLike) -> NDArray[np.float64]:
    order = np.asarray(orders, np.float64)
    if not ((order > 1.0) & np.isfinite(order)).all():
        raise ConfigurationError(f"orders are {order}; Renyi orders are finite numbers above 1")
    return order
