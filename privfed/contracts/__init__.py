"""Records that every room speaks of and none needs torch for: blocks, noise as announced, fidelity, taps."""

from privfed.contracts.clip_defaults import Clipped, DefaultClip, half_of_median
from privfed.contracts.method_profile import MethodProfile
from privfed.contracts.method_traits import MethodTraits
from privfed.contracts.noisy_steps import NoisySteps
from privfed.contracts.noisy_sums import NoisySums
from privfed.contracts.running_totals import RunningTotals, square_root
from privfed.contracts.schema import (
    Block,
    Schema,
    UpdateError,
    account_of,
    declared_refreshes,
    refreshes_of,
    schema_digest,
    share_of,
    upload_bytes,
)
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
    "RunningTotals",
    "Schema",
    "Tap",
    "UpdateError",
    "account_of",
    "declared_refreshes",
    "half_of_median",
    "refreshes_of",
    "schema_digest",
    "share_of",
    "square_root",
    "upload_bytes",
]
