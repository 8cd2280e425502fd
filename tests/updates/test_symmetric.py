"""Symmetric outer products behave, in every operation, as the packed triangles they stand for."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block, UpdateError
from privfed.updates import ClientUpdates, Dense, Symmetric, packed_size, unpacked
from privfed.updates.symmetric import squared_norms

quick = settings(max_examples=50, deadline=None)


def naive(matrix, diagonal):
    """Row by row of the upper triangle, sqrt(2) off the diagonal."""
    side = len(matrix)
    return [
        matrix[i][j] * (1 if i == j else math.sqrt(2))
        for i in range(side)
        for j in range(i, side)
        if diagonal or i != j
    ]  # fmt: skip


def cohort(seed, clients, side, diagonal, dtype=torch.float32):
    """Outer products of some of the clients, and the same as dense parts."""
    rng = np.random.default_rng(seed)
    owner = torch.from_numpy(rng.permutation(clients)[: rng.integers(0, clients + 1)].astype(np.int64))
    vectors = torch.from_numpy(rng.normal(size=(len(owner), side))).to(dtype)
    weights = torch.from_numpy(rng.uniform(0, 2, len(owner)))
    packed = [
        naive(w * np.outer(v, v), diagonal) for w, v in zip(weights.numpy(), vectors.double().numpy(), strict=True)
    ]
    size = packed_size(side, diagonal=diagonal)
    schema = {"s": Block((size,), weight=0.5)}
    values = torch.tensor(packed, dtype=torch.float64).reshape(len(owner), size)

    def updates(part):
        return ClientUpdates(torch.arange(100, 100 + clients), schema, [part])

    part = Symmetric("s", owner, weights, vectors, diagonal)
    return SimpleNamespace(
        found=updates(part), wanted=updates(Dense("s", owner, values)), part=part, rng=rng, n=clients, side=side,
        schema=schema, diagonal=diagonal,
    )  # fmt: skip


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_how_a_sum_is_rounded_does_not_depend_on_whose_history_says_nothing(weight, monkeypatch):
    """A vector that counts 0 takes its place in the product: leaving it out would round everybody else's sum anew."""
    taken = []
    monkeypatch.setattr("privfed.updates.symmetric.upper_gram", lambda rows: taken.append(len(rows)) or rows.T @ rows)
    weights = torch.tensor([1.0, weight, 1.0], dtype=torch.float64)
    Symmetric("s", torch.arange(3), weights, torch.ones(3, 4)).add_to(torch.zeros(10, dtype=torch.float64))
    assert taken == [3]


cohorts = st.tuples(st.integers(0, 10**6), st.integers(0, 9), st.integers(2, 9), st.booleans())


def close(found, wanted):
    torch.testing.assert_close(found.double(), wanted.double(), rtol=1e-5, atol=1e-5)


@quick
@given(st.integers(0, 10**6), st.integers(1, 9), st.booleans())
def test_packing_keeps_norms_and_unpacks_to_the_same_matrix(seed, side, diagonal):
    noise = np.random.default_rng(seed).normal(size=(side, side))
    matrix = noise + noise.T
    if not diagonal:
        np.fill_diagonal(matrix, 0)
    packed = torch.tensor(naive(matrix, diagonal), dtype=torch.float64)
    assert len(packed) == packed_size(side, diagonal=diagonal)
    assert float(packed.norm()) == pytest.approx(np.linalg.norm(matrix), rel=1e-12)
    np.testing.assert_allclose(unpacked(packed, side, diagonal=diagonal).numpy(), matrix, rtol=1e-12)


@pytest.mark.parametrize("diagonal", [True, False])
def test_weights_below_zero_take_away(diagonal):
    vectors, weights = torch.randn(5, 4, dtype=torch.float64), torch.tensor([1.0, -2, 0, 3, -0.5], dtype=torch.float64)
    total = torch.zeros(packed_size(4, diagonal=diagonal), dtype=torch.float64)
    Symmetric("s", torch.arange(5), weights, vectors, diagonal).add_to(total)
    matrix = sum(w * np.outer(v, v) for w, v in zip(weights.numpy(), vectors.numpy(), strict=True))
    np.testing.assert_allclose(total.numpy(), naive(matrix, diagonal), atol=1e-12)


def test_noise_on_packed_numbers_is_sqrt_two_less_off_the_diagonal():
    side = 300
    packed = torch.from_numpy(np.random.default_rng(0).normal(size=packed_size(side)))
    matrix = unpacked(packed, side).numpy()
    assert matrix.diagonal().std() == pytest.approx(1, abs=4 / math.sqrt(2 * side))
    assert matrix[np.triu_indices(side, 1)].std() == pytest.approx(math.sqrt(0.5), rel=0.02)


@quick
@given(cohorts, st.sampled_from([1, 2]))
def test_norms(drawn, order):
    c = cohort(*drawn)
    close(c.found.norm_powers(order), c.wanted.norm_powers(order))
    close(c.found.norms(order), c.wanted.norms(order))


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("order", [1, 2])
def test_norms_in_float64_are_exact(order, diagonal):
    c = cohort(1, 30, 40, diagonal, torch.float64)
    torch.testing.assert_close(c.found.norms(order), c.wanted.norms(order), rtol=1e-13, atol=0)


def test_the_norm_of_a_unit_vectors_product_is_one_and_of_a_single_entry_nothing_off_the_diagonal():
    vectors = torch.tensor([[0.6, 0.8, 0.0], [0.0, 3.0, 0.0]])
    assert squared_norms(vectors).tolist() == pytest.approx([1, 81])
    assert squared_norms(vectors, diagonal=False).tolist() == pytest.approx([2 * 0.36 * 0.64, 0])


@quick
@given(cohorts)
def test_scaling_multiplies_the_block_and_leaves_the_vectors(drawn):
    c = cohort(*drawn)
    factors, before = torch.from_numpy(c.rng.uniform(0, 2, c.n)), c.part.vectors.clone()
    c.found.scale_(factors)
    c.wanted.scale_(factors)
    assert c.part.vectors.equal(before)
    everyone = torch.arange(c.n)
    close(c.found.materialise(everyone)["s"], c.wanted.materialise(everyone)["s"])


@quick
@given(cohorts)
def test_sums_add_to_what_is_there(drawn):
    c = cohort(*drawn)
    sums = [{"s": torch.ones(c.schema["s"].shape, dtype=torch.float64)} for _ in range(2)]
    c.found.add_to(sums[0])
    c.wanted.add_to(sums[1])
    close(sums[0]["s"], sums[1]["s"])


def test_a_sum_in_float64_is_the_naive_loop():
    c = cohort(3, 20, 15, diagonal=True, dtype=torch.float64)
    total, wanted = torch.zeros(packed_size(15), dtype=torch.float64), np.zeros((15, 15))
    c.part.add_to(total)
    for weight, vector in zip(c.part.weights.tolist(), c.part.vectors.tolist(), strict=True):
        for i in range(15):
            for j in range(15):
                wanted[i, j] += weight * vector[i] * vector[j]
    np.testing.assert_allclose(unpacked(total, 15).numpy(), wanted, rtol=1e-12, atol=1e-14)


@quick
@given(cohorts, st.randoms(use_true_random=False), st.booleans())
def test_materialised_and_touched(drawn, random, reuse):
    c = cohort(*drawn)
    chosen = torch.tensor(random.sample(range(c.n), random.randint(0, c.n)), dtype=torch.int64)
    out = {"s": torch.full((len(chosen), *c.schema["s"].shape), 7.0)} if reuse else None
    close(c.found.materialise(chosen, out)["s"], c.wanted.materialise(chosen)["s"])
    assert c.found.touched(chosen)["s"].equal(c.wanted.touched(chosen)["s"])
    assert c.found.holds().equal(c.wanted.holds())


def test_a_precise_sum_is_one_of_exact_products():
    drawn = cohort(3, 40, 7, diagonal=True)
    sums, wanted = ({"s": torch.zeros(packed_size(7), dtype=torch.float64)} for _ in range(2))
    drawn.found.add_to(sums, precise=True)
    drawn.wanted.add_to(wanted)
    torch.testing.assert_close(sums["s"], wanted["s"], rtol=0, atol=1e-13)


def test_many_clients_are_summed_without_a_table_of_clients_and_pairs():
    """As packed numbers, these uploads take 8 GB."""
    rng = np.random.default_rng(0)
    vectors = torch.from_numpy(rng.normal(size=(4000, 700)).astype(np.float32))
    part = Symmetric("s", torch.arange(4000), torch.ones(4000, dtype=torch.float64), vectors)
    total = torch.zeros(packed_size(700), dtype=torch.float64)
    part.add_to(total)
    assert part.norm_power(2, 4000).shape == (4000,)
    matrix = unpacked(total, 700)
    torch.testing.assert_close(matrix[3], (vectors.T @ vectors[:, 3]).double(), rtol=1e-3, atol=1e-2)


def test_bytes_are_those_of_packed_triangles():
    c = cohort(5, 6, 9, diagonal=True)
    assert c.found.nbytes == len(c.part.owner) * 45 * 4


@pytest.mark.parametrize("broken", [math.inf, math.nan, 1e25])
def test_what_no_norm_bounds_is_not_finite(broken):
    vectors = torch.ones(2, 3)
    vectors[1, 1] = broken
    part = Symmetric("s", torch.arange(2), torch.ones(2, dtype=torch.float64), vectors)
    assert not part.finite()
    assert Symmetric("s", torch.arange(0), torch.ones(0, dtype=torch.float64), torch.ones(0, 3)).finite()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"diagonal": False}, "without its diagonal packs into 3 numbers"),
        ({"vectors": torch.ones(2, 4)}, "of 4 rows packs into 10 numbers"),
        ({"weights": torch.ones(3, dtype=torch.float64)}, "3 weights for 2 vectors"),
        ({"owner": torch.tensor([0, 2])}, r"positions 0\.\.1"),
        ({"owner": torch.tensor([1, 1])}, "twice"),
    ],
)
def test_refusals(unchecked, changes, part):
    fields = {"owner": torch.arange(2), "weights": torch.ones(2, dtype=torch.float64), "vectors": torch.ones(2, 3)}
    made = Symmetric(**({"block": "s"} | fields | changes))
    with pytest.raises(UpdateError, match=part):
        ClientUpdates(torch.arange(2), {"s": Block((6,))}, [made])


def test_a_triangle_has_no_rows_and_one_length():
    c = cohort(5, 6, 4, diagonal=True)
    with pytest.raises(UpdateError, match="no rows"):
        c.part.rows_at(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(UpdateError, match="9 numbers do not pack a symmetric matrix of 4 rows, which takes 10"):
        unpacked(torch.zeros(9), 4)
