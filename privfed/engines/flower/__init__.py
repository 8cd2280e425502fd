"""Flower as an engine: the same nodes, messages and guards, carried by a SuperLink and SuperNodes.

    server_app, client_app    the two halves of the app that Flower ships; they wire what is installed here
    FlowerTransport           requests and replies over Flower's Grid
    NodeService               a node as a process of its own, behind a socket
    make_keys, Trial          certificates, keys and processes of a trial on one machine

Needs the extra `flower`: pip install 'privfed[flower]'. Nothing else of privfed imports Flower.
"""

from typing import TYPE_CHECKING

from privfed.lazily import lazily

if TYPE_CHECKING:
    from privfed.engines.flower.client import client_app
    from privfed.engines.flower.keys import KeysError, TrialKeys, make_keys, node_keys
    from privfed.engines.flower.server import FederationConfig, server_app
    from privfed.engines.flower.service import NodeService, ServiceError, ask_service
    from privfed.engines.flower.transport import FlowerTransport, node_id
    from privfed.engines.flower.trial import Trial, TrialError, share_out

__all__ = [
    "FederationConfig",
    "FlowerTransport",
    "KeysError",
    "NodeService",
    "ServiceError",
    "Trial",
    "TrialError",
    "TrialKeys",
    "ask_service",
    "client_app",
    "make_keys",
    "node_id",
    "node_keys",
    "server_app",
    "share_out",
]

__getattr__ = lazily(
    __name__,
    {
        "client_app": "client",
        "KeysError": "keys",
        "TrialKeys": "keys",
        "make_keys": "keys",
        "node_keys": "keys",
        "FederationConfig": "server",
        "server_app": "server",
        "NodeService": "service",
        "ServiceError": "service",
        "ask_service": "service",
        "FlowerTransport": "transport",
        "node_id": "transport",
        "Trial": "trial",
        "TrialError": "trial",
        "share_out": "trial",
    },
)
