"""Exact samplers: every value has exactly the probability of its law, in whole-number arithmetic throughout.

They are there to check the fast tables by other means, for variances that no table holds, and for whoever wants the
operating system's randomness in every coin. A draw takes tens of microseconds; Skellam takes a millisecond or more from
a standard deviation of 1000 upwards, because it reads a random bit per unit of variance.

Sources: Canonne, Kamath and Steinke (2004.00010), algorithms 2 and 3, for the discrete Gaussian. The Poisson sampler is
plain rejection (von Neumann 1951) from blocks whose heights halve, arranged so that every acceptance probability is
rational. That the points of a Poisson process, sent to either side by fair coins, are two independent Poisson processes
is the colouring theorem of Kingman, "Poisson Processes" (1993).
"""

import math
from fractions import Fraction
from functools import lru_cache

from secure_agg.noise.coins import Coins


def exact_discrete_gaussian(variance: Fraction, coins: Coins) -> int:
    """One draw of the discrete Gaussian of variance parameter v: a discrete Laplace draw, accepted by an exp coin.

    A small number of proposals of about ten coins each, whatever v is.
    """
    numerator, denominator = variance.as_integer_ratio()
    scale = math.isqrt(numerator // denominator) + 1
    bottom = 2 * numerator * denominator * scale * scale
    while True:
        value = _discrete_laplace(scale, coins)
        excess = abs(value) * denominator * scale - numerator
        if coins.flip_exp(excess * excess, bottom):
            return value


def exact_poisson(mean: Fraction, coins: Coins) -> int:
    """One draw of the Poisson law.

    With m = floor(mean) the mode, propose m + x or m - x, where x >= 0 lies in blocks of width w and block j has weight
    2^-j. The ratio of P(m +- x) to P(m) is a product of x rationals; it is log-concave in x and 1 at x = 0, so if it is
    at most 1/2 at x = w, it is at most 2^-j at x = j w and beyond. Accepting with probability ratio * 2^j is therefore
    a coin of rational bias at most 1. About two proposals, each with a product of about sqrt(mean) factors.
    """
    numerator, denominator = mean.as_integer_ratio()
    mode, width = numerator // denominator, _block_width(mean)
    while True:
        left, step, block = bool(coins.bits(1)), coins.below(width), 0
        while coins.bits(1):
            block += 1
        distance = block * width + step
        if left and distance == 0:
            continue
        top, bottom = _ratio(numerator, denominator, mode, distance, left=left)
        if coins.flip(top << block, bottom):
            return mode - distance if left else mode + distance


def exact_skellam(variance: Fraction, coins: Coins) -> int:
    """One draw of the Skellam law of variance v: the difference of two independent Poissons of mean v/2.

    The two are drawn as one Poisson of mean v, whose points each go to either side by a fair coin. Their difference is
    N - 2B with B the number of ones among N random bits: one Poisson draw and about v/8 random bytes.
    """
    points = exact_poisson(variance, coins)
    return points - 2 * coins.bits(points).bit_count()


def _discrete_laplace(scale: int, coins: Coins) -> int:
    """A draw with P(x) proportional to exp(-|x| / scale)."""
    while True:
        remainder = coins.below(scale)
        if not coins.flip_exp(remainder, scale):
            continue
        quotient = 0
        while coins.flip_exp(1, 1):
            quotient += 1
        magnitude, negative = remainder + scale * quotient, coins.bits(1)
        if magnitude or not negative:
            return -magnitude if negative else magnitude


@lru_cache(maxsize=64)
def _block_width(mean: Fraction) -> int:
    """A width at which the ratios of both sides have fallen to 1/2: 1.2 standard deviations or a little more."""
    numerator, denominator = mean.as_integer_ratio()
    mode = numerator // denominator
    width = max(1, 6 * math.isqrt(mode) // 5)
    while any(
        2 * top > bottom
        for top, bottom in (_ratio(numerator, denominator, mode, width, left=left) for left in (False, True))
    ):
        width += 1 + width // 16
    return width


def _ratio(numerator: int, denominator: int, mode: int, distance: int, *, left: bool) -> tuple[int, int]:
    """P(mode - distance) / P(mode), or with plus, of the Poisson law of mean numerator / denominator: top and bottom.

    Zero below 0, where the falling factorial is.
    """
    if left:
        return math.perm(mode, distance) * denominator**distance, numerator**distance
    return numerator**distance, denominator**distance * math.perm(mode + distance, distance)
