"""Local samples: who may be drawn, how evenly, and that neighbours in a chunk change nothing."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.data import Histories
from privfed.federation import Purpose, Streams
from privfed.methods.shared.samples import (
    NegativeSampler,
    Samples,
    stacked_rows,
    steps_taken,
    tile_batches,
    touched_rows,
)

STREAMS = Streams.from_seed(5)


def histories(rows, n_items):
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    indptr = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    return Histories(indptr, np.array([i for row in rows for i in row], dtype=np.int64), n_items)


def draw(sampler, users, round=0):
    users = torch.tensor(users, dtype=torch.int64)
    count = sampler.words_needed(users)
    words = STREAMS.words(Purpose.SAMPLES, round, 0, users.tolist(), count)
    return sampler.epoch(users, words)


def of_client(samples, client):
    mine = samples.owner == client
    return samples.items[mine].tolist(), samples.labels[mine].tolist()


def population(seed, n_users, n_items, negatives):
    """Random positives in random order, some held-out items, and room for the negatives."""
    rng = np.random.default_rng(seed)
    positives, excluded = [], []
    for _ in range(n_users):
        size = rng.integers(1, n_items - negatives + 1)
        items = rng.permutation(n_items)[:size].tolist()
        kept = rng.integers(1, size + 1)
        positives.append(items[:kept])
        excluded.append(rng.permutation(items).tolist())
    return histories(positives, n_items), histories(excluded, n_items)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 20))
def test_every_positive_once_with_k_distinct_allowed_negatives(seed, n_users, k, spare):
    positives, excluded = population(seed, n_users, k + 1 + spare, k)
    samples = draw(NegativeSampler(positives, excluded, k), list(range(n_users)))
    assert samples.counts.tolist() == (positives.counts * (k + 1)).tolist()
    assert samples.owner.tolist() == np.repeat(np.arange(n_users), samples.counts).tolist()
    for user in range(n_users):
        items, labels = of_client(samples, user)
        positive = sorted(i for i, y in zip(items, labels, strict=True) if y == 1)
        negative = Counter(i for i, y in zip(items, labels, strict=True) if y == 0)
        assert positive == sorted(positives.items_of(user).tolist())
        assert not set(negative) & set(excluded.items_of(user).tolist())
        assert sum(negative.values()) == k * len(positive)
        assert max(negative.values()) <= len(positive)  # at most once per positive


@pytest.mark.parametrize("k", [1, 2, 4])
def test_negatives_of_one_positive_are_distinct(k):
    """With as many negatives as there is room, every allowed item comes exactly once."""
    sampler = alike([1], [1], k + 1, k, users=50)
    samples = draw(sampler, list(range(50)))
    items, labels = samples.items.view(50, k + 1), samples.labels.view(50, k + 1)
    assert items.sort(1).values.tolist() == [list(range(k + 1))] * 50
    assert (items[labels == 1] == 1).all()
    assert labels.sum(1).tolist() == [1] * 50


def alike(positives, excluded, n_items, negatives, users):
    """Many users with the same history: their draws are independent repetitions."""
    return NegativeSampler(histories([positives] * users, n_items), histories([excluded] * users, n_items), negatives)


def test_sets_of_negatives_are_uniform_over_the_allowed_items():
    """3 of 7 allowed items, at the edges and inside of a catalogue with gaps: 35 sets, equally often."""
    allowed = [0, 2, 5, 6, 9, 10, 12]
    users, seen = 7000, [i for i in range(13) if i not in allowed]
    samples = draw(alike([4], seen[::-1], 13, 3, users), list(range(users)))
    negatives = samples.items[samples.labels == 0].view(users, 3).sort(1).values
    sets = Counter(map(tuple, negatives.tolist()))
    assert len(sets) == 35
    assert all(set(s) <= set(allowed) for s in sets)
    assert stats.chisquare(list(sets.values())).pvalue > 1e-3


def test_each_item_and_each_place_is_uniform():
    """Many positives at once: items over the allowed ones, and positives over the places of the shuffle."""
    own, users = list(range(0, 60, 3)), 400
    samples = draw(alike(own, own, 60, 4, users), list(range(users)))
    items = np.bincount(samples.items[samples.labels == 0].numpy(), minlength=60)
    assert items[own].sum() == 0
    assert stats.chisquare(np.delete(items, own)).pvalue > 1e-3
    assert stats.chisquare(samples.labels.view(users, -1).sum(0).numpy()).pvalue > 1e-3
    for positive in own:
        places = (samples.items.view(users, -1) == positive).nonzero()[:, 1].numpy() // 25
        assert stats.chisquare(np.bincount(places, minlength=4)).pvalue > 1e-5


def test_the_shuffle_tells_nothing_about_the_negatives():
    """Other words for either: where the positive stands and which negative it got are independent."""
    users = 6000
    samples = draw(alike([3], [3], 9, 1, users), list(range(users)))
    items, labels = samples.items.view(users, 2), samples.labels.view(users, 2)
    table = np.zeros((2, 9), dtype=np.int64)
    np.add.at(table, (labels[:, 0].long().numpy(), items[labels == 0].numpy()), 1)
    assert stats.chi2_contingency(np.delete(table, 3, axis=1)).pvalue > 1e-3


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_a_clients_samples_do_not_depend_on_its_neighbours(seed, random):
    positives, excluded = population(seed, 8, 20, 3)
    sampler = NegativeSampler(positives, excluded, 3)
    chunk = random.sample(range(8), random.randint(1, 8))
    together = draw(sampler, chunk, round=2)
    for place, user in enumerate(chunk):
        assert of_client(together, place) == of_client(draw(sampler, [user], round=2), 0)


def test_rounds_draw_afresh():
    positives, excluded = population(0, 3, 40, 4)
    sampler = NegativeSampler(positives, excluded, 4)
    assert not draw(sampler, [0, 1, 2], 0).items.equal(draw(sampler, [0, 1, 2], 1).items)


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_one_who_lacks_negatives_has_those_there_are_and_changes_nothing_for_others(room):
    """Also where the processor draws in machine code, bit for bit as step by step."""
    full, k = list(range(10 - room)), 4
    rows, spared = [[0, 3], full[::-1], [5], []], [[0, 3], [], [5], []]
    sampler = NegativeSampler(histories(rows, 10), histories(rows, 10), k)
    users = torch.arange(4)
    words = STREAMS.words(Purpose.SAMPLES, 0, 0, users.tolist(), len(full) * (2 * k + 1))
    samples = sampler.epoch(users, words)
    stepwise = sampler.sample(users, torch.from_numpy(words.astype(np.int64)))
    for name in ("counts", "owner", "items", "labels"):
        assert getattr(samples, name).equal(getattr(stepwise, name))
    assert samples.counts.tolist() == [10, len(full) * (room + 1) if room else 0, 5, 0]
    items, labels = of_client(samples, 1)
    assert Counter(i for i, y in zip(items, labels, strict=True) if y == 1) == Counter(full if room else [])
    left = {item: len(full) for item in range(10 - room, 10)}
    assert Counter(i for i, y in zip(items, labels, strict=True) if y == 0) == Counter(left)
    alone = NegativeSampler(histories(spared, 10), histories(spared, 10), k).epoch(users, words)
    for other in (0, 2, 3):
        assert of_client(samples, other) == of_client(alone, other)


def test_users_without_items_have_no_samples():
    rows = [[1, 2], [], [3]]
    sampler = NegativeSampler(histories(rows, 9), histories(rows, 9), 2)
    assert draw(sampler, [0, 1, 2]).counts.tolist() == [6, 0, 3]


def test_a_chunk_of_users_without_items_has_no_samples():
    rows = [[1, 2], [], []]
    samples = draw(NegativeSampler(histories(rows, 9), histories(rows, 9), 2), [1, 2])
    assert samples.counts.tolist() == [0, 0]
    assert list(touched_rows(samples, 9).ids) == []


def test_repeated_interactions_do_not_open_the_excluded_items():
    """Data sets may keep duplicates: the same item twice in a history excludes it once."""
    rows = [[5, 5, 9, 2, 2, 2]]
    sampler = NegativeSampler(histories(rows, 10), histories(rows, 10), 3)
    drawn = set()
    for round in range(50):
        items, labels = of_client(draw(sampler, [0], round), 0)
        drawn |= {i for i, y in zip(items, labels, strict=True) if y == 0}
    assert drawn == {0, 1, 3, 4, 6, 7, 8}


def same(found, wanted, *parts):
    for part in parts:
        assert getattr(found, part).dtype == getattr(wanted, part).dtype
        assert getattr(found, part).equal(getattr(wanted, part)), part


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 400), st.sampled_from([1, 2**20, 2**32]))
def test_machine_code_draws_what_the_steps_draw(seed, k, spare, words_below):
    """Also from few different words, where draws meet each other and the shuffle has ties."""
    positives, excluded = population(seed, 6, k + 1 + spare, k)
    sampler, users = NegativeSampler(positives, excluded, k), torch.tensor([5, 0, 3, 3])
    rng = np.random.default_rng(seed)
    words = rng.integers(0, words_below, (4, sampler.words_needed(users)), dtype=np.uint64).astype(np.uint32)
    found, wanted = sampler.epoch(users, words), sampler.sample(users, torch.from_numpy(words.astype(np.int64)))
    same(found, wanted, "counts", "owner", "items", "labels")
    same(touched_rows(found, positives.n_items), stacked_rows(wanted, positives.n_items), "owner", "ids", "of_sample")


def random_samples(seed, n_clients, n_items=15):
    rng = np.random.default_rng(seed)
    counts = torch.from_numpy(rng.integers(0, 40, n_clients))
    owner = torch.repeat_interleave(torch.arange(n_clients), counts)
    items = torch.from_numpy(rng.integers(n_items, size=len(owner)))
    return Samples(counts, owner, items, torch.from_numpy(rng.integers(2, size=len(owner)).astype(np.float32)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20))
def test_touched_rows_are_the_distinct_pairs(seed, n_clients):
    samples = random_samples(seed, n_clients)
    rows = touched_rows(samples, 15)
    same(rows, stacked_rows(samples, 15), "owner", "ids", "of_sample")
    pairs = list(zip(samples.owner.tolist(), samples.items.tolist(), strict=True))
    found = list(zip(rows.owner.tolist(), rows.ids.tolist(), strict=True))
    assert found == sorted(set(pairs))
    assert [found[place] for place in rows.of_sample.tolist()] == pairs


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 30))
def test_batches_take_every_sample_once_in_order_with_the_weight_of_a_mean(seed, n_clients, batch_size):
    samples = random_samples(seed, n_clients)
    start = (samples.counts.cumsum(0) - samples.counts).tolist()
    steps, widths = steps_taken(samples, batch_size).tolist(), set()
    met = []
    for clients, batches in tile_batches(samples, batch_size):
        assert len(clients) == 16
        met += [c for c in clients.tolist() if c >= 0]
        for batch in batches:
            assert batch.samples.shape == batch.weight.shape
            widths.add(batch.samples.shape)
            for row, client in enumerate(clients.tolist()):
                real = batch.weight[row] > 0
                if client < 0 or batch.step >= steps[client]:
                    assert not real.any()
                    continue
                first = start[client] + batch.step * batch_size
                last = min(first + batch_size, start[client] + int(samples.counts[client]))
                assert batch.samples[row][real].tolist() == list(range(first, last))
                assert batch.weight[row][real].tolist() == pytest.approx([1 / (last - first)] * (last - first))
        assert [batch.step for batch in batches] == list(range(max((steps[c] for c in clients if c >= 0), default=0)))
    assert sorted(met) == list(range(n_clients))
    assert len(widths) <= 1


@pytest.mark.parametrize("n_items", [3, 40, 5_000])
def test_touched_rows_are_the_distinct_pairs_however_large_the_catalogue(n_items):
    rng = np.random.default_rng(n_items)
    counts = torch.tensor([30, 0, 7, 1])
    owner = torch.arange(4).repeat_interleave(counts)
    items = torch.from_numpy(rng.integers(0, n_items, len(owner)))
    samples = Samples(counts, owner, items, torch.zeros(len(owner)))
    rows = touched_rows(samples, n_items)
    same(rows, stacked_rows(samples, n_items), "owner", "ids", "of_sample")
    pairs = list(zip(owner.tolist(), items.tolist(), strict=True))
    assert list(zip(rows.owner.tolist(), rows.ids.tolist(), strict=True)) == sorted(set(pairs))
    assert [sorted(set(pairs))[place] for place in rows.of_sample.tolist()] == pairs
