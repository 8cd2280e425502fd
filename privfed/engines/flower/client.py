"""The client side of the app that Flower ships: it carries bytes to the node that is installed here, and nothing else.

A node is named by the SuperNode's own `--node-config`, which no run can change: `socket` is where the node's process
serves (`privfed.engines.flower.service`), `folder` is the node's folder, for nodes that load in the client's process.
`patience` is how many seconds a node behind a socket is given to be started again, 20 by default, and
`max_message_mib` the longest message to or from it, 1024 by default.
What the node does with a request is settled by its own installation and its own policy.
"""

import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from privfed.engines.flower.payload import message_type, packed, unpacked
from privfed.engines.flower.service import LARGEST, PATIENCE, query_service
from privfed.engines.nodes.transport import Handler

_LONGEST_WAIT = 7 * 86400.0


class NodeConfigError(ValueError):
    """The SuperNode's configuration names no node."""


class _NodeApp(ClientApp):
    """Gives every message of a run to the node, whatever its stage."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message."""
        about = message.metadata
        left = about.created_at + about.ttl - time.time()
        left = min(max(1.0, left), _LONGEST_WAIT)  # in this order, which makes a second of what is no number
        reply = _answer(context, message_type(about.message_type), unpacked(message.content), left)
        return Message(packed(reply), reply_to=message)


def client_app() -> ClientApp:
    """The ClientApp of a federation: each message goes to the node that the SuperNode's configuration names."""
    return _NodeApp()


def _answer(context: Context, stage: str, request: bytes, left: float) -> bytes:
    where = {key: context.node_config[key] for key in ("socket", "folder") if key in context.node_config}
    patience = context.node_config.get("patience", PATIENCE)
    mib = context.node_config.get("max_message_mib", LARGEST >> 20)
    if len(where) != 1 or not isinstance(patience, int | float) or not isinstance(mib, int):
        raise NodeConfigError(
            f"the SuperNode's --node-config holds {sorted(context.node_config)}, and must name the node by exactly one "
            f"of socket and folder, patience in seconds and max_message_mib as a whole number, if at all: start it "
            f"with --node-config 'socket=\"/path/node.sock\" patience=20'"
        )
    ((kind, place),) = where.items()
    if kind == "socket":
        return query_service(Path(str(place)), stage, request, left, float(patience), mib << 20)
    return node_at(Path(str(place))).handle(stage, request)


def node_at(folder: Path) -> Handler:
    """The node that lives in `folder`, from the privfed that is installed here."""
    from privfed.engines.nodes.node import Node  # noqa: PLC0415 - a node behind a socket must not load torch here

    return Node(folder)
