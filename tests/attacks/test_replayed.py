"""Attacks that repeat local training, against a trainer whose every step is known."""

from dataclasses import replace

import numpy as np
import pytest

from attacks import Knowledge, ServerView, Targets, ViewError, run
from attacks.evaluation import ALL_ITEMS, TOUCHED_ITEMS
from attacks.membership import ORACLE_ATTACKS, DeltaScore, Imia, MultiRoundVote, PublicScore, TwoWorld
from attacks.metrics import user_auc
from attacks.views import upload_support


@pytest.fixture(scope="module")
def trained(sim, linear_head):
    """40 users, 500 items: the game among touched rows, one round of uploads, knowledge with the recipe."""
    members, held_out = sim.histories(np.random.default_rng(0), 40, 500)
    model = linear_head.drawn(np.random.default_rng(1), 500)
    view = model.round(np.random.default_rng(2), members)
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    return targets, view, Knowledge(members.sum(axis=0).astype(np.float64), oracle=model)


def auc(attack, view, knowledge, targets):
    asked = targets.among_touched(upload_support(view))
    return np.nanmean(user_auc(attack.score(view, knowledge), asked.members, asked.candidates))


def f1(scores, members):
    """F1 of the known number of items with the highest scores; precision and recall are equal there."""
    rank = (-scores).argsort(axis=1, kind="stable").argsort(axis=1)
    count = members.sum(axis=1, keepdims=True)
    return (((rank < count) & members).sum(axis=1) / count[:, 0]).mean()


def noisy(view, deviation, seed=3):
    noise = deviation * np.random.default_rng(seed).normal(size=view.uploads.shape)
    return ServerView(view.round, (view.uploads + noise).astype(np.float32))


def test_unprotected_uploads_are_read(trained):
    targets, view, knowledge = trained
    for attack in (TwoWorld(), TwoWorld(5), DeltaScore(), PublicScore()):
        assert auc(attack, view, knowledge, targets) > 0.99


def test_imia_gets_stronger_the_less_it_confirms_at_once(trained):
    targets, view, knowledge = trained
    f1s = {c: f1(Imia(c).score(view, knowledge), targets.members) for c in (1.0, 0.9, 0.5, 0.2)}
    assert f1s[1.0] == pytest.approx(0.2, abs=0.05)
    assert f1s[0.9] == pytest.approx(0.3, abs=0.06)
    assert f1s[0.5] == pytest.approx(0.43, abs=0.06)
    assert f1s[0.2] == pytest.approx(0.75, abs=0.06)


def test_the_confirmed_set_is_what_scores_above_zero(trained):
    targets, view, knowledge = trained
    touched = upload_support(view).rows
    known = np.rint(0.2 * touched.sum(axis=1))
    for attack in (Imia(0.9), Imia(0.2)):
        scores = attack.score(view, knowledge)
        assert ((scores > 0).sum(axis=1) == known).all()
        assert scores[~touched].max() < scores[touched].min()
        assert not (scores > 0)[~touched].any()
    assert (known == targets.members.sum(axis=1)).all()
    assert (Imia(1.0).score(view, knowledge)[touched] != 0).all()


def imia_by_hand(attack, view, model, user):
    """The procedure for one user, item by item; the same draws as the attack."""
    n_items, rng = view.n_items, np.random.default_rng([attack.seed, view.round])
    touched = [i for i in range(n_items) if view.uploads[user, i].any()]
    wanted, label, confirmed, step = max(1, round(attack.positive_share * len(touched))), {}, {}, 0
    while sum(label[i] for i in confirmed) < wanted and len(confirmed) < len(touched):
        step += 1
        draw = rng.random((view.n_users, n_items))[user]
        rest = sorted((i for i in touched if i not in confirmed), key=lambda i: draw[i])
        missing = wanted - sum(label[i] for i in confirmed)
        label.update({i: place < missing for place, i in enumerate(rest)})
        positives = np.zeros((view.n_users, n_items), bool)
        candidates = positives.copy()
        positives[user, [i for i in touched if label[i]]] = True
        candidates[user, touched] = True
        again = model.simulate_uploads(view.round, positives, candidates, step).uploads[user]
        rest.sort(key=lambda i: np.linalg.norm(view.uploads[user, i] - again[i]))
        for i in rest[: int(attack.confirm * len(touched)) + 1]:
            confirmed[i] = step
    return {i for i in confirmed if label[i]}, {i: s for i, s in confirmed.items() if label[i]}


@pytest.mark.parametrize("confirm", [0.5, 0.2])
def test_imia_for_all_users_is_imia_for_each(trained, linear_head, confirm):
    """Negatives are all candidates here, so that a replay is the same whoever else is replayed."""
    _, view, knowledge = trained
    model = replace(knowledge.oracle, negatives=1000)
    few = ServerView(0, view.uploads[:6])
    attack = Imia(confirm, seed=5)
    scores = attack.score(few, Knowledge(knowledge.popularity, oracle=model))
    for user in range(6):
        chosen, when = imia_by_hand(attack, few, model, user)
        assert set(np.flatnonzero(scores[user] > 0)) == chosen
        for one in chosen:
            for other in chosen:
                assert (when[one] < when[other]) == (scores[user, one] > scores[user, other])


def test_two_worlds_for_all_users_are_two_worlds_for_each(trained):
    _, view, knowledge = trained
    model = replace(knowledge.oracle, negatives=1000)
    few, attack = ServerView(0, view.uploads[:4]), TwoWorld(3, seed=1)
    scores = attack.score(few, Knowledge(knowledge.popularity, oracle=model))
    draws = np.random.default_rng([1, 0]).random(few.uploads.shape[:2])
    for user in range(4):
        touched = np.flatnonzero(few.uploads[user].any(axis=1))
        part = {item: place % 3 for place, item in enumerate(sorted(touched, key=lambda i: draws[user, i]))}
        by_hand = []
        rows = {}
        for number in range(3):
            positives = np.zeros((4, 500), bool)
            candidates = positives.copy()
            candidates[user, touched] = True
            positives[user, [i for i in touched if part[i] == number]] = True
            rows[number] = model.simulate_uploads(0, positives, candidates, 0).uploads[user]
        for i in touched:
            inside = rows[part[i]][i]
            outside = np.mean([rows[n][i] for n in range(3) if n != part[i]], axis=0)
            by_hand.append((few.uploads[user, i] - (inside + outside) / 2) @ (inside - outside))
            by_hand[-1] /= np.linalg.norm(inside - outside)
        assert np.corrcoef(scores[user, touched], by_hand)[0, 1] == pytest.approx(1, abs=1e-6)
        rest = np.delete(scores[user], touched)
        assert (rest == scores[:, ~few.uploads.any(axis=2).any(axis=0)].min()).all()


def test_two_world_survives_noise_on_every_row(trained):
    """Noise on all rows hides which moved, so all items are candidates and the known share is wrong."""
    targets, view, knowledge = trained
    hidden = noisy(view, 0.2)
    found = auc(TwoWorld(), hidden, knowledge, targets)
    assert found > 0.97
    assert auc(Imia(0.9), hidden, knowledge, targets) < found - 0.1


def test_directions_that_no_newcomer_has_defeat_training_oracles(sim, linear_head):
    """Where every user trains along a private direction of its own, a replay goes another way."""
    members, held_out = sim.histories(np.random.default_rng(4), 40, 300)
    model = linear_head.drawn(np.random.default_rng(5), 300, private=1.0, shared=False)
    view = model.round(np.random.default_rng(6), members)
    knowledge = Knowledge(members.sum(axis=0).astype(np.float64), oracle=model)
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    assert abs(auc(TwoWorld(), view, knowledge, targets) - 0.5) < 0.2


@pytest.mark.parametrize("attack", ORACLE_ATTACKS, ids=lambda attack: attack.name)
def test_pure_noise_gives_chance(trained, attack):
    """Against shuffled members too, so that what the model recommends to everybody is not counted."""
    targets, view, knowledge = trained
    empty = ServerView(0, np.zeros_like(view.uploads))
    members = np.random.default_rng(7).permuted(targets.members, axis=1)
    scores = attack.score(noisy(empty, 1.0), knowledge)
    assert user_auc(scores, members, np.ones_like(members)).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("attack", ORACLE_ATTACKS, ids=lambda attack: attack.name)
def test_absent_users_and_users_in_another_order(trained, attack):
    _, view, knowledge = trained
    absent = view.uploads.copy()
    absent[[3, 17]] = 0
    scores = attack.score(ServerView(0, absent), knowledge)
    assert np.isfinite(scores).all()
    if isinstance(attack, PublicScore | DeltaScore):
        order = np.random.default_rng(8).permutation(len(absent))
        moved = attack.score(ServerView(0, absent[order]), knowledge)
        assert moved == pytest.approx(scores[order])


def test_delta_is_the_score_raised_by_the_upload(trained):
    _, view, knowledge = trained
    model = knowledge.oracle
    raised = np.einsum("uiw,w->ui", view.uploads, model.head)
    scores = DeltaScore().score(view, knowledge)
    assert np.corrcoef(scores.ravel(), (raised / np.sqrt((raised**2).mean(1, keepdims=True))).ravel())[0, 1] > 1 - 1e-9
    assert (scores[~view.uploads.any(axis=2)] == 0).all()
    assert (DeltaScore().score(ServerView(0, np.zeros_like(view.uploads)), knowledge) == 0).all()


def test_the_servers_own_proximal_term_is_taken_out_on_both_sides(trained):
    targets, view, knowledge = trained
    model = knowledge.oracle
    proximal = np.random.default_rng(9).normal(size=view.uploads.shape).astype(np.float32)

    class Pulled:
        def simulate_uploads(self, round, positives, candidates, world):
            plain = model.simulate_uploads(round, positives, candidates, world).uploads
            return ServerView(round, plain + np.float32(0.7) * proximal, proximal)

        def public_scores(self, view):
            return model.public_scores(view)

    pulled = ServerView(0, view.uploads + np.float32(0.4) * proximal, proximal)
    known = Knowledge(knowledge.popularity, oracle=Pulled())
    for attack in (TwoWorld(), Imia(0.2)):
        plain = auc(attack, view, knowledge, targets)
        assert auc(attack, pulled, known, targets) == pytest.approx(plain, abs=0.02)


def test_training_oracles_run_next_to_the_others_and_vote_over_rounds(trained):
    targets, _, knowledge = trained
    model = knowledge.oracle
    views = [model.round(np.random.default_rng(10 + t), targets.members, t) for t in range(3)]
    views = [noisy(one, 1.0, seed=20 + one.round) for one in views]
    rows = run((TwoWorld(), MultiRoundVote(TwoWorld())), views, knowledge, targets, scopes=(ALL_ITEMS, TOUCHED_ITEMS))
    found = {(row.attack, row.scope): row for row in rows}
    one, voted = (found[name, ALL_ITEMS] for name in ("two-world shadow", "multi-round vote of two-world shadow"))
    assert voted.rounds == 3
    assert voted.auc.value > one.auc.value + 0.05


def test_declarations_and_refusals(trained):
    _, view, knowledge = trained
    assert len({attack.name for attack in ORACLE_ATTACKS}) == len(ORACLE_ATTACKS)
    for attack in ORACLE_ATTACKS:
        assert all((attack.observable, attack.adversary, attack.knowledge, attack.unit, attack.cost))
        assert attack.explains.endswith(".")
        assert attack.explains.count(". ") == 0
        with pytest.raises(ViewError, match=r"needs Knowledge\.oracle"):
            attack.score(view, Knowledge(knowledge.popularity))
    for wrong in (
        lambda: Imia(0),
        lambda: Imia(1.1),
        lambda: Imia(0.5, 1.0),
        lambda: TwoWorld(1),
    ):
        with pytest.raises(ValueError, match="got"):
            wrong()
