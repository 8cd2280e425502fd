"""Records that every room speaks of and none needs torch for: blocks, noise as announced, fidelity, taps."""

from privfed.contracts.clip_defaults import Clipped, DefaultClip, half_of_median
from privfed.contracts.method_profile import MethodProfile
from privfed.contracts.method_traits import MethodTraits
from privfed.contracts.noisy_steps import NoisySteps
from privfed.contracts.noisy_sums import NoisySums
from privfed.contracts.schema import Block, Schema, UpdateError, schema_digest, share_of, upload_bytes
from privfed.contracts.simulation import TAPS, Fidelity, ReleaseKind, Tap

__all__ = [
    "TAPS",
    "Block",
    "Clipped",
    "DefaultClip",
    "Fidelity",
    "MethodProfile",
    "MethodTraits",
    "NoisySteps",
    "NoisySums",
    "ReleaseKind",
    "Schema",
    "Tap",
    "UpdateError",
    "half_of_median",
    "schema_digest",
    "share_of",
    "upload_bytes",
]
