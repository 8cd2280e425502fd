"""`FlowerTransport`: a federation's requests and replies as messages of Flower's Grid.

A node is known by its key. Flower numbers nodes afresh whenever a SuperLink starts without its database; a node's id
here is the first 63 bits of the SHA-256 of the public key that it proves itself with, which stays.

Flower's `send_and_receive` looks for replies every three seconds. Here it is five times a second, for small groups of
nodes in turn, each in a thread of its own, because fetching a reply that a dying node never finished uploading can take
Flower minutes. A reply counts only if it answers this very request, comes from the node that was addressed and came in
time; what comes later is not fetched. Requests expire together with the wait for them, so that a node which comes back
later does not work through old ones.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from privfed.engines.flower.payload import PayloadError, message_type, packed, unpacked
from privfed.engines.nodes.transport import NodeId

_log = logging.getLogger(__name__)
_POLL, _POLLERS = 0.2, 16


def node_id(public_key: bytes) -> NodeId:
    """A node's id: 63 bits of its key's SHA-256."""
    return int.from_bytes(hashlib.sha256(public_key).digest()[:8], "little") >> 1


class FlowerTransport:
    """A `Transport` over a Grid.

    Args:
        grid: as Flower hands it to a ServerApp.
        poll: seconds between two looks for replies of any node.
    """

    def __init__(self, grid: Grid, *, poll: float = _POLL) -> None:
        self._grid, self._poll, self._exchanges = grid, poll, 0

    def nodes(self) -> Sequence[NodeId]:
        """Nodes that are connected now, ascending. Flower notices within a minute that one is gone."""
        return sorted(self._addresses())

    def wait_for(self, nodes: int, timeout: float) -> Sequence[NodeId]:
        """Wait until so many nodes are connected, or for `timeout` seconds; returns those that are."""
        end = time.monotonic() + timeout
        while len(connected := self.nodes()) < nodes and time.monotonic() < end:
            time.sleep(1.0)
        return connected

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Send each node its request and gather the replies that come within `timeout` seconds."""
        started = time.monotonic()
        kind, group, addresses = message_type(stage), str(self._exchanges), self._addresses()
        self._exchanges += 1
        reached = {node: addresses[node] for node in requests if node in addresses}
        messages = [
            Message(packed(requests[node]), address, kind, ttl=timeout, group_id=group)
            for node, address in reached.items()
        ]
        ids = self._grid.push_messages(messages) if messages else []
        query = {
            message_id: (node, address)
            for message_id, (node, address) in zip(ids, reached.items(), strict=False)
            if message_id
        }
        replies = _Gathering(stage, group, query)
        left = started + timeout - time.monotonic()
        pollers = min(_POLLERS, len(query))
        for first in range(pollers):
            some = list(query)[first::pollers]
            looking = (self._grid, some, self._poll * pollers, left)
            threading.Thread(target=replies.poll, args=looking, daemon=True).start()
        answers = replies.wait(left)
        for node in requests.keys() - answers.keys():
            _log.warning("node %d did not answer %s of exchange %s", node, stage, group)
        return answers

    def _addresses(self) -> dict[NodeId, int]:
        """By node, the number under which Flower reaches it now."""
        nodes: Iterable[NodeInfo] = self._grid.get_nodes()
        return {node_id(node.public_key): node.node_id for node in nodes}


class _Gathering:
    """Replies to one exchange, as they come in."""

    def __init__(self, stage: str, group: str, query: Mapping[str, tuple[NodeId, int]]) -> None:
        self._stage, self._group, self._asked = stage, group, query
        self._answers: dict[NodeId, bytes] = {}
        self._open = set(query)
        self._changed = threading.Condition()
        self._over = False

    def wait(self, seconds: float) -> dict[NodeId, bytes]:
        """Replies until all are in or the time is up, in the order in which nodes were addressed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout=max(seconds, 0.0))
            self._over = True
            return {node: self._answers[node] for node, _ in self._asked.values() if node in self._answers}

    def poll(self, grid: Grid, some: Sequence[str], pause: float, seconds: float) -> None:
        """Fetch the replies to `some` of the requests."""
        end, waiting = time.monotonic() + seconds, set(some)
        while waiting and not self._over and time.monotonic() < end:
            try:
                replies = list(grid.pull_messages(waiting))
            except Exception as error:
                _log.warning("replies to exchange %s could not be fetched: %s", self._group, type(error).__name__)
                replies = []
            for reply in replies:
                waiting.discard(reply.metadata.reply_to_message_id)
                self._take(reply)
            if waiting:
                time.sleep(pause)

    def _take(self, reply: Message) -> None:
        request = reply.metadata.reply_to_message_id
        if request not in self._asked:
            _log.warning("a reply to no request of exchange %s is refused", self._group)
            return
        node, address = self._asked[request]
        payload = self._payload(reply, node, address)
        with self._changed:
            if request in self._open and not self._over:
                self._open.remove(request)
                if payload is not None:
                    self._answers[node] = payload
                self._changed.notify_all()

    def _payload(self, reply: Message, node: NodeId, address: int) -> bytes | None:
        """What the node answered; None, and a line in the log that names node and reason, where it cannot count."""
        if reply.has_error():
            _log.warning("node %d failed in %s: error %d of Flower", node, self._stage, reply.error.code)
            return None
        about = reply.metadata
        if (about.src_node_id, about.group_id, about.message_type) != (address, self._group, self._stage):
            _log.warning("node %d: a reply from elsewhere, or to another exchange or stage, is refused", node)
            return None
        try:
            return unpacked(reply.content)
        except PayloadError as error:
            _log.warning("node %d: a malformed reply is refused: %s", node, error)
            return None
