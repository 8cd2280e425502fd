import numpy as np
import pytest

from privfed.methods.dfmr.discrete import DiscreteError, binarise, binarise_items


def quantisation_error(unit, codes):
    """Squared distance of the best rotation of unit rows from their codes."""
    nuclear = np.linalg.svd(unit.T @ codes, compute_uv=False).sum()
    return (unit**2).sum() + codes.size - 2 * nuclear


@pytest.fixture
def factors():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 6)) * [5, 3, 1, 1, 0.3, 0.1], rng.standard_normal((90, 6)) * [5, 3, 1, 1, 0.3, 0.1]


def test_one_rotation_for_both_sides_that_beats_plain_signs(factors):
    users, items = factors
    u, v = binarise(users, items, seed=3)
    assert (u.shape, v.shape, u.dtype) == (users.shape, items.shape, np.int8)
    assert set(np.unique(np.concatenate([u, v]))) == {-1, 1}
    together = np.concatenate(factors)
    assert np.array_equal(binarise_items(together, seed=3), np.concatenate([u, v]))
    unit = together / np.linalg.norm(together, axis=1, keepdims=True)
    assert quantisation_error(unit, np.concatenate([u, v])) < 0.9 * quantisation_error(unit, np.sign(together))


def test_codes_keep_the_order_of_inner_products(factors):
    users, items = factors
    u, v = (codes.astype(np.int64) for codes in binarise(users, items, seed=3))
    cosine = (users @ items.T) / np.outer(np.linalg.norm(users, axis=1), np.linalg.norm(items, axis=1))
    assert np.corrcoef(cosine.ravel(), (u @ v.T).ravel())[0, 1] > 0.7


def test_the_length_of_a_row_does_not_matter_and_the_seed_does(factors):
    users, items = factors
    u, _v = binarise(users, items, seed=3)
    longer, _ = binarise(users * np.arange(1, 61)[:, None], items, seed=3)
    assert np.array_equal(longer, u)
    assert not np.array_equal(binarise(users, items, seed=4)[0], u)


def test_rows_of_zeros_get_a_random_bit_each():
    items = np.zeros((400, 5))
    items[:20] = np.random.default_rng(1).standard_normal((20, 5))
    codes = binarise_items(items, seed=2)
    assert abs(codes[20:].mean()) < 0.1
    assert np.array_equal(codes, binarise_items(items, seed=2))


@pytest.mark.usefixtures("unchecked")
def test_unusable_factors_are_refused(factors):
    users, items = factors
    with pytest.raises(DiscreteError, match="differ in rank"):
        binarise(users, items[:, :4], seed=0)
    items[0, 0] = np.nan
    with pytest.raises(DiscreteError, match="not finite"):
        binarise(users, items, seed=0)
