"""A lying server: what it isolates is one upload, what plan and terms refuse it does not get, and nothing stays."""

import numpy as np
import pytest
import torch

from attacks.active import HONEST, Craft
from privfed.audit.active.honest_run import about_items, trained
from privfed.audit.active.lies import CRAFTED, LIES, DeviceTerms, Lie
from privfed.audit.active.lying_server import LyingServer, item_view
from privfed.audit.active.silenced_clients import stays_silent
from privfed.engines.simulation import TooFewClientsError
from privfed.methods import ItemBlocks
from privfed.privacy import PrivacyPlan
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig

_, SMALL, UNEQUAL = LIES
COHORT = 20
SECURE = "secure-sum:clip_norm=1e4"
NOISY = "distributed-gaussian:noise_multiplier=1,clip_norm=1,n_min_honest=8"
SETTINGS = {
    "fedmf": {"dim": 8},
    "hetefedrec": {"widths": [4, 8, 12]},
    "fair": {"dim": 4, "epochs": 1},
    "fedvae": {"latent": 6},
}


def assembled(split, name, plan):
    config = ExperimentConfig(
        method={"name": name} | SETTINGS.get(name, {}),
        privacy=PrivacyPlan.parse(f"{plan}{',' if ':' in plan else ':'}sampling.kind=fixed,sampling.size={COHORT}"),
        rounds=1,
        evaluate_every=1,
        fidelity="analytic",
    )
    return Assembly(config, split)


def lying(split, name, plan, rounds=1):
    """A lying server after some honest rounds, and the blocks that it reads."""
    honest = assembled(split, name, "none")
    run = trained(honest, rounds)
    query, blocks = about_items(honest, run.queries)
    assembly = assembled(split, name, plan)
    assembly.clients.load(run.devices)
    return LyingServer(assembly, query), blocks


@pytest.fixture(scope="module")
def people(small_split):
    return torch.from_numpy(np.flatnonzero(small_split.train.counts)[:COHORT])


@pytest.mark.parametrize("name", SETTINGS)
def test_unequal_models_turn_a_secure_sum_into_one_upload(small_split, people, name):
    server, blocks = lying(small_split, name, SECURE)
    bare, _ = lying(small_split, name, "none")
    message, target = server.crafted(HONEST), people[3:4]
    assert stays_silent(server.assembly.clients, server.query, people[:5], server.assembly.streams, 9)
    alone = server.sum(message, people, target)
    bare.round = server.round - 1
    upload = bare.uploads(message, target)
    for block, values in upload.items():
        torch.testing.assert_close(alone[block], values[0], rtol=1e-4, atol=1e-6)
    everybody = server.sum(message, people)
    assert any(not torch.allclose(everybody[block], alone[block], atol=1e-5) for block in alone)
    assert item_view(blocks, {block: values.unsqueeze(0) for block, values in alone.items()}).present().all()


def test_a_query_without_a_model_cannot_be_broken(small_split, people):
    server, _ = lying(small_split, "popularity", SECURE, rounds=0)
    assert not stays_silent(server.assembly.clients, server.query, people[:3], server.assembly.streams, 9)


def test_a_small_roster_is_as_small_as_the_plan_opens(small_split, people):
    server, _ = lying(small_split, "fedmf", SECURE)
    message, size = server.crafted(HONEST), SMALL.roster_size(server.assembly.config.privacy, COHORT)
    assert size == 3
    (found,) = server.isolated(message, SMALL, {int(people[0]): people})
    assert found[0] == int(people[0])
    with pytest.raises(TooFewClientsError, match="2 clients"):
        server.sum(message, people[: size - 1])


def test_noise_for_the_honest_lies_on_what_is_isolated(small_split, people):
    server, _ = lying(small_split, "fedmf", NOISY)
    exact, _ = lying(small_split, "fedmf", "secure-sum:clip_norm=1")
    noise = [
        server.sum(server.crafted(HONEST), people, people[:1])["items"]
        - exact.sum(exact.crafted(HONEST), people, people[:1])["items"]
        for _ in range(4)
    ]
    expected = (COHORT / 8) ** 0.5
    assert float(torch.stack(noise).std()) == pytest.approx(expected, rel=0.1)


def test_a_probe_teaches_devices_nothing(small_split, people):
    server, _ = lying(small_split, "fedmf", SECURE)
    before = server.assembly.clients.state()
    server.sum(server.crafted(Craft("loud", row_gain=10.0)), people)
    after = server.assembly.clients.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], values) for name, values in after.items())


SUMMED, SINGLE, COINS = (
    PrivacyPlan.parse(words)
    for words in (
        f"{SECURE},sampling.kind=fixed,sampling.size={COHORT}",
        "none",
        "central-gaussian:noise_multiplier=1,clip_norm=1,sampling.kind=poisson,sampling.rate=0.1",
    )
)


@pytest.mark.parametrize(
    ("lie", "plan", "terms", "why"),
    [
        (CRAFTED, SUMMED, DeviceTerms(COHORT, signed=True), None),
        (SMALL, SUMMED, DeviceTerms(), None),
        (SMALL, SUMMED, DeviceTerms(min_users=4), "4 users"),
        (SMALL, SUMMED, DeviceTerms(signed=True), "sampling rule"),
        (SMALL, COINS, DeviceTerms(), "random bit"),
        (UNEQUAL, SUMMED, DeviceTerms(min_users=COHORT), None),
        (UNEQUAL, SUMMED, DeviceTerms(signed=True), "bound to the model"),
        (UNEQUAL, SINGLE, DeviceTerms(), "single uploads"),
    ],
)
def test_what_a_lie_needs_follows_from_plan_and_terms(lie: Lie, plan: PrivacyPlan, terms: DeviceTerms, why: str | None):
    refusal = lie.refusal(plan, terms, COHORT)
    assert (refusal is None) == (why is None)
    assert why is None or why in refusal


@pytest.mark.parametrize(
    ("name", "blocks"), [("fedmf", "items"), ("popularity", "counts"), ("private-gram", "popularity")]
)
def test_a_query_is_found_by_what_a_method_declares(small_split, name, blocks):
    """Its attack surface names a block of the training step; else there is a block with a row for every item."""
    honest = assembled(small_split, name, "none")
    query, found = about_items(honest, trained(honest, 0).queries)
    assert found == ItemBlocks(blocks)
    assert blocks in query.schema
    assert about_items(honest, []) is None
