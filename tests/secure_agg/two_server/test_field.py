"""Field arithmetic and transforms against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from secure_agg.errors import ConfigurationError, MalformedMessage
from secure_agg.two_server import field

P = 2**64 - 2**32 + 1
EDGES = [0, 1, 2, P - 1, P - 2, 2**32 - 1, 2**32, 2**32 + 1, P // 2, P // 2 + 1, 2**63, P - 2**32, P - 2**32 + 1]
elements = st.one_of(st.sampled_from(EDGES), st.integers(0, P - 1))
quick = settings(max_examples=60, deadline=None)


def array(values):
    return np.array(values, np.uint64)


def ints(values):
    return [int(one) for one in values.reshape(-1)]


def test_the_modulus_is_prime():
    """By Lucas: an element of order p - 1, whose prime factors are 2, 3, 5, 17, 257 and 65537."""
    factors = (2, 3, 5, 17, 257, 65537)
    assert 2**32 * 3 * 5 * 17 * 257 * 65537 == P - 1 == field.MODULUS - 1
    assert all(pow(7, (P - 1) // factor, P) != 1 for factor in factors)
    assert pow(7, P - 1, P) == 1


def test_all_pairs_of_edges():
    a, b = (one.reshape(-1) for one in np.meshgrid(array(EDGES), array(EDGES)))
    pairs = list(zip(ints(a), ints(b), strict=True))
    assert ints(field.add(a, b)) == [(x + y) % P for x, y in pairs]
    assert ints(field.subtract(a, b)) == [(x - y) % P for x, y in pairs]
    assert ints(field.multiply(a, b)) == [x * y % P for x, y in pairs]


@quick
@given(a=st.lists(elements, min_size=1, max_size=30), seed=st.integers(0, 99))
def test_operations_are_those_of_the_integers_modulo_p(a, seed):
    one, other = array(a), field.expand(seed.to_bytes(32, "big"), len(a))
    b = ints(other)
    assert ints(field.multiply(one, other)) == [x * y % P for x, y in zip(a, b, strict=True)]
    assert int(field.total(one)) == sum(a) % P
    assert int(field.dot(one, other)) == sum(x * y for x, y in zip(a, b, strict=True)) % P
    assert ints(field.power(one, 2**33 + 5)) == [pow(x, 2**33 + 5, P) for x in a]
    assert ints(field.multiply(one, field.inverse(one))) == [int(x != 0) for x in a]


def test_large_arrays_are_multiplied_as_small_ones_are():
    a = field.expand(bytes(32), 40_000).reshape(4, 10_000)
    row = a[:1]
    parts = [field.multiply(a[:, start:][:, :100], row[:, start:][:, :100]) for start in range(0, 10_000, 100)]
    assert np.array_equal(field.multiply(a, row), np.concatenate(parts, 1))


def test_signed_integers_come_back():
    values = np.array([0, 1, -1, 2**62, -(2**62), P // 2 - 2**31, -(P // 2 - 2**31)], np.int64)
    assert field.centred(field.from_signed(values)).tolist() == values.tolist()
    assert ints(field.from_signed(np.array([-1, -(2**63)], np.int64))) == [P - 1, P - 2**63]


@pytest.mark.parametrize("order", [1, 2, 4, 32])
def test_transforms_against_horner(order):
    coefficients = field.expand(order.to_bytes(32, "big"), 3 * order).reshape(order, 3)
    points = ints(field.roots(order))
    assert len(set(points)) == order
    assert all(pow(point, order, P) == 1 for point in points)
    naive = [
        [sum(int(c) * pow(x, i, P) for i, c in enumerate(column)) % P for column in coefficients.T] for x in points
    ]
    assert field.evaluate(coefficients).tolist() == naive
    assert np.array_equal(field.interpolate(field.evaluate(coefficients)), coefficients)
    weights = field.lagrange_weights(order, 987654321)
    at = [sum(int(c) * pow(987654321, i, P) for i, c in enumerate(column)) % P for column in coefficients.T]
    assert [int(field.dot(np.ascontiguousarray(column), weights)) for column in field.evaluate(coefficients).T] == at


@pytest.mark.parametrize("order", [0, 3, 12, 2**33])
def test_there_are_no_roots_of_other_orders(order):
    with pytest.raises(ConfigurationError):
        field.roots(order)


def test_expansion_is_uniform_below_p_and_a_prefix_of_itself(monkeypatch):
    drawn = field.expand(bytes(32), 50_000)
    assert np.array_equal(field.expand(bytes(32), 17), drawn[:17])
    assert chisquare(np.bincount(drawn >> np.uint64(56), minlength=256)).pvalue > 1e-4
    # Words at or above p are left out, wherever they stand, and others take their places.
    words = array([5, P, 6, 2**64 - 1, P - 1, *range(100, 300)])
    monkeypatch.setattr(field, "random_uints", lambda count, dtype, key: words[:count].copy())
    assert field.expand(bytes(32), 4).tolist() == [5, 6, P - 1, 100]
    assert field.expand(bytes(32), 3).tolist() == [5, 6, P - 1]


def test_only_elements_are_decoded():
    good = field.expand(bytes(32), 5)
    assert np.array_equal(field.decode(field.encode(good), 5), good)
    for wrong in (b"", bytes(39), bytes(41), bytes(32) + P.to_bytes(8, "little"), bytes(32) + b"\xff" * 8):
        with pytest.raises(MalformedMessage):
            field.decode(wrong, 5)


def test_sums_of_limbs_are_exact():
    vector = np.concatenate([array(EDGES), field.expand(bytes(32), 500)])
    signs = np.random.default_rng(0).integers(-1, 2, (len(vector), 9))
    sums = (field.limbs(vector) @ signs.astype(float)).astype(np.int64)
    expected = [sum(int(x) * int(z) for x, z in zip(vector, column, strict=True)) % P for column in signs.T]
    assert ints(field.from_limb_sums(sums)) == expected
