"""The integer grid: rounding, refusals, and bounds that hold for every user, code and item table there could be."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import Histories
from privfed.methods.dfmr import discrete
from privfed.methods.dfmr.discrete import GridError, IntegerGrid, ItemSupport

GOOD = {"w": 1.0, "s": 0.1, "lam": 0.25, "c": np.array([0.5, 2.0]), "gammas": (0.25, 0.5, 0.0), "bits": 4}


def test_weights_round_to_the_grid():
    grid = IntegerGrid.from_parameters(2, 2, **GOOD)
    assert (grid.w, grid.s, grid.g1, grid.g2, grid.g3) == (16, 2, 1, 2, 0)
    assert (grid.purchase.tolist(), grid.examine.tolist()) == ([2, 8], [6, 24])
    assert grid.by_kind.tolist() == [[0, 0], [2, 8], [6, 24]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lam": 1.5}, "must be 0 to 1"),
        ({"lam": float("nan")}, "must be 0 to 1"),
        ({"w": -1.0}, "w holds -1"),
        ({"s": float("inf")}, "s holds inf"),
        ({"c": np.array([1.0, np.nan])}, "c holds nan"),
        ({"c": np.array([1.0, -0.5])}, "c holds -0.5"),
        ({"c": np.array([1.0, np.inf]), "lam": 0.0}, "c holds inf"),
        ({"c": np.array([1.0, 1e300])}, "c reaches 1e"),
        ({"c": np.ones(3)}, "give one weight per item"),
        ({"gammas": (0.25, 0.3, 0.0)}, "the nearest is 0.25"),
        ({"gammas": (0.25, 0.5, 1.25)}, "the nearest is 1.0"),
        ({"gammas": (-0.25, 0.5, 1.0)}, "the nearest is 0.0"),
        ({"gammas": (float("nan"), 0.5, 1.0)}, "not a multiple"),
        ({"bits": 61}, "0 to 60"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_has_no_place_is_refused(change, words):
    with pytest.raises(GridError, match=words):
        IntegerGrid.from_parameters(2, 2, **(GOOD | change))


def test_catalogues_whose_scores_need_more_than_32_bits_are_refused():
    with pytest.raises(GridError, match="below 2\\^31"):
        IntegerGrid.from_parameters(2**27, 16, **GOOD)


def extremes(grid):
    """The largest |C|, |q2|, kap, |g| and inertia of any user over all item tables, by trying everything."""
    m, d = grid.n_items, grid.d
    signs = np.array([-1, 1], np.int8)
    kinds = np.array(list(itertools.product(range(3), repeat=m)))
    codes = np.array(list(itertools.product(signs, repeat=d)))
    users = np.tile(codes, (len(kinds), 1))
    kinds = np.repeat(kinds, len(codes), axis=0)
    bought, seen = (Histories.from_pairs(*np.nonzero(kinds == kind), *kinds.shape) for kind in (1, 2))
    support, everybody = ItemSupport.from_histories(bought, seen), np.arange(len(kinds))
    weights = discrete.weights_of(grid, support)
    contribution = pull = 0
    scores = np.zeros(len(support.items), np.int32)
    for table in itertools.product(codes, repeat=m):
        items = np.array(table)
        discrete.pair_scores(grid, support, everybody, users, items, scores)
        for bit in range(d):
            c, g = discrete.item_terms(
                grid, support, everybody, users, scores, items.sum(0, dtype=np.int64), items[:, bit], bit, -1,
                np.zeros(m, np.int8),
            )  # fmt: skip
            contribution, pull = max(contribution, np.abs(c).max()), max(pull, np.abs(g).max())
    field = np.abs(discrete.field(users, weights, everybody)).max()
    slowed = discrete.inertia(grid, support, everybody).max()
    return [int(x) for x in (contribution, field, weights.kappa.max(), pull, slowed)]


def bounds(grid):
    return [grid.contribution_bound, grid.field_bound, grid.kappa_bound, grid.proximal_bound, grid.inertia_bound]


@settings(max_examples=12, deadline=None)
@given(
    d=st.integers(1, 2),
    w=st.floats(0, 2), s=st.floats(0, 2), lam=st.floats(0, 1),
    c=st.lists(st.floats(0, 2), min_size=3, max_size=3),
    steps=st.lists(st.integers(0, 2), min_size=3, max_size=3),
)  # fmt: skip
def test_bounds_hold_and_are_near_what_can_happen(d, w, s, lam, c, steps):
    gammas = tuple(step / 2 for step in steps)
    grid = IntegerGrid.from_parameters(3, d, w=w, s=s, lam=lam, c=np.array(c), gammas=gammas, bits=6)
    found = extremes(grid)
    for bound, most in zip(bounds(grid), found, strict=True):
        assert bound >= most
    # Three of them are reached exactly; the contribution within a factor of 4, the inertia too, less its rounding up.
    assert bounds(grid)[1:4] == found[1:4]
    assert bounds(grid)[0] <= 4 * found[0]
    assert bounds(grid)[4] <= 4 * found[4] + 6


def test_bounds_do_not_wrap_around_in_numpys_own_whole_numbers():
    large = GOOD | {"bits": 58, "c": np.full(40, 15.0)}
    names = [name for name in vars(IntegerGrid) if name.endswith("_bound")]
    plain, others = (
        IntegerGrid.from_parameters(40, 4, **large),
        IntegerGrid.from_parameters(np.int64(40), np.int64(4), **large),
    )
    assert [getattr(others, name) for name in names] == [getattr(plain, name) for name in names]
    assert max(getattr(plain, name) for name in names) > 2**63


def test_bounds_are_whole_numbers_beyond_64_bits():
    grid = IntegerGrid.from_parameters(
        1000, 1000, w=1, s=1, lam=0.5, c=np.full(1000, 2.0**15), gammas=(1.0, 1.0, 1.0), bits=45
    )
    assert grid.contribution_bound.bit_length() > 64
    assert grid.kappa_bound == 2**45 + 1000 * 2**59


def test_the_bound_of_a_user_field_is_nearly_reached(toy):
    # Half the catalogue bought with all scores against the margin, half not: 1/4 of all pairs instead of all.
    m, d = 8, 2
    grid = IntegerGrid.from_parameters(m, d, w=0, s=0, lam=1.0, c=np.ones(m), gammas=(1.0, 1.0, 1.0), bits=4)
    bought = np.arange(m) < m // 2
    items = np.where(bought[:, None], np.array([1, -1]), np.array([-1, 1])).astype(np.int8)
    world = toy(bought[None].astype(int), grid, np.ones((1, d), np.int8), items)
    assert grid.user_field_bound / 8 <= world.naive_bit("user", 0, 0) <= grid.user_field_bound


@pytest.mark.parametrize(("m", "d"), [(2, 2), (9, 3)])
def test_the_bound_of_a_user_field_is_reached_by_a_hub(toy, m, d):
    """All weight on the one item bought, which scores as low as it can, and everything else as high."""
    hub = np.arange(m) == 0
    grid = IntegerGrid.from_parameters(
        m, d, w=0, s=0, lam=1.0, c=hub.astype(np.float64), gammas=(1.0, 1.0, 1.0), bits=4
    )
    low = np.r_[1, -np.ones(d - 1)]
    items = np.where(hub[:, None], low, -low).astype(np.int8)
    world = toy(hub[None].astype(int), grid, np.ones((1, d), np.int8), items)
    assert world.naive_bit("user", 0, 0) == grid.user_field_bound
