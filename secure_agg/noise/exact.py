"""Exact samplers: every value has exactly the probability of its law, in integer arithmetic throughout.

They check the fast tables independently, serve variances beyond the largest table, and take the operating system's
randomness for every single bit. A draw takes tens of microseconds; Skellam takes a millisecond or more from a standard
deviation of 1000 upwards, because it reads one random bit per unit of variance.

Sources: Canonne, Kamath and Steinke (2004.00010), algorithms 2 and 3, for the discrete Gaussian. The Poisson sampler is
plain rejection (von Neumann 1951) from blocks whose heights halve, arranged so that every acceptance probability is
rational. That the points of a Poisson process, sent to either side by fair coin flips, are two independent Poisson
processes is the colouring theorem of Kingman, "Poisson Processes" (1993).
"""

import math
from fractions import Fraction
from functools import lru_cache

from secure_agg.noise.random_source import RandomSource


def sample_discrete_gaussian(variance: Fraction, source: RandomSource) -> int:
    """One draw of the discrete Gaussian with variance parameter v, by rejection from a discrete Laplace.

    The number of proposals is small whatever v is; each takes about ten Bernoulli variables.
    """
    numerator, denominator = variance.as_integer_ratio()
    # Proposal: discrete Laplace of scale s = floor(sqrt v) + 1. Acceptance: exp(-(|x| - v/s)^2 / (2v)), here with v as
    # a fraction, so that the exponent stays rational.
    scale = math.isqrt(numerator // denominator) + 1
    exponent_denominator = 2 * numerator * denominator * scale * scale
    while True:
        value = _sample_discrete_laplace(scale, source)
        deviation = abs(value) * denominator * scale - numerator
        if source.bernoulli_exp(deviation * deviation, exponent_denominator):
            return value


def sample_poisson(mean: Fraction, source: RandomSource) -> int:
    """One draw of the Poisson law, by rejection; about two proposals, each a product of about sqrt(mean) factors."""
    numerator, denominator = mean.as_integer_ratio()
    # With m = floor(mean) the mode, propose m + x or m - x, where x >= 0 lies in blocks of width w and block j has
    # weight 2^-j. The ratio of P(m +- x) to P(m) is log-concave in x and 1 at x = 0, so if it is at most 1/2 at x = w,
    # it is at most 2^-j at x = j w and beyond. The acceptance probability ratio * 2^j is thus rational and at most 1.
    mode, width = numerator // denominator, _block_width(mean)
    while True:
        left, offset, block = bool(source.random_bits(1)), source.uniform_below(width), 0
        while source.random_bits(1):
            block += 1
        distance = block * width + offset
        if left and distance == 0:  # the mode is proposed from the right only, or it would have twice its weight
            continue
        ratio, ratio_denominator = _ratio_to_mode(numerator, denominator, mode, distance, left=left)
        if source.bernoulli(ratio << block, ratio_denominator):
            return mode - distance if left else mode + distance


def sample_skellam(variance: Fraction, source: RandomSource) -> int:
    """One draw of the Skellam law of variance v: the difference of two independent Poissons of mean v/2.

    It takes one Poisson draw and about v/8 random bytes.
    """
    # One Poisson of mean v whose points go to either side by a fair bit is two independent Poissons of mean v/2. With B
    # the number of ones among N random bits, their difference is N - 2B.
    points = sample_poisson(variance, source)
    return points - 2 * source.random_bits(points).bit_count()


def _sample_discrete_laplace(scale: int, source: RandomSource) -> int:
    """A draw with P(x) proportional to exp(-|x| / scale)."""
    # The magnitude is u + scale * q: u uniform, kept with probability exp(-u / scale), and q geometric with ratio 1/e.
    while True:
        remainder = source.uniform_below(scale)
        if not source.bernoulli_exp(remainder, scale):
            continue
        quotient = 0
        while source.bernoulli_exp(1, 1):
            quotient += 1
        magnitude, negative = remainder + scale * quotient, source.random_bits(1)
        if magnitude or not negative:  # reject -0, or 0 would have twice its weight
            return -magnitude if negative else magnitude


@lru_cache(maxsize=64)
def _block_width(mean: Fraction) -> int:
    """A width at which the ratios on both sides have fallen to 1/2: 1.2 standard deviations or a little more."""
    numerator, denominator = mean.as_integer_ratio()
    mode = numerator // denominator
    width = max(1, 6 * math.isqrt(mode) // 5)
    while any(
        2 * ratio > ratio_denominator
        for ratio, ratio_denominator in (
            _ratio_to_mode(numerator, denominator, mode, width, left=left) for left in (False, True)
        )
    ):
        width += 1 + width // 16
    return width


def _ratio_to_mode(numerator: int, denominator: int, mode: int, distance: int, *, left: bool) -> tuple[int, int]:
    """P(mode -+ distance) / P(mode) of the Poisson law of mean numerator / denominator, as numerator and denominator.

    Zero for negative values, for which `math.perm` is zero.
    """
    if left:
        return math.perm(mode, distance) * denominator**distance, numerator**distance
    return numerator**distance, denominator**distance * math.perm(mode + distance, distance)
