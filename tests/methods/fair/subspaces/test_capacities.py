"""Schemes, budgets, and who gets which capacity."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.fair.subspaces import Capacities, CapacityError, Scheme, Subspace, SubspaceMemory

PROPERTY = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize(
    ("text", "levels", "shares"),
    [
        ("1x", (0,), (Fraction(1),)),
        ("16x", (4,), (Fraction(1),)),
        ("1x-4x", (0, 2), (Fraction(1, 2),) * 2),
        ("1x-2x-4x", (0, 1, 2), (Fraction(1, 3),) * 3),
        ("1x:0.9-2x:0.1", (0, 1), (Fraction(9, 10), Fraction(1, 10))),
        ("64x:.25-1x:.75", (6, 0), (Fraction(1, 4), Fraction(3, 4))),
    ],
)
def test_schemes_are_read(text, levels, shares):
    assert Scheme.parse(text) == Scheme(levels, shares)


@pytest.mark.parametrize("text", ["", "1", "x", "0x", "3x", "1x-", "1x-6x", "1x:0.5-2x", "-1x", "1x:1:1", "1.5x", "1X"])
def test_what_is_no_scheme_is_refused(text):
    with pytest.raises(CapacityError, match="powers of two, as in 1x-4x"):
        Scheme.parse(text)


@pytest.mark.parametrize("text", ["1x:0.9-2x:0.2", "1x:0.5-2x:0.4", "1x:0-2x:1", "1x:0.0"])
def test_shares_that_are_none_are_refused(text):
    with pytest.raises(CapacityError, match="add up to 1"):
        Scheme.parse(text)


@pytest.mark.parametrize(("levels", "shares"), [((), ()), ((0,), ()), ((-1,), (Fraction(1),))])
def test_levels_without_shares_are_refused(levels, shares):
    with pytest.raises(CapacityError, match="each level of 0 or more"):
        Scheme(levels, shares)


def test_no_budgets_are_refused():
    with pytest.raises(CapacityError, match="each level of 0 or more"):
        Scheme.of_budgets([], SubspaceMemory([Subspace(10, 2, 0, 1, 0)]))


@given(st.integers(1, 300), st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=5))
@PROPERTY
def test_equal_blocks_are_those_of_the_released_code(n_users, compressions):
    scheme = "-".join(f"{c}x" for c in compressions)
    levels = Capacities.assign(scheme, n_users).levels
    released = [compressions[i * len(compressions) // n_users].bit_length() - 1 for i in range(n_users)]
    assert levels.tolist() == released


def test_goodreads_halves_are_50_and_49():
    assert Capacities.assign("1x-4x", 99).members == {0: 50, 2: 49}
    assert Capacities.assign("1x-4x", 99).tiers == (0, 2)
    assert Capacities.assign("1x:0.9-2x:0.1", 99).members == {0: 90, 1: 9}


@given(st.integers(1, 200), st.integers(0, 2**32), st.sampled_from(["1x-4x", "1x:0.3-2x:0.3-16x:0.4", "8x"]))
@PROPERTY
def test_every_order_hands_out_the_same_capacities(n_users, seed, scheme):
    activity = np.random.default_rng(seed).integers(1, 9, n_users)
    orders = [
        Capacities.assign(scheme, n_users),
        Capacities.assign(scheme, n_users, "random", seed),
        Capacities.assign(scheme, n_users, "activity", activity=activity),
    ]
    assert len({tuple(np.sort(c.levels)) for c in orders}) == 1
    assert all(sum(c.members.values()) == n_users for c in orders)


def test_a_seed_is_an_order():
    one, same, other = (Capacities.assign("1x-4x", 200, "random", seed).levels for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert 30 < (one[:100] == 0).sum() < 70


def test_the_most_active_get_the_first_capacity_and_ties_go_by_pseudonym():
    activity = np.array([3, 9, 5, 5, 5, 1])
    assert Capacities.assign("1x-2x-4x", 6, "activity", activity=activity).levels.tolist() == [2, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("activity", [None, np.arange(5)])
def test_activity_of_others_is_refused(activity):
    with pytest.raises(CapacityError, match="one number for each user"):
        Capacities.assign("1x-4x", 6, "activity", activity=activity)


def test_what_each_order_discloses_is_said():
    said = {
        by: Capacities.assign("1x-4x", 6, by, activity=np.arange(6)).side_disclosures
        for by in ("pseudonym", "random", "activity")
    }
    assert all(len(sentences) == 1 for sentences in said.values())
    assert "wherever users are numbered by activity" in said["pseudonym"][0]
    assert "nothing about" in said["random"][0]
    assert "no privacy guarantee" in said["activity"][0]
    assert Capacities.assign("16x", 6, "activity", activity=np.arange(6)).side_disclosures == ()


TABLES = (Subspace(359_014, 8, 0, 4, 1), Subspace(359_014, 8, 0, 4, 2))


def test_the_formula():
    memory = SubspaceMemory(TABLES, others=169, working=1000)
    assert memory.needs(0) == 5 * 4 * (2 * 359_014 * 8 + 169) + 1000
    assert memory.needs(4) == 5 * 4 * (2 * 359_014 * 8 // 16 + 169) + 1000
    assert SubspaceMemory(TABLES, others=169, training=False, value=8).needs(1) == 8 * (359_014 * 8 + 169)


def test_training_with_adam_keeps_what_the_formula_counts():
    """Live tensors of a real step: start, parameter, gradient, and what the optimiser keeps."""
    tables = [Subspace(300, 8, 2, 4, seed) for seed in (1, 2)]
    layers = [(16, 8), (8,), (16,)]
    received = [torch.zeros(t.size) for t in tables] + [torch.zeros(shape) for shape in layers]
    trained = [r.clone().requires_grad_() for r in received]
    optimiser = torch.optim.Adam(trained)
    items = torch.tensor([3, 5, 299])
    elements = items[:, None] * 8 + torch.arange(8)
    loss = sum(p[t.slots(elements)].sum() for t, p in zip(tables, trained, strict=False))
    (loss + sum(p.sum() for p in trained[2:])).backward()
    optimiser.step()
    kept = [*received, *trained, *(p.grad for p in trained)]
    kept += [m for state in optimiser.state.values() for name, m in state.items() if name != "step"]
    memory = SubspaceMemory(tables, others=16 * 8 + 8 + 16)
    assert memory.needs(2) == sum(t.nbytes for t in kept)


@given(st.integers(0, 2**28))
@PROPERTY
def test_a_budget_gets_the_largest_subspace_that_fits(budget):
    memory = SubspaceMemory(TABLES, others=169)
    fits = [g for g in range(5) if memory.needs(g) <= budget]
    if fits:
        assert memory.level_of(budget) == min(fits)
    else:
        with pytest.raises(CapacityError, match="raise the budget or the number of levels"):
            memory.level_of(budget)


def test_every_user_may_have_a_budget_of_their_own():
    memory = SubspaceMemory(TABLES)
    budgets = [memory.needs(g) + 1 for g in (3, 0, 2, 4)]
    assert Capacities.assign(Scheme.of_budgets(budgets, memory), 4).levels.tolist() == [3, 0, 2, 4]
    assert Capacities.assign(Scheme.of_budgets(budgets[:2], memory), 4).levels.tolist() == [3, 3, 0, 0]


def test_tables_must_have_the_same_levels():
    for tables in ((), (Subspace(10, 2, 0, 3, 1), Subspace(10, 2, 0, 4, 1))):
        with pytest.raises(CapacityError, match="all with the same levels"):
            SubspaceMemory(tables)
