"""Replays are the method's own training: a true history from a newcomer's private parameters gives the upload.

To the bit where clients train in padded tiles; autoencoders multiply matrices of as many rows as there are clients.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks import ViewError
from privfed.audit.attack_runs.attack_run import views
from privfed.audit.attack_runs.training_oracles import build_training_oracle, why_no_training_oracle
from privfed.data import Histories
from privfed.engines.transcript import load_observations
from privfed.experiment import Experiment
from privfed.federation import PUBLIC, SERVER, Purpose, Streams
from privfed.methods import PublicInfo
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

METHODS = {
    "fedmf": {"dim": 8},
    "fedncf": {"dim": 8, "hidden": [8, 4]},
    "pfedrec": {"dim": 8},
    "gpfedrec": {"dim": 8, "hidden": [8, 4]},
    "hetefedrec": {"widths": [4, 8, 12]},
    "fair": {"dim": 4, "epochs": 2},
    "fedvae": {"latent": 6},
    "feddae": {"latent": 6},
}
USERS = 20


@pytest.fixture(scope="module")
def ascending(small_split):
    """The small split with every history ascending, as a guess has no order in time."""
    train = small_split.train
    order = np.lexsort((train.items, train.owners))
    return replace(small_split, train=Histories(train.indptr, train.items[order], train.n_items), ratings=None)


def experiment(split, name, plan="none", rounds=1, **taps):
    config = ExperimentConfig(
        method={"name": name} | METHODS.get(name, {}),
        privacy=PrivacyPlan.parse(plan),
        rounds=rounds,
        evaluate_every=rounds,
        taps=TapConfig(**{"users": USERS, "rounds": tuple(range(rounds)), "training_oracles": True} | taps),
    )
    return Experiment(config, split)


def seen(done, tap="wire"):
    """A run's views, the recipe that goes with them, and the true histories."""
    transcript = done.run().transcript
    uploads = transcript.joined(tap)
    users = done.audited().numpy()
    found = list(views(uploads, users, done.item_blocks))
    recipe = build_training_oracle(done, tap, uploads, transcript.joined("message"))
    return found, recipe, done.trained.train.mask(users)


def same(one, other, rounding=0.0):
    for role in ("uploads", "inputs", "bias", "proximal"):
        mine, theirs = getattr(one, role), getattr(other, role)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=rounding, atol=rounding * np.abs(theirs).max())


@pytest.mark.parametrize("plan", ["none", "clip:clip_norm=0.3"])
@pytest.mark.parametrize("name", METHODS)
def test_a_true_history_gives_the_upload(ascending, name, plan):
    """Under the devices' own keys, which no adversary has: what is repeated is the training itself."""
    done = experiment(ascending, name, plan)
    (view,), recipe, truth = seen(done)
    known = replace(recipe, streams=lambda world: done.streams)
    same(known.simulate_uploads(0, truth, np.ones_like(truth), 0), view, 1e-5 if "vae" in name or "dae" in name else 0)
    wrong = known.simulate_uploads(0, np.roll(truth, 1, axis=1), np.ones_like(truth), 0)
    assert not np.array_equal(wrong.uploads, view.uploads)


@pytest.mark.parametrize("name", METHODS)
def test_an_adversary_has_no_key_of_a_device(ascending, name):
    """Its own replay of the same history differs wherever devices draw anything, and repeats itself."""
    done = experiment(ascending, name)
    (view,), recipe, truth = seen(done)
    everything = np.ones_like(truth)
    first, again, other = (recipe.simulate_uploads(0, truth, everything, world) for world in (3, 3, 4))
    same(first, again)
    assert not np.array_equal(first.uploads, other.uploads)
    assert not np.array_equal(first.uploads, view.uploads)


def test_an_outsider_shares_public_words_only():
    run = Streams.from_seed(0)
    mine = Streams.of_outsider(run, 0)
    twice = Streams.of_outsider(mine, 5)
    for streams in (mine, twice):
        assert (words(streams, PUBLIC) == words(run, PUBLIC)).all()
        assert all((words(streams, user) != words(run, user)).any() for user in (SERVER, 0, 7))
    assert (words(twice, 3) != words(mine, 3)).any()


def words(streams, user):
    return streams.words(Purpose.INITIALISE, 0, 0, [user], 9)


def test_negatives_come_from_the_candidates(ascending):
    done = experiment(ascending, "fedmf")
    _, recipe, truth = seen(done)
    candidates = truth.copy()
    candidates[:, 30:60] = True
    touched = recipe.simulate_uploads(0, truth, candidates, 1).uploads.any(2)
    assert (touched <= candidates).all()
    assert (touched >= truth).all()
    nowhere = recipe.simulate_uploads(0, truth, truth, 1).uploads.any(2)
    assert (nowhere.sum(1) > truth.sum(1)).all()


def test_who_has_no_guess_or_no_message_sends_zeros(ascending):
    done = experiment(ascending, "gpfedrec", "none:sampling.kind=fixed,sampling.size=25")
    (view,), recipe, truth = seen(done)
    here = view.present()
    assert 0 < here.sum() < USERS
    some = truth.copy()
    some[np.flatnonzero(here)[0]] = False
    sent = recipe.simulate_uploads(0, some, np.ones_like(some), 0)
    assert (sent.present() == (here & some.any(1))).all()
    nobody = recipe.simulate_uploads(0, np.zeros_like(some), np.ones_like(some), 0)
    assert not nobody.present().any()
    assert nobody.uploads.shape == view.uploads.shape
    with pytest.raises(ViewError, match="No message of round 4 is known"):
        recipe.simulate_uploads(4, truth, truth, 0)


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "pfedrec", "gpfedrec", "hetefedrec", "fair"])
def test_public_scores_are_those_of_the_model_that_was_sent(ascending, name):
    """Where all start alike, a newcomer's scores on the uploaded model; with silence, those of the model received."""
    done = experiment(ascending, name)
    (view,), recipe, truth = seen(done)
    assert recipe.can_score
    sent = recipe.public_scores(view)
    silent = recipe.public_scores(replace(view, uploads=np.zeros_like(view.uploads), proximal=None))
    assert sent.shape == truth.shape
    assert np.isfinite(sent).all()
    raised = (sent - silent)[truth].mean() - (sent - silent)[~truth].mean()
    assert raised > 0
    public_info = PublicInfo(done.n_users, done.parts.train.n_items)
    message = done.registered.training.server(done.config.settings(), public_info, done.streams).public()
    fresh = recipe._clients(np.zeros_like(truth), np.zeros_like(truth), recipe.streams(0), 0)
    users = done.audited()
    wanted = fresh.score(users, message.addressed_to(users), None, None)
    torch.testing.assert_close(torch.from_numpy(silent).float(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["fedvae", "feddae"])
def test_what_reads_histories_gives_no_scores_without_one(ascending, name):
    (view,), recipe, _ = seen(experiment(ascending, name))
    assert not recipe.can_score
    with pytest.raises(ViewError, match="ranks by a history that it reads"):
        recipe.public_scores(view)


def test_methods_that_cannot_be_repeated_say_why(small_split):
    assert "does not come from one training step" in why_no_training_oracle(experiment(small_split, "popularity"))
    config = ExperimentConfig(method={"name": "fair", "assigned": "activity"})
    assert "depends on everybody's data" in why_no_training_oracle(Experiment(config, small_split))
    assert why_no_training_oracle(experiment(small_split, "fedmf")) is None


def test_messages_are_copied_only_where_they_are_asked_for(ascending, tmp_path):
    plain = experiment(ascending, "gpfedrec", training_oracles=False).run().transcript
    assert plain.joined("message") == []
    done = experiment(ascending, "gpfedrec")
    transcript = done.run(tmp_path).transcript
    (sent,) = transcript.joined("message")
    assert sent.tensors["personal/targets"].shape[0] == USERS
    (loaded,) = load_observations(tmp_path / "taps", ("message",))
    assert loaded.tensors.keys() == sent.tensors.keys()
    assert all(loaded.tensors[name].equal(sent.tensors[name]) for name in loaded.tensors)
    hidden = experiment(ascending, "fedmf", "secure-sum:clip_norm=1").run().transcript
    assert hidden.joined("message") == []


def test_a_device_of_another_size_is_trained_again_at_its_own(ascending):
    """Capacities are drawn by the devices' own keys; the adversary reads them off the blocks that were sent."""
    done = experiment(ascending, "hetefedrec")
    (view,), recipe, truth = seen(done)
    sent = recipe.simulate_uploads(0, truth, np.ones_like(truth), 0)
    for start, stop in ((0, 4), (4, 8), (8, 12)):
        assert (sent.uploads[:, :, start:stop].any((1, 2)) == view.uploads[:, :, start:stop].any((1, 2))).all()
