import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from secure_agg.errors import ConfigurationError
from secure_agg.noise import Rotation, walsh_hadamard

SEED = bytes(range(32))


@pytest.mark.parametrize("order", range(12))
def test_the_transform_is_the_hadamard_matrix(order):
    size = 1 << order
    vectors = np.random.default_rng(order).normal(size=(3, size))
    np.testing.assert_allclose(walsh_hadamard(vectors), vectors @ hadamard(size) / np.sqrt(size), atol=1e-12)


@given(st.integers(1, 3000), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_rotation_keeps_norms_and_products_and_is_undone_by_its_inverse(dimension, seed):
    rotation = Rotation(SEED, dimension)
    vectors = np.random.default_rng(seed).normal(size=(2, dimension))
    rotated = rotation.forward(vectors)
    assert rotated.shape == (2, rotation.padded_dimension)
    np.testing.assert_allclose(rotated @ rotated.T, vectors @ vectors.T, rtol=1e-12, atol=1e-12 * dimension)
    np.testing.assert_allclose(rotation.inverse(rotated), vectors, atol=1e-12)


def test_a_large_vector_comes_back_to_1e_12():
    vectors = np.random.default_rng(0).normal(size=(2, 100_000))
    rotation = Rotation(SEED, 100_000)
    rotated = rotation.forward(vectors)
    assert rotation.padded_dimension == 131_072
    np.testing.assert_allclose(rotation.inverse(rotated), vectors, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(vectors, axis=1), rtol=1e-12)


def test_a_spike_is_spread_evenly_and_so_is_a_constant():
    spread = Rotation(SEED, 4096).forward(np.eye(1, 4096))
    np.testing.assert_allclose(np.abs(spread), 1 / 64, rtol=1e-12)
    constant = Rotation(SEED, 4096).forward(np.ones((1, 4096)))
    assert np.abs(constant).max() < 6


def test_the_seed_decides_and_one_vector_is_like_a_batch():
    vector = np.random.default_rng(0).normal(size=100)
    assert not np.allclose(Rotation(SEED, 100).forward(vector), Rotation(bytes(32), 100).forward(vector))
    np.testing.assert_array_equal(
        Rotation(SEED, 100).forward(vector), Rotation(SEED, 100).forward(vector[None].astype(np.float64))[0]
    )


def test_inputs_are_left_alone():
    vectors = np.ones((2, 64))
    Rotation(SEED, 64).forward(vectors)
    walsh_hadamard(vectors)
    assert (vectors == 1).all()


def test_what_cannot_be_rotated_is_refused():
    with pytest.raises(ConfigurationError, match="seed of 3 bytes"):
        Rotation(b"abc", 4)
    with pytest.raises(ConfigurationError, match="dimension"):
        Rotation(SEED, 0)
    with pytest.raises(ConfigurationError, match="this rotation takes 5"):
        Rotation(SEED, 5).forward(np.ones((2, 4)))
    with pytest.raises(ConfigurationError, match="rotated ones have 8"):
        Rotation(SEED, 5).inverse(np.ones((2, 5)))
    with pytest.raises(ConfigurationError, match="power of two"):
        walsh_hadamard(np.ones((2, 6)))
    with pytest.raises(ConfigurationError, match="power of two"):
        walsh_hadamard(np.ones((2, 0)))
