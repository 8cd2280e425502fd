"""The words a method speaks: servers and clients that meet only at the wire, and addressed randomness."""

from typing import TYPE_CHECKING

from privfed.federation.noisy_steps import NoisySteps
from privfed.federation.noisy_sums import NoisySums
from privfed.lazily import lazily

if TYPE_CHECKING:
    from privfed.federation.halves import Clients, Federation, FederationError, ReleaseKind, Server, perform
    from privfed.federation.private_state import PrivateHalves, PrivateState
    from privfed.federation.streams import PUBLIC, SERVER, Purpose, Streams
    from privfed.federation.wire import Call, Cohort, Individual, Message, Total

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
    "NoisySums",
    "PrivateHalves",
    "PrivateState",
    "Purpose",
    "ReleaseKind",
    "Server",
    "Streams",
    "Total",
    "perform",
]

__getattr__ = lazily(
    __name__,
    {
        "Clients": "halves",
        "Federation": "halves",
        "FederationError": "halves",
        "ReleaseKind": "halves",
        "Server": "halves",
        "perform": "halves",
        "PrivateHalves": "private_state",
        "PrivateState": "private_state",
        "PUBLIC": "streams",
        "SERVER": "streams",
        "Purpose": "streams",
        "Streams": "streams",
        "Call": "wire",
        "Cohort": "wire",
        "Individual": "wire",
        "Message": "wire",
        "Total": "wire",
    },
)
