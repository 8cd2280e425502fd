"""Planted controls: attacks win where there is something to find, lose where there is nothing, and ignore
what carries no information.
"""

import numpy as np
import pytest
from scipy.stats import rankdata

from attacks import Knowledge, ServerView, Targets, ViewError
from attacks.membership import CORE_ATTACKS, MultiRoundVote, PopularityGuesser, RankOneSign, RowNorm, RowSupport
from attacks.metrics import user_auc


def auc(scores, members, held_out):
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    return user_auc(scores, targets.members, targets.candidates).mean()


@pytest.mark.parametrize("shared_head", [True, False])
@pytest.mark.parametrize(
    "attack", [RankOneSign(), RankOneSign(pooling=0.0, share_sign=False), RankOneSign("popularity")]
)
def test_sign_attack_reads_unprotected_uploads(sim, attack, shared_head):
    rng = np.random.default_rng(1)
    members, held_out = sim.histories(rng, 40, 400)
    view = ServerView(0, sim.uploads(rng, members, shared_head=shared_head))
    knowledge = Knowledge(members.sum(axis=0).astype(np.float64))
    expected = 0.99 if attack.sign == "minority" else 0.9
    assert auc(attack.score(view, knowledge), members, held_out) > expected


def test_permuted_labels_give_chance(world):
    members, _, uploads, popularity = world
    rng = np.random.default_rng(2)
    shuffled = rng.permuted(members, axis=1)
    everything = np.ones_like(members)
    view = ServerView(0, uploads)
    for attack in CORE_ATTACKS:
        score = attack.score(view, Knowledge(popularity))
        assert user_auc(score, shuffled, everything).mean() == pytest.approx(0.5, abs=0.06)


def test_pure_noise_gives_chance(world):
    members, held_out, uploads, popularity = world
    noise = np.random.default_rng(3).laplace(0, 1, uploads.shape).astype(np.float32)
    score = RankOneSign().score(ServerView(0, noise), Knowledge(popularity))
    assert auc(score, members, held_out) == pytest.approx(0.5, abs=0.05)


def test_the_proximal_term_does_not_hide_anything(world):
    members, held_out, uploads, popularity = world
    rng = np.random.default_rng(4)
    proximal = (3 * rng.normal(size=uploads.shape)).astype(np.float32)
    pulled = uploads + np.float32(0.4) * proximal
    assert auc(RankOneSign().score(ServerView(0, pulled, proximal), Knowledge(popularity)), members, held_out) > 0.99
    blind = auc(RankOneSign().score(ServerView(0, pulled), Knowledge(popularity)), members, held_out)
    assert blind < 0.95
    plain = RowSupport().score(ServerView(0, uploads), Knowledge(popularity))
    assert (RowSupport().score(ServerView(0, pulled, proximal), Knowledge(popularity)) == plain).all()


def test_pooling_helps_under_noise_and_never_costs_a_clean_attack(sim):
    rng = np.random.default_rng(5)
    members, held_out = sim.histories(rng, 60, 400)
    clean = sim.uploads(rng, members, width=32)
    knowledge = Knowledge(members.sum(axis=0).astype(np.float64))
    noisy = ServerView(0, clean + rng.laplace(0, 2.5, clean.shape).astype(np.float32))
    alone = auc(RankOneSign(pooling=0.0, share_sign=False).score(noisy, knowledge), members, held_out)
    pooled = auc(RankOneSign().score(noisy, knowledge), members, held_out)
    assert pooled > alone + 0.03
    assert auc(RankOneSign().score(ServerView(0, clean), knowledge), members, held_out) > 0.99


def test_sign_is_found_among_the_bulk_of_noise_on_every_row():
    """6 % of rows forward, 24 % backward, the rest nothing but noise."""
    rng = np.random.default_rng(6)
    n_users, n_items, width = 40, 1500, 32
    direction = rng.normal(size=width)
    direction /= np.linalg.norm(direction)
    kind = rng.permuted(np.tile(np.repeat([1, -1, 0], [90, 360, 1050]), (n_users, 1)), axis=1)
    uploads = (1.5 * kind[:, :, None] * direction).astype(np.float32)
    uploads += rng.laplace(0, 0.5, uploads.shape).astype(np.float32)
    score = RankOneSign(share_sign=False).score(ServerView(0, uploads), Knowledge(np.zeros(n_items)))
    right = user_auc(score, kind == 1, np.ones_like(kind, bool)) > 0.5
    assert right.mean() > 0.95


def correlation(one, two):
    return np.array([np.corrcoef(rankdata(a), rankdata(b))[0, 1] for a, b in zip(one, two, strict=True)])


@pytest.mark.parametrize("attack", [RowSupport(), RowNorm(), RankOneSign()])
def test_scale_reflection_and_rotation_of_uploads_change_nothing(world, attack):
    _, _, uploads, popularity = world
    rng = np.random.default_rng(7)
    knowledge = Knowledge(popularity)
    base = attack.score(ServerView(0, uploads), knowledge)
    per_user = rng.uniform(0.01, 100, (len(uploads), 1, 1)).astype(np.float32)
    flips = rng.choice(np.array([-1, 1], np.float32), uploads.shape[2])
    rotation = np.linalg.qr(rng.normal(size=(uploads.shape[2],) * 2))[0].astype(np.float32)
    for changed in (uploads * per_user, uploads * flips, np.ascontiguousarray(uploads @ rotation)):
        assert attack.score(ServerView(0, changed), knowledge) == pytest.approx(base, abs=1e-3)


def test_users_and_items_may_come_in_any_order(world):
    _, _, uploads, popularity = world
    rng = np.random.default_rng(8)
    users, items = rng.permutation(uploads.shape[0]), rng.permutation(uploads.shape[1])
    for attack in CORE_ATTACKS:
        base = attack.score(ServerView(0, uploads), Knowledge(popularity))
        moved = attack.score(ServerView(0, uploads[users][:, items]), Knowledge(popularity[items]))
        assert moved == pytest.approx(base[users][:, items], abs=1e-4)


def test_support_is_exact_without_negatives_and_chance_under_noise(sim):
    rng = np.random.default_rng(9)
    members, held_out = sim.histories(rng, 20, 300)
    plain = sim.uploads(rng, members, negatives=0)
    knowledge = Knowledge(np.zeros(300))
    for attack in (RowSupport(), RowNorm()):
        assert auc(attack.score(ServerView(0, plain), knowledge), members, held_out) == 1
    noisy = plain + rng.laplace(0, 0.01, plain.shape).astype(np.float32)
    assert auc(RowSupport().score(ServerView(0, noisy), knowledge), members, held_out) == 0.5


def test_fresh_fake_items_hide_one_round_and_not_eight(sim):
    rng = np.random.default_rng(10)
    members, held_out = sim.histories(rng, 25, 400)
    knowledge = Knowledge(members.sum(axis=0).astype(np.float64))
    vote = MultiRoundVote(RankOneSign()).start()
    for number in range(8):
        view = ServerView(number, sim.uploads(rng, members, fakes=1))
        vote.add(view, knowledge)
    single = auc(RankOneSign().score(view, knowledge), members, held_out)
    voted = auc(vote.scores(), members, held_out)
    assert single < 0.985
    assert voted > 0.998


def test_vote_averages_only_the_rounds_a_user_took_part_in(world):
    _, _, uploads, popularity = world
    knowledge = Knowledge(popularity)
    vote = MultiRoundVote(RowNorm()).start()
    absent = uploads.copy()
    absent[3] = 0
    vote.add(ServerView(0, uploads), knowledge)
    vote.add(ServerView(1, absent), knowledge)
    assert vote.rounds[3] == 1
    assert (np.delete(vote.rounds, 3) == 2).all()
    one_round = MultiRoundVote(RowNorm()).score(ServerView(0, uploads), knowledge)
    assert vote.scores() == pytest.approx(one_round)
    assert one_round.mean(axis=1) == pytest.approx(0, abs=1e-9)
    assert one_round.std(axis=1) == pytest.approx(1)


def test_vote_refuses_other_users_and_emptiness(world):
    _, _, uploads, popularity = world
    vote = MultiRoundVote(RowNorm()).start()
    with pytest.raises(ViewError, match="holds no round"):
        vote.scores()
    vote.add(ServerView(0, uploads), Knowledge(popularity))
    with pytest.raises(ViewError, match="same audited users"):
        vote.add(ServerView(1, uploads[:5]), Knowledge(popularity))


def test_popularity_is_the_same_for_everybody_and_must_fit_the_catalogue(world):
    _, _, uploads, popularity = world
    view = ServerView(0, uploads)
    assert (PopularityGuesser().score(view, Knowledge(popularity)) == popularity).all()
    for attack in (PopularityGuesser(), RankOneSign("popularity")):
        with pytest.raises(ViewError, match="has 3 items"):
            attack.score(view, Knowledge(np.zeros(3)))


def test_every_attack_declares_itself():
    names = [attack.name for attack in CORE_ATTACKS]
    assert len(set(names)) == len(names)
    for attack in CORE_ATTACKS:
        assert all((attack.observable, attack.adversary, attack.unit, attack.cost))
        assert attack.explains.endswith(".")
        assert attack.explains.count(". ") == 0
    with pytest.raises(ValueError, match="RankOneSign got sign='labels'"):
        RankOneSign("labels")
    with pytest.raises(ValueError, match="pooling=-1"):
        RankOneSign(pooling=-1.0)
