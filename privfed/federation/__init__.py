"""The words a method speaks: servers and clients that meet only at the wire, and addressed randomness."""

from typing import TYPE_CHECKING

from privfed.lazy import load_lazily

if TYPE_CHECKING:
    from privfed.federation.messages import Call, Cohort, Individual, Message, Total
    from privfed.federation.parties import Clients, Federation, FederationError, Server, begin_query, perform
    from privfed.federation.private_state import (
        MEMORY,
        ClientStateError,
        PrivateState,
        Ranges,
        Start,
        StatefulClients,
        Storage,
        alike,
    )
    from privfed.federation.sharded_state import ShardFolder
    from privfed.federation.streams import PUBLIC, SERVER, Purpose, Streams

__all__ = [
    "MEMORY",
    "PUBLIC",
    "SERVER",
    "Call",
    "ClientStateError",
    "Clients",
    "Cohort",
    "Federation",
    "FederationError",
    "Individual",
    "Message",
    "PrivateState",
    "Purpose",
    "Ranges",
    "Server",
    "ShardFolder",
    "Start",
    "StatefulClients",
    "Storage",
    "Streams",
    "Total",
    "alike",
    "begin_query",
    "perform",
]

load_lazily(__name__)
