"""The words a method speaks: servers and clients that meet only at the wire, and addressed randomness."""

from typing import TYPE_CHECKING

from privfed.federation.noisy_steps import NoisySteps
from privfed.federation.noisy_sums import NoisySums
from privfed.lazily import lazily

if TYPE_CHECKING:
    from privfed.federation.halves import Clients, Federation, FederationError, ReleaseKind, Server, perform
    from privfed.federation.private_state import MEMORY, PrivateHalves, PrivateState, Ranges, Start, Storage, alike
    from privfed.federation.sharded_state import ClientStateError, ShardFolder
    from privfed.federation.streams import PUBLIC, SERVER, Purpose, Streams
    from privfed.federation.wire import Call, Cohort, Individual, Message, Total

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
    "NoisySteps",
    "NoisySums",
    "PrivateHalves",
    "PrivateState",
    "Purpose",
    "Ranges",
    "ReleaseKind",
    "Server",
    "ShardFolder",
    "Start",
    "Storage",
    "Streams",
    "Total",
    "alike",
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
        "MEMORY": "private_state",
        "Ranges": "private_state",
        "Start": "private_state",
        "Storage": "private_state",
        "alike": "private_state",
        "ClientStateError": "sharded_state",
        "ShardFolder": "sharded_state",
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
