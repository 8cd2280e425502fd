"""Strangers: whoever has no key of the federation, on the way between a server and its nodes or in their place."""

import json
import logging
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privfed.engines.nodes import codec
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.policy import Policy
from secure_agg.masking import Identity
from secure_agg.primitives.keys import SIGNATURE_BYTES
from tests.engines.nodes.hostile.liars import FORGERY, Server, counts, told, unchanged

CLEAR = Policy(allow_simulation=True, mechanisms=("clip_only",), min_own_users=5, max_message_mib=1)
CLIP = "clip:clip_norm=1.0,order=2"


@pytest.fixture
def victim(standing: Callable[..., Any]) -> Server:
    f = standing("strangers", CLIP, policy=CLEAR)
    if not hasattr(f, "speaker"):
        f.speaker = Server(f, f.nodes[100])
        assert f.speaker.announce()["refused"] is None
        f.tried = f.speaker.counter
    f.speaker.counter = f.tried
    return f.speaker


def framed(s: Server, signer: Any, *, kind: str = "request") -> bytes:
    """An honest query that somebody signs."""
    s.counter += 1
    query = counts(s.f, 1)
    address = told(query, s.announced).address(s.announced.run, 0, s.counter, "train.clear", s.nonce)
    return bytes(signer.frame(kind, codec.request(address, {"counted": None, **query.fields(), "each": False})))


def other_federation(s: Server) -> Party:
    """The server's own key under a federation file of another version."""
    newer = s.f.server.federation.model_copy(update={"version": 2})
    return Party.from_identity(newer, s.f.server.identity)


def flipped(frame: bytes, position: int) -> bytes:
    """A frame with one bit of one byte flipped."""
    bent = bytearray(frame)
    bent[position] ^= 1
    return bytes(bent)


def huge_header(size: int) -> bytes:
    return struct.pack("<4sI", b"PFN1", size)


TO_A_NODE: dict[str, tuple[Callable[[Server], bytes], str]] = {
    "a request that nobody signed": (lambda s: framed(s, s.f.server)[:-SIGNATURE_BYTES], "bad_signature"),
    "a request under a key of the stranger's own": (
        lambda s: framed(s, Party(s.f.server.federation, Identity.generate(), -1)), "bad_signature"),
    "a request that an organisation signed": (lambda s: framed(s, s.f.parties[101]), "bad_signature"),
    "the node's own signature": (lambda s: framed(s, s.f.parties[100]), "bad_signature"),
    "a request of another version of the federation file": (
        lambda s: framed(s, other_federation(s)), "bad_signature"),
    "a reply of the server's played back as a request": (
        lambda s: framed(s, s.f.server, kind="reply"), "bad_signature"),
    "one bit is flipped in a request": (
        lambda s: flipped(framed(s, s.f.server), 300),
        "bad_signature"),
    "one bit is flipped in a signature": (
        lambda s: flipped(framed(s, s.f.server), -1), "bad_signature"),
    "a request that is cut": (lambda s: framed(s, s.f.server)[:-1], "bad_signature"),
    "a request with bytes after its end": (lambda s: framed(s, s.f.server) + b"\0", "bad_signature"),
    "nothing": (lambda s: b"", "bad_signature"),
    "sixty-four zeros": (lambda s: bytes(64), "bad_signature"),
    "a header that claims four gigabytes": (lambda s: huge_header(2**32 - 1) + bytes(64), "bad_signature"),
    "two megabytes where one is accepted": (lambda s: bytes(2**21), "bad_message"),
}  # fmt: skip


@pytest.mark.parametrize("lie", TO_A_NODE)
def test_a_node_hears_strangers_out_of_nothing(victim: Server, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    made, code = TO_A_NODE[lie]
    frame = made(victim)
    with unchanged(victim.node.folder):
        reply = victim.answer("train.clear", frame)
    assert (reply["code"], reply["counter"], dict(reply.arrays)) == (code, -1, {}), "not even its counter is told"
    assert not victim.ledger.entries
    assert all(line.isprintable() for line in caplog.messages)


@pytest.mark.parametrize("lie", ["lines of the log", "a path"])
def test_a_stage_of_the_transport_forges(victim: Server, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = FORGERY if lie == "lines of the log" else "../../secret.key"
    with unchanged(victim.node.folder):
        assert victim.answer(stage, framed(victim, victim.f.server))["code"] == "bad_message"
    assert all(line.isprintable() and line.isascii() for line in caplog.messages)


# In a node's place ----------------------------------------------------------------------------------------------------


class Place:
    """A connection behind which a stranger sits, who answers with bytes of his own."""

    def __init__(self, answers: Callable[[str, bytes], bytes]) -> None:
        self.answers, self.asked = answers, 0

    def handle(self, stage: str, request: bytes) -> bytes:
        self.asked += 1
        return self.answers(stage, request)


def claim(f: Any, signer: Party, seat: int) -> Callable[[str, bytes], bytes]:
    """An answer that takes a seat, under some key."""
    return lambda stage, request: bytes(signer.frame("reply", codec.reply(request, seat, {"nonce": "0" * 32})))


IN_PLACE: dict[str, Callable[[Any], Callable[[str, bytes], bytes]]] = {
    "who takes an organisation's seat under a key of his own": lambda f: claim(
        f, Party(f.server.federation, Identity.generate(), 0), 0),
    "who takes a seat that does not exist": lambda f: claim(f, f.parties[102], 2**40),
    "who is an organisation and takes another's seat": lambda f: claim(f, f.parties[102], 0),
    "who plays back an organisation's reply to another server": lambda f: (
        lambda stage, request: f.nodes[100].handle(stage, b"another request")),
    "who plays the request back": lambda f: lambda stage, request: request,
    "who answers nothing": lambda f: lambda stage, request: b"",
    "who answers megabytes of nested lists": lambda f: (
        lambda stage, request: huge_header(2**22) + b"[" * 2**22 + bytes(64)),
    "who claims all users": lambda f: (lambda stage, request: Party(f.server.federation, Identity.generate(), 0).frame(
        "reply", codec.reply(request, 0, {"nonce": FORGERY, "users": "0-999999999999999"}))),
}  # fmt: skip


@pytest.mark.parametrize("lie", IN_PLACE)
def test_a_stranger_in_a_node_s_place_is_nobody(
    standing: Callable[..., Any], count_server: Any, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    f, server = standing("places", "none", nodes=3), count_server()
    place = Place(IN_PLACE[lie](f))
    remote = f.remote(InProcess({0: place, **f.nodes, 999: place}))
    for t in range(2):
        assert remote.run(server, t)
        assert torch.equal(server.sums[-1][1], f.counts(np.arange(45)))
    assert {incident.node for incident in remote.incidents} == {"0", "999"}
    assert remote.roster.strangers == {0, 999}
    assert place.asked == 2, "he is told of the run once by each connection, and of nothing else"
    assert all(line.isprintable() and line.isascii() for line in caplog.messages)


def test_a_connection_that_never_answers_is_waited_for_ever_less_often(
    standing: Callable[..., Any], count_server: Any
) -> None:
    f, server, waited = standing("places", "none", nodes=3), count_server(), []

    def silent(node: int, stage: str) -> Any:
        if node == 999:
            waited.append(stage)
            return "drop"
        return None

    remote = f.remote(InProcess({**f.nodes, 999: Place(lambda stage, request: b"")}, faults=silent))
    for t in range(20):
        assert remote.run(server, t)
    assert 2 <= len(waited) <= 6, "it costs a time-out each, so not one in every round"
    assert torch.equal(server.sums[-1][1], f.counts(np.arange(45)))


def test_bytes_that_are_damaged_on_the_way_cost_one_reply(standing: Callable[..., Any], count_server: Any) -> None:
    """An organisation whose answer to the announcement is damaged comes back later, and is no stranger for ever."""
    f, server, damaged = standing("places", "none", nodes=3), count_server(), []

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        if node == 101 and (stage, node) not in damaged:
            damaged.append((stage, node))
            return reply[:-1] + bytes([reply[-1] ^ 1])
        return reply

    remote = f.remote(InProcess(f.nodes, tamper=tamper))
    sums = []
    for t in range(20):
        assert remote.run(server, t)
        sums.append(torch.equal(server.sums[-1][1], f.counts(np.arange(45))))
    assert sums[0] is False
    assert sums[-1]
    assert sums.count(False) <= 18
    named = [("101", "train.announce"), ("node101", "train.clear")]
    assert [(one.node, one.stage) for one in remote.incidents] == named


def test_a_relay_between_server_and_node_is_no_more_than_the_wire(
    standing: Callable[..., Any], count_server: Any
) -> None:
    """Whoever passes the server's requests on to a node and its replies back is a wire: nobody is counted twice."""
    f, server = standing("places", "none", nodes=3), count_server()
    relay = Place(f.nodes[100].handle)
    remote = f.remote(InProcess({**f.nodes, 999: relay}))
    for t in range(2):
        assert remote.run(server, t)
        assert torch.equal(server.sums[-1][1], f.counts(np.arange(45)))


# At a node's own socket -----------------------------------------------------------------------------------------------


def test_a_slow_and_an_oversized_caller_hold_up_nobody(victim: Server, tmp_path: Path) -> None:
    """One connection says nothing, one claims four gigabytes: the server's request is answered meanwhile."""
    service = pytest.importorskip("privfed.engines.flower.service", reason="flwr is not installed")
    path = tmp_path / "s" / "node.sock"
    with service.NodeService(victim.node, path, service.Limits(2**20)) as serving:
        thread = threading.Thread(target=serving.serve, daemon=True)
        thread.start()
        slow, large = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        slow.connect(str(path))
        large.connect(str(path))
        with suppress(OSError):
            large.sendall(b"\xff" * 64)
        frame = framed(victim, victim.f.parties[101])
        reply = service.query_service(path, "train.clear", frame, 30.0, 1.0, 2**20)
        assert codec.answer(victim.f.server.unframe("reply", reply, 0), frame)["code"] == "bad_signature"
        slow.close()
        large.close()
    thread.join(30)
    assert path.parent.stat().st_mode & 0o077 == 0


def test_fields_of_strangers_are_bounded_before_they_are_looked_at(victim: Server) -> None:
    """Also under a real signature nothing is made of a header before its size is known to be small."""
    deep = json.dumps({"fields": {}, "arrays": []}).encode().replace(b"{}", b'{"a":' * 5000 + b"1" + b"}" * 5000)
    frame = victim.f.server.frame("request", struct.pack("<4sI", b"PFN1", len(deep)) + deep)
    with unchanged(victim.node.folder):
        assert victim.answer("train.clear", frame)["code"] == "bad_message"
