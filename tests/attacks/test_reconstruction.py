"""Bounds from secrets: by hand, against randomised response and a full disclosure, and how often they are too high."""

import math

import numpy as np
import pytest

from attacks.empirical import secrets_epsilon

FLIP = 1 / (1 + math.e)
"""One bit of randomised response at epsilon 1 lies as often."""


def test_secrets_that_are_always_read_bound_epsilon_by_their_bits():
    bound = secrets_epsilon(1000, 1000, bits=256)
    assert bound.epsilon == pytest.approx(256 * math.log(2) + math.log(0.05 ** (1 / 1000)))
    assert bound.rejects(170)


def test_wrong_bits_that_are_allowed_cost_the_secrets_around_one():
    allowed = secrets_epsilon(50, 50, bits=10, errors=1).epsilon
    assert secrets_epsilon(50, 50, bits=10).epsilon - allowed == pytest.approx(math.log(1 + 10))
    assert secrets_epsilon(50, 50, bits=10, errors=10).epsilon == 0


@pytest.mark.parametrize(("right", "delta"), [(0, 0.0), (1, 0.1), (3, 0.5)])
def test_what_chance_or_delta_explains_is_no_finding(right, delta):
    assert secrets_epsilon(right, 50, bits=3, delta=delta).epsilon == 0


def test_delta_is_taken_off_what_was_right():
    with_delta = secrets_epsilon(50, 50, bits=20, delta=0.2).epsilon
    least = 0.05 ** (1 / 50)
    assert with_delta == pytest.approx(20 * math.log(2) + math.log(least - 0.2))


@pytest.mark.parametrize("bits", [1, 4])
def test_500_runs_of_randomised_response_are_seldom_bounded_too_high(bits):
    """Of a secret of n bits, each answered at epsilon 1, a guess is (2 - 2 flip)^n times as often right as blind."""
    rng = np.random.default_rng(0)
    right = (rng.random((500, 400, bits)) > FLIP).all(2).sum(1)
    bounds = np.array([secrets_epsilon(int(one), 400, bits=bits).epsilon for one in right])
    assert (bounds > bits * math.log(2 * (1 - FLIP))).mean() <= 0.07
    assert np.median(bounds) > 0.6 * bits * math.log(2 * (1 - FLIP))


@pytest.mark.parametrize(
    "bad", [{"right": 6}, {"right": -1}, {"bits": 0}, {"errors": 9}, {"trials": 0, "right": 0}, {"errors": -1}]
)
def test_counts_that_do_not_fit_are_refused(bad):
    given = {"right": 3, "trials": 5, "bits": 8} | bad
    with pytest.raises(ValueError, match="at least one trial"):
        secrets_epsilon(given.pop("right"), given.pop("trials"), **given)
