"""Where Gaussian noise is added, and what that makes of one noise multiplier.

z is the standard deviation of the noise over the L2 clip norm C, as in the mechanisms that add it.

| trust | who adds what | a user moves a release by | sampling amplifies |
|---|---|---|---|
| central | the server, z C to the sum | C: with the user, or without | yes, participation is secret |
| distributed | each client, z C / sqrt(N), N honest survivors | C: the vector counts, or is zero | no, it is visible |
| local | each client, z C to its own upload | 2C: any upload for any other | no, it is visible |

So the mechanism that is accounted has the multiplier z, z and z / 2, and the rates of a budget are `rate`, 1 and 1.
"""

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import Neighbours

PlacedTrust = Literal["central", "distributed", "local"]


class Placement(BaseModel):
    """Who adds the noise of a run with Poisson cohorts.

    Attributes:
        trust: whom the mechanism asks to trust.
        clients: users of the federation.
        rate: probability with which each of them takes part in a round.
        honest: for distributed trust, N: minimum number of honest clients whose shares are in a released sum; None
            stands for half of the expected cohort. For other trust it has no meaning and must be None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    trust: PlacedTrust = Field(description="whom the mechanism asks to trust")
    clients: int = Field(ge=1, description="users of the federation")
    rate: float = Field(gt=0, le=1, description="the probability with which each user joins a round")
    honest: int | None = Field(default=None, ge=1, description="honest clients that remain in every released round")

    @model_validator(mode="after")
    def _honest_fits(self) -> Self:
        if self.honest is None:
            return self
        if self.trust != "distributed":
            raise PlanError(
                f"honest = {self.honest} was given with {self.trust} trust, where no noise comes in shares: "
                "leave it out, or choose distributed trust"
            )
        if self.honest > self.clients:
            raise PlanError(
                f"honest = {self.honest} is more than the {self.clients} clients of the federation: use at most the "
                "cohort minus those who drop out or collude"
            )
        return self

    @property
    def cohort(self) -> float:
        """Expected number of clients in a round."""
        return self.rate * self.clients

    @property
    def survivors(self) -> int | None:
        """N where noise comes in shares, else None."""
        if self.trust != "distributed":
            return None
        return self.honest or max(1, math.floor(self.cohort / 2.0))

    @property
    def neighbours(self) -> Neighbours:
        """Which two worlds a budget compares."""
        kinds: dict[PlacedTrust, Neighbours] = {
            "central": "add_or_remove_one",
            "distributed": "zero_out_one",
            "local": "replace_one",
        }
        return kinds[self.trust]

    @property
    def sensitivity(self) -> float:
        """How far a user moves a release, in clip norms."""
        return 2.0 if self.trust == "local" else 1.0

    @property
    def accounted_rate(self) -> float:
        """The rate that a budget may count with: participation amplifies only where it is secret."""
        return self.rate if self.trust == "central" else 1.0

    def of_a_client(self, noise_multiplier: float) -> float:
        """Standard deviation that each client adds to its upload, in clip norms."""
        if self.survivors is not None:
            return noise_multiplier / math.sqrt(self.survivors)
        return noise_multiplier if self.trust == "local" else 0.0

    def of_the_sum(self, noise_multiplier: float) -> float:
        """Standard deviation of the noise on the sum of an expected cohort, in clip norms."""
        if self.trust == "central":
            return noise_multiplier
        return self.of_a_client(noise_multiplier) * math.sqrt(self.cohort)
