"""`LocalGaussian`: local differential privacy per upload by an L2 clip and Gaussian noise on the device.

`noise_multiplier` z is the standard deviation over the clip norm C. Any upload may be replaced by any other, at L2
distance up to 2C, so one upload is a Gaussian mechanism of multiplier z / 2. No sampling amplifies it, because the
server sees who answers.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from privfed.contracts import Clipped, ReleaseKind
from privfed.privacy.events import Event, Gaussian, SchemaSummary
from privfed.privacy.mechanisms.base import Noise
from privfed.privacy.mechanisms.clipping import NoiseMultiplier
from privfed.privacy.mechanisms.l2_clipped import L2Clipped
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise
from privfed.privacy.sampling import Trust
from privfed.privacy.wording import GRID, SAME_SHAPE, UPLOADS_ADD_UP, number


class LocalGaussian(L2Clipped):
    """Local differential privacy per upload: an L2 clip at C, then Gaussian noise on every coordinate."""

    preset: ClassVar[str] = "local-gaussian"
    noise_setting: ClassVar[str | None] = "noise_multiplier"
    clipped: ClassVar[Clipped | None] = "upload"
    release: ClassVar[ReleaseKind] = "individual"
    kind: Literal["local_gaussian"] = "local_gaussian"
    noise_multiplier: NoiseMultiplier

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"local-gaussian": cls(clip_norm=1.0, noise_multiplier=1.0)}

    @property
    def sensitivity(self) -> float:
        """L2 distance of the two furthest clipped uploads, 2C: neighbours replace one upload by any other."""
        return 2.0 * self.clip_norm

    @property
    def noise(self) -> Noise:
        return Noise("gaussian", self.noise_multiplier * self.clip_norm, "all")

    @property
    def noise_over_clip(self) -> float | None:
        return self.noise_multiplier

    @property
    def trust(self) -> Trust:
        return "local"

    @property
    def label(self) -> str:
        strength = f"z = {number(self.noise_multiplier)} per upload, C = {number(self.clip_norm)}{self.clipping_label}"
        return f"local Gaussian ({strength})"

    @property
    def unbounded_reason(self) -> str | None:
        return None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        del max_cohort
        # A query that may use a share s of the squared clip norm is clipped to sqrt(s) C under the same noise.
        reach = math.sqrt(schema.share)
        return Gaussian(noise_multiplier=self.noise.scale / (self.sensitivity * reach))

    def requirements(self) -> list[str]:
        return [
            f"The device clips an upload to a joint L2 norm of C = {self.clip_norm:g} over all real blocks and "
            f"adds Gaussian noise of standard deviation {self.noise_multiplier * self.clip_norm:g} to "
            "every coordinate, touched or not.",
            "Two uploads compared may differ in everything (replace one upload by any other): their L2 "
            "distance is at most 2C, not C.",
            SAME_SHAPE,
            GRID,
        ]

    def composition_statements(self) -> list[str]:
        return [UPLOADS_ADD_UP]

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        multiplier = target.unsampled_multiplier() * (self.sensitivity / self.clip_norm)
        return SizedNoise({"noise_multiplier": multiplier}, exact=target.uniform)
