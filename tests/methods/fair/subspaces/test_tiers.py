"""No small sums, whatever the members of a round."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.methods.fair.subspaces import CapacityError, Subspace, group_tiers, lift

PROPERTY = settings(max_examples=200, deadline=None)
ROUNDS = st.dictionaries(st.integers(0, 6), st.integers(0, 12), max_size=6)
MINIMA = st.integers(1, 20)
WAYS = st.sampled_from(["demote", "lift", "skip"])


@given(ROUNDS, MINIMA, WAYS)
@PROPERTY
def test_every_sum_has_enough_members_or_none(counts, minimum, short):
    grouping = group_tiers(counts, minimum, short)
    assert set(grouping.basis) == set(counts)
    sums = {}
    for tier, basis in grouping.basis.items():
        if basis is not None:
            sums[basis] = sums.get(basis, 0) + counts[tier]
    assert grouping.sums == sums
    assert all(members == 0 or members >= minimum for members in sums.values())


@given(ROUNDS, MINIMA, WAYS)
@PROPERTY
def test_enough_members_of_every_sum_train_in_its_own_subspace(counts, minimum, short):
    """Those lifted from a smaller one do not count: a projection takes them out of the sum."""
    own = {}
    for tier, basis in group_tiers(counts, minimum, short).basis.items():
        if basis is not None and tier <= basis:
            own[basis] = own.get(basis, 0) + counts[tier]
    assert all(members == 0 or members >= minimum for members in own.values())
    assert {basis for basis, members in own.items() if members} == {
        basis for basis, members in group_tiers(counts, minimum, short).sums.items() if members
    }


def test_a_lifted_update_hides_nobody_larger():
    """Projected off the small subspace, a sum of one whole table and many lifted ones is the whole one's part alone."""
    big, small = (Subspace(20, 4, level, 2, seed=1) for level in (0, 2))
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(20, 4, dtype=torch.float64, generator=generator)
    lifted = torch.randn(9, small.size, dtype=torch.float64, generator=generator)
    total = whole + big.recover(lift(lifted, small, big)).sum(0)
    torch.testing.assert_close(total - small.project(total), whole - small.project(whole))
    assert group_tiers({0: 1, 2: 9}, 3, "lift").basis == {0: 2, 2: 2}


@given(ROUNDS, MINIMA, st.sampled_from(["demote", "lift"]))
@PROPERTY
def test_nobody_is_left_out_unless_the_whole_round_is_too_small(counts, minimum, short):
    grouping = group_tiers(counts, minimum, short)
    everybody = sum(counts.values())
    assert sum(grouping.sums.values()) == (everybody if everybody >= minimum else 0)
    assert grouping.below == (0 < everybody < minimum)


@given(ROUNDS, MINIMA)
@PROPERTY
def test_a_device_is_demoted_into_no_larger_subspace_and_lifted_only_while_its_tier_is_short(counts, minimum):
    for tier, basis in group_tiers(counts, minimum, "demote").basis.items():
        assert basis is None or basis >= tier
    for tier, basis in group_tiers(counts, minimum, "lift").basis.items():
        assert basis is None or basis == tier or counts[tier] < minimum or basis > tier


@given(ROUNDS, MINIMA, WAYS)
@PROPERTY
def test_tiers_that_are_large_enough_are_left_alone(counts, minimum, short):
    if all(count == 0 or count >= minimum for count in counts.values()):
        assert group_tiers(counts, minimum, short).basis == {tier: tier for tier in counts}


@given(ROUNDS, MINIMA)
@PROPERTY
def test_skipping_keeps_exactly_the_tiers_that_are_large_enough(counts, minimum):
    grouping = group_tiers(counts, minimum, "skip")
    for tier, basis in grouping.basis.items():
        assert basis == (None if 0 < counts[tier] < minimum else tier)


@pytest.mark.parametrize(
    ("counts", "demoted", "lifted", "skipped"),
    [
        # a short small tier: the next larger devices join it, or it joins them
        ({0: 5, 2: 5, 4: 2}, {0: 0, 2: 4, 4: 4}, {0: 0, 2: 2, 4: 2}, {0: 0, 2: 2, 4: None}),
        # a short large tier has nobody larger: it joins the tier below
        ({0: 2, 2: 5, 4: 5}, {0: 2, 2: 2, 4: 4}, {0: 2, 2: 2, 4: 4}, {0: None, 2: 2, 4: 4}),
        # a short large tier joins the tier below, and a short small one is lifted to them
        ({0: 2, 2: 5, 4: 1}, {0: 4, 2: 4, 4: 4}, {0: 2, 2: 2, 4: 2}, {0: None, 2: 2, 4: None}),
        # an empty tier in between keeps its own basis, and nobody meets there
        ({0: 9, 2: 0, 4: 1}, {0: 4, 2: 2, 4: 4}, {0: 0, 2: 2, 4: 0}, {0: 0, 2: 2, 4: None}),
        # two short tiers make one
        ({0: 2, 1: 2}, {0: 1, 1: 1}, {0: 1, 1: 1}, {0: None, 1: None}),
    ],
)
def test_by_hand(counts, demoted, lifted, skipped):
    for short, basis in {"demote": demoted, "lift": lifted, "skip": skipped}.items():
        assert group_tiers(counts, 4, short).basis == basis


def test_a_round_that_is_too_small_says_so():
    grouping = group_tiers({0: 1, 2: 2, 4: 0}, 4)
    assert grouping.below
    assert grouping.basis == {0: None, 2: None, 4: 4}
    assert group_tiers({0: 1, 2: 2}, 4, "skip").below
    assert not group_tiers({0: 0}, 4).below


@pytest.mark.parametrize(("counts", "minimum"), [({0: 3}, 0), ({0: -1}, 2)])
def test_numbers_that_make_no_sense_are_refused(counts, minimum):
    with pytest.raises(CapacityError, match="the minimum is at least 1"):
        group_tiers(counts, minimum)
