"""Distributed differential privacy: integer noise added in shares, inside the ring, before secure aggregation.

The server opens only the sum, which then carries all the shares; nobody, the server included, can take the noise off.
The pieces in the order of use: `fit_to_ring` finds the grid, `DistributedMechanism` encodes and decodes,
`DistributedNoise` sizes and draws the shares, `NoiseEvent` says what a sum spent. Skellam is the law to start with:
sums of it are Skellam again, so its accounting does not depend on how many shares there are.
"""

from secure_agg.noise.event import NoiseEvent
from secure_agg.noise.grid import fit_to_ring
from secure_agg.noise.laws import Law, pmf
from secure_agg.noise.mechanism import DistributedMechanism
from secure_agg.noise.rotation import Rotation, walsh_hadamard
from secure_agg.noise.rounding import conditional_round, l1_bound, rounded_norm_bound
from secure_agg.noise.shares import DistributedNoise
from secure_agg.noise.tables import InverseTable

__all__ = [
    "DistributedMechanism",
    "DistributedNoise",
    "InverseTable",
    "Law",
    "NoiseEvent",
    "Rotation",
    "conditional_round",
    "fit_to_ring",
    "l1_bound",
    "pmf",
    "rounded_norm_bound",
    "walsh_hadamard",
]
