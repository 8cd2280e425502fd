"""Sums between two servers over nodes: the bits of the simulation, two exchanges a sum, and who may be missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.flower.__main__ import main
from privfed.engines.flower.trial import share_out
from privfed.engines.nodes.administration import revoke, rotate
from privfed.engines.nodes.errors import NodesError, StateError
from privfed.engines.nodes.federation_file import FederationFile, write_federation
from privfed.engines.nodes.helper import Helper
from privfed.engines.nodes.hosting import hosted
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.policy import Policy
from privfed.evaluation import Protocol
from privfed.privacy import PlanError, configure
from secure_agg.primitives.keys import Identity
from tests.engines.nodes.conftest import HELPER, OPEN
from tests.engines.nodes.test_parity import MASKED, SECURE, SHARES, equal

Build = Callable[..., Any]
TWO = {"helped": True, "fidelity": "two-servers"}


class Watched:
    """A transport that writes down what passes."""

    def __init__(self, inner: InProcess) -> None:
        self.inner, self.stages = inner, list[tuple[str, tuple[int, ...]]]()

    def nodes(self) -> Any:
        return self.inner.nodes()

    def exchange(self, stage: str, requests: Any, timeout: float) -> Any:
        self.stages.append((stage, tuple(requests)))
        return self.inner.exchange(stage, requests, timeout)


@pytest.mark.parametrize(("method", "plan", "settings"), MASKED)
def test_sums_are_bit_equal_to_the_simulation(
    federation: Build, method: str, plan: str, settings: dict[str, Any]
) -> None:
    f = federation(method, plan, settings=settings, nodes=3, **TWO)
    simulated, charges = f.simulated()
    trained = f.train()
    assert equal(simulated.server, trained.server)
    assert f.ledger_lines() == charges
    assert not trained.incidents


def test_private_gram_takes_four_exchanges(federation: Build) -> None:
    f = federation("private-gram", SHARES, nodes=3, rounds=1, settings={"histories": "long", "min_items": 0}, **TWO)
    watched = Watched(InProcess(f.handlers))
    f.train(watched)
    nodes, helper = tuple(f.nodes), (HELPER,)
    assert watched.stages == [
        ("train.announce", (*nodes, HELPER)),
        ("train.upload", nodes), ("train.release", helper), ("train.upload", nodes), ("train.release", helper),
        ("train.settle", (*nodes, HELPER)),
    ]  # fmt: skip


def test_plans_and_cohorts(federation: Build) -> None:
    poisson = SHARES.replace("=20", "=5") + ",sampling.kind=poisson,sampling.rate=0.5"
    f = federation("feddae", poisson, nodes=3, **TWO)
    simulated, charges = f.simulated()
    assert equal(simulated.server, f.train().server)
    assert f.ledger_lines() == charges


def test_without_a_seed_noise_is_in_the_sum_and_all_are_charged(federation: Build) -> None:
    f = federation("private-gram", SHARES, seeded=False, rounds=1, settings={"min_items": 0}, **TWO)
    trained = f.train()
    assert trained.traffic.aborted_rounds == 0
    assert not equal(f.simulated()[0].server, trained.server)
    run = trained.announced.run
    assert [len(node.ledger_of(run) or ()) for node in f.nodes.values()] == [0] * 4  # it has left the run
    assert [one.organisations for one in f.helper.released(run)] == [(0, 1, 2, 3)] * 2
    assert any("do not collude" in statement for statement in trained.guarantee.statements)


def test_three_silent_nodes_of_ten_are_absent(federation: Build, count_server: Any) -> None:
    silent = {101, 104, 108}

    def faults(node: int, stage: str) -> Any:
        return "drop" if node in silent and stage == "train.upload" else None

    f = federation("feddae", "secure-sum:clip_norm=10.0", nodes=10, **TWO)
    remote, server = f.remote(InProcess(f.handlers, faults=faults)), count_server()
    assert remote.run(server, 0)
    rest = np.concatenate([f.shards[n - 100] for n in f.nodes if n not in silent])
    assert torch.equal(server.sums[0][1], f.counts(rest))
    assert remote.guard.ledger.entries[-1].members().tolist() == sorted(rest)


@pytest.mark.parametrize("silent", ["train.announce", "train.release"])
def test_a_silent_helper_leaves_sums_closed(federation: Build, count_server: Any, silent: str) -> None:
    f = federation("feddae", "secure-sum:clip_norm=10.0", **TWO)
    faults = lambda node, stage: "drop" if node == HELPER and stage == silent else None  # noqa: E731
    remote, server = f.remote(InProcess(f.handlers, faults=faults)), count_server()
    assert not remote.run(server, 0)
    assert not server.sums
    assert not remote.guard.ledger.entries


def test_a_helper_counts_the_users_of_a_sum_itself(federation: Build, count_server: Any) -> None:
    f, gone = federation("feddae", "secure-sum:clip_norm=10.0", **TWO), [103]
    f.helper = f.new_helper(policy=f.policy.model_copy(update={"min_users": 40}))
    faults = lambda node, stage: "drop" if node in gone and stage == "train.upload" else None  # noqa: E731
    remote, server = f.remote(InProcess(f.handlers, faults=faults)), count_server()
    assert not remote.run(server, 0)
    assert any("this node's policy asks for 40" in one.reason for one in remote.incidents)
    gone.clear()
    assert remote.run(server, 1)
    assert [one.organisations for one in f.helper.released(remote.announced.run)] == [(0, 1, 2, 3)]


def test_metrics_are_those_of_a_simulation(federation: Build) -> None:
    protocol = Protocol(state="received", ties="pessimistic")
    changes = {"nodes": 3, "protocol": protocol, "evaluate_every": 1}
    masked = federation("feddae", SECURE, **changes)
    before = masked.train(parts=("valid",))
    f = federation("feddae", SECURE, **changes, **TWO)
    trained = f.train(name="two", parts=("valid",))
    assert [one.results["valid"] for one in trained.history] == [one.results["valid"] for one in before.history]
    assert [one.measured for one in f.helper.released(trained.announced.run)] == [False, True] * 2


def test_a_restarted_node_goes_on_and_a_restarted_helper_costs_one_round(federation: Build, count_server: Any) -> None:
    f = federation("feddae", "secure-sum:clip_norm=10.0", rounds=5, **TWO)
    handlers = {**f.fresh(), HELPER: lambda: f.helper}
    remote, server = f.remote(InProcess(handlers)), count_server()
    assert remote.run(server, 0)
    f.helper = f.new_helper()
    assert not remote.run(server, 1)
    assert remote.run(server, 2)
    assert [t for t, _ in server.sums] == [0, 2]
    assert all(torch.equal(total, f.counts(np.arange(45))) for _, total in server.sums)


def test_a_restarted_server_goes_on(federation: Build) -> None:
    f = federation("feddae", SECURE, nodes=3, rounds=4, **TWO)
    f.train(until=2)
    trained = f.train()
    assert equal(f.simulated()[0].server, trained.server)
    numbers = [one.number for one in f.helper.released(trained.announced.run)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] >= 2**32


# Refused beforehand --------------------------------------------------------------------------------------------------


def test_a_federation_without_a_helper_is_told_so(federation: Build) -> None:
    f = federation("feddae", SECURE, fidelity="two-servers")
    with pytest.raises(NodesError, match="the federation file names no helper"):
        f.train()


def test_a_plan_without_ring_elements_is_told_so(federation: Build) -> None:
    f = federation("feddae", "central-gaussian:clip_norm=1,noise_multiplier=1", **TWO)
    with pytest.raises(PlanError, match="makes no such sum: choose secure-sum or distributed-gaussian"):
        f.train()


@pytest.mark.parametrize(("helper", "says"), [("", "names no helper whom it trusts"), ("ab" * 32, "another helper")])
def test_a_node_trusts_the_helper_that_its_own_policy_names_and_no_other(
    federation: Build, helper: str, says: str
) -> None:
    f = federation("feddae", SECURE, **TWO)
    f.nodes = {n: f.node(n, policy=f.policy.model_copy(update={"helper": helper})) for n in f.nodes}
    trained = f.train()
    assert trained.traffic.aborted_rounds == 2
    assert {one.node for one in trained.incidents if says in one.reason} == {f"node{n}" for n in f.nodes}


def test_masked_runs_of_a_federation_with_a_helper_are_as_ever(federation: Build) -> None:
    f = federation("hetefedrec", SHARES, nodes=3, helped=True)
    simulated, charges = f.simulated()
    trained = f.train()
    assert equal(simulated.server, trained.server)
    assert f.ledger_lines() == charges
    assert [(one.node, one.stage) for one in trained.incidents] == [("helper", "train.announce")]


def test_a_helper_takes_part_within_its_own_policy(federation: Build) -> None:
    f = federation("feddae", SECURE, **TWO)
    f.helper = f.new_helper(policy=Policy(allow_simulation=True, methods=("fair",)))
    assert f.train().traffic.aborted_rounds == 2
    assert OPEN.helper == ""


# The helper in the federation file ------------------------------------------------------------------------------------


def test_the_file_names_one_helper_who_is_nobody_else(federation: Build) -> None:
    f = federation("feddae", SECURE, nodes=3, helped=True)
    file = f.server.federation
    assert file.helper_seat == 3 == file.seat_of(f.helping.public)
    assert (file.name_of(3), file.key(3)) == ("helper", f.helping.public)
    assert list(file.directory()) == [0, 1, 2]
    assert FederationFile.from_toml(file.to_toml(), f.folder).digest == file.digest
    for key in (file.server, file.organisations[0].key):
        with pytest.raises(PlanError, match="two parties have the same key"):
            configure(FederationFile, file.model_dump() | {"helper": key})


def test_a_file_without_a_helper_is_what_it_was(federation: Build) -> None:
    f = federation("feddae", SECURE, nodes=3)
    file = f.server.federation
    assert file.helper_seat is None
    assert b"helper" not in file.canonical
    assert file.seat_of(Identity.generate().public) is None


def test_the_operator_gives_the_helper_a_new_key(federation: Build, tmp_path: Path) -> None:
    f, new = federation("feddae", SECURE, nodes=3, helped=True), Identity.generate().public
    file, operator = f.server.federation, f.operator
    write_federation(tmp_path, file, file.signature(operator), operator.public)
    assert rotate(tmp_path, "helper", new, operator).key(3) == new
    with pytest.raises(StateError, match="no organisation"):
        revoke(tmp_path, "helper", operator)


def test_a_folder_hosts_the_party_whose_key_lies_in_it(federation: Build, tmp_path: Path) -> None:
    f = federation("feddae", SECURE, nodes=3, **TWO)
    folders = share_out(
        f.parts, "[policy]\nallow_simulation = true\n", tmp_path / "shared", ("a", "b", "c"), helper=True
    )
    parties = [hosted(folder) for folder in (*folders, tmp_path / "shared" / "helper")]
    assert [type(one) for one in parties] == [Node, Node, Node, Helper]
    helper = parties[-1].party
    assert {one.policy.helper for one in parties[:-1]} == {helper.identity.public.hex()}
    with pytest.raises(StateError, match="is the helper's; a node needs"):
        Node(tmp_path / "none", policy=f.policy, data=f.data[100], party=helper)
    with pytest.raises(StateError, match="and no helper's"):
        Helper(tmp_path / "none", policy=f.policy, party=parties[0].party)
    with pytest.raises(StateError, match="is the server's"):
        Node(tmp_path / "none", policy=f.policy, data=f.data[100], party=f.server)


def test_a_helper_is_served_without_metrics(
    federation: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    f = federation("feddae", SECURE, nodes=3, **TWO)
    share_out(f.parts, "[policy]\n", tmp_path / "shared", ("a", "b", "c"), helper=True)
    assert main(["node", str(tmp_path / "shared" / "helper"), "--monitor", "127.0.0.1:0"]) == 2
    assert "a helper has no metrics" in capsys.readouterr().err
