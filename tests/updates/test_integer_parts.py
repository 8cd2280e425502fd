import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block, UpdateError
from privfed.updates import ClientUpdates, CodeProducts, Dense, RowPattern, Rows


def products_of(codes, weights):
    """Client after client, pair after pair."""
    d = codes.shape[1]
    rows = []
    for code, weight in zip(codes.tolist(), weights.tolist(), strict=True):
        rows.append([weight * code[f] * code[g] for f in range(d) for g in range(f + 1, d)])
    return torch.tensor(rows, dtype=torch.int64).view(len(codes), d * (d - 1) // 2)


def drawn(seed, clients, d, bits=40):
    rng = np.random.default_rng(seed)
    codes = torch.from_numpy(rng.integers(0, 2, (clients, d)).astype(np.int8) * 2 - 1).to(torch.int8)
    return codes, torch.from_numpy(rng.integers(-(2**bits), 2**bits, clients))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(2, 7))
def test_code_products_equal_the_naive_ones(seed, clients, d):
    codes, weights = drawn(seed, clients, d)
    pairs = d * (d - 1) // 2
    schema = {"m": Block((pairs,), "integer", bound=2**41)}
    updates = ClientUpdates(torch.arange(clients), schema, [CodeProducts("m", torch.arange(clients), weights, codes)])
    naive = products_of(codes, weights)
    sums = {"m": torch.zeros(pairs, dtype=torch.int64)}
    updates.add_to(sums)
    assert torch.equal(sums["m"], naive.sum(0))
    some = torch.randperm(clients)[: max(1, clients - 1)]
    assert torch.equal(updates.materialise(some)["m"], naive[some])
    assert updates.nbytes == naive.nbytes
    assert bool(updates.touched(some)["m"].all())


def test_sums_of_code_products_wrap_as_a_ring_does():
    codes = torch.tensor([[1, 1], [1, 1], [-1, -1]], dtype=torch.int8)
    total = torch.zeros(1, dtype=torch.int64)
    CodeProducts("m", torch.arange(3), torch.full((3,), 2**62), codes).add_to(total)
    assert int(total) == (3 * 2**62 + 2**63) % 2**64 - 2**63


def test_code_products_know_their_norms_and_are_never_scaled():
    codes, weights = drawn(1, 4, 5)
    part = CodeProducts("m", torch.arange(4), weights, codes)
    assert part.norm_power(2, 4).tolist() == pytest.approx((products_of(codes, weights).double() ** 2).sum(1).tolist())
    with pytest.raises(UpdateError, match="whole numbers"):
        part.scale_(torch.ones(4))
    with pytest.raises(UpdateError, match="no rows"):
        part.rows_at(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize(
    "block", [Block((9,), "integer", bound=1), Block((10,)), Block((10, 1), "integer", bound=1)], ids=str
)
def test_code_products_fit_their_block_or_are_refused(block):
    codes, weights = drawn(2, 3, 5)
    with pytest.raises(UpdateError, match="10 products"):
        ClientUpdates(torch.arange(3), {"m": block}, [CodeProducts("m", torch.arange(3), weights, codes)])


def test_the_largest_number_of_a_block_may_be_below_zero():
    schema = {"counts": Block((3,), kind="integer", bound=9), "votes": Block((4, 1), kind="integer", bound=9)}
    votes = Rows("votes", torch.tensor([0, 1]), torch.tensor([3, 0]), torch.tensor([[2], [-7]]))
    updates = ClientUpdates(
        torch.arange(2), schema, [Dense("counts", torch.tensor([1]), torch.tensor([[5, -6, 1]])), votes]
    )
    assert (updates.largest("counts"), updates.largest("votes")) == (6, 7)


def test_rows_of_a_pattern_are_rows():
    owner, ids = torch.tensor([0, 0, 2]), torch.tensor([1, 4, 0])
    values = torch.tensor([[5], [-7], [2**40]])
    schema = {"t": Block((5, 1), "integer", bound=2**41)}
    patterned = ClientUpdates(torch.arange(3), schema, [RowPattern(3, 5, owner, ids).with_values("t", values)])
    plain = ClientUpdates(torch.arange(3), schema, [Rows("t", owner, ids, values)])
    for updates in (patterned, plain):
        sums = {"t": torch.zeros(5, 1, dtype=torch.int64)}
        updates.add_to(sums)
        assert sums["t"][:, 0].tolist() == [2**40, 5, 0, 0, -7]
    assert torch.equal(patterned.stacked("t"), plain.stacked("t"))


WRONG = {
    "a row beyond the table": ([0], [5], "lie in 0..4"),
    "an owner beyond the cohort": ([3], [0], "positions 0..2"),
    "a row twice": ([1, 1], [2, 2], "distinct and ascending"),
    "rows out of order": ([1, 0], [0, 3], "distinct and ascending"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_pattern_that_is_none_is_refused(case):
    owner, ids, words = WRONG[case]
    with pytest.raises(UpdateError, match=words):
        RowPattern(3, 5, torch.tensor(owner), torch.tensor(ids))
    with pytest.raises(UpdateError, match=f"block 't': .*{words}"):
        ClientUpdates(
            torch.arange(3),
            {"t": Block((5, 1))},
            [Rows("t", torch.tensor(owner), torch.tensor(ids), torch.ones(len(ids), 1))],
        )


def test_a_pattern_belongs_to_one_cohort_and_table():
    pattern = RowPattern(3, 5, torch.tensor([0]), torch.tensor([4]))
    rows = pattern.with_values("t", torch.ones(1, 1))
    for clients, table in ((2, 5), (3, 6)):
        with pytest.raises(UpdateError, match="pattern is of 3 clients and 5 rows"):
            ClientUpdates(torch.arange(clients), {"t": Block((table, 1))}, [rows])
    with pytest.raises(UpdateError, match="integer"):
        ClientUpdates(torch.arange(3), {"t": Block((5, 1), "integer", bound=1)}, [rows])


def test_a_pattern_vouches_for_its_own_rows_only():
    """Engines read the pattern in place of the rows, so neither wrong rows nor other right ones may come with it."""
    pattern = RowPattern(3, 5, torch.tensor([0, 1]), torch.tensor([4, 0]))
    for owner, ids in (([1, 0], [0, 4]), ([0, 2], [4, 0])):
        smuggled = Rows("t", torch.tensor(owner), torch.tensor(ids), torch.ones(2, 1), pattern)
        with pytest.raises(UpdateError, match="not those of their pattern"):
            ClientUpdates(torch.arange(3), {"t": Block((5, 1))}, [smuggled])
