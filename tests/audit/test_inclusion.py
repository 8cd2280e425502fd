"""The inclusion bits decide before training, nothing but training sees it, and epsilon is held against nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import Targets
from attacks.evaluation import ALL_ITEMS, AttackObservation, AttackScores
from attacks.membership import RankOneSign
from privfed.audit.attack_runs.attack_run import MembershipGames, attack_run, attack_taps
from privfed.audit.epsilon.inclusion import GUESSED, InclusionGame, fixed_attack
from privfed.audit.report.ceilings import auc_ceiling, interaction_level
from privfed.audit.report.records import AttackRow, GuaranteeRow
from privfed.data import Histories, PartRatings, SplitSpec, load, split
from privfed.evaluation import PAPER, Evaluator, Protocol
from privfed.experiment import Experiment
from privfed.methods import ItemBlocks
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.inclusion import InclusionBits

EVERYWHERE = ("raw", "wire", "sum", "model")


def experiment(split, plan="none", name="fedmf", rounds=4, protocol=None, seed=0, **taps):
    config = ExperimentConfig(
        method={"name": name},
        privacy=PrivacyPlan.parse(plan),
        rounds=rounds,
        seed=seed,
        evaluate_every=rounds,
        protocol=protocol or Protocol(k=(5,)),
        taps=TapConfig(**{"users": 40, "inclusion": 0.5, "places": EVERYWHERE} | taps),
    )
    return Experiment(config, split)


@given(share=st.floats(0.01, 0.99), seed=st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_a_share_of_everybodys_training_items_is_randomised(small_split, share, seed):
    users = np.arange(3, 45, 2)
    inclusion = InclusionBits.sample(small_split, users, share, seed)
    train = small_split.train.mask(users)
    assert not (inclusion.kept & inclusion.dropped).any()
    assert (inclusion.decided <= train).all()
    assert (inclusion.decided.sum(1) == np.floor(share * train.sum(1))).all()
    left = inclusion.applied_to(small_split).train
    assert (left.mask(users) == train & ~inclusion.dropped).all()
    assert (left.counts > 0).all()
    others = np.setdiff1d(np.arange(45), users)
    assert (left.mask(others) == small_split.train.mask(others)).all()
    again = inclusion.resample(seed)
    assert (again.decided == inclusion.decided).all()
    assert len(inclusion) == 0 or again.kept.any() or again.dropped.any()


def test_the_inclusion_bit_is_fair_and_everybodys_own(small_split):
    users = np.arange(45)
    kept = np.stack([InclusionBits.sample(small_split, users, 0.5, seed).kept.sum() for seed in range(200)])
    decided = len(InclusionBits.sample(small_split, users, 0.5, 0))
    assert abs(kept.mean() / decided - 0.5) < 4 * 0.5 / np.sqrt(200 * decided)
    assert 0.7 < kept.std() / (0.5 * np.sqrt(decided)) < 1.3


def test_ratings_and_order_stay_with_their_items(small_split):
    train = small_split.train
    rated = replace(
        small_split,
        ratings=PartRatings(
            *(np.arange(len(p), dtype=np.float32) for p in (train, small_split.valid, small_split.test))
        ),
    )
    left = InclusionBits.sample(rated, np.arange(45), 0.5, 1).applied_to(rated)
    assert len(left.ratings.train) == len(left.train) < len(train)
    for user in range(45):
        mine = left.ratings.train[left.train.indptr[user] : left.train.indptr[user + 1]].astype(int)
        assert (train.items[mine] == left.train.items_of(user)).all()
        assert (np.diff(mine) > 0).all()


def test_what_arrives_is_what_the_bits_left_of_it(small_split):
    train = small_split.train
    arrived = np.stack([train.counts // 3, train.counts // 2, train.counts], axis=1)
    bits = InclusionBits.sample(small_split, np.arange(0, 45, 2), 0.5, 1)
    left = bits.applied_to(replace(small_split, arrived=arrived))
    assert len(left.train) < len(train)
    for user in range(45):
        for refresh in range(3):
            there = set(train.items_of(user)[: arrived[user, refresh]].tolist())
            kept = left.train.items_of(user)[: left.arrived[user, refresh]].tolist()
            assert kept == [item for item in left.train.items_of(user) if item in there]


def test_an_item_that_is_held_out_too_is_left_alone(small_split):
    test = small_split.test
    owners = np.concatenate([small_split.train.owners, test.owners])
    items = np.concatenate([small_split.train.items, test.items])
    leaky = replace(small_split, train=Histories.from_pairs(owners, items, 45, 70), ratings=None)
    inclusion = InclusionBits.sample(leaky, np.arange(45), 0.9, 0)
    assert not (inclusion.decided & test.mask(np.arange(45))).any()


def test_clients_hold_what_the_inclusion_bit_left_and_everything_else_is_as_before(small_split):
    """Popularity, candidates and audited users are those of the data before the bits: nothing shows them."""
    tossed, plain = experiment(small_split), experiment(small_split, inclusion=0.0)
    assert plain.inclusion is None
    assert plain.trained is plain.parts
    assert tossed.audited().equal(plain.audited())
    users = tossed.audited().numpy()
    assert not (tossed.trained.train.mask(users) & tossed.inclusion.dropped).any()
    assert torch.from_numpy(tossed.trained.train.counts).equal(tossed.clients.sampler.positive_counts)
    assert (MembershipGames.from_experiment(tossed).knowledge.popularity == small_split.train.popularity()).all()
    other = experiment(small_split, seed=1)
    assert (MembershipGames.from_experiment(other).knowledge.popularity == small_split.train.popularity()).all()


@pytest.mark.parametrize("protocol", [Protocol(k=(5,)), PAPER.model_copy(update={"k": (5,), "n_sampled": 9})])
def test_evaluation_ranks_no_dropped_item(small_split, protocol):
    """A model that ranks what the bits dropped first loses nothing by it: these are no candidates, as before."""
    tossed = experiment(small_split, protocol=protocol)
    everybody = np.arange(45)
    dropped = np.zeros((45, 70), dtype=bool)
    dropped[tossed.inclusion.users] = tossed.inclusion.dropped
    scores = np.random.default_rng(0).random((45, 70)).astype(np.float32)
    results = []
    for preferred in (scores, scores + 5 * dropped.astype(np.float32)):
        evaluator = Evaluator(tossed.parts, protocol, "test")
        items = evaluator.candidates(everybody)
        evaluator.add(everybody, preferred if items is None else np.take_along_axis(preferred, items, axis=1))
        results.append(evaluator.result().metrics)
    assert results[0] == results[1]
    assert tossed.run().test.n_users == 45


def test_negatives_do_not_know_the_inclusion_bit(small_split):
    """A dropped item is like any other that the user never had, also where held-out items are no negatives."""
    tossed = experiment(small_split, protocol=PAPER.model_copy(update={"k": (5,), "n_sampled": 9}))
    touched = np.zeros((40, 70), dtype=bool)
    for t in range(30):
        _, updates = tossed.rehearse(tossed.audited(), t, tossed.server.schema)
        tossed.clients.discard()
        touched |= updates.materialise(torch.arange(40))["items"].any(2).numpy()
    assert (touched & tossed.inclusion.dropped).sum() > 0.9 * tossed.inclusion.dropped.sum()
    held_out = small_split.test.mask(tossed.inclusion.users)
    assert not (touched & held_out).any()


def test_plain_runs_are_those_of_before(small_split):
    one, other = (experiment(small_split, inclusion=0.0, places=places).run() for places in (EVERYWHERE, ()))
    assert one.server.state()["items"].equal(other.server.state()["items"])
    assert experiment(small_split).config.digest() != experiment(small_split, inclusion=0.0).config.digest()
    with pytest.raises(ValueError, match="inclusion = 0 samples none"):
        TapConfig(shadows=2)


def test_a_killed_run_has_the_same_bits(small_split, tmp_path):
    done = experiment(small_split)
    result = done.run(tmp_path)
    again = experiment(small_split)
    assert (again.inclusion.kept == done.inclusion.kept).all()
    found = attack_run(tmp_path, done.config, small_split)
    wanted = attack_taps(done, result.transcript.joined, 4, result.guarantee)
    assert found.rows == wanted.rows
    assert found.empirical == wanted.empirical


@pytest.fixture(scope="module")
def bare(small_split):
    """A run without a mechanism, trained once."""
    done = experiment(small_split)
    return done, done.run()


def test_unprotected_uploads_give_the_inclusion_bit_away_at_every_tap_that_shows_them(bare):
    done, result = bare
    found = attack_taps(done, result.transcript.joined, 4, result.guarantee)
    game = [row for row in found.rows if row.membership == "randomised"]
    assert {row.tap for row in game} == {"raw", "wire", "sum", "model", "scores"}
    assert {row.game for row in game} == {"randomised inclusion"}
    assert {row.scope for row in game} == {ALL_ITEMS}
    assert all(row.ceiling is None for row in game)
    (sign,) = [row for row in game if (row.tap, row.attack) == ("wire", "multi-round vote of rank-1 sign")]
    assert sign.auc.value > 0.99
    (popularity,) = [row for row in game if (row.tap, row.attack) == ("wire", "popularity")]
    assert popularity.auc.lo < 0.55
    bounds = {row.tap: row for row in found.empirical}
    assert bounds.keys() == {"raw", "wire", "sum", "model", "scores"}
    guesses = int(GUESSED * len(done.inclusion))
    assert bounds["wire"].value > 0.8 * np.log(1 / (0.05 ** (-1 / (2 * guesses)) - 1))
    assert bounds["sum"].value < 1
    assert all(row.value <= row.largest_deniable for row in found.empirical)
    assert bounds["wire"].largest_deniable < 1.2 * np.log(1 / (0.05 ** (-1 / (2 * guesses)) - 1))
    assert all(row.consistent and row.accounted == float("inf") for row in found.empirical)
    assert {row.kind for row in found.empirical} == {"lower bound"}


def test_a_claim_puts_a_ceiling_on_the_taps_that_it_covers(small_split):
    done = experiment(small_split, "local-laplace:epsilon0=0.05,clip_norm=1")
    result = done.run()
    claim = GuaranteeRow.model_validate(result.guarantee.model_dump())
    found = attack_taps(done, result.transcript.joined, 4, result.guarantee)
    epsilon, delta = interaction_level(claim)
    for row in found.rows:
        if row.membership == "natural" or row.tap in ("raw", "scores"):
            assert row.ceiling is None
            continue
        assert row.ceiling is not None
        assert (row.ceiling.epsilon, row.ceiling.delta) == (epsilon, delta)
        assert row.ceiling.auc == auc_ceiling(epsilon, delta)
        assert not row.ceiling.beaten
    bounds = {row.tap: row for row in found.empirical}
    assert bounds["wire"].accounted == epsilon
    assert bounds["wire"].value <= epsilon
    assert bounds["raw"].accounted == bounds["scores"].accounted == float("inf")


def test_a_beaten_ceiling_is_noticed(bare):
    done, result = bare
    false = result.guarantee.model_copy(
        update={"epsilon": 0.5, "trust": "local", "neighbours": "replace_one", "reason_if_inf": None, "delta": 1e-5}
    )
    found = attack_taps(done, result.transcript.joined, 4, false)
    rows = [row for row in found.rows if row.tap == "wire" and row.ceiling is not None]
    assert any(row.ceiling.beaten for row in rows if row.attack == "rank-1 sign")
    assert not any(row.ceiling.beaten for row in rows if row.attack == "popularity")
    (bound,) = [row for row in found.empirical if row.tap == "wire"]
    assert not bound.consistent


def test_placebo_scores_give_no_epsilon(small_split):
    """Scores that follow from nothing of the run: at most one in twenty bounds is above 0."""
    inclusion = InclusionBits.sample(small_split, np.arange(45), 0.5, 0)
    above = 0
    for seed in range(100):
        thrown = inclusion.resample(seed)
        scores = np.random.default_rng(seed).random(thrown.kept.shape)
        said = AttackObservation((AttackScores(RankOneSign(), scores, np.ones(45, dtype=bool), 1, 0.0),), None)
        bound = InclusionGame(thrown, None).measured(said, "rank-1 sign", AttackRow.model_construct(tap="wire"))
        above += bound.value > 0
    assert above <= 12


def test_the_attack_follows_from_what_is_seen():
    assert fixed_attack("wire", ItemBlocks("items")) == "multi-round vote of rank-1 sign"
    assert fixed_attack("sum", ItemBlocks("d.0.weight", "e.0.weight", "d.0.bias")) == "multi-round vote of decoder bias"
    assert fixed_attack("scores", ItemBlocks("items")) == fixed_attack("scores", None) == "score threshold"


def test_public_histories_are_given_no_inclusion_bits():
    parts = split(load("synthetic-funnel-small"), SplitSpec(target="buy"))
    assert experiment(parts, name="dfmr", places=()).inclusion is None


def test_helpers_are_not_asked_about(small_split):
    asked = MembershipGames.from_experiment(experiment(small_split))
    with_colluding_users = asked.with_colluding_users
    colluding = with_colluding_users.knowledge.colluding
    assert colluding.sum() == 8
    told, truth = with_colluding_users.knowledge.histories, asked.games[0].members
    assert (told[colluding] == truth[colluding]).all()
    assert not told[~colluding].any()
    assert not with_colluding_users.inclusion_game.inclusion.decided[colluding].any()
    for game in with_colluding_users.games:
        assert not game.candidates[colluding].any()
    assert isinstance(asked.inclusion_game.targets, Targets)
