import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.errors import ConfigurationError
from secure_agg.noise import NoiseEvent
from secure_agg.noise.rdp import ORDERS, discrete_gaussian_sum_rdp, epsilon_from_rdp, skellam_rdp

EVENT = NoiseEvent(
    law="skellam",
    total_variance=10_000.0,
    min_honest=20,
    coordinates=64,
    l2=100.0,
    l1=800.0,
    beta=0.5,
    distance=0.0,
)


def test_the_curve_is_the_law_s_at_the_total_variance():
    gaussian = replace(EVENT, law="discrete_gaussian")
    np.testing.assert_array_equal(EVENT.rdp(), skellam_rdp(ORDERS, 10_000.0, 100.0, 800.0))
    np.testing.assert_array_equal(gaussian.rdp([2.5]), discrete_gaussian_sum_rdp([2.5], 10_000.0, 20, 64, 100.0, 800.0))
    assert EVENT.client_variance == 500.0


def test_epsilon_composes_the_curve():
    assert EVENT.epsilon(1e-5, 7) == epsilon_from_rdp(ORDERS, 7 * EVENT.rdp(), 1e-5)
    assert EVENT.epsilon(1e-5) < EVENT.epsilon(1e-5, 2) < 2 * EVENT.epsilon(1e-5)


def test_without_noise_or_honest_clients_nothing_is_guaranteed():
    for event in (replace(EVENT, total_variance=0.0), replace(EVENT, min_honest=0)):
        assert event.epsilon(1e-5) == math.inf
        assert np.isinf(event.rdp()).all()
        assert replace(event, distance=2.0**-100).epsilon(1e-5) == math.inf
    narrow = replace(EVENT, law="discrete_gaussian", total_variance=4.0, min_honest=20)
    assert narrow.epsilon(1e-5) == math.inf


def test_a_tiny_distance_costs_next_to_nothing_and_a_large_one_everything():
    exact = EVENT.epsilon(1e-6, 10)
    assert exact < replace(EVENT, distance=2.0**-100).epsilon(1e-6, 10) < exact * (1 + 1e-8)
    assert replace(EVENT, distance=1e-9).epsilon(1e-6) == math.inf


@given(st.floats(1e-30, 1e-6), st.floats(1e-9, 0.5), st.integers(1, 1000))
@settings(max_examples=50, deadline=None)
def test_the_distance_is_paid_in_full_from_delta(distance, delta, compositions):
    """The claim after the payment: at epsilon, the law's own delta plus (1 + e^epsilon) t stays within delta."""
    event = replace(EVENT, total_variance=1e6, distance=distance)
    epsilon = event.epsilon(delta, compositions)
    if math.isinf(epsilon):
        return
    paid = (1 + math.exp(epsilon)) * compositions * 20 * 64 * distance
    assert paid < delta
    assert epsilon_from_rdp(ORDERS, compositions * event.rdp(), delta - paid) <= epsilon + 1e-9


@given(st.sampled_from(["skellam", "discrete_gaussian"]), st.floats(100.0, 1e6))
@settings(max_examples=50, deadline=None)
def test_more_noise_never_costs_more(law, variance):
    less, more = (replace(EVENT, law=law, total_variance=variance * f) for f in (1.0, 1.5))
    assert (more.rdp() <= less.rdp()).all()
    assert more.epsilon(1e-5) <= less.epsilon(1e-5)


def test_the_record_is_plain_values_and_comes_back():
    assert NoiseEvent(**asdict(EVENT)) == EVENT
    assert all(isinstance(value, str | int | float) for value in asdict(EVENT).values())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"law": "laplace"}, "law"),
        ({"total_variance": -1.0}, "total_variance"),
        ({"total_variance": math.nan}, "total_variance"),
        ({"min_honest": -1}, "min_honest"),
        ({"coordinates": 0}, "coordinates"),
        ({"l2": math.inf}, "l2"),
        ({"l1": -1.0}, "l1"),
        ({"beta": -0.1}, "beta"),
        ({"distance": math.nan}, "distance"),
    ],
)
def test_a_record_of_the_impossible_is_refused(change, named):
    with pytest.raises(ConfigurationError, match=named):
        replace(EVENT, **change)


@pytest.mark.parametrize("arguments", [(0.0,), (1.0,), (math.nan,), (1e-5, 0), (1e-5, 1.5)])
def test_impossible_questions_are_refused(arguments):
    with pytest.raises(ConfigurationError):
        EVENT.epsilon(*arguments)
