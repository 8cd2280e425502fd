"""The words a method speaks: servers and clients that meet only at the wire, and addressed randomness."""

from privfed.federation.halves import Clients, Federation, FederationError, ReleaseKind, Server, perform
from privfed.federation.private_state import PrivateHalves, PrivateState
from privfed.federation.streams import PUBLIC, SERVER, Purpose, Streams
from privfed.federation.wire import Call, Cohort, Individual, Message, NoisySteps, Total

__all__ = [
    "PUBLIC",
    "SERVER",
    "Call",
    "Clients",
    "Cohort",
    "Federation",
    "FederationError",
    "Individual",
    "Message",
    "NoisySteps",
    "PrivateHalves",
    "PrivateState",
    "Purpose",
    "ReleaseKind",
    "Server",
    "Streams",
    "Total",
    "perform",
]
