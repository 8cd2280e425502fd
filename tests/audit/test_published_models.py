"""Changes between published models: the sum of what was sent in between, read as one."""

import numpy as np
import pytest
import torch

from attacks.evaluation import ALL_ITEMS
from privfed.audit.attack_runs.attack_run import MembershipGames, attack_models, attack_taps
from privfed.audit.attack_runs.published_models import model_changes, why_no_rows
from privfed.engines.cohorts import members
from privfed.experiment import Experiment
from privfed.federation import Streams
from privfed.methods import PublicInfo, methods
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

READ = {"fedmf", "fedncf", "pfedrec", "gpfedrec", "hetefedrec", "fair", "fedvae", "feddae", "popularity"}
PART = "none:sampling.kind=fixed,sampling.size=9"


def experiment(split, plan="none", name="fedmf", rounds=4, **taps):
    config = ExperimentConfig(
        method={"name": name},
        privacy=PrivacyPlan.parse(plan),
        rounds=rounds,
        evaluate_every=rounds,
        taps=TapConfig(**{"users": 20, "places": ("model", "sum"), "rounds": tuple(range(rounds))} | taps),
    )
    return Experiment(config, split)


def changes(done, transcript):
    plan = done.config.privacy

    def took_part(t):
        return members(plan.sampling, done.streams, done.n_users, t)

    who, blocks = done.audited().numpy(), done.item_blocks
    return model_changes(transcript.joined("model"), who, blocks, done.server.schema, dict, took_part)


def test_under_plain_averages_a_change_is_the_sum_over_the_clients(few_users):
    done = experiment(few_users, PART)
    transcript = done.run().transcript
    found, sums = changes(done, transcript), transcript.joined("sum")
    assert [change.total.round for change in found] == [1, 2, 3]
    for change, total in zip(found, sums[1:], strict=True):
        np.testing.assert_allclose(change.total.uploads[0] * 9, total.tensors["items"], atol=1e-5)
        assert change.clients == 9
        assert (change.members == np.isin(done.audited().numpy(), total.users.numpy())).all()


def test_models_in_between_that_were_not_tapped_make_larger_sums(few_users):
    done = experiment(few_users, PART, rounds=6)
    every = changes(done, done.run().transcript)
    seldom = experiment(few_users, PART, rounds=6)
    seldom.config = seldom.config.model_copy(update={"taps": seldom.config.taps.model_copy(update={"rounds": (1, 4)})})
    (whole,) = changes(seldom, seldom.run().transcript)
    parts = [change for change in every if change.total.round in (2, 3, 4)]
    np.testing.assert_allclose(whole.total.uploads, sum(part.total.uploads for part in parts), atol=1e-6)
    assert (whole.members == np.any([part.members for part in parts], axis=0)).all()
    assert whole.clients >= max(part.clients for part in parts)


def test_a_round_of_one_client_is_read_off_two_models(small_split):
    """Whoever downloads the model before and after has its upload; what it learns is said to be open to anybody."""
    done = experiment(small_split, "none:release=total,sampling.kind=fixed,sampling.size=1", rounds=12, users=45)
    result = done.run()
    rows = [row for row in attack_taps(done, result.transcript.joined, 12).rows if row.tap == "model"]
    (sign,) = [
        row for row in rows
        if (row.attack, row.scope) == ("multi-round vote of rank-1 sign", ALL_ITEMS) and "never" in row.game
    ]  # fmt: skip
    assert sign.auc.value > 0.99
    assert sign.adversary == "anybody who receives the model"
    assert sign.rounds == list(range(2, 13))
    assert {row.attack for row in rows} > {"popularity", "row norm"}


def test_one_model_alone_says_nothing(few_users):
    done = experiment(few_users, rounds=1)
    asked = MembershipGames.from_experiment(done)
    assert attack_models(done, asked, done.run().transcript.joined("model")).rows == []


def test_every_method_is_read_or_says_why_not(small_split):
    public_info, said = PublicInfo(45, 70, small_split.train), {}
    for name, registered in methods().items():
        server, settings = (
            registered.training.server(registered.config(), public_info, Streams.from_seed(0)),
            registered.config(),
        )
        shared = server.public().shared
        found = registered.attack_surface.published(settings, shared)
        said[name] = why_no_rows(server.schema, found, registered.attack_surface.item_blocks(settings, server.schema))
    assert {name for name in said if said[name] is None} >= READ
    assert "laid out in another way" in said["multvae"]
    assert "no row per item" in said["dfmr"]


@pytest.mark.parametrize("name", ["fedvae", "gpfedrec", "hetefedrec", "fair"])
def test_autoencoders_and_global_tables_are_read_too(few_users, name):
    done = experiment(few_users, name=name, places=("model",), inclusion=0.5)
    result = done.run()
    found = attack_taps(done, result.transcript.joined, 4, result.guarantee)
    rows = [row for row in found.rows if row.tap == "model"]
    assert {row.membership for row in rows} == {"natural", "randomised"}
    assert ("decoder bias" in {row.attack for row in rows}) == (name == "fedvae")
    assert torch.isfinite(torch.tensor([row.auc.value for row in rows])).all()
    assert "model" in {row.tap for row in found.empirical}
