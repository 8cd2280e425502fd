"""Which rows of a sum moved, by hand, by counting, and over sums."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

from attacks import Knowledge, ServerView, SumView, Targets, measure
from attacks.evaluation import ALL_ITEMS
from attacks.membership import CORE_ATTACKS
from attacks.metrics import user_auc as auc_of
from attacks.sums import SingletonRows, observe_sums
from attacks.sums.singleton_rows import touch_hazards


def summed(touched, who, number=0, clients=None):
    """One sum of uploads that are 1 where a client touched a row; never cancelling."""
    members = np.zeros(len(touched), dtype=bool)
    members[who] = True
    total = touched[members].sum(axis=0).astype(np.float32)[None, :, None]
    return SumView(ServerView(number, total), members, len(who) if clients is None else clients)


def scores(sums, popularity):
    accumulator = SingletonRows().sum_accumulator()
    for seen in sums:
        accumulator.add(seen, Knowledge(popularity))
    return accumulator.scores()


def test_hazards_are_found_from_which_rows_moved():
    rng = np.random.default_rng(0)
    popularity = rng.pareto(1.5, 4000)
    for drawn in (0.0, 0.02):
        hazards = 0.01 * popularity / popularity.mean() + drawn
        moved = rng.random(4000) < -np.expm1(-12 * hazards)
        owned, beta = touch_hazards(1000 * popularity, moved, 12)
        assert owned.mean() == pytest.approx(0.01, rel=0.25)
        assert beta == pytest.approx(drawn, abs=0.002)


def test_the_posterior_is_the_share_of_worlds_in_which_the_user_has_the_item():
    """All histories of three users over one item, weighted by their probability: the formula, enumerated."""
    own, drawn, clients = 0.3, 0.1, 3
    p = -np.expm1(-own)
    worlds = list(itertools.product([0, 1], repeat=clients))
    moved = 1 - np.exp(-clients * drawn)
    weight = {w: p ** sum(w) * (1 - p) ** (clients - sum(w)) * (1.0 if any(w) else moved) for w in worlds}
    expected = sum(v for w, v in weight.items() if w[0]) / sum(weight.values())
    otherwise = -np.expm1(-(clients - 1) * (own + drawn) - drawn)
    assert expit(np.log(p / (1 - p)) - np.log(otherwise)) == pytest.approx(expected)


def test_scores_are_calibrated(sim):
    """Of the pairs to which it gives a probability, about that share are real."""
    rng = np.random.default_rng(1)
    popularity = rng.pareto(1.5, 2000) + 0.1
    p = -np.expm1(-0.01 * popularity / popularity.mean())
    members = rng.random((300, 2000)) < p
    said, true = [], []
    for number in range(30):
        who = rng.choice(300, 10, replace=False)
        seen = summed(members, who, number)
        said.append(expit(scores([seen], popularity)[seen.members]).ravel())
        true.append(members[seen.members].ravel())
    said, true = np.concatenate(said), np.concatenate(true)
    for low, high in ((0.0, 0.05), (0.05, 0.12), (0.12, 0.3)):
        bucket = (said > low) & (said <= high)
        assert bucket.sum() > 300
        assert true[bucket].mean() == pytest.approx(said[bucket].mean(), rel=0.15, abs=0.001)


def test_a_sum_of_one_is_the_history_and_sums_over_cohorts_become_it(sim):
    rng = np.random.default_rng(2)
    members, _ = sim.histories(rng, 200, 400, 10, 30)
    popularity = members.sum(axis=0).astype(np.float64)
    everything = np.ones_like(members)
    alone = scores([summed(members, [7])], popularity)
    assert auc_of(alone, members, everything)[7] == 1
    found = {}
    for rounds in (1, 12):
        sums = []
        for number in range(rounds):
            others = rng.choice(np.arange(1, 200), 19, replace=False)
            sums.append(summed(members, [0, *others], number))
        found[rounds] = auc_of(scores(sums, popularity), members, everything)[0]
    popular = auc_of(np.broadcast_to(popularity, members.shape), members, everything)[0]
    assert popular < found[1] < found[12]
    assert found[12] > 0.98


def test_negatives_drawn_afresh_do_not_stop_the_intersection(sim):
    rng = np.random.default_rng(3)
    members, _ = sim.histories(rng, 100, 400, 10, 20)
    popularity = members.sum(axis=0).astype(np.float64)
    sums = []
    for number in range(20):
        touched = members | (rng.random(members.shape) < 0.1)
        sums.append(summed(touched, [0, *rng.choice(np.arange(1, 100), 4, replace=False)], number))
    assert auc_of(scores(sums, popularity), members, np.ones_like(members))[0] > 0.98


def test_popularity_may_be_on_any_scale_and_items_in_any_order(sim):
    rng = np.random.default_rng(4)
    members, _ = sim.histories(rng, 50, 200)
    popularity = members.sum(axis=0).astype(np.float64)
    sums = [summed(members, rng.choice(50, 5, replace=False), number) for number in range(3)]
    base = scores(sums, popularity)
    assert scores(sums, popularity / popularity.sum()) == pytest.approx(base, rel=1e-3, abs=1e-3)
    order = rng.permutation(200)
    moved = [SumView(ServerView(0, s.total.uploads[:, order]), s.members, s.clients) for s in sums]
    assert scores(moved, popularity[order]) == pytest.approx(base[:, order], rel=1e-3, abs=1e-3)


def test_random_rows_give_no_more_than_popularity(sim):
    rng = np.random.default_rng(5)
    members, _ = sim.histories(rng, 40, 300)
    popularity = members.sum(axis=0).astype(np.float64)
    seen = summed(rng.random(members.shape) < 0.1, range(5))
    shuffled = rng.permuted(members, axis=1)
    assert auc_of(scores([seen], popularity), shuffled, np.ones_like(members))[:5].mean() == pytest.approx(0.5, abs=0.1)


def test_it_stands_beside_the_others_and_passes_over_what_says_nothing(world):
    members, _, uploads, popularity = world
    knowledge, attack = Knowledge(popularity), SingletonRows()

    def sum_of(who, number, clients, noise=0.0):
        mask = np.zeros(30, dtype=bool)
        mask[who] = True
        total = uploads[mask].sum(axis=0, keepdims=True)
        total = total + np.random.default_rng(6).normal(0, noise, total.shape).astype(np.float32) if noise else total
        return SumView(ServerView(number, total), mask, clients)

    said = observe_sums((*CORE_ATTACKS, attack), [sum_of([3, 4], 0, 2), sum_of([3, 5], 1, 4)], knowledge)
    (own,) = [scored for scored in said.by_attack if scored.attack is attack]
    assert own.present.nonzero()[0].tolist() == [3, 4, 5]
    assert own.rounds == 2
    rows = measure(said, knowledge, Targets.trained_vs_never_seen(members, members))
    (row,) = [row for row in rows if row.attack == "singleton rows"]
    assert (row.scope, row.n_users, row.unit) == (ALL_ITEMS, 3, "interaction")
    assert row.auc.value > row.popularity_auc
    silent = observe_sums((attack,), [sum_of([3, 4], 0, None), sum_of([3, 4], 1, 2, noise=0.5)], knowledge)
    assert [scored.attack.name for scored in silent.by_attack] == ["popularity"]


def test_a_sum_must_hold_its_audited_users(world):
    from attacks import ViewError

    _, _, uploads, _ = world
    with pytest.raises(ViewError, match="clients is 29 but 30 audited"):
        SumView(ServerView(0, uploads[:1]), np.ones(30, dtype=bool), 29)
