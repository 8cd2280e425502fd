"""Brute force: the cached fields are exactly what flipping one bit does to the objective written out term by term.

L(+1) - L(-1) = -2 V*; times 4 d^2 K the left side is a difference of whole losses and the right -4 (2 d^2 K V*).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.dfmr import discrete


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_item_bit(toy, seed):
    world = toy.random(seed)
    naive = [[world.naive_bit("item", i, f) for f in range(world.grid.d)] for i in range(world.grid.n_items)]
    assert np.array_equal(world.stars(), naive)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_user_bit(toy, seed):
    # A huge balance holds all bits but one. There, minus the naive field is a tie; one unit decides.
    world = toy.random(seed)
    n, d = world.users.shape
    gram, totals = world.sums()
    for bit in range(d):
        naive = np.array([world.naive_bit("user", u, bit) for u in range(n)])
        assert np.abs(naive - world.x[:, bit]).max() <= world.grid.user_field_bound
        for shift in (-1, 0, 1):
            hold = world.users.astype(np.int64) * 2**50
            hold[:, bit] = world.x[:, bit] - naive + shift
            new, flips = discrete.update_codes(
                world.grid, world.support, world.everybody, world.users, world.items, world.scores(), gram, totals, hold
            )
            expected = world.users.copy()
            if shift:
                expected[:, bit] = shift
            assert np.array_equal(new, expected)
            assert np.array_equal(flips, (new != world.users).sum(1))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_objective_is_the_literal_one(toy, seed):
    world = toy.random(seed, n=5, m=9, d=4)
    losses = discrete.objective(world.grid, world.support, world.everybody, world.users, world.scores(), *world.sums())
    assert losses == pytest.approx(world.losses(world.users, world.items), rel=1e-12)
