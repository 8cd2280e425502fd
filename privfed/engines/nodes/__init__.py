"""A federation over processes that share no memory: nodes that host their own users, and a server that queries them.

A server calls `train` with a `Transport` to its nodes; a node answers every message with `Node.handle`. `NodeData` is
what each party knows, `Policy` what a node insists on. `Loopback` keeps one process per node on this machine.
"""

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.channel import Incident, MessageTraffic
from privfed.engines.nodes.errors import (
    MessageError,
    NodeRefused,
    NodesError,
    PolicyRefused,
    RefusalCode,
    StateError,
)
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.loopback import InProcess, Loopback
from privfed.engines.nodes.node import Node
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party, found_federation
from privfed.engines.nodes.policy import Policy
from privfed.engines.nodes.remote_federation import RemoteFederation
from privfed.engines.nodes.run import NodesResult, train
from privfed.engines.nodes.transport import Handler, NodeId, Transport

__all__ = [
    "Announcement",
    "FederationFile",
    "Handler",
    "InProcess",
    "Incident",
    "Loopback",
    "MessageError",
    "MessageTraffic",
    "Node",
    "NodeData",
    "NodeId",
    "NodeRefused",
    "NodesError",
    "NodesResult",
    "Party",
    "Policy",
    "PolicyRefused",
    "RefusalCode",
    "RemoteFederation",
    "StateError",
    "Transport",
    "found_federation",
    "train",
]
