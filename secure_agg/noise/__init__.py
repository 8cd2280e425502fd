"""Distributed differential privacy: integer noise added in shares, inside the ring, before secure aggregation.

The server sees only the sum, which carries all the shares of noise; no party can remove it. In the order of use:
`fit_to_ring` finds the grid, `DistributedMechanism` encodes and decodes, `DistributedNoise` sizes and samples the
shares, `NoiseEvent` is the privacy event of a sum. Skellam is the recommended law: sums of it are Skellam again, so its
accounting does not depend on the number of shares.
"""

from secure_agg.noise.event import NoiseEvent
from secure_agg.noise.grid import fit_to_ring
from secure_agg.noise.kernels import NUMPY, Kernels, compute_with
from secure_agg.noise.laws import Law, pmf
from secure_agg.noise.mechanism import DistributedMechanism
from secure_agg.noise.rotation import Rotation, walsh_hadamard
from secure_agg.noise.rounding import conditional_round, l1_bound, rounded_norm_bound
from secure_agg.noise.shares import DistributedNoise
from secure_agg.noise.tables import InverseCdfTable

__all__ = [
    "NUMPY",
    "DistributedMechanism",
    "DistributedNoise",
    "InverseCdfTable",
    "Kernels",
    "Law",
    "NoiseEvent",
    "Rotation",
    "compute_with",
    "conditional_round",
    "fit_to_ring",
    "l1_bound",
    "pmf",
    "rounded_norm_bound",
    "walsh_hadamard",
]
