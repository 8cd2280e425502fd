"""What carries bytes between a federation's server and its nodes: the one thing an engine over processes must supply.

A transport moves opaque bytes. It knows no schema, no plan and no round: who may query what, and what an answer means,
is settled by `privfed.engines.nodes.remote_federation` on the server and by `Node.handle` on the node, both above this
line. The loopback transport (`privfed.engines.nodes.loopback`) keeps one process per node on this machine; a transport
over Flower carries the same bytes in its messages.

On the node's side an engine needs nothing but `Handler`: it gives each request to `handle` and sends back what it
returns. A fresh process may serve every message, for all a node must remember lies in its own folder.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

NodeId = int
"""Which node: a number from 0 to 2^63 - 1 that stays with the node's own folder across its restarts."""


class Transport(Protocol):
    """The server's way to its nodes."""

    def nodes(self) -> Sequence[NodeId]:
        """Says which nodes are connected now."""
        ...

    def exchange(self, stage: str, requests: Mapping[NodeId, bytes], timeout: float) -> Mapping[NodeId, bytes]:
        """Sends each node its request and gathers the replies.

        Args:
            stage: what the requests are, as `train.<step>`: a word of lower-case letters, digits, dots and underscores,
                for routing and for logs. The requests carry it too, bound into what they say.
            requests: by node, its request.
            timeout: how long to wait, in seconds, for the slowest node.

        Returns:
            By node, the reply of each that answered in time. A node that is missing from it dropped out: it was not
            connected, died, was late, or failed. A node's failure never raises.
        """
        ...


class Handler(Protocol):
    """A node, as its own end of a transport sees it: `privfed.engines.nodes.node.Node` is one."""

    def handle(self, stage: str, request: bytes) -> bytes:
        """Answers one request, and never raises for what the request says: a refusal is an answer too."""
        ...
