"""Secure aggregation as a library: a server learns the sum of many vectors and nothing else about any of them.

It depends on numpy and cryptography only. `docs/explanation/secure_aggregation.md` states who is trusted with what.

Stable, for users: the names of this package, and those that its sub-packages list in `__all__`.

    encoding    rings, fixed point and integers, with a proof at set-up that a sum cannot overflow
    masking     masked sums that survive dropouts (SecAgg, SecAgg+), and their parameters
    additive    n-of-n additive shares between aggregators, for dense vectors
    sparse      the same for tables of which every client sends a few rows
    two_server  sums in one message per client, between two servers of which one must be honest
    noise       distributed differential privacy: shares of integer noise in the ring
    shamir      t-of-n secret sharing of 32-byte secrets
    errors      every error that is raised on purpose

Not stable, and unsafe on their own: `primitives` (keystreams, key agreement, encryption, signatures) and every other
module below a sub-package, which serve the protocols above and whose misuse is silent.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from secure_agg.encoding import FixedPoint, Ring
from secure_agg.errors import SecureAggregationError

if TYPE_CHECKING:
    from secure_agg.masking import (
        ClientRequirements,
        MaskingClient,
        MaskingServer,
        Stage,
        Terms,
        aggregate,
        choose_parameters,
    )

__all__ = [
    "ClientRequirements",
    "FixedPoint",
    "MaskingClient",
    "MaskingServer",
    "Ring",
    "SecureAggregationError",
    "Stage",
    "Terms",
    "aggregate",
    "choose_parameters",
]


def __getattr__(name: str) -> Any:
    """What the protocol of masks defines, loaded when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("secure_agg.masking"), name)
