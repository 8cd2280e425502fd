"""The client side of the app that Flower ships: it carries bytes to the node that is installed here, and nothing else.

A node is named by the SuperNode's own `--node-config`, which no run can change: `socket` is where the node's process
serves (`privfed.engines.flower.service`), `folder` is the node's folder, for nodes that load in the client's process.
`patience` is how many seconds a node behind a socket is given to be started again, 20 by default.
What the node does with a request is settled by its own installation and its own policy.
"""

import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from privfed.engines.flower.payload import message_type, packed, unpacked
from privfed.engines.flower.service import PATIENCE, query_service
from privfed.engines.nodes.transport import Handler


class NodeConfigError(ValueError):
    """The SuperNode's configuration names no node."""


class _NodeApp(ClientApp):
    """Gives every message of a run to the node, whatever its stage."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message."""
        about = message.metadata
        left = about.created_at + about.ttl - time.time()
        reply = _answer(context, message_type(about.message_type), unpacked(message.content), left)
        return Message(packed(reply), reply_to=message)


def client_app() -> ClientApp:
    """The ClientApp of a federation: each message goes to the node that the SuperNode's configuration names."""
    return _NodeApp()


def _answer(context: Context, stage: str, request: bytes, left: float) -> bytes:
    where = {key: context.node_config[key] for key in ("socket", "folder") if key in context.node_config}
    patience = context.node_config.get("patience", PATIENCE)
    if len(where) != 1 or not isinstance(patience, int | float):
        raise NodeConfigError(
            f"the SuperNode's --node-config holds {sorted(context.node_config)}, and must name the node by exactly one "
            f"of socket and folder, and patience, if at all, in seconds: start it with --node-config "
            f"'socket=\"/path/node.sock\" patience=20'"
        )
    ((kind, place),) = where.items()
    if kind == "socket":
        return query_service(Path(str(place)), stage, request, max(left, 1.0), float(patience))
    return node_at(Path(str(place))).handle(stage, request)


def node_at(folder: Path) -> Handler:
    """The node that lives in `folder`, from the privfed that is installed here."""
    from privfed.engines.nodes.node import Node  # noqa: PLC0415 - a node behind a socket must not load torch here

    return Node(folder)
