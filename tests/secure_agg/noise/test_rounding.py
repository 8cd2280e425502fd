import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.errors import ConfigurationError
from secure_agg.noise import conditional_round, l1_bound, rounded_norm_bound

KEY = bytes(range(32))


def vectors_on_the_sphere(rng, clients, coordinates, radius):
    drawn = rng.normal(size=(clients, coordinates))
    return drawn * (radius / np.linalg.norm(drawn, axis=1, keepdims=True))


@given(
    st.integers(1, 200), st.floats(0.05, 1e4), st.sampled_from([0.0, 0.1, math.exp(-0.5), 0.9]), st.integers(0, 2**32)
)
@settings(max_examples=50, deadline=None)
def test_no_rounded_vector_is_longer_than_the_bound(coordinates, radius, beta, seed):
    values = vectors_on_the_sphere(np.random.default_rng(seed), 20, coordinates, radius)
    rounded = conditional_round(values, radius, beta, KEY)
    longest = rounded_norm_bound(radius, coordinates, beta)
    assert rounded.dtype == np.int64
    assert (np.linalg.norm(rounded, axis=1) <= longest).all()
    assert (np.abs(rounded).sum(1) <= l1_bound(longest, coordinates) * (1 + 1e-12)).all()
    assert (np.abs(rounded - values) < 1 + 1e-9).all()


def test_the_worst_vector_exceeds_the_bound_at_times_and_is_then_drawn_again():
    """All coordinates at 1/2: the rounded norm is binomial, so a bound at its mean is exceeded half the time."""
    coordinates = 400
    values = np.full((500, coordinates), 0.5)
    radius = 0.5 * math.sqrt(coordinates)
    longest = rounded_norm_bound(radius, coordinates, 0.9)
    free = conditional_round(values, radius, 0.0, KEY)
    assert (np.linalg.norm(free, axis=1) > longest).any()
    redrawn = conditional_round(values, radius, 0.9, KEY)
    assert (np.linalg.norm(redrawn, axis=1) <= longest).all()
    assert redrawn.any(axis=1).all()
    kept = np.linalg.norm(free, axis=1) <= longest
    assert (redrawn[kept] == free[kept]).all()


def test_one_attempt_exceeds_the_bound_at_most_as_often_as_beta_says():
    coordinates, beta = 64, math.exp(-0.5)
    for value in (0.5, 0.3, 1.4):
        values = np.full((4000, coordinates), value)
        radius = value * math.sqrt(coordinates)
        free = conditional_round(values, radius, 0.0, KEY)
        assert (np.linalg.norm(free, axis=1) > rounded_norm_bound(radius, coordinates, beta)).mean() <= beta


def test_rounding_keeps_the_mean_and_both_neighbours_occur():
    values = np.tile(np.array([[0.25, -0.25, 3.9, -7.0, 0.0, 12.5]]), (40_000, 1))
    radius = float(np.linalg.norm(values[0]))
    rounded = conditional_round(values, radius, 0.0, KEY)
    np.testing.assert_allclose(rounded.mean(0), values[0], atol=6 * 0.5 / 200)
    assert sorted(np.unique(rounded[:, 0])) == [0, 1]
    assert sorted(np.unique(rounded[:, 1])) == [-1, 0]
    assert set(rounded[:, 3]) == {-7}
    assert set(rounded[:, 4]) == {0}
    fractions = np.array([0.25, 0.25, 0.9, 0.0, 0.0, 0.5])
    np.testing.assert_allclose(rounded.var(0), fractions * (1 - fractions), atol=0.02)


def test_without_tries_rounding_goes_towards_zero_and_respects_the_bound():
    values = vectors_on_the_sphere(np.random.default_rng(3), 30, 50, 40.0)
    rounded = conditional_round(values, 40.0, 0.5, KEY, max_attempts=0)
    assert (rounded == np.trunc(values)).all()
    assert (np.linalg.norm(rounded, axis=1) <= 40.0).all()


def test_float32_is_rounded_as_what_it_is():
    values = vectors_on_the_sphere(np.random.default_rng(3), 5, 50, 39.0).astype(np.float32)
    assert (conditional_round(values, 40.0, key=KEY) == conditional_round(values.astype(float), 40.0, key=KEY)).all()


def test_a_key_repeats_and_the_operating_system_does_not():
    values = vectors_on_the_sphere(np.random.default_rng(3), 5, 500, 40.0)
    assert (conditional_round(values, 40.0, key=KEY) == conditional_round(values, 40.0, key=KEY)).all()
    assert (conditional_round(values, 40.0) != conditional_round(values, 40.0)).any()
    assert conditional_round(np.empty((0, 5)), 1.0).shape == (0, 5)


def test_the_bound_is_the_smaller_of_the_two():
    assert rounded_norm_bound(3.0, 4, 0.0) == 5.0
    lean = math.sqrt(2 * math.log(2)) * (100.0 + math.sqrt(900) / 2)
    assert rounded_norm_bound(100.0, 900, 0.5) == pytest.approx(math.sqrt(100.0**2 + 225 + lean))
    assert rounded_norm_bound(0.1, 1, 0.01) == 1.1
    assert l1_bound(3.0, 100) == 9.0
    assert l1_bound(30.0, 100) == 300.0


@pytest.mark.parametrize(
    ("values", "radius", "beta", "named"),
    [
        (np.ones((2, 4)), 1.9, 0.5, "clip before rounding"),
        (np.full((2, 4), np.nan), 1.9, 0.5, "clip before rounding"),
        (np.full((2, 4), np.inf), 1.9, 0.5, "clip before rounding"),
        (np.ones(4), 2.0, 0.5, "axes"),
        (np.ones((2, 4)), 2.0, 0.95, "beta"),
        (np.ones((2, 4)), 2.0, -0.1, "beta"),
        (np.ones((2, 4)), 0.0, 0.5, "norm"),
        (np.ones((2, 4)), 2.0**26, 0.5, "norm"),
        (np.ones((2, 0)), 2.0, 0.5, "coordinates"),
    ],
)
def test_what_cannot_be_rounded_is_refused(values, radius, beta, named):
    with pytest.raises(ConfigurationError, match=named):
        conditional_round(values, radius, beta)
