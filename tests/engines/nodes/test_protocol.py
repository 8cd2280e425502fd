"""Server and nodes speak the newest version of the messages that both know, and nobody talks them into an older one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.engines.nodes import codec
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError, OtherProtocolError, RefusalCode, StateError
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.loopback import InProcess
from privfed.engines.nodes.protocol import PROTOCOL, PROTOCOLS, newest_common, spoken
from secure_agg.primitives.keys import SIGNATURE_BYTES

NAME = "node103"


def speaking(f: Any, versions: tuple[int, ...], number: int = 103) -> Any:
    """A node whose software speaks these versions."""
    return f.node(number, party=replace(f.parties[number], speaks=versions))


def test_this_software_speaks_its_version_and_one_back() -> None:
    assert PROTOCOLS == (PROTOCOL - 1, PROTOCOL)


@pytest.mark.parametrize("older", ["server", "node"])
def test_one_version_back_is_understood(federation: Callable[..., Any], count_server: Any, older: str) -> None:
    f, newer = federation(rounds=1), tuple(version + 1 for version in PROTOCOLS)
    nodes = dict(f.nodes)
    if older == "server":
        nodes[103] = speaking(f, newer)
    else:
        f.server = replace(f.server, speaks=newer)
        nodes |= {number: speaking(f, newer, number) for number in (100, 101, 102)}
    remote, server = f.remote(InProcess(nodes)), count_server()
    assert remote.run(server, 0)
    assert set(remote.released.nodes) == {0, 1, 2, 3}
    assert remote.incidents == []
    assert remote.roster.protocols[3] == PROTOCOL
    assert remote.roster.protocols[0] == (PROTOCOL if older == "server" else PROTOCOL + 1)


@pytest.mark.parametrize("older", ["server", "node"])
def test_two_versions_back_are_refused_by_name(federation: Callable[..., Any], count_server: Any, older: str) -> None:
    f, newer = federation(rounds=1), tuple(version + 2 for version in PROTOCOLS)
    nodes = dict(f.nodes)
    if older == "server":
        nodes[103] = speaking(f, newer)
    else:
        f.server = replace(f.server, speaks=newer)
        nodes |= {number: speaking(f, newer, number) for number in (100, 101, 102)}
    remote = f.remote(InProcess(nodes))
    assert remote.run(count_server(), 0)
    assert set(remote.released.nodes) == {0, 1, 2}
    [incident] = remote.incidents
    assert (incident.node, incident.code) == (NAME, RefusalCode.OTHER_PROTOCOL)
    assert "1, 2 of the protocol" in incident.reason or "the other one 1, 2" in incident.reason
    assert "3, 4" in incident.reason
    assert nodes[103].ledger is None, "a refused run costs nothing"


def test_a_node_that_does_not_compare_versions_is_left_out_by_the_server(
    federation: Callable[..., Any], count_server: Any
) -> None:
    """Software from before versions were compared says nothing of them: it speaks version 1."""
    f = federation(rounds=1)
    f.server = replace(f.server, speaks=(PROTOCOL, PROTOCOL + 1))
    remote = f.remote(InProcess(f.nodes, tamper=saying(f, {"speaks": None, "protocol": None})))
    assert remote.run(count_server(), 0)
    assert set(remote.released.nodes) == {0, 1, 2}
    assert {(i.node, i.code) for i in remote.incidents} == {(NAME, "other_protocol")}


@pytest.mark.parametrize("chosen", [PROTOCOL - 1, PROTOCOL + 1, None, "2", [2]])
def test_a_node_that_chooses_another_version_than_the_newest_is_left_out(
    federation: Callable[..., Any], count_server: Any, chosen: Any
) -> None:
    f = federation(rounds=1)
    remote = f.remote(InProcess(f.nodes, tamper=saying(f, {"protocol": chosen})))
    assert remote.run(count_server(), 0)
    assert set(remote.released.nodes) == {0, 1, 2}
    assert {(i.node, i.code) for i in remote.incidents} == {(NAME, "other_protocol")}


@pytest.mark.parametrize("versions", [[], "2", [2.0], [True], [None], list(range(17)), 2, {}])
def test_versions_that_are_none_are_refused(federation: Callable[..., Any], count_server: Any, versions: Any) -> None:
    with pytest.raises(MessageError, match="'speaks' is no list"):
        spoken(Packet({"speaks": versions}))
    f = federation(rounds=1)
    remote = f.remote(InProcess(f.nodes, tamper=saying(f, {"speaks": versions})))
    assert remote.run(count_server(), 0)
    assert {i.node for i in remote.incidents} == {NAME}


def saying(f: Any, changes: dict[str, Any]) -> Callable[[int, str, bytes], bytes]:
    """Has the last node say something else in its reply to an announcement; None leaves a field out."""

    def tamper(node: int, stage: str, reply: bytes) -> bytes:
        if node != 103 or stage != "train.announce":
            return reply
        packet = Packet.decode(reply[:-SIGNATURE_BYTES])
        fields = {name: value for name, value in {**packet.fields, **changes}.items() if value is not None}
        return f.parties[103].frame("reply", Packet({"refused": None, **fields}).encode())

    return tamper


def test_whoever_passes_a_message_on_cannot_take_versions_out_of_it(
    federation: Callable[..., Any], count_server: Any
) -> None:
    f = federation(rounds=1)

    class Between:
        """Leaves only the older version in the server's offer."""

        def handle(self, stage: str, request: bytes) -> bytes:
            message, signature = request[:-SIGNATURE_BYTES], request[-SIGNATURE_BYTES:]
            packet = Packet.decode(message)
            if stage == "train.announce":
                message = Packet({**packet.fields, "speaks": [PROTOCOL - 1]}, packet.arrays).encode()
            return bytes(f.nodes[103].handle(stage, message + signature))

    remote = f.remote(InProcess({**f.nodes, 103: Between()}))
    assert remote.run(count_server(), 0)
    assert set(remote.released.nodes) == {0, 1, 2}
    assert f.nodes[103].ledger is None


def test_a_request_in_another_version_than_the_chosen_one_is_refused(
    federation: Callable[..., Any], count_server: Any
) -> None:
    f = federation(rounds=2)
    sent: list[tuple[str, bytes]] = []

    class Listening:
        def handle(self, stage: str, request: bytes) -> bytes:
            sent.append((stage, request))
            return bytes(f.nodes[103].handle(stage, request))

    remote = f.remote(InProcess({**f.nodes, 103: Listening()}))
    assert remote.run(count_server(), 0)
    assert {codec.address_of(Packet.decode(r[:-SIGNATURE_BYTES])).protocol for _, r in sent[1:]} == {PROTOCOL}
    stage, last = sent[-1]
    packet = Packet.decode(last[:-SIGNATURE_BYTES])
    older = replace(codec.address_of(packet), protocol=PROTOCOL - 1, counter=2**50)
    request = f.server.frame("request", codec.request(older, {"counted": None}, packet.arrays))
    reply = codec.answer(f.server.unframe("reply", f.nodes[103].handle(stage, request), 3), request)
    assert reply["code"] == "other_protocol"
    assert "version 1 of the protocol and version 2 was chosen" in reply.text("refused")
    assert remote.run(count_server(), 1)


def test_the_federation_file_bounds_what_parties_fall_back_to(
    federation: Callable[..., Any], count_server: Any
) -> None:
    f = federation(rounds=1)
    strict = f.server.federation.model_copy(update={"min_protocol": PROTOCOL})
    f.server, f.parties = (
        replace(f.server, federation=strict),
        {number: replace(party, federation=strict) for number, party in f.parties.items()},
    )
    nodes = {number: f.node(number) for number in f.nodes} | {103: speaking(f, (PROTOCOL - 1,))}
    remote = f.remote(InProcess(nodes))
    assert remote.run(count_server(), 0)
    assert set(remote.released.nodes) == {0, 1, 2}
    [incident] = remote.incidents
    assert incident.code == "other_protocol"
    assert f"no version from {PROTOCOL} on" in incident.reason


def test_a_file_for_newer_software_only_is_refused(federation: Callable[..., Any], tmp_path: Any) -> None:
    text = federation().server.federation.to_toml()
    with pytest.raises(StateError, match=f"min_protocol = {PROTOCOL + 1} and this software speaks {PROTOCOL}"):
        FederationFile.from_toml(f"min_protocol = {PROTOCOL + 1}\n{text}", tmp_path)


_VERSIONS = st.sets(st.integers(1, 6), min_size=1)


@given(_VERSIONS, _VERSIONS, st.integers(1, 6))
def test_both_sides_come_to_the_same_version(own: set[int], others: set[int], at_least: int) -> None:
    def chosen(one: set[int], other: set[int]) -> int | None:
        try:
            return newest_common(one, other, at_least)
        except OtherProtocolError:
            return None

    expected = [version for version in range(at_least, 7) if version in own and version in others]
    assert chosen(own, others) == chosen(others, own) == (expected[-1] if expected else None)
