"""Called users: any subset in any order gives its rows of the whole; padding and empty histories change nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import Histories
from privfed.methods.dfmr import discrete


def called(world, users, scores):
    """Everything that clients compute, for the given users: per user and per entry."""
    g, s = world.grid, world.support
    weights = discrete.weights_of(g, s)
    change = np.where(np.arange(g.n_items) % 3 == 0, 2, 0).astype(np.int8) * -world.items[:, 0]
    items = world.items.copy()
    items[:, 0] += change
    values, pull = discrete.item_terms(
        g, s, users, world.users, scores, items.sum(0, dtype=np.int64), items[:, 1], 1, 0, change
    )
    wide = items.astype(np.int64)
    gram, totals = wide.T @ wide, wide.sum(0)
    losses = discrete.objective(g, s, users, world.users, scores, gram, totals)
    codes, flips = discrete.update_codes(g, s, users, world.users, items, scores, gram, totals, world.x[users])
    rows = [
        pull, losses, codes, flips, discrete.field(world.users, weights, users),
        discrete.inertia(g, s, users),
    ]  # fmt: skip
    return rows, values


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(0, 9))
def test_some_users_in_any_order_are_their_rows_of_the_whole(toy, seed, size):
    world = toy.random(seed, n=9)
    users = np.random.default_rng(seed).permutation(9)[:size]
    before = world.users.copy()
    all_scores, scores, started = world.scores(), world.scores(), world.scores()
    all_rows, all_values = called(world, world.everybody, all_scores)
    rows, values = called(world, users, scores)
    for whole, part in zip(all_rows, rows, strict=True):
        assert np.array_equal(whole[users], part)
    _owner, entry = world.support.of_users(users)
    assert np.array_equal(all_values[entry], values)
    mine = np.zeros(len(scores), bool)
    mine[entry] = True
    assert np.array_equal(scores[mine], all_scores[mine])
    assert np.array_equal(scores[~mine], started[~mine])  # users who were not called have not moved
    assert np.array_equal(world.users, before)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_fake_items_change_nothing(toy, seed):
    bare = toy.random(seed, n=6)
    padding = np.random.default_rng(seed).random(bare.kinds.shape) < 0.5
    covered = replace(bare, padding=Histories.from_pairs(*np.nonzero(padding), *padding.shape))
    rows, values = called(bare, bare.everybody, bare.scores())
    start = covered.scores()
    scores = start.copy()
    scores[covered.support.kind == discrete.PADDING] = 99
    covered_rows, covered_values = called(covered, covered.everybody, scores)
    for one, other in zip(rows, covered_rows, strict=True):
        assert np.array_equal(one, other)
    true = covered.support.kind != discrete.PADDING
    assert np.array_equal(covered_values[true], values)
    assert not covered_values[~true].any()
    assert (scores[~true] == 99).all()
    assert np.array_equal(covered.stars(), bare.stars())


@pytest.mark.parametrize("kinds", [(0, 1), (0, 2), (0,), (1,), (2,)])
def test_users_without_one_behaviour_or_with_nothing_else(toy, kinds):
    world = toy.random(4)
    world = replace(world, kinds=np.random.default_rng(0).choice(kinds, world.kinds.shape))
    naive = [[world.naive_bit("item", i, f) for f in range(3)] for i in range(world.grid.n_items)]
    assert np.array_equal(world.stars(), naive)
    held = world.users
    new, _ = discrete.update_codes(
        world.grid, world.support, world.everybody, held, world.items, world.scores(), *world.sums(), world.x
    )
    world.users = held.copy()
    for bit in range(3):
        for user in range(len(held)):
            star = world.naive_bit("user", user, bit)
            world.users[user, bit] = np.sign(star) if star else world.users[user, bit]
    assert np.array_equal(new, world.users)


@pytest.mark.usefixtures("unchecked")
def test_arrays_that_do_not_belong_together_are_refused(toy):
    world = toy.random(0)
    scores, (gram, totals) = world.scores(), world.sums()
    with pytest.raises(discrete.DiscreteError, match="numbered 0 to 2"):
        discrete.objective(world.grid, world.support, np.array([3]), world.users, scores, gram, totals)
    with pytest.raises(discrete.DiscreteError, match="totals has shape"):
        discrete.objective(world.grid, world.support, np.array([1]), world.users, scores, gram, totals[:0])
    with pytest.raises(discrete.DiscreteError, match="the support for 7"):
        discrete.weights_of(toy.random(0, m=8).grid, world.support)
    with pytest.raises(discrete.DiscreteError, match="bit 3 does not exist"):
        discrete.item_terms(
            world.grid, world.support, world.everybody, world.users, scores, totals, world.items[:, 0], 3, -1,
            np.zeros(7, np.int8),
        )  # fmt: skip
    with pytest.raises(discrete.DiscreteError, match="3 x 3"):
        discrete.server_field(0, 0, np.zeros((3, 3), np.int64), world.items, 3)
