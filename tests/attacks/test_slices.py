"""Slices against naive loops, in `measure`, as rows of a report, and their cost."""

import dataclasses

import numpy as np
import pytest

from attacks import Knowledge, ServerView, Targets, ViewError, measure
from attacks.evaluation import TOUCHED_ITEMS, AttackObservation, AttackScores
from attacks.membership import PopularityGuesser, RankOneSign, RowNorm, observe
from attacks.metrics import Ranking, Slice
from attacks.metrics.slices import tenths
from privfed.audit.report.records import AttackRow, SliceRow


def naive_auc(scores, members):
    wins = [(a > b) + (a == b) / 2 for a in scores[members] for b in scores[~members]]
    return np.mean(wins) if wins else np.nan


def said(*scores, present=None):
    """An observation of these scores, the first under the name of the popularity guesser."""
    users = np.ones(len(scores[0]), bool) if present is None else present
    names = [PopularityGuesser(), *[RowNorm()] * (len(scores) - 1)]
    return AttackObservation(tuple(AttackScores(a, s, users, 1, 0.0) for a, s in zip(names, scores, strict=True)), None)


@pytest.fixture(scope="module")
def game():
    rng = np.random.default_rng(0)
    members = rng.random((25, 120)) < np.geomspace(0.02, 0.7, 120) * rng.uniform(0.2, 1, (25, 1))
    candidates = rng.random((25, 120)) < 0.9
    scores = np.round(rng.normal(size=members.shape) + members * rng.uniform(0, 2, (25, 1)), 1)
    popularity = members.sum(axis=0).astype(np.float64)
    return members, candidates, scores, popularity


def test_tenths_are_of_one_size_and_in_order():
    assert np.bincount(tenths(np.arange(100)[::-1])).tolist() == [10] * 10
    assert tenths(np.array([5.0, 1.0, 3.0])).tolist() == [6, 0, 3]
    sizes = np.bincount(tenths(np.zeros(1682)), minlength=10)
    assert sizes.max() - sizes.min() == 1


def test_popularity_slices_equal_naive_loops(game):
    members, candidates, scores, popularity = game
    results = measure(said(scores), Knowledge(popularity), Targets(members, candidates), sliced=True)
    group = tenths(popularity)
    slices = {s.group: s for s in results[0].slices if s.by == "popularity"}
    for tenth in range(10):
        inside = group == tenth
        auc, baseline, n_members = [], [], 0
        for u in range(len(scores)):
            asked = candidates[u] & inside
            own = naive_auc(scores[u, asked], members[u, asked])
            if np.isfinite(own):
                auc.append(own)
                baseline.append(naive_auc(popularity[asked], members[u, asked]))
                n_members += int(members[u, asked].sum())
        if not auc:
            assert tenth not in slices
            continue
        found = slices[tenth]
        assert (found.n_users, found.n_members) == (len(auc), n_members)
        assert (found.auc.value, found.popularity_auc) == pytest.approx((np.mean(auc), np.mean(baseline)))
        assert (found.lowest, found.highest) == (popularity[inside].min(), popularity[inside].max())
        assert found.auc.lo <= found.auc.value <= found.auc.hi


def test_activity_slices_average_the_users_own_aucs(game):
    members, candidates, scores, popularity = game
    activity = np.arange(25)[::-1] * 10
    targets = Targets(members, candidates)
    result = measure(said(scores), Knowledge(popularity), targets, sliced=True, activity=activity)[0]
    slices = [s for s in result.slices if s.by == "activity"]
    assert [s.group for s in slices] == list(range(10))
    assert (slices[0].lowest, slices[0].highest) == (0, 20)
    assert (slices[9].lowest, slices[9].highest) == (230, 240)
    own = [naive_auc(scores[u, candidates[u]], members[u, candidates[u]]) for u in range(25)]
    assert slices[0].auc.value == pytest.approx(np.mean(own[-3:]))
    assert sum(s.n_users for s in slices) == result.n_users
    assert sum(s.n_members for s in slices) == result.n_members
    weighted = sum(s.n_users * s.auc.value for s in slices) / result.n_users
    assert weighted == pytest.approx(result.auc.value)
    by_members = measure(said(scores), Knowledge(popularity), targets, sliced=True)[0].slices
    assert max(s.highest for s in by_members if s.by == "activity") == members.sum(axis=1).max()


def test_an_attack_that_finds_only_the_tail_is_seen_to(game):
    """What slices are for: right on the rare half of the catalogue, chance on the popular one."""
    members, _, _, popularity = game
    rng = np.random.default_rng(1)
    rare = tenths(popularity) < 5
    scores = np.where(rare, members, rng.random(members.shape))
    found = measure(said(scores), Knowledge(popularity), Targets(members, np.ones_like(members)), sliced=True)[0]
    by_item = [s for s in found.slices if s.by == "popularity"]
    assert all(s.auc.value == 1 for s in by_item if s.group < 5)
    assert all(abs(s.auc.value - 0.5) < 0.15 for s in by_item if s.group >= 5)


def test_the_guessers_own_rows_have_its_own_auc(game):
    members, candidates, _, popularity = game
    scores = np.broadcast_to(popularity, members.shape).copy()
    found = measure(said(scores), Knowledge(popularity), Targets(members, candidates), sliced=True)[0]
    assert [s.auc.value for s in found.slices] == pytest.approx([s.popularity_auc for s in found.slices])


def test_a_tenth_without_a_user_is_left_out_and_users_who_sent_nothing_do_not_count(game):
    members, candidates, scores, popularity = game
    few = members & (tenths(popularity) >= 7)
    present = np.arange(25) < 20
    targets = Targets(few, candidates)
    found = measure(said(scores, present=present), Knowledge(popularity), targets, sliced=True)[0]
    assert {s.group for s in found.slices if s.by == "popularity"} <= {7, 8, 9}
    assert max(s.n_users for s in found.slices) <= 20
    assert sum(s.n_users for s in found.slices if s.by == "activity") == found.n_users


def test_intervals_are_those_of_a_bootstrap_by_user(game):
    members, candidates, scores, popularity = game
    targets = Targets(members, candidates)
    one = measure(said(scores), Knowledge(popularity), targets, sliced=True, resamples=1000)[0]
    top = next(s for s in one.slices if (s.by, s.group) == ("popularity", 9))
    own = Ranking.from_scores(scores, members, candidates).grouped_auc(tenths(popularity), 10)[:, 9]
    own = own[np.isfinite(own)]
    assert (top.auc.hi - top.auc.lo) / 2 == pytest.approx(1.96 * own.std() / np.sqrt(len(own)), rel=0.25)
    again = measure(said(scores), Knowledge(popularity), targets, sliced=True, resamples=1000)[0]
    assert one == again


def test_slices_are_asked_for_and_change_nothing_else(world):
    members, held_out, uploads, popularity = world
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    observation = observe([RankOneSign()], [ServerView(0, uploads)], Knowledge(popularity))
    plain = measure(observation, Knowledge(popularity), targets, scopes=(TOUCHED_ITEMS,))
    sliced = measure(observation, Knowledge(popularity), targets, scopes=(TOUCHED_ITEMS,), sliced=True)
    assert all(row.slices == () for row in plain)
    assert all(row.slices for row in sliced)
    assert plain == [dataclasses.replace(row, slices=()) for row in sliced]


def test_slices_fit_the_report(game):
    members, candidates, scores, popularity = game
    result = measure(said(scores), Knowledge(popularity), Targets(members, candidates), sliced=True)[0]
    row = AttackRow.from_result(result, tap="wire", rounds_seen=[1])
    assert len(row.slices) == len(result.slices)
    assert set(SliceRow.model_fields) == {f.name for f in dataclasses.fields(Slice)}
    assert row.slices[0].auc.value == result.slices[0].auc.value


def test_activity_and_popularity_must_fit():
    members = np.eye(3, 5, dtype=bool)
    targets = Targets(members, np.ones_like(members))
    with pytest.raises(ViewError, match="activity of 2 users and the popularity of 5 items"):
        measure(said(members.astype(float)), Knowledge(np.ones(5)), targets, sliced=True, activity=np.ones(2))
    with pytest.raises(ViewError, match="the popularity of 4 items"):
        measure(said(members.astype(float)), Knowledge(np.ones(4)), targets, sliced=True)
