"""What a plan tells a server about the sums that it will get: public numbers, so that it can allow for the noise."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoisySums:
    """The sums of a round of which all is expected to go well.

    Attributes:
        clients: expected number of clients in a sum, each by what its upload counts: 1, or the weight of its tier.
        clip_norm: the largest L2 norm of an upload that may use a whole clip norm; None where nothing is clipped.
        deviation: standard deviation of the noise on every weighted coordinate of a sum, in the units of the uploads;
            0 where sums are exact.
    """

    clients: float
    clip_norm: float | None = None
    deviation: float = 0.0

    @property
    def unit(self) -> float:
        """The norm that unit vectors are sent with, so that no clip touches them: the clip norm, 1 without one."""
        return 1.0 if self.clip_norm is None else self.clip_norm

    @property
    def mu(self) -> float:
        """The length of a whole upload over the noise on a sum; inf where sums are exact."""
        return math.inf if self.deviation == 0 else self.unit / self.deviation
