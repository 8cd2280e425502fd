"""Machine code finds the draws that numpy finds, and leaves the same ones undecided."""

from fractions import Fraction

import numpy as np
import pytest

from privfed.guards.noise_look_up import look_up
from secure_agg.noise import DistributedNoise, InverseCdfTable, look_up_with, numpy_look_up


@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
@pytest.mark.parametrize("variance", [Fraction(1, 5), 3, 90_000])
def test_every_word_is_looked_up_as_by_numpy(law, variance):
    table = InverseCdfTable(law, variance)
    words = np.random.default_rng(0).integers(0, 2**64, 20_000, dtype=np.uint64)
    # Around every threshold, also across the ends of the range.
    near = (table._edges[:, None] + np.array([-2, -1, 0, 1, 2]).astype(np.uint64)).ravel()
    words = np.concatenate([words, near, np.array([0, 1, 2**64 - 2, 2**64 - 1], np.uint64)])
    found, wanted = np.empty((2, len(words)), np.int64)
    arrays = table._edges, table._guide, table._shift, table._lowest - 1
    undecided = look_up(words, *arrays, found)
    assert undecided.tolist() == numpy_look_up(words, *arrays, wanted).tolist()
    assert len(undecided) >= 3 * len(table._edges) - 4
    decided = np.delete(np.arange(len(words)), undecided)
    assert np.array_equal(found[decided], wanted[decided])


def test_noise_is_the_same_whoever_looks_it_up():
    noise = DistributedNoise("skellam", 1e6, 800)
    try:
        look_up_with(look_up)
        found = noise.sample((3, 50_000), bytes(32))
    finally:
        look_up_with(numpy_look_up)
    assert np.array_equal(found, noise.sample((3, 50_000), bytes(32)))
