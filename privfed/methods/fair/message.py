"""What goes down in FAIR: one public model for all, of which a device downloads what its tier keeps.

A reduced table is a public function of the public table and the tier, so the simulation sends the table once and every
device reduces it on arrival. A deployment reduces on the server; what a device then downloads is what is counted here.
"""

from dataclasses import dataclass, replace

from jaxtyping import Float64, Int64
from torch import Tensor

from privfed.federation import Message

COUNTS, SAMPLES = "tiers", "samples"
"""Names of integer blocks `[tiers]`: clients of every tier, and their interactions."""

PLACES = "places"
"""Name of the tensor `[tiers, 2]`: the level that each tier trains at and the tier it is summed in; -1 sits out."""


@dataclass(frozen=True, slots=True)
class TierMessage(Message):
    """A message of which devices of different tiers download different amounts.

    Attributes:
        device_bytes: what each device downloads; of every pseudonym before it is addressed, of its receivers after.
    """

    device_bytes: Float64[Tensor, " devices"] | None = None

    def addressed_to(self, clients: Int64[Tensor, " clients"]) -> "TierMessage":
        """The same model, and what these clients download of it; canaries have no tier and are not counted."""
        if self.device_bytes is None:
            return self
        return replace(self, device_bytes=self.device_bytes[clients[clients < len(self.device_bytes)]])

    def bytes_per_client(self) -> int:
        """Mean over the devices."""
        if self.device_bytes is None or not len(self.device_bytes):
            return Message.bytes_per_client(self)
        return round(float(self.device_bytes.mean()))
