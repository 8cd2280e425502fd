"""Outer products behave, in every operation, as the dense blocks they stand for."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block, UpdateError
from privfed.updates import ClientUpdates, Dense, LowRank

SCHEMA = {"w": Block((9, 4), weight=0.5), "b": Block((3,))}


def cohort(seed, clients, steps, dtype=torch.float32):
    """Low-rank updates of some of the clients, and the same as dense parts."""
    rng = np.random.default_rng(seed)
    owners = torch.from_numpy(rng.permutation(clients)[: rng.integers(0, clients + 1)].astype(np.int64))
    left, right = (
        torch.from_numpy(rng.normal(size=(len(owners), steps, side))).to(dtype) for side in SCHEMA["w"].shape
    )
    bias = Dense("b", torch.arange(clients), torch.from_numpy(rng.normal(size=(clients, 3))).to(dtype))
    values = torch.einsum("her,hec->hrc", left.double(), right.double())

    def updates(part):
        return ClientUpdates(torch.arange(100, 100 + clients), SCHEMA, [part, bias])

    low, dense = LowRank("w", owners, left, right), Dense("w", owners, values)
    return SimpleNamespace(found=updates(low), wanted=updates(dense), part=low, rng=rng, n=clients)


cohorts = st.builds(cohort, st.integers(0, 10**6), st.integers(0, 9), st.integers(1, 5))
quick = settings(max_examples=50, deadline=None)


def close(found, wanted):
    torch.testing.assert_close(found.double(), wanted.double(), rtol=1e-5, atol=1e-5)


@quick
@given(cohorts, st.sampled_from([1, 2]))
def test_norms(c, order):
    close(c.found.norm_powers(order), c.wanted.norm_powers(order))
    close(c.found.norms(order), c.wanted.norms(order))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_factor_of_zeros_but_few_is_added_exactly(dtype):
    rng = np.random.default_rng(0)
    left = torch.from_numpy(rng.normal(size=(40, 2, 300)) * (rng.random((40, 2, 300)) < 0.02)).to(dtype)
    right = torch.from_numpy(rng.normal(size=(40, 2, 7))).to(dtype)
    total = torch.ones(300, 7, dtype=torch.float64)
    LowRank("w", torch.arange(40), left, right, sparse=True).add_to(total)
    wanted = 1 + torch.einsum("her,hec->rc", left.double(), right.double())
    torch.testing.assert_close(total, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("sparse", [True, False])
def test_how_a_sum_is_rounded_does_not_depend_on_the_data(sparse, monkeypatch):
    """One more interaction of one user must not change the rounding of everybody else's part of a sum."""
    loops = []
    monkeypatch.setattr("privfed.updates.low_rank._add_products", lambda *_: loops.append(1))
    for left in (torch.zeros(20, 1, 50), torch.ones(20, 1, 50)):
        part = LowRank("w", torch.arange(20), left, torch.ones(20, 1, 3), sparse=sparse)
        part.add_to(torch.zeros(50, 3, dtype=torch.float64))
    assert len(loops) == 2 * sparse


@pytest.mark.parametrize("order", [1, 2])
def test_norms_in_float64_are_exact(order):
    c = cohort(1, 30, 4, torch.float64)
    torch.testing.assert_close(c.found.norms(order), c.wanted.norms(order), rtol=1e-13, atol=0)


@quick
@given(cohorts)
def test_scaling_touches_one_factor_and_multiplies_the_block(c):
    factors = torch.from_numpy(c.rng.uniform(0, 2, c.n))
    before = c.part.left.clone(), c.part.right.clone()
    c.found.scale_(factors)
    untouched = [now.equal(was) for now, was in zip((c.part.left, c.part.right), before, strict=True)]
    assert any(untouched)
    dense = c.wanted.parts[0]
    dense.scale_(factors)
    everyone = torch.arange(c.n)
    close(c.found.materialise(everyone)["w"], c.wanted.materialise(everyone)["w"])


@quick
@given(cohorts)
def test_sums_add_to_what_is_there(c):
    sums = [{name: torch.ones(b.shape, dtype=torch.float64) for name, b in SCHEMA.items()} for _ in range(2)]
    c.found.add_to(sums[0])
    c.wanted.add_to(sums[1])
    close(sums[0]["w"], sums[1]["w"])


@quick
@given(cohorts, st.randoms(use_true_random=False), st.booleans())
def test_materialised_and_touched(c, random, reuse):
    chosen = torch.tensor(random.sample(range(c.n), random.randint(0, c.n)), dtype=torch.int64)
    out = {name: torch.full((len(chosen), *b.shape), 7.0) for name, b in SCHEMA.items()} if reuse else None
    found = c.found.materialise(chosen, out)
    assert found["w"].dtype == torch.float32
    close(found["w"], c.wanted.materialise(chosen)["w"])
    assert c.found.touched(chosen)["w"].equal(c.wanted.touched(chosen)["w"])
    close(c.found.stacked("w"), c.wanted.stacked("w"))


@quick
@given(cohorts, st.integers(0, 20))
def test_rows(c, k):
    if c.n == 0:
        return
    owner, ids = (torch.from_numpy(c.rng.integers(size, size=k)) for size in (c.n, 9))
    close(c.found.rows_at("w", owner, ids), c.wanted.rows_at("w", owner, ids))


def test_rows_beyond_one_slice_and_of_two_parts(monkeypatch):
    from privfed.updates import low_rank

    monkeypatch.setattr(low_rank, "_ROWS_AT_ONCE", 7)
    rng, parts = np.random.default_rng(0), []
    for owners in ([0, 3], [2]):
        left, right = (torch.from_numpy(rng.normal(size=(len(owners), 2, side))).float() for side in (9, 4))
        parts.append(LowRank("w", torch.tensor(owners), left, right))
    updates = ClientUpdates(torch.arange(4), SCHEMA, parts)
    owner, ids = (torch.from_numpy(rng.integers(size, size=50)) for size in (4, 9))
    close(updates.rows_at("w", owner, ids), updates.stacked("w")[owner, ids])


def test_bytes_are_those_of_the_blocks_that_would_travel():
    left, right = torch.ones(3, 2, 9), torch.ones(3, 2, 4)
    assert LowRank("w", torch.arange(3), left, right).nbytes == 3 * 9 * 4 * 4


@pytest.mark.parametrize("factor", ["left", "right"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_broken_value_in_either_factor_is_noticed(factor, bad):
    c = cohort(2, 6, 2)
    assert c.found.finite()
    getattr(c.part, factor)[-1, -1, -1] = bad
    assert not c.found.finite()


def test_a_product_that_would_overflow_is_broken_too():
    part = LowRank("w", torch.arange(1), torch.full((1, 1, 9), 1e25), torch.full((1, 1, 4), 1e25))
    updates = ClientUpdates(torch.arange(1), SCHEMA, [part])
    assert not updates.finite()


def test_steps_whose_sum_would_overflow_are_broken_too():
    part = LowRank("w", torch.arange(1), torch.full((1, 2, 9), 1e19), torch.full((1, 2, 4), 2e19))
    assert part.left[0, 0, 0] * part.right[0, 0, 0] < torch.inf
    assert not ClientUpdates(torch.arange(1), SCHEMA, [part]).finite()


def test_no_product_is_longer_than_its_norm_where_steps_cancel():
    """What cancels leaves its rounding behind, which a clip has to see."""
    rng = np.random.default_rng(0)
    left, right = (torch.from_numpy(rng.normal(size=(200, 2, side))).float() for side in SCHEMA["w"].shape)
    left[:, 1], right[:, 1] = -left[:, 0], right[:, 0] * (1 + 2.0**-22)
    part = LowRank("w", torch.arange(200), left, right)
    out = torch.empty(200, *SCHEMA["w"].shape)
    part.write(torch.arange(200), out)
    assert (out.double().square().sum((1, 2)) <= part.norm_power(2, 200)).all()


def test_a_precise_sum_is_one_of_exact_products():
    c = cohort(3, 40, 5)
    sums, wanted = (
        {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in SCHEMA.items()} for _ in range(2)
    )
    c.found.add_to(sums, precise=True)
    c.wanted.add_to(wanted)
    torch.testing.assert_close(sums["w"], wanted["w"], rtol=0, atol=1e-13)


def test_no_clients_is_finite():
    part = LowRank("w", torch.arange(0), torch.ones(0, 2, 9), torch.ones(0, 2, 4))
    assert ClientUpdates(torch.arange(0), SCHEMA, [part]).finite()


def low_rank(left=(2, 3, 9), right=(2, 3, 4), owner=(0, 1), dtype=torch.float32):
    return LowRank("w", torch.tensor(owner), torch.ones(left), torch.ones(right, dtype=dtype))


BAD = {
    "transposed": (lambda: low_rank((2, 3, 4), (2, 3, 9)), r"shape \(9, 4\) but the factors span \(4, 9\)"),
    "unequal steps": (lambda: low_rank(right=(2, 2, 4)), "do not multiply"),
    "unequal clients": (lambda: low_rank(right=(3, 3, 4)), "do not multiply"),
    "unequal types": (lambda: low_rank(dtype=torch.float64), "do not multiply"),
    "a client twice": (lambda: low_rank(owner=(1, 1)), "twice"),
    "owner beyond the cohort": (lambda: low_rank(owner=(0, 5)), r"positions 0\.\.1"),
    "fewer owners than clients": (lambda: low_rank(owner=(0,)), "1 owners for 2"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.usefixtures("unchecked")
def test_a_misfit_is_refused(case):
    part, words = BAD[case]
    with pytest.raises(UpdateError, match=words) as caught:
        ClientUpdates(torch.arange(2), SCHEMA, [part()])
    assert "\n" not in str(caught.value)


def test_a_block_sent_twice_is_refused():
    whole = Dense("w", torch.arange(1), torch.zeros(1, 9, 4))
    with pytest.raises(UpdateError, match="two parts"):
        ClientUpdates(torch.arange(2), SCHEMA, [low_rank(), whole])


def test_clients_without_a_product_are_written_as_zeros_whatever_stood_there():
    """Asked for alone, and beside one that has a product."""
    part = LowRank("w", torch.tensor([1]), torch.full((1, 2, 3), 2.0), torch.ones(1, 2, 4))
    schema = {"w": Block((3, 4))}
    updates = ClientUpdates(torch.arange(3), schema, [part])
    for asked in ([0, 2], [2, 1], [1, 0], [1]):
        found = updates.materialise(torch.tensor(asked), {"w": torch.full((len(asked), 3, 4), 7.0)})["w"]
        assert found[:, 0, 0].tolist() == [4.0 if client == 1 else 0.0 for client in asked]
