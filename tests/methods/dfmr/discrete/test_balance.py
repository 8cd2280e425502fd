import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.dfmr.discrete import balanced_rows, inverse_root


def balanced(codes):
    wide = codes.astype(np.float64)
    mean = wide.mean(0)
    return balanced_rows(codes, mean, inverse_root(mean, wide.T @ wide), len(codes))


def random_codes(seed, rows, d):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), (rows, d))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6))
def test_the_best_of_all_centred_uncorrelated_tables(seed, d):
    codes, rng = random_codes(seed, 40, d), np.random.default_rng(seed)
    y = balanced(codes)
    assert y.sum(0) == pytest.approx(np.zeros(d), abs=1e-9)
    assert y.T @ y == pytest.approx(40 * np.eye(d), abs=1e-7)
    for _ in range(20):
        other = np.linalg.qr(np.c_[np.ones(40), rng.standard_normal((40, d))])[0][:, 1:] * np.sqrt(40)
        assert (codes * other).sum() <= (codes * y).sum() + 1e-9
    q, _, p = np.linalg.svd(codes - codes.mean(0), full_matrices=False)
    assert y == pytest.approx(np.sqrt(40) * q @ p, abs=1e-7)


def test_null_directions_are_zero_and_cost_nothing():
    codes = random_codes(1, 40, 5)
    codes[:, 4] = codes[:, 3]
    codes[:, 2] = 1
    y = balanced(codes)
    # The trace equals the sum of singular values: the most that any feasible table reaches (von Neumann).
    singular = np.linalg.svd(codes - codes.mean(0), compute_uv=False)
    assert (codes * y).sum() == pytest.approx(np.sqrt(40) * singular.sum())
    assert y[:, 2] == pytest.approx(np.zeros(40), abs=1e-9)
    assert np.linalg.matrix_rank(y, tol=1e-6) == 3


def test_rows_one_by_one_are_the_rows_of_the_table():
    codes = random_codes(2, 30, 4)
    wide = codes.astype(np.float64)
    root = inverse_root(wide.mean(0), wide.T @ wide)
    rows = [balanced_rows(codes[[i]], wide.mean(0), root, 30) for i in range(30)]
    assert np.concatenate(rows) == pytest.approx(balanced(codes))
