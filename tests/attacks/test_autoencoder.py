"""Attacks on a model that reads histories: planted uploads, alone, under noise of known strength, and protected."""

import numpy as np
import pytest
from scipy.stats import norm

from attacks import Knowledge, ScoreView, ServerView, Targets, ViewError, measure, run
from attacks.evaluation import ALL_ITEMS, TOUCHED_ITEMS
from attacks.membership import (
    BIAS_ATTACKS,
    CORE_ATTACKS,
    INPUT_ROW_ATTACKS,
    DecoderBias,
    InputRows,
    MultiRoundVote,
    RankOneSign,
    RowNorm,
    RowSupport,
    ScoreThreshold,
    observe_scores,
)
from attacks.metrics import user_auc


def auc(scores, members, held_out):
    targets = Targets.trained_vs_never_seen(members, members | held_out)
    return user_auc(scores, targets.members, targets.candidates).mean()


def noisy(rng, blocks, deviation):
    return {n: (b + rng.normal(0, deviation, b.shape)).astype(np.float32) for n, b in blocks.items()}


@pytest.fixture(scope="module")
def people(sim):
    """60 users, 500 items: members, held out, knowledge."""
    members, held_out = sim.histories(np.random.default_rng(0), 60, 500)
    return members, held_out, Knowledge(members.sum(axis=0).astype(np.float64))


@pytest.mark.parametrize("steps", [1, 10])
def test_the_last_bias_is_the_history(sim, people, steps):
    members, held_out, knowledge = people
    view = ServerView(0, **sim.vae_uploads(np.random.default_rng(1), members, steps=steps))
    score = DecoderBias().score(view, knowledge)
    assert ((score > 0) == members).all()
    assert auc(score, members, held_out) == 1
    assert auc(RankOneSign().score(view, knowledge), members, held_out) > 0.99


def test_input_rows_are_the_history_but_for_dropout(sim, people):
    """Each step shows half of the rows: one step half the history, ten all but 2^-10 of it, never anything else."""
    members, held_out, knowledge = people
    support = InputRows(RowSupport())
    shown = {}
    for steps in (1, 10):
        view = ServerView(0, **sim.vae_uploads(np.random.default_rng(2), members, steps=steps))
        rows = support.score(view, knowledge) > 0
        assert not (rows & ~members).any()
        shown[steps] = rows.sum() / members.sum()
        assert auc(rows.astype(float), members, held_out) == pytest.approx((1 + shown[steps]) / 2, abs=0.02)
    assert shown[1] == pytest.approx(0.5, abs=0.05)
    assert shown[10] > 0.99
    open_view = ServerView(0, **sim.vae_uploads(np.random.default_rng(2), members, dropout=0.0))
    assert auc(support.score(open_view, knowledge), members, held_out) == 1


def test_published_noise_leaves_what_two_normals_one_apart_leave(sim, people):
    """One step at rate 1 moves a bias by label minus a constant; under N(0, 1) that is AUC Phi(1 / sqrt 2) = 0.76."""
    members, held_out, knowledge = people
    rng = np.random.default_rng(3)
    rounds = [ServerView(t, **noisy(rng, sim.vae_uploads(rng, members, lr=1.0), 1.0)) for t in range(4)]
    one = auc(DecoderBias().score(rounds[0], knowledge), members, held_out)
    assert one == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.02)
    vote = MultiRoundVote(DecoderBias()).start()
    for view in rounds:
        vote.add(view, knowledge)
    assert auc(vote.scores(), members, held_out) == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.02)


def test_votes_see_through_input_dropout(sim, people):
    members, held_out, knowledge = people
    rng = np.random.default_rng(4)
    vote = MultiRoundVote(InputRows(RowNorm())).start()
    for t in range(8):
        vote.add(ServerView(t, **sim.vae_uploads(rng, members)), knowledge)
    assert auc(vote.scores(), members, held_out) > 0.99


def test_local_gaussian_noise_on_a_clipped_upload_leaves_chance(sim, people):
    members, held_out, knowledge = people
    rng = np.random.default_rng(5)
    blocks = sim.locally_private(rng, sim.vae_uploads(rng, members, steps=10), clip=1.0, noise_multiplier=5.0)
    view = ServerView(0, **blocks)
    for attack in (DecoderBias(), InputRows(RowNorm()), InputRows(RowSupport()), RankOneSign()):
        assert auc(attack.score(view, knowledge), members, held_out) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("attack", [DecoderBias(), InputRows(RowNorm())])
def test_scale_and_order_of_users_and_items_change_nothing(sim, people, attack):
    members, _, knowledge = people
    rng = np.random.default_rng(6)
    blocks = noisy(rng, sim.vae_uploads(rng, members), 0.01)
    base = attack.score(ServerView(0, **blocks), knowledge)
    assert np.square(base).mean(axis=1) == pytest.approx(1)
    louder = {n: b * rng.uniform(0.1, 9, (len(b), *[1] * (b.ndim - 1))).astype(np.float32) for n, b in blocks.items()}
    louder["bias"] = blocks["bias"] * np.float32(7)
    users, items = rng.permutation(len(members)), rng.permutation(members.shape[1])
    moved = {n: b[users][:, items] for n, b in blocks.items()}
    assert attack.score(ServerView(0, **louder), knowledge) == pytest.approx(base, abs=1e-4)
    assert attack.score(ServerView(0, **moved), knowledge) == pytest.approx(base[users][:, items], abs=1e-4)


def test_all_of_them_stand_in_one_table_with_one_baseline(sim, people):
    members, held_out, knowledge = people
    rng = np.random.default_rng(7)
    rounds = [ServerView(t, **sim.vae_uploads(rng, members)) for t in range(2)]
    targets = Targets.trained_vs_held_out(members, held_out)
    rows = {row.attack: row for row in run(CORE_ATTACKS + INPUT_ROW_ATTACKS + BIAS_ATTACKS, rounds, knowledge, targets)}
    assert len(rows) == len(CORE_ATTACKS + INPUT_ROW_ATTACKS + BIAS_ATTACKS)
    assert rows["decoder bias"].auc.value == 1
    assert rows["decoder bias"].observable == "individual uploads of the last layer's bias of one round"
    assert rows["multi-round vote of input row norm"].rounds == 2
    assert "linked to their user" in rows["multi-round vote of decoder bias"].observable
    assert rows["input row support"].knowledge == ()
    for row in rows.values():
        assert row.explains.endswith(".")
        assert row.explains.count(". ") == 0


def test_a_user_is_present_who_sent_any_block(sim, people):
    members, _, _ = people
    blocks = sim.vae_uploads(np.random.default_rng(8), members)
    blocks["uploads"][:3] = 0
    blocks["inputs"][:2] = 0
    blocks["bias"][0] = 0
    assert ServerView(0, **blocks).present().tolist() == [False] + 59 * [True]


def test_blocks_that_are_missing_or_do_not_fit_are_refused(people):
    knowledge = people[2]
    rows, flat = np.ones((2, 3, 4), np.float32), np.ones((2, 3), np.float32)
    plain = ServerView(0, rows)
    with pytest.raises(ViewError, match=r"needs ServerView\.bias"):
        DecoderBias().score(plain, knowledge)
    with pytest.raises(ViewError, match=r"needs ServerView\.inputs"):
        InputRows(RowSupport()).score(plain, knowledge)
    with pytest.raises(ViewError, match=r"bias is float32 of shape \(2, 3, 4\); .* shape \[users, items\]\."):
        ServerView(0, rows, bias=rows)
    with pytest.raises(ViewError, match=r"inputs has shape \(2, 2, 4\) but uploads has \(2, 3, 4\)"):
        ServerView(0, rows, inputs=rows[:, :2])
    with pytest.raises(ViewError, match="inputs of round 5 holds NaN"):
        ServerView(5, rows, inputs=np.full_like(rows, np.nan))
    with pytest.raises(ViewError, match=r"ScoreView\.scores is float64"):
        ScoreView(0, flat.astype(np.float64))


def test_the_score_threshold_finds_what_a_model_has_fitted_and_nothing_in_taste(sim, people):
    """Scores of taste alone rank training and held-out items alike; memory of training tells them apart."""
    members, held_out, knowledge = people
    rng = np.random.default_rng(9)
    taste = (members | held_out) + rng.normal(0, 0.2, members.shape) + rng.normal(0, 10, (len(members), 1))
    fitted = taste + 2 * members
    games = {
        "never": Targets.trained_vs_never_seen(members, members | held_out),
        "held": Targets.trained_vs_held_out(members, held_out),
    }
    found = {
        (name, game): measure(observe_scores(ScoreView(4, scores.astype(np.float32)), knowledge), knowledge, targets)
        for name, scores in (("taste", taste), ("fitted", fitted))
        for game, targets in games.items()
    }
    assert all([row.attack for row in rows] == ["popularity", "score threshold"] for rows in found.values())
    assert found["taste", "never"][1].auc.value > 0.99
    assert found["taste", "held"][1].auc.value == pytest.approx(0.5, abs=0.08)
    assert found["fitted", "held"][1].auc.value > 0.99
    assert found["fitted", "held"][1].auc_pooled.value > 0.99
    assert found["fitted", "held"][1].scope == ALL_ITEMS
    with pytest.raises(ViewError, match="only uploads have"):
        measure(
            observe_scores(ScoreView(4, taste.astype(np.float32)), knowledge),
            knowledge,
            games["held"],
            scopes=(TOUCHED_ITEMS,),
        )
    assert ScoreThreshold().knowledge == ()
