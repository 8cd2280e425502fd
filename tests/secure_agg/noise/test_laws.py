import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ive

from secure_agg.errors import ConfigurationError
from secure_agg.noise import pmf
from secure_agg.noise.laws import integer_weights
from secure_agg.noise.tail_bounds import chernoff_exponent, tail_bound

VARIANCES = (1e-6, 0.03, 0.5, 1.0, 7.3, 100.0, 2500.0, 1e6)


@pytest.mark.parametrize("variance", VARIANCES)
def test_skellam_probabilities_are_scaled_bessel_functions(variance):
    last = tail_bound("skellam", variance, math.log(1e-12))
    np.testing.assert_allclose(
        pmf("skellam", variance, last), ive(np.arange(last + 1), variance), rtol=1e-11, atol=1e-30
    )


@pytest.mark.parametrize("variance", VARIANCES)
def test_gaussian_probabilities_are_the_normalised_density(variance):
    last = tail_bound("discrete_gaussian", variance, math.log(1e-12))
    far = np.arange(-60 * last - 60, 60 * last + 61, dtype=float)
    total = np.exp(-(far**2) / (2 * variance)).sum()
    k = np.arange(last + 1)
    np.testing.assert_allclose(
        pmf("discrete_gaussian", variance, last), np.exp(-(k**2) / (2 * variance)) / total, rtol=1e-11
    )


def test_half_the_table_of_a_law_adds_up_to_one():
    for law in ("skellam", "discrete_gaussian"):
        half = pmf(law, 42.0, 200)
        assert half[0] + 2 * half[1:].sum() == pytest.approx(1.0, abs=1e-14)


def test_the_weights_are_right_far_below_float_precision():
    """The Skellam weights against an exact series: I_k(1) = sum over j of (1/2)^(2j+k) / (j! (j+k)!)."""
    weights = integer_weights("skellam", Fraction(1), 60, 400)
    series = [
        sum(Fraction(1, 2 ** (2 * j + k) * math.factorial(j) * math.factorial(j + k)) for j in range(80))
        for k in range(30)
    ]
    for k, bessel in enumerate(series):
        assert abs(Fraction(weights[k], weights[0]) - bessel / series[0]) < Fraction(1, 2**300)


def test_the_gaussian_weights_satisfy_their_functional_equation():
    """w(k)^4 w(0)^-3 = w(2k), which no rounding error respects."""
    weights = integer_weights("discrete_gaussian", Fraction(50), 60, 400)
    one = weights[0]
    for k in range(1, 31):
        assert abs(Fraction(weights[k], one) ** 4 - Fraction(weights[2 * k], one)) < Fraction(1, 2**370)


def test_variance_of_the_discrete_gaussian_lies_below_its_parameter_as_documented():
    for variance in (0.4, 0.7, 1.0):
        half = pmf("discrete_gaussian", variance, 60)
        actual = 2 * (half * np.arange(61) ** 2).sum()
        missing = 8 * math.pi**2 * variance**2 * math.exp(-2 * math.pi**2 * variance)
        assert variance - actual == pytest.approx(missing, rel=0.01)


@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
@pytest.mark.parametrize("variance", [0.02, 0.5, 3.0, 200.0])
def test_tail_bound_lies_above_the_tail_and_not_absurdly_far(law, variance):
    half = pmf(law, variance, 400)
    beyond = 2 * np.cumsum(half[::-1])[::-1]
    for distance in range(1, 400):
        if beyond[distance] < 1e-25:
            break
        bound = 2 * math.exp(-chernoff_exponent(law, variance, distance))
        assert beyond[distance] <= bound
        assert bound < 60 * beyond[distance]


@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
@pytest.mark.parametrize("variance", [1e-9, 0.3, 50.0, 1e9])
@pytest.mark.parametrize("log_failure", [-0.3, -14.0, -100.0, -3000.0])
def test_tail_bound_is_the_smallest_distance_that_meets_the_bound(law, variance, log_failure):
    t = tail_bound(law, variance, log_failure)
    assert math.log(2) - chernoff_exponent(law, variance, t) <= log_failure
    assert t == 1 or math.log(2) - chernoff_exponent(law, variance, t - 1) > log_failure * (1 + 1e-6)


@pytest.mark.parametrize(
    ("law", "variance", "named"),
    [("laplace", 1.0, "law"), ("skellam", 0.0, "variance"), ("skellam", math.nan, "variance")],
)
def test_what_is_no_law_is_refused(law, variance, named):
    with pytest.raises(ConfigurationError, match=named):
        pmf(law, variance, 3)
