"""Positions and metrics against loops that anyone can read."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.evaluation import Positions, positions, ties_decide, user_metrics


def naive_metrics(sorted_positions, k):
    hits = [p for p in sorted_positions if p <= k]
    ideal = sum(1 / math.log2(p + 1) for p in range(1, min(len(sorted_positions), k) + 1))
    return {
        "hr": float(bool(hits)),
        "recall": len(hits) / len(sorted_positions),
        "mrr": 1 / min(hits) if hits else 0.0,
        "ndcg": sum(1 / math.log2(p + 1) for p in hits) / ideal,
        "precision": len(hits) / k,
    }


@st.composite
def chunks(draw, levels=5):
    n_rows, width = draw(st.integers(1, 4)), draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    scores = rng.integers(levels, size=(n_rows, width)).astype(np.float32)
    relevant = rng.random((n_rows, width)) < 0.3
    ranked = relevant | (rng.random((n_rows, width)) < 0.7)
    items = np.argsort(rng.random((n_rows, 40)), axis=1)[:, :width].astype(np.int64)
    users = rng.choice(1000, n_rows, replace=False).astype(np.int64)
    return scores, items, relevant, ranked, users


@given(chunks(levels=10**6))
@settings(max_examples=50, deadline=None)
def test_positions_without_ties_are_those_of_a_sort(chunk):
    scores, _, relevant, ranked, _ = chunk
    found = positions(*chunk, pessimistic=False, seed=0)
    expected = []
    for row in range(len(scores)):
        order = sorted(np.flatnonzero(ranked[row]), key=lambda c: -scores[row, c])
        expected += [order.index(c) + 1 for c in np.flatnonzero(relevant[row])]
    if len({*scores.ravel()}) == scores.size:
        assert found.position.tolist() == expected
    assert (found.best <= found.position).all()


@given(chunks())
@settings(max_examples=50, deadline=None)
def test_tied_positions_are_one_consistent_order_and_pessimism_is_the_worst_of_them(chunk):
    scores, _, relevant, ranked, _ = chunk
    random = positions(*chunk, pessimistic=False, seed=3)
    worst = positions(*chunk, pessimistic=True, seed=3)
    for row in range(len(scores)):
        mine = random.position[random.row == row]
        assert len(set(mine)) == len(mine)
        assert ((mine >= 1) & (mine <= ranked[row].sum())).all()
        own = scores[row][relevant[row]]
        others = scores[row][ranked[row] & ~relevant[row]]
        for value, position in zip(own, worst.position[worst.row == row], strict=True):
            not_better = (others >= value).sum() + (own > value).sum()
            assert not_better + 1 <= position <= not_better + (own == value).sum()
    assert np.sort(random.position).sum() <= np.sort(worst.position).sum()


@given(chunks())
@settings(max_examples=50, deadline=None)
def test_positions_do_not_depend_on_the_order_of_users_or_columns(chunk):
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(chunk[0].shape[0]), rng.permutation(chunk[0].shape[1])
    scores, items, relevant, ranked, users = chunk
    shuffled = [a[rows][:, columns] for a in (scores, items, relevant, ranked)]
    one = positions(*chunk, pessimistic=False, seed=1)
    two = positions(*shuffled, users[rows], pessimistic=False, seed=1)
    for new, old in enumerate(rows):
        assert sorted(two.position[two.row == new]) == sorted(one.position[one.row == old])


def test_blocks_do_not_change_positions(monkeypatch):
    rng = np.random.default_rng(4)
    scores = rng.integers(6, size=(30, 50)).astype(np.float32)
    items = np.broadcast_to(np.arange(50), scores.shape)
    relevant = rng.random(scores.shape) < 0.1
    arguments = (scores, items, relevant, np.ones_like(relevant), np.arange(30))
    whole = positions(*arguments, pessimistic=False, seed=0)
    monkeypatch.setattr("privfed.evaluation.ranking.ENTRIES_PER_BLOCK", 120)
    blocks = positions(*arguments, pessimistic=False, seed=0)
    assert whole.position.tolist() == blocks.position.tolist()


def test_random_ties_are_uniform():
    n_users, width = 20_000, 5
    scores = np.zeros((n_users, width), np.float32)
    relevant = np.zeros_like(scores, bool)
    relevant[:, 2] = True
    items = np.broadcast_to(np.arange(width), scores.shape)
    found = positions(scores, items, relevant, np.ones_like(relevant), np.arange(n_users), pessimistic=False, seed=0)
    share = np.bincount(found.position, minlength=width + 1)[1:] / n_users
    assert share == pytest.approx(np.full(width, 0.2), abs=0.012)
    other = positions(scores, items, relevant, np.ones_like(relevant), np.arange(n_users), pessimistic=False, seed=1)
    assert (found.position == other.position).mean() == pytest.approx(0.2, abs=0.02)


def test_any_whole_number_is_a_seed():
    scores, relevant = np.zeros((200, 2), np.float32), np.tile([True, False], (200, 1))
    items = np.broadcast_to(np.arange(2), scores.shape)
    orders = [
        positions(
            scores, items, relevant, np.ones_like(relevant), np.arange(200), pessimistic=False, seed=seed
        ).position
        for seed in (1, 2**63, 2**64 + 1, 10**400)
    ]
    assert all(0 < (order == 1).sum() < 200 for order in orders)
    assert (orders[0] != orders[1]).any()


@given(st.lists(st.sets(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_metrics_equal_their_definitions(rows):
    row = np.array([r for r, found in enumerate(rows) for _ in found])
    position = np.array([p for found in rows for p in found])
    metrics = user_metrics(Positions(row, position, position, position), len(rows), (1, 5, 10, 20, 2**62))
    for (name, cut), values in metrics.items():
        expected = [naive_metrics(sorted(found), cut)[name] for found in rows]
        assert values == pytest.approx(expected)


def test_a_row_without_relevant_items_has_no_metrics():
    one = np.array([1])
    metrics = user_metrics(Positions(one, one, one, one), 2, (10,))
    assert all(np.isnan(v[0]) for v in metrics.values())
    assert {name: v[1] for (name, _), v in metrics.items()} == naive_metrics([1], 10)


def test_ties_decide_only_where_a_cut_lies_inside_the_tie():
    row = np.arange(4)
    found = Positions(row, row, best=np.array([1, 8, 11, 20]), worst=np.array([9, 12, 15, 20]))
    assert ties_decide(found, 5, (10,)).tolist() == [False, True, False, False, False]


@given(chunks(), st.integers(1, 12), st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_deepest_cut_changes_nothing_above_it_and_positions_follow_from_their_definition(chunk, deepest, pessimistic):
    scores, _, relevant, ranked, _ = chunk
    whole = positions(*chunk, pessimistic=pessimistic, seed=2)
    cut = positions(*chunk, pessimistic=pessimistic, seed=2, deepest=deepest)
    above = whole.best <= deepest
    assert (cut.position[above] == whole.position[above]).all()
    assert (cut.position[~above] == whole.best[~above]).all()
    for found in (whole, cut):
        entries = zip(*np.nonzero(relevant), found.row, found.best, found.worst, strict=True)
        for row, column, at, best, worst in entries:
            theirs, mine = scores[row][ranked[row]], scores[row, column]
            equal_rivals = (scores[row][ranked[row] & ~relevant[row]] == mine).sum()
            assert (row, best) == (at, 1 + (theirs > mine).sum())
            assert worst == best + equal_rivals


def test_thousands_of_held_out_items_in_a_large_catalogue():
    rng = np.random.default_rng(0)
    scores = np.stack([rng.permutation(60_000) for _ in range(4)]).astype(np.float32)
    relevant = rng.random(scores.shape) < 0.03
    items, ranked = np.broadcast_to(np.arange(60_000), scores.shape), np.ones_like(relevant)
    found = positions(scores, items, relevant, ranked, np.arange(4), pessimistic=False, seed=0, deepest=20)
    order = np.argsort(-scores[0])
    assert np.flatnonzero(relevant[0][order]).tolist() == sorted(found.position[found.row == 0] - 1)
