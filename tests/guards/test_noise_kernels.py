"""Machine code finds the draws that numpy finds, and leaves the same ones undecided."""

from fractions import Fraction

import numpy as np
import pytest

from privfed.guards.noise_kernels import COMPILED, look_up, round_up
from secure_agg.errors import ConfigurationError
from secure_agg.noise import NUMPY, DistributedMechanism, DistributedNoise, InverseCdfTable, compute_with
from secure_agg.noise.kernels import in_use


@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
@pytest.mark.parametrize("variance", [Fraction(1, 5), 3, 90_000, 10**8])
def test_every_word_is_looked_up_as_by_numpy(law, variance):
    table = InverseCdfTable(law, variance)
    words = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
    # Around every threshold, also across the ends of the range.
    near = (table._edges[:, None] + np.array([-2, -1, 0, 1, 2]).astype(np.uint64)).ravel()
    words = np.concatenate([words, near, np.array([0, 1, 2**64 - 2, 2**64 - 1], np.uint64)])
    found, wanted = np.full((2, len(words)), 7)
    arrays = table._edges, table._guide, table._lowest - 1
    undecided = look_up(words, *arrays, found)
    assert undecided.tolist() == NUMPY.look_up(words, *arrays, wanted).tolist()
    assert len(undecided) >= 3 * len(table._edges) - 4
    assert np.array_equal(found, wanted)
    assert (found[undecided] == 7).all()


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_every_number_is_rounded_as_by_numpy(rows):
    rng = np.random.default_rng(0)
    values = rng.normal(0, 50, (rows, 20_003))
    values[:, ::7] = np.round(values[:, ::7])  # integers stay
    values[:, 1::7] = np.round(values[:, 1::7]) + rng.choice([2.0**-33, 2.0**-32, -(2.0**-33)], values[:, 1::7].shape)
    values[:, 2::7] *= 2.0**9
    uints = rng.integers(0, 2**32, values.size, dtype=np.uint32)
    uints[: values.size // 3] = rng.choice(np.array([0, 1, 2**32 - 1], np.uint32), values.size // 3)
    rounded, wanted = np.empty((2, *values.shape), np.int64)
    norms, expected = round_up(values, uints, rounded), NUMPY.round_up(values, uints, wanted)
    assert np.array_equal(rounded, wanted)
    assert norms.tolist() == expected.tolist() == np.square(wanted).sum(1).tolist()
    lower = np.floor(values)
    assert ((rounded == lower) | (rounded == lower + 1)).all()


def test_an_encoding_is_the_same_whichever_loops_compute_it():
    noise = DistributedNoise("skellam", 1e6, 800)
    mechanism = DistributedMechanism(10_000, 1.0, 1 / 40, noise)
    vectors = np.random.default_rng(0).normal(size=(30, 10_000))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    try:
        compute_with(COMPILED)
        found, encoded = noise.sample((3, 50_000), bytes(32)), mechanism.encode(vectors, bytes(32))
    finally:
        compute_with(NUMPY)
    assert np.array_equal(found, noise.sample((3, 50_000), bytes(32)))
    assert np.array_equal(encoded, mechanism.encode(vectors, bytes(32)))


def _one_too_low(uints, edges, guide, first, values):
    return NUMPY.look_up(uints, edges, guide, first - 1, values)


def _decides_all(uints, edges, guide, first, values):
    undecided = NUMPY.look_up(uints, edges, guide, first, values)
    values[undecided] += first + np.searchsorted(edges, uints[undecided])
    return undecided[:0]


def _ignores_fractions(values, uints, rounded):
    return NUMPY.round_up(np.round(values), uints, rounded)


def _smaller_norms(values, uints, rounded):
    return NUMPY.round_up(values, uints, rounded) - 1


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"look_up": _one_too_low}, "draws"),
        ({"look_up": _decides_all}, "undecided words"),
        ({"round_up": _ignores_fractions}, "norms"),
        ({"round_up": _smaller_norms}, "norms"),
    ],
)
def test_loops_that_differ_are_refused(wrong, found):
    before = in_use()
    with pytest.raises(ConfigurationError, match=f"find other {found} than numpy's"):
        compute_with(NUMPY._replace(**wrong))
    assert in_use() is before
