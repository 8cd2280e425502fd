"""Renyi differential privacy (RDP) of the two laws on a sum, and its conversion to (epsilon, delta).

All norms are in steps of the grid, all variances in steps^2. D2 and D1 are the L2 and L1 distances of two neighbouring
sums, d the coordinates, v the variance parameter of the noise on the sum.

Skellam (2110.04995, the theorem on its Renyi divergence, summed over coordinates), at integer orders a > 1:

    D_a <= a D2^2 / (2v) + min{ ((2a - 1) D2^2 + 6 D1) / (4v^2),  3 D1 / (2v) }.

The theorem is stated for integer orders. Between them the bound is interpolated by the convexity of (a - 1) D_a in a,
with the value 0 at a = 1.

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

ORDERS: NDArray[np.float64] = np.array(
    sorted({*np.linspace(1.01, 2.0, 100), *np.linspace(2.0, 64.0, 621), *np.round(np.geomspace(64.0, 1e7, 600))})
)
"""Orders over which epsilon is minimised."""

_MIN_SUMMAND_VARIANCE = 0.25


def skellam_rdp(orders: ArrayLike, variance: float, l2: float, l1: float) -> NDArray[np.float64]:
    """Bound on the Renyi divergence of Skellam noise.

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
    order = _check_orders(orders)
    # The function (a - 1) D_a is convex in a, so its chord between neighbouring integer orders is an upper bound;
    # divide by a - 1 to return to D_a. All arrays are [orders].
    floor = np.floor(order)
    weight = order - floor
    lower = (floor - 1.0) * _skellam_rdp_at_integers(floor, variance, l2, l1)
    upper = floor * _skellam_rdp_at_integers(floor + 1.0, variance, l2, l1)
    return np.asarray(((1.0 - weight) * lower + weight * upper) / (order - 1.0))


def discrete_gaussian_sum_rdp(
    orders: ArrayLike, variance: float, summands: int, coordinates: int, l2: float, l1: float
) -> NDArray[np.float64]:
    """Bound on the Renyi divergence of a sum of discrete Gaussians.

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
    order = _check_orders(orders)
    if summands > 1 and variance / summands < _MIN_SUMMAND_VARIANCE:
        return np.full_like(order, np.inf)
    tau = discrete_gaussian_sum_gap(variance / summands, summands)
    deviation = math.sqrt(variance)
    l2_ratio, l1_ratio = l2 / deviation, l1 / deviation
    # The three bounds of the theorem; the last two are both proportional to the order.
    proportional = min(
        l2_ratio**2 + 2.0 * l1_ratio * tau + tau**2 * coordinates, (l2_ratio + math.sqrt(coordinates) * tau) ** 2
    )
    return np.minimum(order / 2.0 * l2_ratio**2 + tau * coordinates, order / 2.0 * proportional)


def discrete_gaussian_sum_gap(summand_variance: float, summands: int) -> float:
    """tau: bound per coordinate on the divergence of a sum of discrete Gaussians from a single one."""
    k = np.arange(1.0, summands)
    return float(10.0 * np.exp(-2.0 * math.pi**2 * summand_variance * k / (k + 1.0)).sum())


def epsilon_from_rdp(orders: ArrayLike, rdp: ArrayLike, delta: float) -> float:
    """The smallest epsilon that an RDP curve implies at delta; never negative, infinite where the curve is.

    Args:
        orders: [orders], each above 1.
        rdp: Renyi divergence at each order, [orders].
        delta: in (0, 1).

    Raises:
        ConfigurationError: an order that is not above 1.
    """
    order = _check_orders(orders)
    epsilon = np.asarray(rdp) + np.log1p(-1.0 / order) - (math.log(delta) + np.log(order)) / (order - 1.0)
    return max(0.0, float(epsilon.min()))


def _skellam_rdp_at_integers(order: NDArray[np.float64], variance: float, l2: float, l1: float) -> NDArray[np.float64]:
    """The theorem, at integer orders."""
    correction = np.minimum(((2.0 * order - 1.0) * l2**2 + 6.0 * l1) / (4.0 * variance**2), 3.0 * l1 / (2.0 * variance))
    return np.asarray(order * l2**2 / (2.0 * variance) + correction)


def _check_orders(orders: ArrayLike) -> NDArray[np.float64]:
    order = np.asarray(orders, np.float64)
    if not ((order > 1.0) & np.isfinite(order)).all():
        raise ConfigurationError(f"orders are {order}; Renyi orders are finite numbers above 1")
    return order
