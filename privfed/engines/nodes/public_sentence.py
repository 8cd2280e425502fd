"""What a peer is told of an error: never a path, an account or the content of a file of this machine."""

from privfed.contracts import UpdateError
from privfed.engines.nodes.errors import NodesError
from privfed.federation import FederationError
from privfed.privacy import PlanError
from privfed.privacy.errors import EntryRefused
from secure_agg.errors import SecureAggregationError

_FOR_PEERS = (EntryRefused, FederationError, PlanError, SecureAggregationError, UpdateError)
"""Errors whose sentences are about what was requested, announced or sent, and about nothing else."""


def public_sentence(error: Exception) -> str:
    """What a peer is told of an error; of one that is not known to be made for peers, its kind alone."""
    if isinstance(error, NodesError):
        return error.public
    if isinstance(error, _FOR_PEERS):
        return str(error)
    return f"this party failed with {type(error).__name__}; its own log says more"
