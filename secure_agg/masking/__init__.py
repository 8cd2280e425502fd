"""Masked sums with dropout recovery: two state machines that know no network.

`MaskingClient` and `MaskingServer` exchange bytes; `Terms` is what they agree on and `Floor` what a client insists on.
"""

from secure_agg.masking.client import MaskingClient
from secure_agg.masking.floor import Floor
from secure_agg.masking.messages import SERVER, Stage
from secure_agg.masking.server import MaskingServer
from secure_agg.masking.terms import PROTOCOL_VERSION, Suite, Terms

__all__ = ["PROTOCOL_VERSION", "SERVER", "Floor", "MaskingClient", "MaskingServer", "Stage", "Suite", "Terms"]
