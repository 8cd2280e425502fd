"""People who open their history to the server: named to every node, agreed to by their own, and in no sum."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from privfed.data import Donors, SplitSpec
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.loopback import InProcess, Loopback
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.open_histories import read_open_histories
from privfed.engines.nodes.policy import Policy
from privfed.experiment import Experiment
from privfed.privacy import PlanError
from privfed.setup.donors import donors_warning
from secure_agg.primitives.keys import SIGNATURE_BYTES
from tests.engines.nodes.conftest import OPEN, Federation
from tests.engines.nodes.hostile.liars import Server

OPENED = (3, 17, 18, 40)
SHARES = "distributed-gaussian:noise_multiplier=0.5,clip_norm=1.0,n_min_honest=20"
YEAR = {"refreshes": 2, "head": 8, "min_items": 0, "select": False, "histories": "long"}
CONSENTING = OPEN.model_copy(update={"donors": "3,17-20,40"})


def named(*users: int) -> SplitSpec:
    return SplitSpec(donors=tuple(map(str, users)))


def opening(
    federation: Callable[..., Federation], method: str = "popularity", plan: str = SHARES, **more: Any
) -> Federation:
    fields: dict[str, Any] = {"nodes": 3, "rounds": 1, "split": named(*OPENED), "policy": CONSENTING}
    return federation(method, plan, **fields | more)


def opened(f: Federation, users: Any = OPENED) -> NodeData:
    """What the server knows, with these open histories."""
    codes = np.array(users)
    return f.server_data.with_donors(Donors(codes, f.parts.train.subset(codes)))


def train(f: Federation, transport: Any = None, data: NodeData | None = None, **changes: Any) -> Any:
    from privfed.engines.nodes.run import train as over_nodes

    given = {"party": f.server, "transport": transport or InProcess(f.nodes), "folder": f.folder / "server"}
    return over_nodes(f.config, data or opened(f), **given | {"seeded": f.seeded} | changes)


@pytest.mark.parametrize(
    ("method", "plan", "more"),
    [
        ("popularity", SHARES, {}),
        ("popularity", f"{SHARES.replace('=20', '=5')},sampling.kind=poisson,sampling.rate=0.5", {}),
        ("popularity", "secure-sum:clip_norm=1.0,sampling.kind=fixed,sampling.size=20", {}),
        ("private-gram", SHARES, {"settings": {"min_items": 0}, "evaluation": {"private": True, "mu": 2.0}}),
        ("private-gram-year", SHARES, {"settings": YEAR, "rounds": 2, "evaluation": {"private": True, "mu": 2.0}}),
    ],
)
def test_a_run_with_donors_is_to_the_bit_that_of_a_simulation(
    federation: Callable[..., Federation], method: str, plan: str, more: Any
) -> None:
    f = opening(federation, method, plan, **more)
    folder = f.folder / "simulation"
    folder.mkdir()
    parts = ("test",) if "evaluation" in more else ()
    simulated = Experiment(f.config, f.parts.without(np.array(OPENED)))
    expected = simulated.run(folder, parts=parts)
    trained = train(f, InProcess(f.fresh()))
    assert not trained.incidents
    mine, theirs = trained.server.public().shared, simulated.server.public().shared
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert f.ledger_lines() == (folder / "ledger.jsonl").read_text().splitlines()
    assert [one.results for one in trained.history] == [one.results for one in expected.history]
    assert donors_warning(4, 41) in trained.guarantee.statements
    assert getattr(trained.server, "decisions", {}).get("donors", 4) == 4


def test_nothing_that_a_donor_did_is_in_what_a_node_sends(federation: Callable[..., Federation]) -> None:
    sent: list[list[bytes]] = []
    f = opening(federation, plan="secure-sum:clip_norm=10.0", rounds=1)
    for turn in range(2):
        if turn:
            emptied = f.parts.train.first(np.where(np.isin(np.arange(45), OPENED), 0, f.parts.train.counts))
            others = replace(f.parts, train=emptied, ratings=None)
            f.data = {number: NodeData.from_split(others, f.shards[number - 100]) for number in f.nodes}
            f.nodes = {number: f.node(number) for number in f.nodes}
        trained = train(f, data=opened(f), folder=f.folder / f"run{turn}")
        sent.append([values.numpy().tobytes() for values in trained.server.public().shared.values()])
        members = trained.ledger.entries[0].members()
        assert np.array_equal(members, np.arange(41))
    assert sent[0] == sent[1]


def test_processes_of_their_own_hear_of_donors_from_a_file(federation: Callable[..., Federation]) -> None:
    f = opening(federation)
    folders = {number: f.folder / f"node{number}" for number in f.nodes}
    for number, folder in folders.items():
        f.data[number].save(folder)
        f.parties[number].save(folder, f.server.federation.signature(f.operator), f.operator.public)
        (folder / "node.toml").write_text(
            '[policy]\nallow_simulation = true\nmechanisms = ["distributed_gaussian"]\nmin_own_users = 1\n'
            'own_noise_suffices = false\ndonors = "3,17,18,40"\n'
        )
    file = f.folder / "donors.csv"
    own = f.parts.train.subset(np.array(OPENED))
    pairs = [f"{OPENED[row]},{item}" for row, item in zip(own.owners, own.items, strict=True)]
    file.write_text("\n".join(["user,item", *pairs]) + "\n")
    data = f.server_data.with_donors(read_open_histories(file, 45, f.server_data.items))
    data.save(f.folder / "catalogue")
    with Loopback(folders, method="forkserver") as processes:
        trained = train(f, processes, data=NodeData.load(f.folder / "catalogue"), timeout=120.0)
    simulated = Experiment(f.config, f.parts.without(np.array(OPENED)))
    simulated.run(parts=())
    assert torch.equal(trained.server.public().shared["counts"], simulated.server.public().shared["counts"])


def test_a_node_all_of_whose_users_are_donors_adds_nothing(federation: Callable[..., Federation]) -> None:
    policy = OPEN.model_copy(update={"donors": "0-44"})
    f = opening(federation, split=named(*range(16)), policy=policy)
    trained = train(f, data=opened(f, range(16)))
    assert not trained.incidents
    assert np.array_equal(trained.ledger.entries[0].members(), np.arange(29))
    simulated = Experiment(f.config, f.parts.without(np.arange(16)))
    simulated.run(parts=())
    assert torch.equal(trained.server.public().shared["counts"], simulated.server.public().shared["counts"])


# Servers that would leave people out ---------------------------------------------------------------------------------


def announced(f: Federation, spec: SplitSpec) -> Announcement:
    """What a server that lies announces, with or without anybody's history."""
    honest = Announcement.from_config(
        f.config.model_copy(update={"split": SplitSpec()}), f.server_data, f.server.federation, seeded=True
    )
    said = honest.model_dump(mode="json")
    said["config"]["split"] = spec.model_dump(mode="json")
    return Announcement.model_validate(said)


@pytest.mark.parametrize("policy", [OPEN, CONSENTING])
def test_nobody_becomes_a_donor_by_the_word_of_a_server(federation: Callable[..., Federation], policy: Policy) -> None:
    f = opening(federation, policy=policy)
    server = Server(f, f.nodes[100], announced(f, named(3, 4)))
    said = str(server.announce()["refused"])
    assert f"names user {3 if policy is OPEN else 4} of this node as a donor, who has not consented" in said
    assert f.nodes[100].ledger is None


def test_one_node_that_refuses_leaves_a_run_of_too_few(federation: Callable[..., Federation]) -> None:
    f = opening(federation)
    f.nodes[101] = f.node(101, policy=OPEN)
    trained = train(f)
    assert trained.traffic.aborted_rounds == 1
    assert not trained.ledger.entries
    assert [incident.reason.count("names user 17 of this node") for incident in trained.incidents] == [1]


def test_users_of_other_nodes_are_their_own_nodes_business(federation: Callable[..., Federation]) -> None:
    f = opening(federation, policy=OPEN)
    assert Server(f, f.nodes[100], announced(f, named(17, 40))).announce()["refused"] is None


def test_donors_do_not_count_where_a_policy_asks_for_users(federation: Callable[..., Federation]) -> None:
    for most, refused in ((41, False), (42, True)):
        policy = CONSENTING.model_copy(update={"min_users": most})
        f = opening(federation, policy=policy)
        trained = train(f, folder=f.folder / str(most))
        assert any("policy asks for 42" in incident.reason for incident in trained.incidents) is refused
        assert bool(trained.ledger.entries) is not refused


def test_a_server_cannot_change_donors_in_a_run(federation: Callable[..., Federation]) -> None:
    f = opening(federation)
    server = Server(f, f.nodes[100], announced(f, named(3)))
    assert server.announce()["refused"] is None
    others = announced(f, SplitSpec()).config.model_dump(mode="json")
    assert "other settings" in str(server.announce(config=others)["refused"])


def others_are_donors(config: dict[str, Any]) -> None:
    config["split"]["donors"] = ["3", "17", "18"]


def there_is_less_noise(config: dict[str, Any]) -> None:
    config["privacy"]["mechanism"]["noise_multiplier"] /= 8


def fewer_are_honest(config: dict[str, Any]) -> None:
    config["privacy"]["mechanism"]["n_min_honest"] += 1


@pytest.mark.parametrize("differs", [others_are_donors, there_is_less_noise, fewer_are_honest])
def test_no_sum_is_opened_over_nodes_that_were_told_of_another_run(
    federation: Callable[..., Federation], differs: Callable[[dict[str, Any]], None]
) -> None:
    """What each is sent is bound to the run that it was told of: to its donors and its noise."""
    f = opening(federation)
    inner = InProcess(f.nodes)

    class Equivocating:
        nodes = staticmethod(inner.nodes)

        @staticmethod
        def exchange(stage: str, requests: Any, timeout: float) -> Any:
            if stage == "train.announce":
                draft = Packet.decode(requests[102][:-SIGNATURE_BYTES])
                fields = json.loads(json.dumps(dict(draft.fields)))
                differs(fields["announcement"]["config"])
                other = f.server.frame("request", Packet(fields).encode())
                replies = inner.exchange(stage, {**requests, 102: other}, timeout)
                return {**replies, 102: said_of(f, requests[102], replies[102])}
            return inner.exchange(stage, requests, timeout)

    trained = train(f, Equivocating())
    assert trained.traffic.aborted_rounds == 1
    assert not trained.ledger.entries
    assert any("the model in the query is not the one" in incident.reason for incident in trained.incidents)


def said_of(f: Federation, request: bytes, reply: bytes) -> bytes:
    """The reply of node 102 as one to another request, for a server that only pretends not to know."""
    packet = Packet.decode(reply[:-SIGNATURE_BYTES])
    return f.parties[102].frame("reply", Packet({**packet.fields, "of": codec.digest(request)}).encode())


@pytest.mark.parametrize(
    "names",
    [(), ("3", "3"), ("17", "3"), ("45",), ("-1",), ("ann",), ("03",), ("3" * 30,), ("\N{ARABIC-INDIC DIGIT THREE}",)],
)
def test_names_that_are_no_ascending_numbers_are_refused(
    federation: Callable[..., Federation], names: tuple[str, ...]
) -> None:
    f = opening(federation)
    with pytest.raises(ValidationError, match="named by their numbers in the federation"):
        announced(f, SplitSpec(donors=names))


# A server's own mistakes ----------------------------------------------------------------------------------------------


def test_names_and_histories_must_be_of_the_same_people(federation: Callable[..., Federation]) -> None:
    f = opening(federation)
    for data in (f.server_data, opened(f, (3, 17))):
        with pytest.raises(NodesError, match="open histories of"):
            train(f, data=data)
    f = opening(federation, split=SplitSpec())
    with pytest.raises(NodesError, match="names 0 people and the server has the open histories of 4"):
        train(f, data=opened(f))
    with pytest.raises(NodesError, match="hold open histories already"):
        opened(f).with_donors(Donors(np.array([1]), f.parts.train.subset(np.array([1]))))
    with pytest.raises(PlanError, match="people decide themselves"):
        Announcement.model_construct(
            **dict(announced(f, SplitSpec())) | {"config": f.config.model_copy(update={"split": SplitSpec(donors=0.1)})}
        ).assemble(f.server_data, bytes(32))
    with pytest.raises(NodesError, match="keep their numbers"):
        NodeData.from_split(f.parts.without(np.array(OPENED)), f.shards[0])
    with pytest.raises(PlanError, match="learns nothing"):
        train(opening(federation, "fedmf"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with ''"),
        ("user,item\n", "give 'user,item', then a pair"),
        ("3,4\n", "begins with '3,4'"),
        ("user,item\n3,4\n3,4\n", "twice"),
        ("user,item\n45,4\n", "line 2, is '45,4': give a user below 45"),
        ("user,item\n3,70\n", "an item below 70"),
        ("user,item\n3,-1\n", "line 2"),
        ("user,item\n3,4,5\n", "line 2"),
        ("user,item\n3,4\nann,4\n", "line 3"),
        ("user,item\n3," + "9" * 50 + "\n", "line 2"),
    ],
)
def test_files_that_hold_no_open_histories(tmp_path: Any, text: str, why: str) -> None:
    (tmp_path / "donors.csv").write_text(text)
    with pytest.raises(NodesError) as refused:
        read_open_histories(tmp_path / "donors.csv", 45, 70)
    assert why in str(refused.value)


def test_a_list_of_consent_is_ranges() -> None:
    with pytest.raises(ValidationError, match="range"):
        Policy(donors="7-3")
    with pytest.raises(ValidationError):
        Policy(donors="everybody")
