"""Messages between a server and its nodes: requests are addressed, replies checked, refusals noted.

A reply that does not belong is noted with the node and a reason (`Incident`), never with what it held, and counts as
none.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from privfed.engines.nodes import codec
from privfed.engines.nodes.codec import Address, Array, Packet
from privfed.engines.nodes.errors import MessageError, RefusalCode
from privfed.engines.nodes.queries import Query
from privfed.engines.nodes.record import QueryAddress
from privfed.engines.nodes.roster import NodeRoster
from privfed.engines.nodes.transport import NodeId, Transport

_log = logging.getLogger("privfed.nodes")
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Incident:
    """A reply that was not used, or a refusal.

    Attributes:
        node: which node.
        stage: in answer to what.
        reason: why, without anything that the reply held.
    """

    node: NodeId
    stage: str
    reason: str


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

    def encode(self, run: str, node: NodeId, serial: int, stage: str, counted: QueryAddress | None) -> bytes:
        """As bytes, bound to its address."""
        bound, values, arrays = Address(run, node, serial, stage), dict(self.values), dict(self.arrays)
        if self.query is not None:
            bound = self.query.address(run, node, serial, stage)
            values, arrays = {**self.query.fields(), **values}, {**self.query.arrays(), **arrays}
        values["counted"] = None if counted is None else [*counted]
        return codec.request(bound, values, arrays)


class Channel:
    """The server's way to its nodes.

    Args:
        transport: carries bytes.
        roster: of the nodes.
        run: hexadecimal name of the run.
        timeout: seconds in which nodes answer.

    Attributes:
        counted: by node, the last query whose release its users are in.
        incidents: replies that were not used.
        traffic: exchanges, bytes, seconds.
    """

    def __init__(self, transport: Transport, roster: NodeRoster, run: str, timeout: float) -> None:
        self.transport, self._roster, self._run, self._timeout = transport, roster, run, timeout
        self._serial = time.time_ns()
        self.counted: dict[NodeId, QueryAddress] = {}
        self.incidents: list[Incident] = []
        self.traffic = MessageTraffic()

    def exchange(self, stage: str, requests: Mapping[NodeId, NodeRequest]) -> dict[NodeId, Packet]:
        """Send a stage and gather what answers it, in the order of the requests."""
        if not requests:
            return {}
        started, sent = time.perf_counter(), {}
        for node, request in requests.items():
            self._serial += 1
            sent[node] = request.encode(self._run, node, self._serial, stage, self.counted.get(node))
        replies = self.transport.exchange(stage, sent, self._timeout)
        answers = {node: self._answer(node, stage, request, replies.get(node)) for node, request in sent.items()}
        self.traffic.exchanges += 1
        self.traffic.seconds[stage] = self.traffic.seconds.get(stage, 0.0) + time.perf_counter() - started
        return {node: packet for node, packet in answers.items() if packet is not None}

    def note(self, node: NodeId, stage: str, reason: str) -> None:
        """Keep why a reply was not used."""
        self.incidents.append(Incident(node, stage, reason))
        _log.warning("node %d, %s: %s", node, stage, reason)

    def _answer(self, node: NodeId, stage: str, request: bytes, reply: bytes | None) -> Packet | None:
        """One node's reply, if it is one."""
        self.traffic.down_bytes += len(request)
        if reply is None:
            self.traffic.missing += 1
            self._roster.silent(node)
            return None
        self._roster.answered(node)
        self.traffic.up_bytes += len(reply)
        try:
            packet = codec.answer(reply, request)
            if packet["refused"] is None:
                return packet
            self._serial = max(self._serial, packet.whole("serial", -1, 2**62))
            reason = packet.text("refused")
        except MessageError as malformed:
            self.note(node, stage, str(malformed))
            return None
        self.note(node, stage, f"it refuses: {reason[:_MAX_REASON]}")
        self._roster.refuses(node, stage, RefusalCode.from_wire(packet.fields.get("code")))
        return None
