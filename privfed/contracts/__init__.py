"""Records that every room speaks of and none needs torch for: blocks, noise as announced, fidelity, taps."""

from privfed.contracts.noisy_steps import NoisySteps
from privfed.contracts.noisy_sums import NoisySums
from privfed.contracts.schema import Block, Schema, UpdateError, schema_digest, share_of, upload_bytes
from privfed.contracts.simulation import TAPS, ReleaseKind, Tap, Wire

__all__ = [
    "TAPS",
    "Block",
    "NoisySteps",
    "NoisySums",
    "ReleaseKind",
    "Schema",
    "Tap",
    "UpdateError",
    "Wire",
    "schema_digest",
    "share_of",
    "upload_bytes",
]
