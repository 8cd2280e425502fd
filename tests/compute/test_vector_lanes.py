"""Numbers that compiled functions compute together are those that numpy computes one by one."""

import numpy as np
import pytest

from privfed.compute.compiled import compiled
from privfed.compute.vector_lanes import LANES, exp, filled, load, spread, store, total

DTYPES = [np.float32, np.float64]


@compiled(borrow=True)
def calculate(x, y, out):
    for row in range(len(x)):
        a, b = load(x, (row, 3)), load(y, (row, 0))
        store(out[row], (0, 0), a + b * a)
        store(out[row], (1, 0), (a - b) / spread(y, (row, 5)) + filled(y.dtype.type(0.1)))
        store(out[row], (2, 0), exp(a))
        out[row, 3, 0] = total(a)


@pytest.fixture(params=DTYPES)
def arrays(request):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 5, 3 + LANES)).astype(request.param)
    return x, y, np.zeros((5, 4, LANES), request.param)


def test_arithmetic_is_rounded_after_every_operation(arrays):
    x, y, out = arrays
    calculate(x, y, out)
    a, b = x[:, 3:], y[:, :LANES]
    np.testing.assert_array_equal(out[:, 0], a + b * a)
    np.testing.assert_array_equal(out[:, 1], (a - b) / y[:, 5:6] + y.dtype.type(0.1))


def test_a_total_adds_lanes_pairwise_in_a_fixed_order(arrays):
    x, y, out = arrays
    calculate(x, y, out)
    left = x[:, 3:]
    while left.shape[1] > 1:
        half = left.shape[1] // 2
        left = left[:, :half] + left[:, half:]
    np.testing.assert_array_equal(out[:, 3, 0], left[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_are_exact_to_two_units(dtype):
    most, least = (88, -87) if dtype == np.float32 else (709, -708)
    inner = np.random.default_rng(4).uniform(least, most, (400, LANES))
    x = np.concatenate([inner, inner / 100, np.linspace(-1, 1, LANES)[None]]).astype(dtype)
    out = np.zeros((len(x), 4, LANES), dtype)
    calculate(np.concatenate([np.zeros((len(x), 3), dtype), x], 1), np.ones((len(x), LANES), dtype), out)
    exact = np.exp(x.astype(np.longdouble))
    assert (np.abs(out[:, 2] - exact) / np.spacing(exact.astype(dtype))).max() < 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_beyond_the_range_stay_at_its_ends_and_nan_stays_nan(dtype):
    x = np.zeros((1, 3 + LANES), dtype)
    x[0, 3:7] = np.inf, -np.inf, np.nan, 1e30
    out = np.zeros((1, 4, LANES), dtype)
    calculate(x, np.ones_like(x), out)
    ends = np.exp(np.array([88, -87] if dtype == np.float32 else [709, -708], dtype))
    np.testing.assert_allclose(out[0, 2, [0, 1, 3]], ends[[0, 1, 0]], rtol=1e-6)
    assert np.isnan(out[0, 2, 2])
    assert (out[0, 2, 4:] == 1).all()
