"""What one ask does to one user's data, as a small record: the alphabet of the ledger.

`mechanism_for` is the only place where a plan turns into a mechanism. It reads the noise scale that the
device really uses and the clip it really applies, not the epsilon that someone asked for, so a plan whose
noise does not fit its clip cannot be charged as if it did.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from privfed.privacy.plan import LocalLaplace, PrivacyPlan
from privfed.updates import Schema


class _Mechanism(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Laplace(_Mechanism):
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


class Gaussian(_Mechanism):
    """Gaussian noise on every coordinate of an L2-bounded value.

    Attributes:
        noise_multiplier: standard deviation over the L2 distance of neighbours (add or remove one user).
    """

    kind: Literal["gaussian"] = "gaussian"
    noise_multiplier: float = Field(gt=0)


class Exact(_Mechanism):
    """Blocks released exactly, without noise: no finite epsilon, whatever else the ask protects.

    Attributes:
        blocks: names of those blocks.
    """

    kind: Literal["exact"] = "exact"
    blocks: tuple[str, ...] = Field(min_length=1)


class Unbounded(_Mechanism):
    """A release that no finite epsilon describes.

    Attributes:
        reason: why, as a clause that completes "epsilon is infinite because ...".
    """

    kind: Literal["unbounded"] = "unbounded"
    reason: str = Field(min_length=1)


class Empty(_Mechanism):
    """An ask whose schema declares no block: nothing leaves, nothing is spent."""

    kind: Literal["empty"] = "empty"


Mechanism = Annotated[Laplace | Gaussian | Exact | Unbounded | Empty, Field(discriminator="kind")]
Bounded = Laplace | Gaussian


@dataclass(frozen=True, slots=True)
class SchemaSummary:
    """Names of the blocks of an ask: those clipped and noised (`real`) and those sent exactly (`integer`)."""

    real: tuple[str, ...] = ()
    integer: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> "SchemaSummary":
        """The summary of a declared schema."""
        return cls(
            real=tuple(name for name, block in schema.items() if block.kind == "real"),
            integer=tuple(name for name, block in schema.items() if block.kind == "integer"),
        )


def fuse(gaussians: list[Gaussian]) -> Gaussian:
    """Several Gaussian releases of the same participants as one: sigma = (sum of sigma_j^-2)^-1/2."""
    precision = math.fsum(g.noise_multiplier**-2 for g in gaussians)
    return Gaussian(noise_multiplier=precision**-0.5)


def mechanism_for(plan: PrivacyPlan, schema: SchemaSummary) -> Mechanism:
    """The one mechanism that an ask of `schema` is under `plan`.

    Args:
        plan: the run's privacy plan.
        schema: names of the blocks that the ask declares.

    Returns:
        `Empty` only when nothing is declared; `Unbounded` when the plan bounds nothing about real blocks;
        `Exact` when an integer block is declared; otherwise the plan's noise over its sensitivity.
    """
    if not schema.real and not schema.integer:
        return Empty()
    protection = plan.protection
    if schema.real and protection.unbounded_reason is not None:
        return Unbounded(reason=protection.unbounded_reason)
    if schema.integer:
        return Exact(blocks=schema.integer)
    if isinstance(protection, LocalLaplace) and protection.noise is not None:
        return Laplace(scale_over_sensitivity=protection.noise.scale / protection.sensitivity)
    return Unbounded(reason=f"no accounting is known for the protection {protection.kind}")


def reason_of(mechanism: Exact | Unbounded) -> str:
    """Why no finite epsilon describes this mechanism."""
    if isinstance(mechanism, Unbounded):
        return mechanism.reason
    plural = "s" if len(mechanism.blocks) > 1 else ""
    return f"the integer block{plural} {', '.join(mechanism.blocks)} left exactly, without noise"
