"""Shadow trainings sample the run's inclusion bits anew, and nothing of the run comes back in them."""

import numpy as np
import pytest

from attacks.shadow import Lira, Rmia
from privfed.audit.attack_runs.attack_run import MembershipGames, attack_device_scores
from privfed.audit.attack_runs.shadows import applicable, shadow_of, shadow_view
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig


def experiment(split, name="fedmf", shadows=2, rounds=8, seed=0, **taps):
    config = ExperimentConfig(
        method={"name": name},
        rounds=rounds,
        seed=seed,
        evaluate_every=rounds,
        taps=TapConfig(**{"users": 30, "inclusion": 0.5, "places": (), "shadows": shadows} | taps),
    )
    return Experiment(config, split)


def test_a_shadow_has_other_bits_and_other_keys(small_split):
    done = experiment(small_split)
    inclusion = done.inclusion
    worlds = [shadow_of(done, inclusion.resample(seed), seed) for seed in (1, 2)]
    users = inclusion.users
    trained = [world.trained.train.mask(users) for world in worlds]
    own = done.trained.train.mask(users)
    for mask in trained:
        assert (mask[~inclusion.decided] == own[~inclusion.decided]).all()
        assert 0.3 < (mask == own)[inclusion.decided].mean() < 0.7
    assert (trained[0] != trained[1]).any()
    for world in worlds:
        assert world.inclusion is None
        assert not world.clients.state()["w"].equal(done.clients.state()["w"])


def test_the_view_is_that_of_the_worlds(few_users):
    done = experiment(few_users, users=18, rounds=2)
    target = np.zeros((18, 70), np.float32)
    view = shadow_view(done, target)
    assert view.n_worlds == 2
    assert view.output == "sigmoid"
    assert (
        view.trained[:, ~done.inclusion.decided]
        == done.trained.train.mask(done.inclusion.users)[~done.inclusion.decided]
    ).all()
    again = shadow_view(done, target)
    assert (again.shadows == view.shadows).all()
    other = shadow_view(experiment(few_users, users=18, rounds=2, seed=1), target)
    assert not (other.shadows == view.shadows).all()
    assert shadow_view(experiment(few_users, "fedvae", users=18, rounds=1), target).output == "softmax"


def test_shadow_attacks_play_the_inclusion_game_alone(small_split):
    done = experiment(small_split)
    done.run(parts=())
    rows = attack_device_scores(done, MembershipGames.from_experiment(done), 8).rows
    shadowed = [row for row in rows if row.attack == "RMIA"]
    assert [row.membership for row in shadowed] == ["randomised"]
    assert shadowed[0].tap == "scores"
    assert shadowed[0].auc.value > 0.8
    assert shadowed[0].rounds == [8]
    assert sum(row.attack == "popularity" and row.membership == "randomised" for row in rows) == 1


def test_shadows_are_off_unless_asked_for(small_split, monkeypatch):
    def refuse(*given):
        raise AssertionError("a shadow was trained that nobody asked for")

    monkeypatch.setattr("privfed.audit.attack_runs.attack_run.shadow_view", refuse)
    done = experiment(small_split, shadows=0)
    done.run(parts=())
    assert {row.attack for row in attack_device_scores(done, MembershipGames.from_experiment(done), 8).rows} == {
        "popularity",
        "score threshold",
    }


def test_many_shadows_serve_attacks_that_want_both_worlds():
    assert applicable(2) == (Rmia(),)
    assert set(applicable(8)) == {Rmia(), Rmia("online"), Lira("offline"), Lira("online")}


def test_shadows_without_bits_are_refused(small_split):
    done = experiment(small_split, shadows=0, inclusion=0.0)
    with pytest.raises(ValueError, match="set taps"):
        shadow_view(done, np.zeros((30, 70), np.float32))
