"""Every operation on parts equals the same operation on plain dense arrays, filled by loops."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.contracts import Block, UpdateError
from privfed.updates import ClientUpdates, Dense, Rows, add_rows_

ROWS, WIDTH = 11, 3
SCHEMA = {
    "items": Block((ROWS, WIDTH), weight=0.5),
    "cube": Block((2, 3, 2), weight=2.0),
    "bias": Block((4,)),
    "counts": Block((ROWS, 1), kind="integer", bound=9),
    "votes": Block((5,), kind="integer", bound=9),
}
REAL = ["items", "cube", "bias"]
REALS = {name: SCHEMA[name] for name in REAL}


def cohort(seed, clients, schema=REALS):
    """Random updates in parts, and the same updates as dense arrays: name -> [clients, *shape]."""
    rng = np.random.default_rng(seed)
    dense = {
        name: np.zeros((clients, *b.shape), np.float64 if b.kind == "real" else np.int64) for name, b in schema.items()
    }
    touched = {name: np.zeros((clients, *b.shape), bool) for name, b in schema.items()}
    parts = []
    for name, block in schema.items():
        owners = [c for c in range(clients) if rng.random() < 0.7]
        if name in ("items", "counts"):
            # Half of the owners as rows, half of them as whole tables: two parts of one block.
            sparse = [c for c in owners if rng.random() < 0.6]
            pairs = [(c, i) for c in sparse for i in range(ROWS) if rng.random() < 0.3]
            values = [draw(rng, block, block.shape[1:]) for _ in pairs]
            for (c, i), value in zip(pairs, values, strict=True):
                dense[name][c, i], touched[name][c, i] = value, True
            owner, ids = (torch.tensor([pair[k] for pair in pairs], dtype=torch.int64) for k in (0, 1))
            parts.append(Rows(name, owner, ids, stack(values, block, block.shape[1:])))
            owners = [c for c in owners if c not in sparse]
        rng.shuffle(owners)
        values = [draw(rng, block, block.shape) for _ in owners]
        for c, value in zip(owners, values, strict=True):
            dense[name][c], touched[name][c] = value, True
        parts.append(Dense(name, torch.tensor(owners, dtype=torch.int64), stack(values, block, block.shape)))
    updates = ClientUpdates(torch.arange(100, 100 + clients), schema, parts)
    return SimpleNamespace(updates=updates, dense=dense, touched=touched, schema=schema, rng=rng)


def draw(rng, block, shape):
    if block.kind == "real":
        return rng.normal(size=shape).astype(np.float32)
    return rng.integers(-9, 10, size=shape)


def stack(values, block, shape):
    dtype = np.float32 if block.kind == "real" else np.int64
    return torch.from_numpy(np.array(values, dtype).reshape(len(values), *shape))


cohorts = st.builds(cohort, st.integers(0, 10**6), st.integers(0, 9))
quick = settings(max_examples=50, deadline=None)


@quick
@given(cohorts, st.sampled_from([1, 2]))
def test_norms_are_those_of_the_weighted_dense_update(c, order):
    powers, norms = c.updates.norm_powers(order), c.updates.norms(order)
    assert powers.shape == (len(c.updates), len(REAL))
    for client in range(len(c.updates)):
        blocks = [SCHEMA[name].weight * c.dense[name][client].ravel() for name in REAL]
        assert powers[client].numpy() == pytest.approx([(np.abs(b) ** order).sum() for b in blocks], rel=1e-6)
        assert float(norms[client]) == pytest.approx(np.linalg.norm(np.concatenate(blocks), order), rel=1e-6)


@quick
@given(cohorts)
def test_scaling_multiplies_every_value_of_a_client(c):
    factors = torch.from_numpy(c.rng.uniform(0, 2, len(c.updates)))
    assert c.updates.scale_(factors) is c.updates
    found = c.updates.materialise(torch.arange(len(c.updates)))
    for name, block in c.schema.items():
        by = factors.numpy().reshape(-1, *[1] * len(block.shape))
        np.testing.assert_allclose(found[name].numpy(), c.dense[name] * by, rtol=1e-6, atol=0)


@quick
@given(cohorts)
def test_a_sum_adds_to_what_is_there(c):
    sums = {name: torch.ones(block.shape, dtype=torch.float64) for name, block in c.schema.items()}
    c.updates.add_to(sums)
    for name in c.schema:
        np.testing.assert_allclose(sums[name].numpy(), 1 + c.dense[name].sum(0), rtol=1e-6, atol=1e-5)


@quick
@given(cohorts, st.randoms(use_true_random=False), st.booleans())
def test_materialised_copies_are_the_dense_updates_in_the_order_asked_for(c, random, reuse):
    chosen = random.sample(range(len(c.updates)), random.randint(0, len(c.updates)))
    positions = torch.tensor(chosen, dtype=torch.int64)
    out = None
    if reuse:
        dirty = {name: c.dense[name][chosen] + 77 for name in c.schema}
        out = {name: torch.from_numpy(value.astype(np.float32)) for name, value in dirty.items()}
    found = c.updates.materialise(positions, out)
    touched = c.updates.touched(positions)
    for name, block in c.schema.items():
        assert found[name].shape == (len(chosen), *block.shape)
        assert found[name].dtype == torch.float32
        np.testing.assert_array_equal(found[name].numpy(), c.dense[name][chosen])
        np.testing.assert_array_equal(touched[name].numpy(), c.touched[name][chosen])
    if out is not None:
        assert all(found[name].data_ptr() == out[name].data_ptr() for name in c.schema)


@quick
@given(cohorts, st.integers(0, 30))
def test_rows_are_found_wherever_they_are_kept(c, k):
    if len(c.updates) == 0:
        return
    owner, ids = c.rng.integers(len(c.updates), size=k), c.rng.integers(ROWS, size=k)
    found = c.updates.rows_at("items", torch.from_numpy(owner), torch.from_numpy(ids))
    np.testing.assert_array_equal(found.numpy(), c.dense["items"][owner, ids].reshape(k, WIDTH))


@quick
@given(cohorts, st.sampled_from(REAL))
def test_one_block_stacked(c, name):
    np.testing.assert_array_equal(c.updates.stacked(name).numpy(), c.dense[name])


@quick
@given(cohorts)
def test_bytes_are_the_values_and_a_word_per_row(c):
    wanted = 0
    for name, block in c.schema.items():
        rows = next((p for p in c.updates.parts if p.block == name and isinstance(p, Rows)), None)
        held = sum(p.values.numel() for p in c.updates.parts if p.block == name)
        wanted += held * (4 if block.kind == "real" else 8) + (4 * len(rows.ids) if rows else 0)
    assert c.updates.nbytes == wanted


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.usefixtures("unchecked")
def test_integer_blocks_stay_exact_beside_real_ones(seed):
    """They have no part in norms and scaling, and their sums are exact."""
    c = cohort(seed, 7, SCHEMA)
    blocks = [SCHEMA[name].weight * c.dense[name].reshape(7, -1) for name in REAL]
    before = np.abs(np.concatenate(blocks, 1)).sum(1)
    np.testing.assert_allclose(c.updates.norms(1).numpy(), before, rtol=1e-6)
    c.updates.scale_(torch.zeros(7, dtype=torch.float64))
    found, sums = c.updates.materialise(torch.arange(7)), {}
    for name, block in SCHEMA.items():
        sums[name] = torch.zeros(block.shape, dtype=torch.float64 if name in REAL else torch.int64)
    c.updates.add_to(sums)
    for name in SCHEMA:
        assert found[name].dtype == (torch.float32 if name in REAL else torch.int64)
        wanted = 0 * c.dense[name] if name in REAL else c.dense[name]
        np.testing.assert_array_equal(found[name].numpy(), wanted)
        np.testing.assert_array_equal(sums[name].numpy(), wanted.sum(0))


def test_an_integer_part_fits_its_own_signature():
    Dense("votes", torch.arange(1), torch.ones(1, 5, dtype=torch.int64))
    Rows("counts", torch.arange(1), torch.arange(1), torch.ones(1, 1, dtype=torch.int64))


def test_a_norm_of_another_order_is_refused():
    with pytest.raises(UpdateError, match="order is 3"):
        cohort(0, 2).updates.norms(3)


def test_norms_of_long_updates_lose_nothing_to_float32():
    """A float32 sum of 2^20 ones and one 2^25 would round the ones away."""
    values = torch.ones(1, 2**20 + 1)
    values[0, 0] = 2.0**25
    updates = ClientUpdates(torch.arange(1), {"v": Block((2**20 + 1,))}, [Dense("v", torch.arange(1), values)])
    assert float(updates.norms(1)) == 2**25 + 2**20


@quick
@given(st.integers(0, 10**6), st.integers(0, 40))
def test_adding_rows_counts_repeated_ids(seed, k):
    rng = np.random.default_rng(seed)
    table, ids = rng.normal(size=(ROWS, WIDTH)).astype(np.float32), rng.integers(ROWS, size=k)
    values = rng.normal(size=(k, WIDTH)).astype(np.float32)
    found = torch.from_numpy(table.copy())
    add_rows_(found, torch.from_numpy(ids), torch.from_numpy(values))
    for i, value in zip(ids, values, strict=True):
        table[i] += value
    np.testing.assert_allclose(found.numpy(), table, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_of_any_precision_add_to_a_sum_in_double(dtype):
    values = torch.tensor([[1.5, -2.0, 0.25], [3.0, 0.5, -8.0]], dtype=dtype)
    owner, ids = torch.arange(2), torch.tensor([4, 4])
    dense, rows = torch.ones(3, dtype=torch.float64), torch.ones(ROWS, 3, dtype=torch.float64)
    Dense("bias", owner, values).add_to(dense)
    Rows("items", owner, ids, values).add_to(rows)
    assert dense.tolist() == rows[4].tolist() == [5.5, -0.5, -6.75]
