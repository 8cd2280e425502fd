"""Recovery of user codes against codes flipped on purpose."""

import numpy as np
import pytest

from attacks import ViewError
from attacks.supports import code_recovery


def codes(rng, users, bits, plus=0.5):
    return np.where(rng.random((users, bits)) < plus, 1, -1).astype(np.int8)


def test_known_flips_are_counted():
    truth = codes(np.random.default_rng(0), 4, 10)
    guess = truth.copy()
    guess[1, :1] *= -1
    guess[2, :2] *= -1
    guess[3] *= -1
    found = code_recovery(guess, truth)
    assert found.bits.value == pytest.approx((1 + 0.9 + 0.8 + 0) / 4)
    assert found.users.value == 0.5
    assert code_recovery(guess, truth, threshold=0.8).users.value == 0.75
    assert (found.n_users, found.n_bits, found.chance) == (4, 10, 0.5)
    assert found.bits.lo < found.bits.value < found.bits.hi


def test_a_guess_from_nothing_gains_nothing():
    rng = np.random.default_rng(1)
    truth = codes(rng, 500, 32)
    found = code_recovery(codes(rng, 500, 32), truth)
    assert found.bits.value == pytest.approx(0.5, abs=0.01)
    assert found.users.value == 0
    assert 0.5 < found.majority.value < 0.55


def test_the_majority_of_lopsided_bits_is_the_floor():
    rng = np.random.default_rng(2)
    truth = codes(rng, 500, 32, plus=np.where(np.arange(32) % 2, 0.9, 0.1))
    lazy = np.tile(np.where(np.arange(32) % 2, 1, -1).astype(np.int8), (500, 1))
    found = code_recovery(lazy, truth)
    assert found.bits == found.majority
    assert found.majority.value == pytest.approx(0.9, abs=0.01)
    assert found.gain.value == found.gain.lo == found.gain.hi == 0
    better = code_recovery(np.where(rng.random(truth.shape) < 0.05, -truth, truth).astype(np.int8), truth)
    assert better.gain.lo > 0.03


def test_bad_codes_get_one_sentence():
    truth = codes(np.random.default_rng(3), 3, 8)
    with pytest.raises(ViewError, match="of the same users"):
        code_recovery(truth[:2], truth)
    with pytest.raises(ViewError, match="unpack bits"):
        code_recovery((truth > 0).astype(np.int8), truth)
    with pytest.raises(ValueError, match=r"threshold is 0\.0"):
        code_recovery(truth, truth, threshold=0.0)
