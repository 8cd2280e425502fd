"""A federation over nodes comes to the bits of the simulation in one process, and charges the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes.errors import NodesError, PolicyRefused
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.policy import Policy
from privfed.evaluation import Protocol
from privfed.experiment import ExactEvaluation, Experiment
from privfed.federation import Streams
from privfed.guards import ClientGuard, RingCode
from privfed.privacy import PlanError, PrivacyPlan

SHARES = "distributed-gaussian:noise_multiplier=1.0,clip_norm=1.0,n_min_honest=20"
SECURE = "secure-sum:clip_norm=1.0"

MASKED = [
    pytest.param("feddae", SECURE, {"popularity_prior": True}, id="feddae-two-asks"),
    pytest.param("hetefedrec", SHARES, {}, id="hetefedrec-shares"),
    pytest.param("fair", SECURE, {}, id="fair"),
    pytest.param("feddae", SECURE + ",bits=20,rounding=stochastic", {}, id="feddae-20-bits"),
    pytest.param("hetefedrec", SHARES + ",bits=19", {}, id="hetefedrec-shares-19-bits"),
    pytest.param("private-gram", SHARES, {}, id="private-gram"),
    pytest.param("dfmr", "secure-sum:clip_norm=1.0,bits=64", {"d": 4}, id="dfmr"),
]


def equal(one: Any, other: Any) -> bool:
    mine, theirs = one.public().shared, other.public().shared
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(("method", "plan", "settings"), MASKED)
def test_masked_sums_are_bit_equal_to_one_process(
    federation: Callable[..., Any], method: str, plan: str, settings: dict[str, Any]
) -> None:
    f = federation(method, plan, settings=settings, nodes=3)
    simulated, charges = f.simulated()
    trained = f.train()
    assert equal(simulated.server, trained.server)
    assert f.ledger_lines() == charges
    assert not trained.incidents


@pytest.mark.parametrize("method", ["hetefedrec", "dfmr"])
def test_a_new_process_for_every_message_changes_nothing(federation: Callable[..., Any], method: str) -> None:
    plan = "secure-sum:clip_norm=1.0,bits=64"
    f = federation(method, plan, settings={"d": 3} if method == "dfmr" else {}, nodes=3, mixed=True)
    simulated, charges = f.simulated()
    assert equal(simulated.server, f.train(InProcess(f.fresh())).server)
    assert f.ledger_lines() == charges


def test_users_may_live_anywhere(federation: Callable[..., Any]) -> None:
    f = federation("hetefedrec", SECURE, mixed=True)
    assert equal(f.simulated()[0].server, f.train().server)


@pytest.mark.parametrize("bits", ["", ",upload_bits=7"])
def test_single_uploads_with_noise_of_their_own(federation: Callable[..., Any], bits: str) -> None:
    f = federation("gpfedrec", f"local-laplace:epsilon0=5,clip_norm=1{bits}", nodes=3)
    simulated, charges = f.simulated()
    trained = f.train()
    for one, other in zip(simulated.server.state().values(), trained.server.state().values(), strict=True):
        torch.testing.assert_close(one, other)
    assert f.ledger_lines() == charges


@pytest.mark.parametrize(
    "plan",
    [
        "none",
        "clip:clip_norm=1,upload_bits=8",
        "central-gaussian:clip_norm=1,noise_multiplier=1,sampling.kind=poisson,sampling.rate=0.5",
        SHARES.replace("=20", "=5") + ",sampling.kind=poisson,sampling.rate=0.5",
        SECURE + ",sampling.kind=fixed,sampling.size=20",
    ],
)
def test_plans_and_cohorts(federation: Callable[..., Any], plan: str) -> None:
    f = federation("feddae", plan, nodes=3)
    simulated, charges = f.simulated()
    trained = f.train()
    for name, value in simulated.server.public().shared.items():
        torch.testing.assert_close(value, trained.server.public().shared[name])
    assert f.ledger_lines() == charges


def test_a_steady_round_takes_five_exchanges(federation: Callable[..., Any]) -> None:
    stages: list[str] = []
    f = federation("pfedrec", SECURE, rounds=3)
    inner = InProcess(f.nodes)

    class Watched:
        nodes = staticmethod(inner.nodes)

        @staticmethod
        def exchange(stage: str, requests: Any, timeout: float) -> Any:
            stages.append(stage)
            return inner.exchange(stage, requests, timeout)

    f.train(Watched())
    steady = ["train.share", "train.check", "train.input", "train.confirm", "train.reveal"]
    assert stages == ["train.announce", "train.invite", *steady * 3, "train.settle"]


@pytest.mark.parametrize("plan", [SECURE, "none"])
def test_sums_of_metrics_are_those_of_a_simulation(federation: Callable[..., Any], plan: str) -> None:
    protocol = Protocol(state="received", ties="pessimistic")
    f = federation("feddae", plan, nodes=3, protocol=protocol, evaluate_every=2)
    trained = f.train(parts=("valid", "test"))
    reference = Experiment(f.config, f.parts)
    reference.run(parts=())
    expected = ExactEvaluation(reference, ("valid", "test")).result(1)
    for part, result in expected.results.items():
        found = trained.history[-1].results[part]
        assert found.n_users == result.n_users
        for ours, theirs in zip(found.metrics, result.metrics, strict=True):
            assert (ours.name, ours.k) == (theirs.name, theirs.k)
            assert ours.value == pytest.approx(theirs.value, abs=1e-6)
            assert ours.lo <= ours.value <= ours.hi


def test_a_deployment_has_noise_that_no_seed_gives(federation: Callable[..., Any]) -> None:
    f = federation("private-gram", SHARES, seeded=False, rounds=1)
    one, other = f.train(name="one"), f.train(name="other")
    assert not equal(one.server, other.server)
    assert not equal(one.server, f.simulated()[0].server)
    assert not any("seed" in sentence for sentence in one.guarantee.assumptions)


def test_what_cannot_be_over_nodes_is_refused(federation: Callable[..., Any]) -> None:
    for method, plan, settings in (
        ("fedmf", "shared-sum:clip_norm=1.0", {}),
        ("hetefedrec", SECURE + ",blocks=held", {}),
        ("fair", SECURE, {"assigned": "activity"}),
    ):
        with pytest.raises(ValueError, match=r"one place|aggregators|held"):
            federation(method, plan, settings=settings).train()
    f = federation("feddae", SECURE)
    nine = [getattr(f.parts, part).subset(np.arange(9)) for part in ("train", "valid", "test")]
    small, announced = type(f.server_data).for_server(type(f.parts)(f.parts.spec, *nine, 0)), f.remote().announced
    with pytest.raises(NodesError, match="same catalogue"):
        announced.assemble(small, bytes(32))


def test_parties_share_a_public_key_and_nothing_else() -> None:
    one, other = (Streams.of_party(bytes([n]) * 32, bytes(32)) for n in (1, 2))
    assert not one.simulated
    from privfed.federation import PUBLIC, Purpose

    def words(streams: Streams, user: int) -> list[int]:
        return streams.words(Purpose.NOISE, 0, 0, [user], 4)[0].tolist()

    assert words(one, PUBLIC) == words(other, PUBLIC)
    assert words(one, 5) != words(other, 5)


TIERS = "tiers.careful.epsilon=3,tiers.careful.share=0.7,tiers.careful.weight=0.25"
TIERS += ",tiers.generous.epsilon=12,tiers.generous.share=0.3,tiers.generous.weight=1"


def test_every_node_counts_and_is_charged_by_the_tier_of_its_own_policy(
    federation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    weighed, encode = list[tuple[int, float]](), RingCode.encode

    def recorded(self: RingCode, uploads: Any, position: int, key: bytes, weight: float = 1.0) -> Any:
        weighed.append((position, weight))
        return encode(self, uploads, position, key, weight)

    monkeypatch.setattr(RingCode, "encode", recorded)
    f = federation("private-gram", f"{SHARES},{TIERS}", seeded=False, rounds=1, nodes=3)
    f.nodes[102] = f.node(102, policy=f.policy.model_copy(update={"tier": "generous"}))
    trained = f.train()
    assert not trained.incidents
    careful, generous = trained.guarantee.tiers
    costs = {number: node.state.audited().ended[0].epsilon for number, node in f.nodes.items()}
    assert costs == {100: careful.epsilon, 101: careful.epsilon, 102: generous.epsilon}
    assert careful.epsilon < 0.5 * generous.epsilon
    # Nodes 100 and 101 have 16 users each, and node 102 has 13: each is encoded once for every query.
    weights = [weight for _, weight in weighed]
    assert weights.count(0.25) * 13 == weights.count(1.0) * 32 > 0


def test_a_node_weighs_uploads_by_its_policy_alone(federation: Callable[..., Any]) -> None:
    plan = PrivacyPlan.parse(f"{SHARES},{TIERS}")
    for tier, weight in (("careful", 0.25), ("generous", 1.0)):
        guard = ClientGuard(plan, Streams.from_seed(0), Policy(tier=tier).tier_under(plan))
        assert guard.weights(torch.arange(30)).unique().tolist() == [weight]
    assert Policy().tier_under(plan) == "careful"
    assert Policy(tier="rich").tier_under(PrivacyPlan.parse(SHARES)) == ""
    with pytest.raises(PolicyRefused, match="has tier = 'rich'"):
        Policy(tier="rich").tier_under(plan)
    with pytest.raises(PlanError, match="each node's own policy says"):
        federation("private-gram", f"{SHARES},{TIERS},tiers.hidden=false").train()
