"""Messages between a server and its nodes: requests are addressed and signed, replies verified, refusals noted.

Nodes are known by their seat in the federation file. Which connection of the transport a seat is behind is learned from
the signature under its reply to an announcement, never from the transport.

A reply that does not belong is noted with the node and a reason (`Incident`), never with what it held, and counts as
none.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from privfed.engines.nodes import codec
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import MessageError, RefusalCode
from privfed.engines.nodes.federation_file import SERVER_SEAT
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.printable import printable
from privfed.engines.nodes.protocol import OLDEST, require_newest
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.record import QueryAddress
from privfed.engines.nodes.roster import ANNOUNCE, NodeRoster
from privfed.engines.nodes.transport import NodeId, Transport
from secure_agg.primitives.keys import SIGNATURE_BYTES

_log = logging.getLogger("privfed.nodes")
_MAX_REASON, _MAX_COUNTER = 500, 2**62
_COUNTER_BITS = 40


@dataclass(frozen=True, slots=True)
class Incident:
    """A reply that was not used, or a refusal.

    Attributes:
        node: name of the organisation; the transport's number where no organisation signed.
        stage: in answer to what.
        reason: why, without anything that the reply held.
        code: of a refusal.
    """

    node: str
    stage: str
    reason: str
    code: RefusalCode | None = None


@dataclass(slots=True)
class MessageTraffic:
    """Messages of a run so far.

    Attributes:
        exchanges: number of stages that were sent out.
        up_bytes, down_bytes: of messages that arrived.
        seconds: by stage.
        aborted_rounds: rounds that were too small to open.
        missing: replies that did not come.
    """

    exchanges: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    aborted_rounds: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeRequest:
    """What one node is sent.

    Attributes:
        arrays: numbers by name.
        query: that it serves; None where it serves none.
        values: small values besides those of the query.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    query: Query | None = None
    values: Mapping[str, JsonValue] = field(default_factory=dict)

    def encode(self, address: Address, counted: QueryAddress | None, receipt: "Receipt | None") -> bytes:
        """As bytes, bound to its address.

        Args:
            address: of a request that serves no query.
            counted: the last query whose release the node's users are in.
            receipt: the latest one of the node.
        """
        values, arrays = dict(self.values), dict(self.arrays)
        if self.query is not None:
            served = self.query.address(address.run, address.seat, address.counter, address.stage, address.nonce)
            address = replace(served, protocol=address.protocol)
            values, arrays = {**self.query.fields(), **values}, {**self.query.arrays(), **arrays}
        values["counted"] = None if counted is None else [*counted]
        values["receipt"] = None if receipt is None else [*receipt]
        return codec.request(address, values, arrays)


Receipt = tuple[
    Annotated[int, Field(strict=True, ge=0, lt=2**63)],
    Annotated[str, Field(strict=True, pattern=r"^([0-9a-f]{64})?$")],
    Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{128}$")],
]
"""Number of recorded queries, head of their chain, and the node's signature over both."""

_RECEIPT = TypeAdapter[Receipt](Receipt)


class ChannelState(BaseModel):
    """What a checkpoint keeps of a channel.

    Attributes:
        counted: by seat, the last query whose release its users are in.
        receipts: by seat, the latest receipt.
    """

    counted: dict[int, QueryAddress] = Field(default_factory=dict)
    receipts: dict[int, Receipt] = Field(default_factory=dict)


class Channel:
    """The server's way to its nodes.

    Args:
        transport: carries bytes.
        roster: of the nodes.
        party: the server.
        run: hexadecimal name of the run.
        timeout: seconds in which nodes answer.
        starts: how often a server of this run was started before: counters begin above all that it gave then.

    Attributes:
        state: what a checkpoint keeps.
        incidents: replies that were not used.
        traffic: exchanges, bytes, seconds.
    """

    def __init__(
        self, transport: Transport, roster: NodeRoster, party: Party, run: str, timeout: float, starts: int = 0
    ) -> None:
        self.transport, self._roster, self._party, self._run, self._timeout = transport, roster, party, run, timeout
        self._counter = starts << _COUNTER_BITS
        self._ahead: dict[int, int] = {}
        self._signed: dict[NodeId, int] = {}
        self.state = ChannelState()
        self.incidents: list[Incident] = []
        self.traffic = MessageTraffic()

    def announce(self, nodes: Sequence[NodeId], values: Mapping[str, JsonValue]) -> dict[int, Packet]:
        """Announce the run to connections whose organisations are not known yet; returns replies by seat.

        A node that has seen higher counters, because this server was restored from a copy, is told once more above
        them.
        """
        answers = self._announce(nodes, values)
        stale = [node for node in nodes if self._roster.refused.get(node) in self._ahead]
        for node in stale:
            del self._roster.refused[node]
        return answers | self._announce(stale, values) if stale else answers

    def _announce(self, nodes: Sequence[NodeId], values: Mapping[str, JsonValue]) -> dict[int, Packet]:
        request = NodeRequest(values={"speaks": [*self._party.speaks], **values})
        sent = {
            node: self._framed(request, ANNOUNCE, SERVER_SEAT, self._signed.get(node, SERVER_SEAT)) for node in nodes
        }
        replies, answers = self._exchange(ANNOUNCE, sent), dict[int, Packet]()
        for node, frame in sent.items():
            seat, packet = self._announced(node, frame, replies.get(node))
            if packet is not None and seat is not None:
                self._roster.routes[seat] = node
                answers[seat] = packet
        return answers

    def exchange(self, stage: str, requests: Mapping[int, NodeRequest]) -> dict[int, Packet]:
        """Send a stage to seats and gather what answers it, in the order of the requests."""
        if not requests:
            return {}
        sent = {seat: self._framed(request, stage, seat) for seat, request in requests.items()}
        replies = self._exchange(stage, {self._roster.routes[seat]: request for seat, request in sent.items()})
        answers = {
            seat: self._answer(seat, stage, request, replies.get(self._roster.routes[seat]))
            for seat, request in sent.items()
        }
        return {seat: packet for seat, packet in answers.items() if packet is not None}

    def note(self, seat: int, stage: str, reason: str, code: RefusalCode | None = None) -> None:
        """Keep why a reply was not used."""
        self._note(self._party.federation.name_of(seat), stage, reason, code)

    def _note(self, node: str, stage: str, reason: str, code: RefusalCode | None = None) -> None:
        reason = printable(reason, _MAX_REASON)
        self.incidents.append(Incident(node, stage, reason, code))
        about = {"event": "incident", "run": self._run, "organisation": node, "stage": stage, "code": code}
        _log.warning("%s, %s: %s", node, stage, reason, extra=about)

    def _framed(self, request: NodeRequest, stage: str, seat: int, peer: int | None = None) -> bytes:
        """A request with the next counter, signed; `peer` is the organisation behind a connection, where not `seat`."""
        peer = seat if peer is None else peer
        self._counter += 1
        counter = max(self._counter, self._ahead.get(peer, -1) + 1)
        if peer in self._ahead:
            self._ahead[peer] = counter
        address = Address(
            self._run, seat, counter, stage, nonce=self._roster.nonces.get(seat, ""),
            protocol=self._roster.protocols.get(seat, OLDEST),
        )  # fmt: skip
        state = self.state
        return self._party.frame("request", request.encode(address, state.counted.get(seat), state.receipts.get(seat)))

    def _exchange(self, stage: str, sent: Mapping[NodeId, bytes]) -> Mapping[NodeId, bytes]:
        started = time.perf_counter()
        replies = self.transport.exchange(stage, sent, self._timeout)
        self.traffic.exchanges += 1
        self.traffic.seconds[stage] = self.traffic.seconds.get(stage, 0.0) + time.perf_counter() - started
        self.traffic.down_bytes += sum(map(len, sent.values()))
        self.traffic.up_bytes += sum(map(len, replies.values()))
        self.traffic.missing += len(sent.keys() - replies.keys())
        return replies

    def _announced(self, node: NodeId, request: bytes, reply: bytes | None) -> tuple[int | None, Packet | None]:
        """The organisation behind a connection, and its reply where it takes part."""
        if reply is None:
            self._roster.unheard(node)
            return None, None
        try:
            seat = Packet.decode(memoryview(reply)[:-SIGNATURE_BYTES]).whole(
                "seat", 0, self._party.federation.seats[-1]
            )
            packet = self._verified(seat, request, reply)
        except MessageError as malformed:
            self._roster.strange(node)
            self._note(str(node), ANNOUNCE, str(malformed))
            return None, None
        self._signed[node] = seat
        self._roster.heard(node)
        if packet["refused"] is not None:
            self._refused(seat, ANNOUNCE, packet)
            self._roster.refused[node] = seat
            return seat, None
        try:
            federation = self._party.federation
            self._roster.protocols[seat] = require_newest(packet, self._party.speaks, federation.min_protocol)
        except MessageError as refused:
            self.note(seat, ANNOUNCE, str(refused), refused.code)
            self._roster.refused[node] = seat
            return seat, None
        return seat, packet

    def _answer(self, seat: int, stage: str, request: bytes, reply: bytes | None) -> Packet | None:
        """One node's reply, if it is one."""
        if reply is None:
            self._roster.silent(seat)
            return None
        try:
            self._roster.answered(seat)
            packet = self._verified(seat, request, reply)
        except MessageError as malformed:
            self.note(seat, stage, str(malformed))
            return None
        if packet["refused"] is None:
            return packet
        self._refused(seat, stage, packet)
        return None

    def _verified(self, seat: int, request: bytes, reply: bytes) -> Packet:
        """A reply that the organisation signed, to this request."""
        packet = codec.answer(self._party.unframe("reply", reply, seat), request)
        if packet.whole("seat", 0) != seat:
            raise MessageError("the reply names another organisation than the one that signed it; it is dropped")
        receipt = packet.fields.get("receipt")
        if receipt is not None:
            self.state.receipts[seat] = _receipt(receipt)
        return packet

    def _refused(self, seat: int, stage: str, packet: Packet) -> None:
        """Note a refusal, and go on with this node above the counter that it has seen; only a liar pays for a lie."""
        try:
            counter, reason = packet.whole("counter", -1, _MAX_COUNTER), packet.text("refused")
        except MessageError as malformed:
            self.note(seat, stage, str(malformed))
            return
        if counter >= self._counter:
            self._ahead[seat] = counter
        code = RefusalCode.from_wire(packet.fields.get("code"))
        self.note(seat, stage, f"it refuses: {reason}", code)
        self._roster.refuses(seat, stage, code)


def _receipt(given: JsonValue) -> Receipt:
    try:
        return _RECEIPT.validate_python(tuple(given) if isinstance(given, list) else given)
    except ValidationError:
        raise MessageError("the reply holds a receipt that is none; it is dropped") from None
