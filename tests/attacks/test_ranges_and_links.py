"""Planted controls for range membership, links between runs, and neighbourhoods."""

import numpy as np
import pytest

from attacks import Knowledge, ServerView, ViewError
from attacks.linkability import (
    linked,
    measure_links,
    nearest,
    neighbour_auc,
    profiles,
    share_named,
    smoothed_profiles,
)
from attacks.membership import RankOneSign
from attacks.membership.ranges import balanced_ranges, range_members, range_scores
from attacks.metrics import user_auc


def scores_of(sim, rng, members, noise=0.0):
    uploads = sim.uploads(rng, members)
    uploads += rng.normal(0, noise, uploads.shape).astype(np.float32)
    return RankOneSign().score(ServerView(0, uploads), Knowledge(members.sum(axis=0).astype(np.float64)))


def test_a_range_is_found_where_uploads_speak_and_not_behind_noise(sim):
    rng = np.random.default_rng(0)
    members, _ = sim.histories(rng, 40, 400)
    ranges = balanced_ranges(members.sum(axis=0).astype(np.float64), 20, 60, 1)
    truth = range_members(members, ranges)
    found = [
        np.nanmean(user_auc(range_scores(scores_of(sim, rng, members, noise), ranges), truth, np.ones_like(truth)))
        for noise in (0.0, 100.0)
    ]
    assert found[0] > 0.99
    assert found[1] == pytest.approx(0.5, abs=0.05)


def test_ranges_are_of_like_popularity_and_checked():
    popularity = np.arange(400.0)
    ranges = balanced_ranges(popularity, 20, 30, 2)
    assert (ranges.sum(axis=1) == 20).all()
    assert max(np.ptp(popularity[row]) for row in ranges) <= 100
    members = np.zeros((2, 400), dtype=bool)
    members[0, np.flatnonzero(ranges[0])[0]] = True
    assert range_members(members, ranges)[:, 0].tolist() == [True, False]
    with pytest.raises(ViewError, match="at least one item"):
        range_scores(np.zeros((2, 400)), np.zeros((1, 400), dtype=bool))
    with pytest.raises(ViewError, match="larger than the catalogue"):
        balanced_ranges(popularity[:5], 20, 1, 0)


@pytest.mark.parametrize("same_people", [True, False])
def test_pseudonyms_of_two_runs_are_linked_by_taste_alone(sim, same_people):
    rng = np.random.default_rng(3)
    members, _ = sim.histories(rng, 40, 400)
    order = rng.permutation(40)
    other = members[order] if same_people else sim.histories(rng, 40, 400)[0]
    first, second = (profiles(scores_of(sim, rng, one)) for one in (members, other))
    result = measure_links(linked(first, second), np.argsort(order))
    if same_people:
        assert result.accuracy > 0.95
        assert result.auc > 0.99
    else:
        assert result.accuracy < 0.15
        assert result.auc == pytest.approx(0.5, abs=0.12)
    assert result.chance == 1 / 40


def test_services_are_linked_on_the_items_that_both_have(sim):
    """Each service has half of a person's items; the overlap is a fifth of the catalogue."""
    rng = np.random.default_rng(4)
    members, _ = sim.histories(rng, 40, 400, low=60, high=120)
    one, two = np.arange(400) < 240, np.arange(400) >= 160
    both = one & two
    views = (scores_of(sim, rng, members & side) for side in (one, two))
    first, second = (profiles(scores[:, both]) for scores in views)
    assert measure_links(linked(first, second), np.arange(40)).auc > 0.9
    with pytest.raises(ViewError, match="both have"):
        linked(first, second[:, :3])
    with pytest.raises(ViewError, match="pseudonyms"):
        measure_links(np.zeros((3, 2)), np.arange(3))


@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("same_people", [True, False])
def test_disjoint_halves_are_linked_through_other_peoples_histories_and_not_item_by_item(sim, rank, same_people):
    """Whoever has an item at one service lacks it at the other: profiles item by item repel each other."""
    rng = np.random.default_rng(6)
    kinds = rng.random((6, 400)) < 0.2
    tastes = np.stack([rng.permutation(6)[:2] for _ in range(140)])
    members = kinds[tastes].any(axis=1) & (rng.random((140, 400)) < 0.6)
    known, targets = members[40:], members[:40]
    half = rng.random(targets.shape) < 0.5
    order = rng.permutation(40)
    second = (targets & ~half)[order] if same_people else (members[40:80] & ~half)[order]
    first, second = scores_of(sim, rng, targets & half), scores_of(sim, rng, second)
    others = known if same_people else members[80:]
    where = np.argsort(order)
    plain = measure_links(linked(profiles(first), profiles(second)), where)
    smooth = [smoothed_profiles(one, others, rank) for one in (first, second)]
    assert not np.isclose(smooth[0].std(), 0)
    by_taste = measure_links(linked(*smooth), where)
    if same_people:
        assert plain.auc < 0.4
        assert plain.accuracy <= 0.1
        assert by_taste.auc > 0.85
        assert by_taste.accuracy > 5 * by_taste.chance
    else:
        assert by_taste.auc == pytest.approx(0.5, abs=0.12)


def test_profiles_are_smoothed_by_what_known_people_have_together():
    known = np.array([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0]], dtype=bool)
    one, other = smoothed_profiles(np.eye(5)[[0, 2]], known)
    assert np.argmax(one) == 1
    assert np.argmax(other) == 3
    for histories, rank, why in (
        (known[:, :3], None, "same catalogue"),
        (~known & known, None, "0 known interactions"),
        (known, 0, "rank of 1 or more"),
    ):
        with pytest.raises(ViewError, match=why):
            smoothed_profiles(np.eye(5)[[0, 2]], histories, rank)


def test_pseudonyms_that_all_look_alike_are_named_at_random_whatever_their_order():
    found = measure_links(np.zeros((40, 40)), np.arange(40))
    assert found.accuracy < 0.15
    assert found.auc == 0.5


def test_a_share_of_all_people_has_an_interval_as_well():
    everybody, nobody, half = (share_named(np.full(25, share)) for share in (True, False, 0.5))
    assert (everybody.value, everybody.hi) == (1.0, 1.0)
    assert everybody.lo == pytest.approx(0.025 ** (1 / 25))
    assert (nobody.value, nobody.lo) == (0.0, 0.0)
    assert nobody.hi == pytest.approx(1 - everybody.lo)
    assert half.lo < 0.33 < 0.67 < half.hi
    with pytest.raises(ValueError, match="no person"):
        share_named(np.zeros(0))


def test_neighbours_show_in_uploads_and_not_in_those_of_others(sim):
    rng = np.random.default_rng(5)
    kinds = rng.random((4, 400)) < 0.15
    members = kinds[np.arange(48) % 4] & (rng.random((48, 400)) < 0.7)
    truth = nearest(members, 5)
    assert (truth.sum(axis=1) == 5).all()
    assert not truth.diagonal().any()
    own = profiles(scores_of(sim, rng, members))
    strangers = own[rng.permutation(48)]
    assert neighbour_auc(linked(own, own), truth).mean() > 0.9
    assert neighbour_auc(linked(strangers, strangers), truth).mean() == pytest.approx(0.5, abs=0.08)
    with pytest.raises(ViewError, match="fewer neighbours"):
        nearest(members[:3], 5)
