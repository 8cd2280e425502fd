import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.closed_forms import gaussian_epsilon
from secure_agg.encoding import Ring, check_overflow_bound
from secure_agg.errors import ConfigurationError, RingOverflowError
from secure_agg.noise import DistributedMechanism, DistributedNoise, fit_to_ring, rounded_norm_bound
from secure_agg.noise.tables import MAX_STANDARD_DEVIATION

KEY = bytes(range(32))
SEED = bytes(range(32, 64))


def clipped(rng, clients, dimension, clip):
    drawn = rng.normal(size=(clients, dimension))
    return drawn * (clip / np.linalg.norm(drawn, axis=1, keepdims=True))


def mechanism(**changes):
    arguments = {"min_honest": 20, "dimension": 300, "clip": 2.0, "grid": 1e-3} | changes
    return DistributedMechanism.from_noise_multiplier(arguments.pop("noise_multiplier", 0.5), **arguments)


@pytest.mark.parametrize("seed", [None, SEED])
@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
def test_the_sum_through_the_ring_is_the_true_sum_plus_the_stated_noise(law, seed):
    clients = 25
    one = mechanism(law=law, rotation_seed=seed, dimension=3000)
    vectors = clipped(np.random.default_rng(0), clients, 3000, 2.0)
    ring = Ring(32)
    check_overflow_bound(ring, clients=clients, bound=one.coordinate_bound(), noise_bound=one.noise_bound(clients))
    encoded = one.encode(vectors, KEY)
    assert encoded.shape == (clients, one.coordinates)
    assert encoded.dtype == np.int64
    total = ring.centred(ring.sum(ring.from_integers(row) for row in encoded))
    np.testing.assert_array_equal(total, encoded.sum(0))
    error = one.decode(total) - vectors.sum(0)
    wanted = 0.5 * 2.0 * math.sqrt(one.noise.variance_ratio(clients))
    assert error.std() == pytest.approx(wanted, rel=6 / math.sqrt(2 * 3000))
    assert abs(error.mean()) < 6 * wanted / math.sqrt(3000)


@pytest.mark.parametrize("seed", [None, SEED])
def test_with_hardly_any_noise_the_sum_is_exact_to_rounding(seed):
    one = mechanism(noise_multiplier=1e-6, rotation_seed=seed, grid=1e-5)
    vectors = clipped(np.random.default_rng(0), 10, 300, 2.0)
    back = one.decode(one.encode(vectors, KEY).sum(0))
    assert np.linalg.norm(back - vectors.sum(0)) < 10 * 1e-5 * math.sqrt(one.coordinates)
    np.testing.assert_allclose(back, vectors.sum(0), atol=10 * 1e-5 * 6)


def test_the_noise_of_each_client_is_its_share():
    one = mechanism(dimension=20_000, noise_multiplier=2.0)
    encoded = one.encode(np.zeros((3, 20_000)), KEY)
    share = (2.0 * 2.0 / 1e-3) ** 2 / 20
    np.testing.assert_allclose(encoded.var(axis=1), share, rtol=6 * math.sqrt(2 / 20_000))
    assert abs(np.corrcoef(encoded)[0, 1]) < 6 / math.sqrt(20_000)


@given(st.booleans(), st.integers(1, 200), st.floats(1e-3, 1.0), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_rounded_client_stays_within_the_sensitivity_and_the_coordinate_bound(rotated, dimension, grid, seed):
    """With noise of variance 1e-12 per client, what is encoded is the rounded vector."""
    noise = DistributedNoise("skellam", 1e-12, 1)
    one = DistributedMechanism(dimension, 1.0, grid, noise, rotation_seed=SEED if rotated else None)
    vectors = clipped(np.random.default_rng(seed), 5, dimension, 1.0)
    vectors[0] = np.eye(1, dimension)
    encoded = one.encode(vectors, KEY)
    event = one.event()
    assert (np.linalg.norm(encoded, axis=1) <= event.l2).all()
    assert (np.abs(encoded).sum(1) <= event.l1 * (1 + 1e-12)).all()
    assert np.abs(encoded).max() <= one.coordinate_bound()
    assert np.abs(encoded.sum(0)).max() <= 5 * one.coordinate_bound()


def test_rotation_makes_coordinates_small_even_for_aligned_spikes():
    one = mechanism(dimension=4096, rotation_seed=SEED)
    plain = mechanism(dimension=4096)
    spikes = np.zeros((50, 4096))
    spikes[:, 7] = 2.0
    assert plain.coordinate_bound() == 2000
    assert one.coordinate_bound() < 300
    reached = np.abs(one.encode(spikes, KEY).sum(0)).max()
    assert reached <= 50 * one.coordinate_bound() + one.noise_bound(50)
    assert one.coordinate_bound(0.5) < one.coordinate_bound()


def test_the_event_states_what_the_claim_stands_on():
    one = mechanism(law="discrete_gaussian", rotation_seed=SEED, beta=0.3)
    event = one.event()
    assert (event.law, event.min_honest, event.coordinates, event.beta) == ("discrete_gaussian", 20, 512, 0.3)
    assert event.total_variance == pytest.approx((0.5 * 2000) ** 2)
    assert event.l2 == rounded_norm_bound(2000.0, 512, 0.3)
    assert event.l1 == pytest.approx(event.l2 * math.sqrt(512))
    assert event.distance == 0.0


def test_a_float32_clip_is_accepted_and_scaled_back_onto_the_clip():
    vectors = clipped(np.random.default_rng(0), 4, 300, 2.0) * (1 + 5e-7)
    assert mechanism().encode(vectors.astype(np.float32), KEY).shape == (4, 300)
    with pytest.raises(ConfigurationError, match="clip every vector first"):
        mechanism().encode(vectors * (1 + 1e-6), KEY)


def test_keys_repeat_and_blocks_do_not_repeat_each_other(monkeypatch):
    one = mechanism()
    zeros = np.zeros((6, 300))
    assert (one.encode(zeros, KEY) == one.encode(zeros, KEY)).all()
    assert (one.encode(zeros) != one.encode(zeros)).any()
    monkeypatch.setattr("secure_agg.noise.mechanism._BLOCK", 600)
    blocks = one.encode(zeros, KEY)
    assert len(np.unique(blocks, axis=0)) == 6
    assert one.encode(zeros, KEY, exact=True).shape == (6, 300)
    assert one.encode(np.zeros((0, 300))).shape == (0, 300)


@pytest.mark.parametrize(
    ("vectors", "named"),
    [
        (np.ones(300), "shape"),
        (np.ones((2, 299)), "shape"),
        (np.ones((2, 300)), "clip every vector first"),
        (np.full((2, 300), np.nan), "clip every vector first"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(vectors, named):
    with pytest.raises(ConfigurationError, match=named):
        mechanism().encode(vectors)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dimension": 0}, "dimension"),
        ({"clip": 0.0}, "clip"),
        ({"clip": math.inf}, "clip"),
        ({"grid": -1.0}, "grid"),
        ({"grid": 1e-9}, "norm"),
        ({"beta": 2.0}, "beta"),
        ({"rotation_seed": b"short"}, "seed"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"min_honest": 0}, "min_honest"),
        ({"law": "normal"}, "law"),
    ],
)
def test_a_mechanism_that_cannot_work_is_refused(changes, named):
    with pytest.raises(ConfigurationError, match=named):
        mechanism(**changes)


def test_decoding_and_bounding_refuse_what_they_cannot_do():
    with pytest.raises(ConfigurationError, match="length 299"):
        mechanism().decode(np.zeros(299, np.int64))
    with pytest.raises(ConfigurationError, match="failure"):
        mechanism().coordinate_bound(0.0)


@pytest.mark.parametrize("seed", [None, SEED])
@pytest.mark.parametrize("bits", [16, 32])
def test_the_fitted_grid_fits_and_a_finer_one_does_not(bits, seed):
    ring, clients = Ring(bits), 50
    one = fit_to_ring(ring, 1.0, clients=clients, min_honest=40, dimension=5000, clip=3.0, rotation_seed=seed)
    check_overflow_bound(ring, clients=clients, bound=one.coordinate_bound(), noise_bound=one.noise_bound(clients))
    assert one.noise.client_variance <= MAX_STANDARD_DEVIATION**2
    finer = mechanism(
        noise_multiplier=1.0, min_honest=40, dimension=5000, clip=3.0, grid=one.grid * 0.99, rotation_seed=seed
    )
    if one.noise.client_variance < 0.99 * MAX_STANDARD_DEVIATION**2:
        with pytest.raises(RingOverflowError):
            check_overflow_bound(
                ring, clients=clients, bound=finer.coordinate_bound(), noise_bound=finer.noise_bound(clients)
            )
    else:
        assert bits == 32
        assert finer.noise.client_variance > MAX_STANDARD_DEVIATION**2


@pytest.mark.parametrize(("noise_multiplier", "honest", "sums"), [(0.5, 50, 1), (1.0, 100, 1), (5.0, 800, 50)])
@pytest.mark.parametrize("dimension", [1, 5000, 300_000])
def test_the_fitted_grid_costs_a_thousandth_of_epsilon_at_most(noise_multiplier, honest, sums, dimension):
    """Steps few in the noise make Skellam noise less Gaussian, and that costs more than rounding does."""
    fitted = fit_to_ring(
        Ring(32), noise_multiplier, clients=honest + 10, min_honest=honest, dimension=dimension, clip=1.0
    )
    gaussian = gaussian_epsilon(math.sqrt(sums) / noise_multiplier, 1e-5)
    assert gaussian <= fitted.event().epsilon(1e-5, sums) <= 1.001 * gaussian


def test_a_ring_too_small_for_any_grid_is_refused():
    with pytest.raises(RingOverflowError, match="take a wider ring"):
        fit_to_ring(Ring(16), 1.0, clients=20_000, min_honest=10_000, dimension=50, clip=1.0)
