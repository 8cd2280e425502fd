"""Masked sums with dropout recovery (SecAgg, and SecAgg+ on a sparse graph): two state machines without a network.

`MaskingClient` and `MaskingServer` exchange bytes. `Terms` are the public parameters of a round, proposed by the
server; `ClientRequirements` are the minimum that a client accepts; `choose_parameters` finds neighbours and threshold
for a cohort, and `assess_parameters` states what given ones guarantee. `aggregate` runs all parties in one process.
"""

from secure_agg.masking.client import MaskingClient
from secure_agg.masking.messages import SERVER, Stage
from secure_agg.masking.parameters import (
    MaskingParameters,
    ServerAdversary,
    assess_parameters,
    choose_parameters,
)
from secure_agg.masking.requirements import ClientRequirements
from secure_agg.masking.server import MaskingServer
from secure_agg.masking.simulation import AggregationResult, aggregate, modular_sum
from secure_agg.masking.terms import PROTOCOL_VERSION, Suite, Terms, signed_threshold
from secure_agg.primitives.keys import Identity

__all__ = [
    "PROTOCOL_VERSION",
    "SERVER",
    "AggregationResult",
    "ClientRequirements",
    "Identity",
    "MaskingClient",
    "MaskingParameters",
    "MaskingServer",
    "ServerAdversary",
    "Stage",
    "Suite",
    "Terms",
    "aggregate",
    "assess_parameters",
    "choose_parameters",
    "modular_sum",
    "signed_threshold",
]
