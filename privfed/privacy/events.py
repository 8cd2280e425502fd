"""What one query does to one user's data, as a small record: the alphabet of the ledger.

Which event a query is follows from the plan alone (`privfed.privacy.plan.event_for`).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from privfed.contracts import Schema, refreshes_of, share_of
from secure_agg.noise import Law, NoiseEvent


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Laplace(_Event):
    """Laplace noise on every coordinate of an L1-bounded value.

    Attributes:
        scale_over_sensitivity: noise scale over the L1 distance of the two furthest inputs; 1 / epsilon0.
    """

    kind: Literal["laplace"] = "laplace"
    scale_over_sensitivity: float = Field(gt=0)

    @property
    def pure_epsilon(self) -> float:
        """Privacy loss that one release never exceeds."""
        return 1.0 / self.scale_over_sensitivity


class Gaussian(_Event):
    """Gaussian noise on every coordinate of an L2-bounded value.

    Attributes:
        noise_multiplier: standard deviation over the L2 distance of neighbours (add or remove one user).
    """

    kind: Literal["gaussian"] = "gaussian"
    noise_multiplier: float = Field(gt=0)


class SampledGaussian(_Event):
    """Several Gaussian releases in one upload, each about a secret Poisson sample of one user's interactions.

    Attributes:
        noise_multiplier: standard deviation over the L2 distance of neighbours (add or remove one interaction).
        rate: probability with which an interaction is in a sample.
        steps: releases, each with a sample of its own.
    """

    kind: Literal["sampled_gaussian"] = "sampled_gaussian"
    noise_multiplier: float = Field(gt=0)
    rate: float = Field(gt=0, le=1)
    steps: int = Field(ge=1)


class Shares(_Event):
    """Shares of integer noise in a secure sum of clipped, rounded vectors: the fields of `secure_agg`'s `NoiseEvent`.

    Attributes:
        law: of the noise.
        total_variance: variance parameter of `min_honest` shares together, in steps^2.
        min_honest: shares of honest clients that a released sum holds at least.
        coordinates: length of an encoded vector.
        l2: L2 norm in steps that no rounded vector exceeds.
        l1: its L1 norm.
        beta: of the conditional rounding.
    """

    kind: Literal["shares"] = "shares"
    law: Law
    total_variance: float = Field(gt=0)
    min_honest: int = Field(ge=1)
    coordinates: int = Field(ge=1)
    l2: float = Field(gt=0)
    l1: float = Field(gt=0)
    beta: float = Field(ge=0)

    @classmethod
    def from_event(cls, event: NoiseEvent) -> "Shares":
        """The record of an event of `secure_agg`."""
        return cls(**{name: getattr(event, name) for name in cls.model_fields if name != "kind"})

    @property
    def event(self) -> NoiseEvent:
        """The event that accounts it."""
        return NoiseEvent(**{name: value for name, value in self.model_dump().items() if name != "kind"})

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over the L2 norm of a rounded vector."""
        return math.sqrt(self.total_variance) / self.l2


class SharedAccount(_Event):
    """One of several releases of a year: whatever a user uploads to all of them together costs `whole`, once.

    Devices keep account of the norms that left them, so which releases a user takes part in makes no difference.

    Attributes:
        name: of the account.
        queries: releases that it covers.
        whole: what all of them together are.
    """

    kind: Literal["account"] = "account"
    name: str = Field(min_length=1)
    queries: int = Field(ge=2)
    whole: Annotated[Gaussian | Shares, Field(discriminator="kind")]


class Exact(_Event):
    """Blocks released exactly, without noise: no finite epsilon, whatever else the query protects.

    Attributes:
        blocks: names of those blocks.
    """

    kind: Literal["exact"] = "exact"
    blocks: tuple[str, ...] = Field(min_length=1)


class Unbounded(_Event):
    """A release that no finite epsilon describes.

    Attributes:
        reason: why, as a clause that completes "epsilon is infinite because ...".
    """

    kind: Literal["unbounded"] = "unbounded"
    reason: str = Field(min_length=1)


class Empty(_Event):
    """A query whose schema declares no block: nothing leaves, and it costs nothing."""

    kind: Literal["empty"] = "empty"


Event = Annotated[
    Laplace | Gaussian | SampledGaussian | Shares | SharedAccount | Exact | Unbounded | Empty,
    Field(discriminator="kind"),
]
Bounded = Laplace | Gaussian | SampledGaussian | Shares | SharedAccount


@dataclass(frozen=True, slots=True)
class SchemaSummary:
    """Names of the blocks of a query: those clipped and noised (`real`) and those sent exactly (`integer`).

    Attributes:
        real, integer: names.
        coordinates: numbers in all real blocks together; rounding to a ring depends on it.
        share: of the squared clip norm that the real blocks may use together.
        refreshes: queries that share the account of this one.
    """

    real: tuple[str, ...] = ()
    integer: tuple[str, ...] = ()
    coordinates: int = 1
    share: float = 1.0
    refreshes: int = 1

    @classmethod
    def from_schema(cls, schema: Schema) -> "SchemaSummary":
        """The summary of a declared schema."""
        return cls(
            real=tuple(name for name, block in schema.items() if block.kind == "real"),
            integer=tuple(name for name, block in schema.items() if block.kind == "integer"),
            coordinates=sum(block.size for block in schema.values() if block.kind == "real") or 1,
            share=share_of(schema),
            refreshes=refreshes_of(schema),
        )


def fuse(gaussians: list[Gaussian]) -> Gaussian:
    """Several Gaussian releases of the same participants as one: sigma = (sum of sigma_j^-2)^-1/2."""
    precision = math.fsum(g.noise_multiplier**-2 for g in gaussians)
    return Gaussian(noise_multiplier=precision**-0.5)


def reason_of(event: Exact | Unbounded) -> str:
    """Why no finite epsilon describes this event."""
    if isinstance(event, Unbounded):
        return event.reason
    plural = "s" if len(event.blocks) > 1 else ""
    return f"the integer block{plural} {', '.join(event.blocks)} left exactly, without noise"
