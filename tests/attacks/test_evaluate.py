"""From rounds to rows of a report."""

import dataclasses
import json

import numpy as np
import pytest

from attacks import Knowledge, ServerView, Targets, ViewError, run
from attacks.evaluation import ALL_ITEMS, TOUCHED_ITEMS
from attacks.membership import CORE_ATTACKS, MultiRoundVote, RankOneSign, RowNorm


@pytest.fixture(scope="module")
def rounds(sim, world):
    members = world[0]
    rng = np.random.default_rng(20)
    return [sim.uploads(rng, members) for _ in range(3)]


def views(rounds):
    return (ServerView(number, uploads) for number, uploads in enumerate(rounds))


def test_every_attack_and_the_baseline_get_a_row(world, rounds):
    members, held_out, _, popularity = world
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    knowledge = Knowledge(popularity)
    rows = run(CORE_ATTACKS, views(rounds), knowledge, targets, scopes=(ALL_ITEMS, TOUCHED_ITEMS))
    assert [r.attack for r in rows] == 2 * [a.name for a in CORE_ATTACKS]
    assert [r.scope for r in rows] == len(CORE_ATTACKS) * [ALL_ITEMS] + len(CORE_ATTACKS) * [TOUCHED_ITEMS]
    by_name = {r.attack: r for r in rows[: len(CORE_ATTACKS)]}
    sign = by_name["rank-1 sign"]
    baseline = by_name["popularity"]
    assert sign.auc.value > 0.99
    assert sign.rounds == 1
    assert by_name["multi-round vote of rank-1 sign"].rounds == 3
    assert sign.popularity_auc == pytest.approx(baseline.auc.value)
    assert sign.gain.value == pytest.approx(sign.auc.value - baseline.auc.value)
    assert baseline.gain.value == baseline.gain.lo == baseline.gain.hi == 0
    assert sign.n_members == members.sum()
    assert sign.n_nonmembers == (~(members | held_out)).sum()
    touched = next(r for r in rows if r.scope == TOUCHED_ITEMS and r.attack == "row support")
    assert touched.auc.value == 0.5
    assert touched.n_nonmembers < sign.n_nonmembers
    json.dumps([dataclasses.asdict(r) for r in rows])


def test_popularity_is_added_and_first(world, rounds):
    members, held_out, _, popularity = world
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    rows = run([RankOneSign()], views(rounds), Knowledge(popularity), targets)
    assert [r.attack for r in rows] == ["popularity", "rank-1 sign"]


def test_held_out_game_has_two_nonmembers_per_user_and_leaves_out_small_rates(world, rounds):
    members, held_out, _, popularity = world
    targets = Targets.trained_vs_held_out(members, held_out)
    rows = run([RankOneSign()], views(rounds), Knowledge(popularity), targets, scopes=(ALL_ITEMS, TOUCHED_ITEMS))
    assert rows[1].n_nonmembers == 60
    assert [r.tpr for r in rows[1].tpr_at_fpr] == [None, None, None]
    assert rows[1].auc.value > 0.9


def test_a_scope_that_leaves_nobody_gives_no_rows(world, rounds):
    members, held_out, _, popularity = world
    train_only = [np.where(members[:, :, None], uploads, np.float32(0)) for uploads in rounds]
    targets = Targets.trained_vs_held_out(members, held_out)
    rows = run([RowNorm()], views(train_only), Knowledge(popularity), targets, scopes=(TOUCHED_ITEMS,))
    assert rows == []


def test_users_who_sent_nothing_in_the_last_round_count_only_for_votes(world, rounds):
    members, held_out, _, popularity = world
    last = rounds[-1].copy()
    last[:10] = 0
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    rows = run([RowNorm(), MultiRoundVote(RowNorm())], views([*rounds[:-1], last]), Knowledge(popularity), targets)
    assert [r.n_users for r in rows] == [20, 20, 30]


def test_rows_are_equal_for_equal_seeds(world, rounds):
    members, held_out, _, popularity = world
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    one, two, other = (run(CORE_ATTACKS, views(rounds), Knowledge(popularity), targets, seed=s) for s in (0, 0, 1))
    assert one == two
    assert one[2].auc.lo != other[2].auc.lo


def test_bad_input_gets_one_sentence(world, rounds):
    members, held_out, _, popularity = world
    knowledge = Knowledge(popularity)
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    with pytest.raises(ViewError, match="at least one ServerView"):
        run(CORE_ATTACKS, [], knowledge, targets)
    with pytest.raises(ViewError, match="same audited users, in the same order"):
        run(CORE_ATTACKS, views(rounds), knowledge, Targets(members[:5], members[:5]))
    with pytest.raises(ViewError, match="Scope is 'some items'"):
        run(CORE_ATTACKS, views(rounds), knowledge, targets, scopes=("some items",))
