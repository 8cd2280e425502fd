"""A whole local epoch of linear heads: the steps of `LinearHead` one by one, whoever else trains."""

import numpy as np
import pytest
import torch

from privfed.methods.shared.heads import LinearHead
from privfed.methods.shared.linear_epoch import LinearRates, _slope, linear_changes, linear_epoch
from privfed.methods.shared.samples import Samples, touched_rows

DIM, ITEMS, BATCH = 20, 9, 8
RATES = {"head": 0.3, "items": 0.7}


def drawn(counts, seed):
    """Samples with repeated items, so that a batch meets a row more than once, and one client without any."""
    rng = np.random.default_rng(seed)
    items = np.concatenate([rng.integers(0, ITEMS, count) for count in counts]).astype(np.int64)
    labels = rng.integers(0, 2, len(items)).astype(np.float32)
    counted = torch.tensor(counts)
    owner = torch.arange(len(counts)).repeat_interleave(counted)
    return Samples(counted, owner, torch.from_numpy(items), torch.from_numpy(labels))


def start(clients, bias, seed):
    g = torch.Generator().manual_seed(seed)
    heads = {"w": torch.randn(clients, DIM, generator=g)}
    return heads | ({"b": torch.randn(clients, generator=g)} if bias else {})


def step_by_step(samples, rows, table, heads, together):
    """The same epoch with one head at a time and torch's arithmetic."""
    head, new = LinearHead(DIM, "b" in heads), {name: values.clone() for name, values in heads.items()}
    first = 0
    for client, count in enumerate(samples.counts.tolist()):
        for begin in range(first, first + count, BATCH):
            some = slice(begin, min(begin + BATCH, first + count))
            p = {name: values[client : client + 1] for name, values in new.items()}
            at = rows.of_sample[some]
            q, y = table[at].unsqueeze(0), samples.labels[some].unsqueeze(0)
            weight = torch.full_like(y, 1 / y.shape[1])
            before = head.item_gradient(p, q, y, weight)
            head.step_head_(p, q, y, weight, RATES["head"])
            change = before if together else head.item_gradient(p, q, y, weight)
            table.index_add_(0, at, change[0], alpha=-RATES["items"])
        first += count
    return new


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_an_epoch_is_its_steps(bias, together):
    samples = drawn([19, 0, 8, 1, 30], seed=1)
    rows = touched_rows(samples, ITEMS)
    table = torch.randn(len(rows.ids), DIM, generator=torch.Generator().manual_seed(2))
    heads, rates = start(5, bias, seed=3), LinearRates(**RATES, together=together)
    kept = {name: values.clone() for name, values in heads.items()}
    wanted_table = table.clone()
    wanted = step_by_step(samples, rows, wanted_table, heads, together)
    found = linear_epoch(samples, rows, table, heads, BATCH, rates)
    torch.testing.assert_close(table, wanted_table, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert found["w"][1].equal(heads["w"][1])
    assert all(heads[name].equal(kept[name]) for name in heads)


def naive_epoch(samples, rows, table, heads, rates, batch=3):
    """The kernel's operations one by one, in its order and in float32, with its own slope of the loss."""
    table, biased, w = table.numpy(), "b" in heads, heads["w"].numpy().copy()
    b = heads["b"].numpy().copy() if biased else np.zeros(len(w), np.float32)
    lr_head, lr_items = np.float32(rates.head), np.float32(rates.items)
    place, labels, first = rows.of_sample.tolist(), samples.labels.numpy(), 0

    def slopes(client, some):
        found = []
        for s in some:
            logit = np.float32(0)
            for j in range(w.shape[1]):
                logit += w[client, j] * table[place[s], j]
            share = np.float32(1) / np.float32(len(some))
            found.append(np.float32(_slope(logit + b[client], labels[s])) * share)
        return found

    for client, count in enumerate(samples.counts.tolist()):
        for begin in range(first, first + count, batch):
            some, old = range(begin, min(begin + batch, first + count)), w[client].copy()
            moved, change, found = np.float32(0), np.zeros(w.shape[1], np.float32), slopes(client, some)
            for s, slope in zip(some, found, strict=True):
                moved += slope
                change += slope * table[place[s]]
            w[client] -= lr_head * change
            b[client] -= biased * lr_head * moved
            if not rates.together:
                old, found = w[client].copy(), slopes(client, some)
            for s, slope in zip(some, found, strict=True):
                table[place[s]] -= lr_items * slope * old
        first += count
    return {"w": torch.from_numpy(w), "b": torch.from_numpy(b)}


@pytest.mark.parametrize(
    ("counts", "dim", "bias", "rates"),
    [
        # Many batches while one side stays: a logit is a sum of two terms, which has one order.
        *(
            ([7, 0, 3, 1, 9], dim, bias, LinearRates(*moving, together=together))
            for dim, bias in ((1, True), (2, False))
            for moving in ((0.5, 0.0), (0.0, 0.25))
            for together in (True, False)
        ),
        # One batch of both: its logits are sums of powers of two, exact in any order.
        ([3, 0, 2, 1], DIM, True, LinearRates(0.5, 0.25, together=True)),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_machine_code_is_the_naive_loop_to_the_bit_where_rounding_leaves_no_choice(counts, dim, bias, rates, seed):
    """Factors that are powers of two make every product exact, fused with a sum or not."""
    rng, samples = np.random.default_rng(seed), drawn(counts, seed)
    rows = touched_rows(samples, ITEMS)

    def powers(*shape):
        return torch.from_numpy(rng.choice([-1.0, 1.0], shape) * np.exp2(rng.integers(-3, 2, shape))).float()

    heads = {"w": powers(len(counts), dim)} | ({"b": powers(len(counts))} if bias else {})
    table = powers(len(rows.ids), dim)
    naive_table = table.clone()
    found = linear_epoch(samples, rows, table, heads, 3, rates)
    wanted = naive_epoch(samples, rows, naive_table, heads, rates)
    assert table.equal(naive_table)
    assert all(found[name].equal(wanted[name]) for name in heads)


def test_changes_are_what_rows_moved_by():
    samples = drawn([19, 0, 8, 1, 30], seed=1)
    rows, heads = touched_rows(samples, ITEMS), start(5, bias=True, seed=3)
    public = torch.randn(ITEMS, DIM, generator=torch.Generator().manual_seed(2))
    table, rates = public[rows.ids], LinearRates(**RATES, together=False)
    moved = table.clone()
    trained = linear_epoch(samples, rows, moved, heads, BATCH, rates)
    changed, same = linear_changes(samples, rows, (public, rows.ids), heads, BATCH, rates)
    assert changed.equal(moved - table)
    assert all(same[name].equal(trained[name]) for name in heads)


@pytest.mark.parametrize("together", [True, False])
def test_a_client_trains_the_same_to_the_bit_whoever_trains_beside_it(together):
    counts, rates = [19, 5, 8, 30], LinearRates(**RATES, together=together)
    samples, heads = drawn(counts, seed=4), start(4, bias=True, seed=5)
    rows = touched_rows(samples, ITEMS)
    table = torch.randn(len(rows.ids), DIM, generator=torch.Generator().manual_seed(6))
    alone_from = table.clone()
    found = linear_epoch(samples, rows, table, heads, BATCH, rates)
    for client, count in enumerate(counts):
        mine = samples.owner == client
        own = Samples(torch.tensor([count]), torch.zeros(count, dtype=torch.int64), samples.items[mine],
                      samples.labels[mine])  # fmt: skip
        own_table = alone_from[rows.owner == client].clone()
        p = {name: values[client : client + 1] for name, values in heads.items()}
        alone = linear_epoch(own, touched_rows(own, ITEMS), own_table, p, BATCH, rates)
        assert own_table.equal(table[rows.owner == client])
        assert all(alone[name][0].equal(found[name][client]) for name in found)


def test_a_saturated_sample_moves_nothing():
    """As in torch's BCELoss, which the published rates rely on."""
    samples = Samples(
        torch.tensor([2]), torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]), torch.tensor([0.0, 1.0])
    )
    rows = touched_rows(samples, ITEMS)
    heads, table = {"w": torch.ones(1, DIM)}, torch.tensor([[4.0], [-9.0]]).repeat(1, DIM)
    before = table.clone()
    found = linear_epoch(samples, rows, table, heads, BATCH, LinearRates(**RATES, together=True))
    torch.testing.assert_close(table, before, atol=1e-6, rtol=0)
    torch.testing.assert_close(found["w"], heads["w"], atol=1e-6, rtol=0)
    assert torch.isfinite(table).all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("more", [(-1, 0), (1, 0), (0, -1), (0, 1)])
def test_a_table_of_other_rows_is_refused(more):
    """Machine code reads memory unchecked."""
    samples, rates = drawn([19, 8], seed=1), LinearRates(**RATES, together=True)
    rows = touched_rows(samples, ITEMS)
    table = torch.zeros(len(rows.ids) + more[0], DIM + more[1])
    with pytest.raises(IndexError, match="drop the message"):
        linear_epoch(samples, rows, table, start(2, bias=False, seed=1), BATCH, rates)
