"""`UnclippedNoise`: noise of a fixed scale without a clip, as several papers publish it under the name of privacy."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import ReleaseKind
from privfed.privacy.mechanisms.base import TOUCHED_ROWS_ONLY, Coordinates, Law, Mechanism, Noise
from privfed.privacy.wording import number


class UnclippedNoise(Mechanism):
    """Noise of a fixed scale on uploads of any length."""

    preset: ClassVar[str] = "published-noise"
    # The noise of the GPFedRec experiments that are reproduced here.
    preset_fields: ClassVar[Mapping[str, Any]] = {"scale": 0.3}
    release: ClassVar[ReleaseKind] = "individual"
    kind: Literal["unclipped_noise"] = "unclipped_noise"
    scale: float = Field(gt=0, description="Laplace scale, or Gaussian standard deviation, of each coordinate")
    law: Law = Field(default="laplace", description="laplace or gaussian")
    coordinates: Coordinates = Field(default="all", description="all coordinates, or only rows the client touched")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"published-noise": cls(**cls.preset_fields)}

    @property
    def noise(self) -> Noise | None:
        return Noise(self.law, self.scale, self.coordinates)

    @property
    def label(self) -> str:
        rows = ", touched rows only" if self.coordinates == "touched" else ""
        return f"published noise ({self.law.capitalize()} {number(self.scale)}, unclipped{rows})"

    @property
    def unbounded_reason(self) -> str | None:
        return (
            "noise is added but uploads are not clipped, so one user's influence has no bound and no noise "
            "scale, however large, gives a finite epsilon"
        ) + (f"; besides, {TOUCHED_ROWS_ONLY}" if self.coordinates == "touched" else "")
