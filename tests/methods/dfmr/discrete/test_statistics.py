import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.dfmr import discrete


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 5))
def test_weights_and_sums_against_dense_arrays(toy, seed, d):
    world = toy.random(seed, n=6, d=d)
    grid, users = world.grid, np.random.default_rng(seed).permutation(6)[:4]
    weights = discrete.weights_of(grid, world.support)
    purchase, examine = (world.kinds == 1) @ grid.purchase, (world.kinds == 2) @ grid.examine
    assert np.array_equal(weights.purchase, purchase)
    assert np.array_equal(weights.examine, examine)
    assert np.array_equal(weights.kappa, grid.s + purchase + examine)
    factor = grid.s * d + grid.g2 * purchase + grid.g3 * examine
    assert np.array_equal(discrete.field(world.users, weights, users), (-world.users * factor[:, None])[users])


def coupling_of_items(world):
    """W of the item field b + W V_f, dense: written from the pairs of the objective."""
    w = np.zeros((world.grid.n_items,) * 2)
    for kinds in world.kinds:
        p, e, o = kinds == 1, kinds == 2, kinds == 0
        half = np.outer(world.grid.purchase * p, ~p) + np.outer(world.grid.examine * e, o)
        w += half + half.T
    return w


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 4))
def test_inertia_is_at_least_the_smallest_eigenvalue(toy, seed, n):
    world = toy.random(seed, n=n, m=9)
    slowed = discrete.inertia(world.grid, world.support, world.everybody)
    smallest = np.linalg.eigvalsh(coupling_of_items(world))[0]
    assert slowed.sum() >= -smallest - 1e-9 * abs(smallest)
    # W is the coupling: what flipping item j does to the field of item i at the same bit.
    before = world.star(0)
    world.items[4, 0] *= -1
    change = 2 * int(world.items[4, 0]) * coupling_of_items(world)[:, 4]
    others = np.arange(9) != 4
    assert np.array_equal((world.star(0) - before)[others], change[others])


def test_inertia_of_one_behaviour_is_tight(toy):
    world = toy.random(3, n=1, m=9)
    world.kinds[:] = np.arange(9) < 3  # three purchases, nothing examined
    tight = toy(world.kinds, world.grid, world.users, world.items)
    slowed = int(discrete.inertia(tight.grid, tight.support, tight.everybody)[0])
    assert 0 <= slowed + np.linalg.eigvalsh(coupling_of_items(tight))[0] <= 1
