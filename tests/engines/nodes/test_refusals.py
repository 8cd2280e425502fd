"""Refusals carry a code that the server acts on, whatever the sentence beside it says."""

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
from secure_agg.primitives.keys import SIGNATURE_BYTES

FORGETFUL, NAME = 103, "node103"


def rounds_after_a_node_forgot_them(federation: Any, count_server: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Three rounds; a node does not know requests after the first, and what it refuses with is changed on the way."""
    f, server = federation(rounds=3), count_server()

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        packet = Packet.decode(reply[:-SIGNATURE_BYTES])
        if packet.fields["refused"] is None:
            return reply
        changed = Packet({**packet.fields, **change(dict(packet.fields))}, packet.arrays).encode()
        return f.parties[node].frame("reply", changed)

    remote = f.remote(InProcess(f.nodes, tamper=tamper))
    assert remote.run(server, 0)
    # Another process of the server announced the run since: requests of this one have the nonce of before.
    state = f.nodes[FORGETFUL].state
    with state.locked():
        state.open(remote.announced.run)
        state.record.nonce = "of another announcement"
        state.save()
    for t in (1, 2):
        assert remote.run(server, t)
    return remote, np.isin(f.shards[3], remote.guard.ledger.entries[-1].members())


@pytest.mark.parametrize(
    "sentence", ["no run was announced to this node; announce it first", "Ich kenne diesen Lauf nicht", ""]
)
def test_a_node_that_forgot_its_run_is_told_of_it_again_whatever_it_says(
    federation: Any, count_server: Any, sentence: str
) -> None:
    remote, back = rounds_after_a_node_forgot_them(federation, count_server, lambda fields: {"refused": sentence})
    assert back.all()
    assert [incident.node for incident in remote.incidents] == [NAME]


@pytest.mark.parametrize("code", ["of another version", 7, None, ["unknown_run"], "refused"])
def test_a_code_that_is_not_known_is_a_plain_refusal(federation: Any, count_server: Any, code: Any) -> None:
    remote, back = rounds_after_a_node_forgot_them(federation, count_server, lambda fields: {"code": code})
    assert not back.any()
    assert {incident.node for incident in remote.incidents} == {NAME}
    assert 3 in remote.roster.nonces, "a plain refusal does not announce anew"


def test_a_sentence_about_announcements_is_no_code(federation: Any, count_server: Any) -> None:
    words = {"code": "refused", "refused": "the request is of a run that was not announced to this node"}
    _, back = rounds_after_a_node_forgot_them(federation, count_server, lambda fields: words)
    assert not back.any()


def test_every_kind_of_refusal_has_its_code(federation: Any) -> None:
    policy = Policy(allow_simulation=True, mechanisms=("clip_only",), methods=("feddae",))
    f = federation("feddae", "clip:clip_norm=1.0,order=2", policy=policy)
    node, announced, counter = f.nodes[100], f.announced(), 0
    fedmf = f.config.model_copy(update={"method": {"name": "fedmf"}})
    other = Announcement.from_config(fedmf, f.server_data, f.server.federation, seeded=True)
    nonce = ""

    def reply(stage: str, values: dict[str, Any], run: str = announced.run, signer: Any = f.server) -> Packet:
        nonlocal counter, nonce
        counter += 1
        address = Address(run, 0, counter, stage, nonce=nonce)
        frame = signer.frame("request", codec.request(address, {"counted": None, **values}))
        packet = codec.answer(f.server.unframe("reply", node.handle(stage, frame), 0), frame)
        nonce = str(packet.fields.get("nonce", nonce))
        return packet

    def code(stage: str, values: dict[str, Any], run: str = announced.run, signer: Any = f.server) -> Any:
        return reply(stage, values, run, signer).fields.get("code")

    told = announced.model_dump(mode="json")
    assert code("train.settle", {}) == RefusalCode.UNKNOWN_RUN
    assert code("train.announce", {"announcement": other.model_dump(mode="json")}, other.run) == "policy"
    assert code("train.announce", {"announcement": told | {"federation": "0" * 64}}) == "other_federation"
    assert code("train.announce", {"announcement": told}, signer=f.parties[101]) == "bad_signature"
    assert code("train.announce", {"announcement": told}) is None
    assert code("train.invite", {"counted": 3}) == RefusalCode.BAD_MESSAGE
    assert code("train.announce", {"announcement": {}}) == RefusalCode.REFUSED
    assert code("train.settle", {"receipt": receipt(f, 9)}) == "rolled_back"
    assert code("train.settle", {}) is None


def receipt(f: Any, sequence: int) -> list[Any]:
    """A receipt that a node signed once."""
    text = f"0 {sequence} {'0' * 64}"
    return [sequence, "0" * 64, f.parties[100].sign("receipt", text.encode()).hex()]


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
    policy = Policy(allow_simulation=True, mechanisms=("clip_only",))
    f = federation("feddae", "clip:clip_norm=1.0,order=2", policy=policy)
    node, announced = f.nodes[100], f.announced()

    def sent(address: Address, values: Any, arrays: Any = None) -> Packet:
        frame = f.server.frame("request", codec.request(address, {"counted": None, **values}, arrays or {}))
        return codec.answer(f.server.unframe("reply", node.handle(address.stage, frame), 0), frame)

    joined = sent(Address(announced.run, 0, 1, "train.announce"), {"announcement": announced.model_dump(mode="json")})
    query = Query(step, 0, 0, 0, f.shards[0], Message({}), {COUNTS: Block((70,))}, announced=announced.digest)
    bound = query.address(announced.run, 0, 2, "train.clear", joined.text("nonce"))
    said = sent(bound, {**query.fields(), "each": False}, query.arrays())["refused"]
    return str(said), len(node.ledger_of(announced.run).entries)
