"""The two integer-valued laws, Skellam and discrete Gaussian, computed in integer arithmetic.

Both are symmetric around 0. With variance parameter v,

    skellam            P(X = k) = exp(-v) I_k(v)                 difference of two independent Poissons of mean v/2
    discrete_gaussian  P(X = k) proportional to exp(-k^2 / (2v))

with I_k the modified Bessel function of the first kind. The variance of a Skellam variable is v exactly; that of a
discrete Gaussian is below v by about 8 pi^2 v^2 exp(-2 pi^2 v), which is nothing from v = 2 upwards.

Sources: Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated Learning" (2110.04995);
Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2004.00010). The recurrence of the Bessel
functions is DLMF 10.29.1, run downwards as J. C. P. Miller did.
"""

import math
from decimal import Context
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_positive
from secure_agg.errors import ConfigurationError
from secure_agg.noise.tail_bounds import tail_bound

Law = Literal["skellam", "discrete_gaussian"]
"""Names of the laws."""


def check_law(law: str) -> None:
    """Refuse anything but the name of a law.

    Raises:
        ConfigurationError: `law` names none.
    """
    if law not in get_args(Law):
        raise ConfigurationError(f"law is {law!r}; give 'skellam' or 'discrete_gaussian'")


def integer_weights(law: Law, variance: Fraction, last: int, bits: int) -> list[int]:
    """Integers proportional to P(X = 0), ..., P(X = last).

    With s their common scale, the sum over k in [-last, last] of |weight_k / s - P(X = k)| is at most

        (2 last + 1) P(|X| > last) + 2^(95 - bits)    for last up to 2^30 and v up to 2^50.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter v, positive.
        last: largest value.
        bits: precision.

    Returns:
        last + 1 integers.
    """
    return (
        _gaussian_weights(variance, last, bits)
        if law == "discrete_gaussian"
        else _skellam_weights(variance, last, bits)
    )


def pmf(law: Law, variance: float | Fraction, last: int) -> NDArray[np.float64]:
    """P(X = 0), ..., P(X = last) in float64, with an absolute error below 2^-100 besides the rounding to float64.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter v, positive.
        last: largest value of interest, up to 2^18.

    Returns:
        [last + 1].

    Raises:
        ConfigurationError: an unknown law, or a variance that is not positive and finite.
    """
    check_law(law)
    exact_variance = check_positive("variance", variance)
    negligible_from = tail_bound(law, float(exact_variance), -140 * math.log(2.0))
    weights = integer_weights(law, exact_variance, max(last, negligible_from), bits=256)
    total = 2 * sum(weights) - weights[0]
    return np.array([weight / total for weight in weights[: last + 1]])


def _gaussian_weights(variance: Fraction, last: int, bits: int) -> list[int]:
    # exp(-k^2 / (2v)) is the product of the ratios q^(2j+1), j < k, with q = exp(-1/(2v)). In fixed point with unit
    # u = 2^-bits, q errs by at most 2u (the exponential of `decimal` is correctly rounded); the k-th ratio errs by
    # 7(k+1)u, since a product of two numbers in [0, 1] adds the errors of both and one u; the product of the ratios
    # errs by 4(k+1)^2 u. The scale is at least 1.
    decimals = Context(prec=bits // 3 + 20)
    exponent = decimals.divide(decimals.create_decimal(-variance.denominator), 2 * variance.numerator)
    ratio = int(decimals.multiply(decimals.exp(exponent), 1 << bits))
    squared = ratio * ratio >> bits
    weights = [1 << bits]
    for _ in range(last):
        weights.append(weights[-1] * ratio >> bits)
        ratio = ratio * squared >> bits
    return weights


def _skellam_weights(variance: Fraction, last: int, bits: int) -> list[int]:
    # Downward recurrence I_(k-1) = I_(k+1) + (2k/v) I_k, from 0 at last + 1 and 2^bits at `last`. All terms are
    # positive, so the rounding of each step, at most 2^(49 - bits) of its value, only adds up. Starting from 0 mixes in
    # the other solution, (-1)^k K_k: relative to I_k it is (I_(last+1) / I_k) (K_k / K_(last+1)), and K_k grows with k,
    # so in absolute terms it is at most P(X = last + 1).
    next_weight, weight = 0, 1 << bits
    weights = [weight]
    for k in range(last, 0, -1):
        next_weight, weight = weight, next_weight + 2 * k * weight * variance.denominator // variance.numerator
        weights.append(weight)
    return weights[::-1]
