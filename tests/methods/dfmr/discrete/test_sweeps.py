"""Whole sweeps: cached against naive, monotone where it is proven, and the counter-example where it is not."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.dfmr import discrete


def naive_sweep(world, block):
    """Items decide in blocks at each bit, from the objective written out."""
    held = world.items
    world.items = held.copy()
    for bit in range(world.grid.d):
        for first in range(0, world.grid.n_items, block):
            here = range(first, min(first + block, world.grid.n_items))
            stars = [world.naive_bit("item", i, bit) for i in here]
            for i, star in zip(here, stars, strict=True):
                world.items[i, bit] = np.sign(star) if star else world.items[i, bit]
    world.items, new = held, world.items
    return new


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), block=st.sampled_from([1, 3, 7]))
def test_a_cached_item_sweep_is_the_naive_one(toy, seed, block):
    world = toy.random(seed)
    assert np.array_equal(world.sweep_items(block), naive_sweep(world, block))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_item_at_a_time_never_raises_the_objective(toy, seed):
    world = toy.random(seed, n=4, m=9, d=3)
    losses = [world.loss(world.users, world.items)]
    world.sweep_items(1, watch=lambda _, items: losses.append(world.loss(world.users, items)))
    assert len(losses) == 1 + 9 * 3
    assert all(after <= before for before, after in itertools.pairwise(losses))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_user_sweep_is_the_naive_one_and_never_raises_the_objective(toy, seed):
    world = toy.random(seed, n=4, m=8, d=4)
    held, scores = world.users, world.scores()
    new, flips = discrete.update_codes(
        world.grid, world.support, world.everybody, held, world.items, scores, *world.sums(), world.x
    )
    world.users = held.copy()
    last = world.loss(world.users, world.items)
    for bit in range(4):
        for user in range(4):
            star = world.naive_bit("user", user, bit)
            world.users[user, bit] = np.sign(star) if star else world.users[user, bit]
            now = world.loss(world.users, world.items)
            assert now <= last
            last = now
    assert np.array_equal(new, world.users)
    assert np.array_equal(flips, (new != held).sum(1))
    assert np.array_equal(scores, world.scores())  # brought to the new codes


def hub(toy):
    grid = discrete.IntegerGrid.from_parameters(4, 1, w=0, s=0, lam=1.0, c=np.ones(4), gammas=(0.0, 0.0, 0.0), bits=4)
    return toy(
        kinds=np.array([[1, 2, 2, 2]]),
        grid=grid,
        users=np.ones((1, 1), np.int8),
        items=np.array([[1], [-1], [-1], [1]], np.int8),
    )


def test_a_parallel_sweep_over_a_hub_rises_and_then_cycles(toy):
    world = hub(toy)
    unit = 4 * 2**4  # 4 d^2 K
    losses, tables = [], []
    for _ in range(4):
        losses.append(world.loss(world.users, world.items) / unit)
        tables.append(world.items)
        world.items = world.sweep_items()
    assert losses == [2, 3, 3, 3]
    assert np.array_equal(tables[1], tables[3])
    assert not np.array_equal(tables[1], tables[2])


def test_inertia_stops_the_hub(toy):
    world = hub(toy)
    slowed = int(discrete.inertia(world.grid, world.support, world.everybody).sum())
    losses = []
    for _ in range(5):
        losses.append(world.loss(world.users, world.items))
        world.items = world.sweep_items(inertia=slowed)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == 2 * 4 * 2**4


def test_one_item_at_a_time_solves_the_hub(toy):
    world = hub(toy)
    world.items = world.sweep_items(1)
    assert world.loss(world.users, world.items) == 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_inertia_makes_every_parallel_bit_safe(toy, seed):
    world = toy.random(seed, n=4, m=9, d=3, s=0.0, w=0.0)
    slowed = int(discrete.inertia(world.grid, world.support, world.everybody).sum())
    losses = [world.loss(world.users, world.items)]
    world.sweep_items(inertia=slowed, watch=lambda _, items: losses.append(world.loss(world.users, items)))
    assert losses == sorted(losses, reverse=True)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_without_pair_weights_all_at_once_is_one_at_a_time(toy, seed):
    world = toy.random(seed, m=11, c=np.zeros(11))
    assert not discrete.inertia(world.grid, world.support, world.everybody).any()
    assert np.array_equal(world.sweep_items(), world.sweep_items(1))
