"""`LocalLaplace`: local differential privacy per upload by an L1 clip and Laplace noise.

The noise is derived, never chosen: for two uploads clipped to L1 norm C the distance is at most 2C, so Laplace noise of
scale b = 2C / epsilon0 on every coordinate makes one upload epsilon0-indistinguishable from any other (Dwork, McSherry,
Nissim and Smith 2006, with replace-one neighbours). b = C / epsilon0 would be a bug that doubles the real epsilon.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from privfed.contracts import Clipped, ReleaseKind
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Event, Laplace, SchemaSummary
from privfed.privacy.mechanisms.base import TOUCHED_ROWS_ONLY, Coordinates, Mechanism, Noise
from privfed.privacy.mechanisms.clipping import Clip
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise
from privfed.privacy.sampling import Trust
from privfed.privacy.wording import GRID, SAME_SHAPE, UPLOADS_ADD_UP, number


class LocalLaplace(Mechanism):
    """Local differential privacy per upload: an L1 clip at C, then Laplace(2C / epsilon0) everywhere.

    The wrong norm (`clip_order=2`) and noise on touched rows only can be written down, because both are seen
    in practice; the plan then runs and reports epsilon = inf with the reason.
    """

    preset: ClassVar[str] = "local-laplace"
    noise_setting: ClassVar[str | None] = "epsilon0"
    noise_falls: ClassVar[bool] = True
    clipped: ClassVar[Clipped | None] = "upload_l1"
    release: ClassVar[ReleaseKind] = "individual"
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

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"local-laplace": cls(clip_norm=1.0, epsilon0=1.0)}

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
        return Clip(self.clip_norm, self.clip_order)

    @property
    def noise(self) -> Noise:
        return Noise("laplace", self.noise_scale, self.coordinates)

    @property
    def trust(self) -> Trust:
        return "local"

    @property
    def label(self) -> str:
        faults = [
            *(["clipped in L2"] if self.clip_order == 2 else []),
            *(["touched rows only"] if self.coordinates == "touched" else []),
        ]
        fault = f", {', '.join(faults)}: no guarantee" if faults else ""
        strength = f"eps0 = {number(self.epsilon0)} per upload, C = {number(self.clip_norm)}"
        return f"local Laplace ({strength}{fault})"

    @property
    def unbounded_reason(self) -> str | None:
        reasons = []
        if self.clip_order == 2:
            reasons.append(
                "uploads are clipped in the L2 norm while Laplace noise protects in the L1 norm: the L1 "
                "distance of two uploads can then exceed the 2C that the noise was sized for, the more so "
                "the more coordinates"
            )
        if self.coordinates == "touched":
            reasons.append(TOUCHED_ROWS_ONLY)
        return "; besides, ".join(reasons) or None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        del max_cohort
        # A query that may use a share s of the squared clip norm is clipped to sqrt(s) C under the same noise.
        reach = math.sqrt(schema.share)
        return Laplace(scale_over_sensitivity=self.noise.scale / (self.sensitivity * reach))

    def requirements(self) -> list[str]:
        return [
            "The device clips all real blocks of an upload together to L1 norm "
            f"C = {self.clip_norm:g} and adds Laplace noise of scale 2C / epsilon0 = "
            f"{self.noise_scale:g} to every coordinate, touched or not.",
            "Two uploads compared may differ in everything (replace one upload by any other): their L1 "
            "distance is at most 2C, not C.",
            SAME_SHAPE,
            GRID,
        ]

    def composition_statements(self) -> list[str]:
        return [f"One upload alone has epsilon {self.epsilon0:g}. {UPLOADS_ADD_UP}"]

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        # A query with a share s of the squared clip norm costs sqrt(s) epsilon0: as many whole ones are a first guess.
        uploads = target.uploads if target.uniform else max(int(target.whole_uploads), 1)
        from privfed.privacy.budget import solve_laplace

        epsilon0 = solve_laplace(target.epsilon, uploads, target.delta).budget.epsilon0
        return SizedNoise({"epsilon0": epsilon0}, exact=target.uniform)
