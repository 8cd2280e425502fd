"""Refusals carry a code that the server acts on, whatever the sentence beside it says."""

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed.contracts import Block
from privfed.engines.nodes import codec
from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Address, Packet
from privfed.engines.nodes.errors import MessageError, NodeRefused, PolicyRefused, RefusalCode, UnknownRunError
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.queries import Query
from privfed.federation import Message
from privfed.methods.shared.vae_server import COUNTS

FORGETFUL = 103


def rounds_after_a_node_lost_its_state(
    federation: Any, count_server: Any, change: Callable[[dict[str, Any]], Any]
) -> Any:
    """Three rounds; a node forgets its run after the first, and what it refuses with is changed on the way."""
    f, server = federation(), count_server()

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        packet = Packet.decode(reply)
        if packet.fields["refused"] is None:
            return reply
        return Packet({**packet.fields, **change(dict(packet.fields))}, packet.arrays).encode()

    remote = f.remote(InProcess(f.nodes, tamper=tamper))
    assert remote.run(server, 0)
    shutil.rmtree(f.folder / f"node{FORGETFUL}" / "state")
    f.nodes[FORGETFUL] = f.fresh()[FORGETFUL]()
    remote = remote_over(remote, f)
    for t in (1, 2):
        assert remote.run(server, t)
    return remote, np.isin(f.shards[3], remote.guard.ledger.entries[-1].members())


def remote_over(remote: Any, f: Any) -> Any:
    """The same federation, whose transport reaches the node's new process."""
    remote._channel.transport.handlers[FORGETFUL] = f.nodes[FORGETFUL]
    return remote


@pytest.mark.parametrize(
    "sentence", ["no run was announced to this node; announce it first", "Ich kenne diesen Lauf nicht", ""]
)
def test_a_node_that_forgot_its_run_is_told_of_it_again_whatever_it_says(
    federation: Any, count_server: Any, sentence: str
) -> None:
    remote, back = rounds_after_a_node_lost_its_state(federation, count_server, lambda fields: {"refused": sentence})
    assert back.all()
    assert [incident.node for incident in remote.incidents] == [FORGETFUL]


@pytest.mark.parametrize("code", ["of another version", 7, None, ["unknown_run"], "refused"])
def test_a_code_that_is_not_known_is_a_plain_refusal(federation: Any, count_server: Any, code: Any) -> None:
    remote, back = rounds_after_a_node_lost_its_state(federation, count_server, lambda fields: {"code": code})
    assert not back.any()
    assert {incident.node for incident in remote.incidents} == {FORGETFUL}
    assert FORGETFUL in remote.roster.users, "a plain refusal does not announce anew"


def test_a_sentence_about_announcements_is_no_code(federation: Any, count_server: Any) -> None:
    words = {"code": "refused", "refused": "the request is of a run that was not announced to this node"}
    _, back = rounds_after_a_node_lost_its_state(federation, count_server, lambda fields: words)
    assert not back.any()


def test_every_kind_of_refusal_has_its_code(federation: Any) -> None:
    policy = Policy(allow_simulation=True, mechanisms=("clip_only",), methods=("feddae",))
    f = federation("feddae", "clip:clip_norm=1.0,order=2", policy=policy)
    node, announced = f.nodes[100], Announcement.from_config(f.config, f.server_data, seeded=True)
    other = Announcement.from_config(
        f.config.model_copy(update={"method": {"name": "fedmf"}}), f.server_data, seeded=True
    )
    serial = 0

    def reply(stage: str, values: dict[str, Any], run: str = announced.run) -> Packet:
        nonlocal serial
        serial += 1
        request = codec.request(Address(run, 100, serial, stage), {"counted": None, **values})
        return codec.answer(node.handle(stage, request), request)

    def code(stage: str, values: dict[str, Any], run: str = announced.run) -> Any:
        return reply(stage, values, run).fields.get("code")

    assert code("train.settle", {}) == RefusalCode.UNKNOWN_RUN
    assert code("train.announce", {"announcement": other.model_dump(mode="json"), "seat": 0}, other.run) == "policy"
    assert code("train.announce", {"announcement": announced.model_dump(mode="json"), "seat": 0}) is None
    assert code("train.invite", {"counted": 3}) == RefusalCode.BAD_MESSAGE
    assert code("train.announce", {"announcement": {}, "seat": 0}) == RefusalCode.REFUSED


def test_codes_of_errors() -> None:
    for error, code in (
        (MessageError("x"), "bad_message"),
        (UnknownRunError(), "unknown_run"),
        (PolicyRefused("x"), "policy"),
        (NodeRefused("x"), "refused"),
    ):
        assert error.code == code
    assert {RefusalCode.from_wire(code.value) for code in RefusalCode} == set(RefusalCode)


@pytest.mark.parametrize("step", ["commit", "load", "state", "receive", "score", "discard", "steps", "training"])
def test_a_step_that_clients_do_not_declare_is_refused_before_anything_is_recorded(federation: Any, step: str) -> None:
    """Methods and attributes of clients are no steps, however innocent a request for them looks."""
    said, entries = refused_step(federation, step)
    assert "no step" in said
    assert entries == 0


@pytest.mark.parametrize("step", ["__init__", "_receive", "private_state", "private.state", ""])
def test_a_name_that_is_no_step_at_all_is_refused_before_anything_is_recorded(federation: Any, step: str) -> None:
    said, entries = refused_step(federation, step)
    assert "step" in said
    assert entries == 0


def refused_step(federation: Any, step: str) -> tuple[str, int]:
    """Why a node refuses a step, and how many entries its ledger has afterwards."""
    f = federation(
        "feddae", "clip:clip_norm=1.0,order=2", policy=Policy(allow_simulation=True, mechanisms=("clip_only",))
    )
    node, announced = f.nodes[100], Announcement.from_config(f.config, f.server_data, seeded=True)
    values = {"announcement": announced.model_dump(mode="json"), "seat": 0, "counted": None}
    request = codec.request(Address(announced.run, 100, 1, "train.announce"), values)
    assert codec.answer(node.handle("train.announce", request), request)["refused"] is None
    query = Query(step, 0, 0, 0, f.shards[0], Message({}), {COUNTS: Block((70,))})
    bound = query.address(announced.run, 100, 2, "train.clear")
    request = codec.request(bound, {**query.fields(), "each": False, "counted": None}, query.arrays())
    said = codec.answer(node.handle("train.clear", request), request)["refused"]
    return str(said), len(node.ledger.entries)
