"""Gaussian noise on clipped uploads: on the device (`LocalGaussian`) or on the sum (`CentralGaussian`).

`noise_multiplier` z is the standard deviation over the clip norm C, in both. What it protects differs:

* Local: any upload may be replaced by any other, at L2 distance up to 2C, so one upload is a Gaussian mechanism of
  multiplier z / 2. No sampling amplifies it, because the server sees who answers.
* Central: a user is in the data or not, which moves the sum by at most C, so one release is a Gaussian mechanism of
  multiplier z. Each user's secret coin (Poisson cohorts) amplifies it, and the denominator is the expected cohort.

Adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy, NeurIPS 2021, algorithm 1) follows a quantile of the norms.
The count of users within the norm gets noise of its own, of standard deviation s; a user moves the centred count by
1/2. Both releases together cost exactly z when the sum gets z_sum = (z^-2 - (2s)^-2)^(-1/2).
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, model_validator

from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import CONFIG, Clip, MechanismModel, Neighbours, Noise, Release, number
from privfed.privacy.sampling import Sampling, Trust

L2ClipNorm = Annotated[
    float,
    Field(
        gt=1e-15,
        lt=1e15,
        description="the largest L2 norm an upload may have after clipping; without it noise has no sensitivity to be "
        "sized for and epsilon would be infinite",
    ),
]
NoiseMultiplier = Annotated[
    float, Field(gt=1e-6, lt=1e9, description="standard deviation of the noise over the clip norm")
]
BlockNorms = Annotated[
    tuple[tuple[str, Annotated[float, Field(gt=0)]], ...],
    BeforeValidator(lambda given: tuple(sorted(given.items())) if isinstance(given, Mapping) else given),
    PlainSerializer(dict, return_type=dict[str, float]),
]
"""Block -> bound, frozen like the plan that holds it."""

_SMALLEST, _LARGEST = 1e-15, 1e15
"""Clip norms that float32 uploads and their noise can carry."""


class ClippedL2(MechanismModel):
    """A joint L2 clip over all real blocks, flat or block by block."""

    clip_norm: L2ClipNorm
    clipping: Literal["flat", "per_block"] = Field(
        default="flat", description="flat scales the whole upload; per_block scales every block to a bound of its own"
    )
    block_norms: BlockNorms | None = Field(
        default=None, description="bounds of the blocks, whose squares add up to clip_norm^2; null gives equal ones"
    )

    @model_validator(mode="after")
    def _blocks_add_up(self) -> Self:
        if self.block_norms is None:
            return self
        joint = math.sqrt(math.fsum(bound**2 for _, bound in self.block_norms))
        if self.clipping == "flat":
            raise PlanError("block_norms were given with clipping = 'flat', which has one bound: set it to 'per_block'")
        if not math.isclose(joint, self.clip_norm, rel_tol=1e-6):
            raise PlanError(
                f"block_norms have a joint norm of {joint:.6g} while clip_norm is {self.clip_norm:g}: noise is sized "
                f"for clip_norm, so the squares of the bounds must add up to its square"
            )
        return self

    @property
    def clip(self) -> Clip | None:
        """The joint clip over all real blocks."""
        return Clip(self.clip_norm, 2, None if self.clipping == "flat" else dict(self.block_norms or ()))

    @property
    def spread(self) -> str:
        """Words for a label where the clip is not flat."""
        return "" if self.clipping == "flat" else " per block"


class LocalGaussian(ClippedL2):
    """Local differential privacy per upload: an L2 clip at C, then Gaussian noise on every coordinate."""

    release: ClassVar[Release] = "individual"
    kind: Literal["local_gaussian"] = "local_gaussian"
    noise_multiplier: NoiseMultiplier

    @property
    def sensitivity(self) -> float:
        """L2 distance of the two furthest clipped uploads, 2C: neighbours replace one upload by any other."""
        return 2.0 * self.clip_norm

    @property
    def noise(self) -> Noise | None:
        """Gaussian noise of standard deviation noise_multiplier x C."""
        return Noise("gaussian", self.noise_multiplier * self.clip_norm, "all")

    @property
    def trust(self) -> Trust:
        """Nobody but the user's own device."""
        return "local"

    @property
    def label(self) -> str:
        """Names noise and clip."""
        strength = f"z = {number(self.noise_multiplier)} per upload, C = {number(self.clip_norm)}{self.spread}"
        return f"local Gaussian ({strength})"

    @property
    def unbounded_reason(self) -> str | None:
        """None: clip and noise fit."""
        return None


class AdaptiveClip(BaseModel):
    """Follow a quantile of the norms of the uploads (see the module).

    Attributes:
        quantile: share of users whose norm should be within the clip.
        rate: how fast the clip norm moves, as a power of e per round.
        count_noise: standard deviation of the noise on the count of users within the clip norm.
    """

    model_config = CONFIG
    quantile: float = Field(default=0.5, gt=0, lt=1, description="share of users within the clip norm")
    rate: float = Field(default=0.2, gt=0, le=2, description="speed of the clip norm, as a power of e per round")
    count_noise: float = Field(default=10.0, gt=0, lt=1e9, description="standard deviation of the noise on the count")

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """Multiplier of the sum's noise for which sum and count together cost `noise_multiplier`."""
        return 1 / math.sqrt(noise_multiplier**-2 - (2 * self.count_noise) ** -2)

    def follow(self, clip_norm: float, share_within: float) -> float:
        """The next clip norm after a noised share of users (of which noise may make any number) was within this one."""
        share = min(max(share_within, 0.0), 1.0)
        return min(max(clip_norm * math.exp(-self.rate * (share - self.quantile)), _SMALLEST), _LARGEST)


class CentralGaussian(ClippedL2):
    """Central differential privacy: a trusted server adds Gaussian noise to the sum of clipped uploads."""

    release: ClassVar[Release] = "total"
    kind: Literal["central_gaussian"] = "central_gaussian"
    noise_multiplier: NoiseMultiplier
    adaptive: AdaptiveClip | None = Field(default=None, description="follow a quantile of the norms")

    @model_validator(mode="after")
    def _count_is_affordable(self) -> Self:
        if self.adaptive is not None and 2 * self.adaptive.count_noise <= self.noise_multiplier:
            raise PlanError(
                f"adaptive.count_noise = {self.adaptive.count_noise:g} alone costs more than noise_multiplier = "
                f"{self.noise_multiplier:g} allows: use more than {self.noise_multiplier / 2:g}"
            )
        if self.adaptive is not None and self.clipping == "per_block":
            raise PlanError("adaptive clipping follows the joint norm: use it with clipping = 'flat'")
        return self

    @property
    def total_deviation(self) -> float:
        """The noise multiplier, or a little more where the count of an adaptive clip has to be paid."""
        if self.adaptive is None:
            return self.noise_multiplier
        return self.adaptive.sum_multiplier(self.noise_multiplier)

    def multiplier_of(self, share: float) -> float:
        """The noise multiplier of an ask that may use this share of the squared clip norm, an adaptive count included.

        The count of an adaptive clip costs the same whatever the share.
        """
        if self.adaptive is None or share == 1:
            return self.noise_multiplier / math.sqrt(share)
        return 1 / math.sqrt(share * self.total_deviation**-2 + (2 * self.adaptive.count_noise) ** -2)

    @property
    def neighbours(self) -> Neighbours:
        """With a user, or without."""
        return "add_or_remove_one"

    @property
    def trust(self) -> Trust:
        """The server, which sees every upload before it adds the noise."""
        return "central"

    @property
    def label(self) -> str:
        """Names noise and clip."""
        bound = "adaptive from " if self.adaptive is not None else ""
        strength = f"z = {number(self.noise_multiplier)}, C = {bound}{number(self.clip_norm)}{self.spread}"
        return f"central Gaussian ({strength})"

    @property
    def unbounded_reason(self) -> str | None:
        """None: clip and noise fit."""
        return None

    def refuse(self, sampling: Sampling) -> None:
        """Refuse cohorts of a fixed size: one user less moves others into the round, and others again after them.

        Raises:
            PlanError: that, and what to do.
        """
        if sampling.kind in ("fixed", "epoch"):
            raise PlanError(
                f"cohorts of a fixed size (sampling '{sampling.label}') cannot be accounted as Poisson sampling, which "
                f"needs an independent coin of every user, nor unsampled, because leaving one user out changes who "
                f"else takes part: set sampling.kind = 'poisson' with sampling.rate = size / users, or 'all'"
            )
