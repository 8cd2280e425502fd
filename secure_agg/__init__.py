"""Secure aggregation as a library: a server learns the sum of many vectors and nothing else about any of them.

numpy and cryptography only. `docs/secure_aggregation.md` says who is trusted with what.

    encoding    rings, fixed point, head-room            additive    n-of-n shares between aggregators
    masking     masked sums that survive dropouts        parameters  neighbours and threshold for a cohort
    noise       noise shares inside the ring             inprocess   the whole protocol here, and its ideal
"""

from secure_agg import additive
from secure_agg.encoding import FixedPoint, IntegerCode, Ring, Rounding
from secure_agg.errors import (
    ConfigurationError,
    HeadroomError,
    MessageRefused,
    RoundAborted,
    SecureAggregationError,
    ShareError,
)
from secure_agg.inprocess import Outcome, aggregate, modular_sum
from secure_agg.keys import Identity
from secure_agg.masking import Floor, MaskingClient, MaskingServer, Stage, Suite, Terms
from secure_agg.parameters import Parameters, Server, assess, choose

__all__ = [
    "ConfigurationError",
    "FixedPoint",
    "Floor",
    "HeadroomError",
    "Identity",
    "IntegerCode",
    "MaskingClient",
    "MaskingServer",
    "MessageRefused",
    "Outcome",
    "Parameters",
    "Ring",
    "RoundAborted",
    "Rounding",
    "SecureAggregationError",
    "Server",
    "ShareError",
    "Stage",
    "Suite",
    "Terms",
    "additive",
    "aggregate",
    "assess",
    "choose",
    "modular_sum",
]
