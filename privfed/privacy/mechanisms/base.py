"""What may happen to an upload before it is released: the base of every protection, and those that papers publish.

A plan is not a free product of fields: it names one protection out of a short table, and trust, neighbours,
noise scale and legal claims follow from that name.

Protections that cannot give a finite epsilon are part of the table on purpose. They are what papers publish,
and a report has to be able to run them and say plainly that epsilon is infinite, and why.

Noise of `LocalLaplace` is derived, never chosen: for two uploads clipped to L1 norm C the distance is at most
2C, so Laplace noise of scale b = 2C / epsilon0 on every coordinate makes one upload
epsilon0-indistinguishable from any other (Dwork, McSherry, Nissim and Smith 2006, with replace-one
neighbours). b = C / epsilon0 would be a bug that doubles the real epsilon.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.contracts import NoisySteps
from privfed.privacy.errors import PlanError
from privfed.privacy.sampling import Sampling, Trust

Law = Literal["laplace", "gaussian"]
Coordinates = Literal["all", "touched"]
Release = Literal["individual", "total"]
Neighbours = Literal["replace_one", "add_or_remove_one", "zero_out_one"]
Unit = Literal["user", "interaction"]

CONFIG = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

ClipNorm = Annotated[float, Field(gt=0, description="the largest norm an upload may have after clipping")]


@dataclass(frozen=True, slots=True)
class Clip:
    """Scale one user's whole upload (all real blocks together) to a joint norm of at most `norm`.

    Attributes:
        norm: C.
        order: 1 or 2.
        per_block: clip every block by itself instead, to bounds whose squares add up to C^2, so that the joint L2
            norm still is at most C: a mapping names the bounds, an empty one gives every block C / sqrt(blocks).
    """

    norm: float
    order: Literal[1, 2]
    per_block: Mapping[str, float] | None = None

    def bounds(self, blocks: Sequence[str]) -> list[float]:
        """The bound of every block of an ask, where clipping is per block.

        Raises:
            PlanError: bounds were given for other blocks.
        """
        given = self.per_block or dict.fromkeys(blocks, self.norm / math.sqrt(max(len(blocks), 1)))
        if set(blocks) - set(given):
            raise PlanError(
                f"block_norms names {', '.join(sorted(given))} while this ask uploads {', '.join(blocks)}: give a "
                f"bound for every block, or none for equal ones"
            )
        return [given[name] for name in blocks]


@dataclass(frozen=True, slots=True)
class Noise:
    """Independent noise per coordinate; `scale` is Laplace's scale or Gaussian's standard deviation."""

    law: Law
    scale: float
    coordinates: Coordinates


class MechanismModel(BaseModel):
    """What the guards, the ledger and the reports read of any protection."""

    model_config = CONFIG

    @property
    def clip(self) -> Clip | None:
        """How an upload is clipped on the device."""
        return None

    @property
    def noise(self) -> Noise | None:
        """The noise each upload gets on the device."""
        return None

    @property
    def total_deviation(self) -> float | None:
        """Standard deviation, over the clip norm, of Gaussian noise that the server adds to the sum."""
        return None

    @property
    def noisy_steps(self) -> NoisySteps | None:
        """The noise inside local training; None where devices train as they like and the upload is protected."""
        return None

    @property
    def dense(self) -> bool:
        """Whether noise covers every coordinate of an upload, so that nothing of it can be left out."""
        return self.noise is not None and self.noise.coordinates == "all"

    @property
    def unit(self) -> Unit:
        """Whose data a guarantee is about: everything one user uploads, unless said otherwise."""
        return "user"

    @property
    def neighbours(self) -> Neighbours:
        """Which two worlds a guarantee compares: one user's upload replaced by any other, unless said otherwise."""
        return "replace_one"

    @property
    def trust(self) -> Trust:
        """Whom the guarantee asks to trust; `none` where there is no guarantee that could."""
        return "none"

    @property
    def protects_integers(self) -> bool:
        """Whether uploads of whole numbers get all of this protection: clip and noise act on real blocks only."""
        return False

    def refuse(self, sampling: Sampling) -> None:
        """Refuse a sampling rule that this protection cannot be accounted with.

        Raises:
            PlanError: it does not fit, and why.
        """

    @property
    @abstractmethod
    def label(self) -> str:
        """Short human name for tables."""

    @property
    @abstractmethod
    def unbounded_reason(self) -> str | None:
        """Why epsilon is infinite, or None where it is finite."""


NO_INTEGERS = (
    "its uploads are whole numbers that have to arrive exactly, which clip and noise would leave as they are: choose "
    "none, secure-sum or shared-sum"
)
"""Why a method with integer uploads does not run behind a protection that covers none."""


class Unprotected(MechanismModel):
    """No protection: uploads, or their exact sum, are released as they are."""

    kind: Literal["unprotected"] = "unprotected"
    release: Release = Field(default="individual", description="what the server gets: each upload, or only the sum")

    @property
    def protects_integers(self) -> bool:
        """Nothing is done to any block."""
        return True

    @property
    def label(self) -> str:
        """`none`, and what is seen where that is only a sum."""
        return "none" if self.release == "individual" else "none (only the sum is seen)"

    @property
    def unbounded_reason(self) -> str | None:
        """Neither clip nor noise."""
        if self.release == "total":
            return "the exact sum of the uploads is released without noise, and a sum alone bounds nothing"
        return "uploads are released as they are, without clipping and without noise"


class ClipOnly(MechanismModel):
    """Clipping without noise: the arm that shows what clipping alone costs and hides."""

    release: ClassVar[Release] = "individual"
    kind: Literal["clip_only"] = "clip_only"
    clip_norm: ClipNorm
    order: Literal[1, 2] = Field(default=1, description="the norm that is clipped: 1 or 2")

    @property
    def clip(self) -> Clip | None:
        """The joint clip over all real blocks."""
        return Clip(self.clip_norm, self.order)

    @property
    def label(self) -> str:
        """Names the norm and its bound."""
        return f"clip only (L{self.order} <= {number(self.clip_norm)})"

    @property
    def unbounded_reason(self) -> str | None:
        """No noise."""
        return "uploads are clipped but no noise is added, so different uploads remain perfectly distinguishable"


class UnclippedNoise(MechanismModel):
    """Noise of a fixed scale without a clip, as several papers publish it under the name of privacy."""

    release: ClassVar[Release] = "individual"
    kind: Literal["unclipped_noise"] = "unclipped_noise"
    scale: float = Field(gt=0, description="Laplace scale, or Gaussian standard deviation, of each coordinate")
    law: Law = Field(default="laplace", description="laplace or gaussian")
    coordinates: Coordinates = Field(default="all", description="all coordinates, or only rows the client touched")

    @property
    def noise(self) -> Noise | None:
        """Noise of the scale that was given."""
        return Noise(self.law, self.scale, self.coordinates)

    @property
    def label(self) -> str:
        """Names law and scale, and that nothing is clipped."""
        rows = ", touched rows only" if self.coordinates == "touched" else ""
        return f"published noise ({self.law.capitalize()} {number(self.scale)}, unclipped{rows})"

    @property
    def unbounded_reason(self) -> str | None:
        """No clip."""
        return (
            "noise is added but uploads are not clipped, so one user's influence has no bound and no noise "
            "scale, however large, gives a finite epsilon"
        ) + (f"; besides, {_TOUCHED}" if self.coordinates == "touched" else "")


class LocalLaplace(MechanismModel):
    """Local differential privacy per upload: an L1 clip at C, then Laplace(2C / epsilon0) everywhere.

    The wrong norm (`clip_order=2`) and noise on touched rows only can be written down, because both are seen
    in practice; the plan then runs and reports epsilon = inf with the reason.
    """

    release: ClassVar[Release] = "individual"
    kind: Literal["local_laplace"] = "local_laplace"
    clip_norm: Annotated[
        float,
        Field(
            gt=0,
            description="the largest L1 norm an upload may have after clipping; without it epsilon0 means "
            "nothing, because the noise scale is 2 * clip_norm / epsilon0",
        ),
    ]
    epsilon0: float = Field(gt=0, description="the privacy loss of one upload")
    clip_order: Literal[1, 2] = Field(default=1, description="the norm that is clipped; only 1 fits Laplace noise")
    coordinates: Coordinates = Field(default="all", description="all coordinates, or only rows the client touched")

    @model_validator(mode="after")
    def _noise_is_representable(self) -> Self:
        if not 1e-30 < self.noise_scale < 1e30:
            raise PlanError(
                f"epsilon0 = {self.epsilon0!r} with clip_norm = {self.clip_norm!r} gives a noise scale of "
                f"{self.noise_scale!r}, which 32-bit floats cannot carry: choose values closer to 1"
            )
        return self

    @property
    def sensitivity(self) -> float:
        """L1 distance of the two furthest clipped uploads, 2C: neighbours replace one upload by any other."""
        return 2.0 * self.clip_norm

    @property
    def noise_scale(self) -> float:
        """Laplace scale b = 2C / epsilon0 of each coordinate; its standard deviation is b * sqrt(2)."""
        return self.sensitivity / self.epsilon0

    @property
    def clip(self) -> Clip | None:
        """The joint clip over all real blocks."""
        return Clip(self.clip_norm, self.clip_order)

    @property
    def noise(self) -> Noise | None:
        """Laplace noise of the derived scale."""
        return Noise("laplace", self.noise_scale, self.coordinates)

    @property
    def trust(self) -> Trust:
        """Nobody but the user's own device."""
        return "local"

    @property
    def label(self) -> str:
        """Names epsilon per upload and clip, and any fault that voids the guarantee."""
        faults = [
            *(["clipped in L2"] if self.clip_order == 2 else []),
            *(["touched rows only"] if self.coordinates == "touched" else []),
        ]
        fault = f", {', '.join(faults)}: no guarantee" if faults else ""
        strength = f"eps0 = {number(self.epsilon0)} per upload, C = {number(self.clip_norm)}"
        return f"local Laplace ({strength}{fault})"

    @property
    def unbounded_reason(self) -> str | None:
        """None for an L1 clip with noise on every coordinate."""
        reasons = []
        if self.clip_order == 2:
            reasons.append(
                "uploads are clipped in the L2 norm while Laplace noise protects in the L1 norm: the L1 "
                "distance of two uploads can then exceed the 2C that the noise was sized for, the more so "
                "the more coordinates"
            )
        if self.coordinates == "touched":
            reasons.append(_TOUCHED)
        return "; besides, ".join(reasons) or None


_TOUCHED = (
    "only the rows a client touched carry noise: the untouched rows stay exactly as they were, which shows "
    "without any doubt which rows were touched"
)


def number(value: float) -> str:
    """The shortest text that reads back as exactly this number, without a needless `.0`."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
