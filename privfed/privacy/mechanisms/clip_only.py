"""`ClipOnly`: clipping without noise, the variant that shows what clipping alone costs and hides."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import ReleaseKind
from privfed.privacy.mechanisms.base import ClipNorm, Mechanism
from privfed.privacy.mechanisms.clipping import Clip
from privfed.privacy.wording import number


class ClipOnly(Mechanism):
    """Clipping without noise."""

    preset: ClassVar[str] = "clip"
    release: ClassVar[ReleaseKind] = "individual"
    kind: Literal["clip_only"] = "clip_only"
    clip_norm: ClipNorm
    order: Literal[1, 2] = Field(default=1, description="the norm that is clipped: 1 or 2")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"clip": cls(clip_norm=1.0)}

    @property
    def clip(self) -> Clip | None:
        return Clip(self.clip_norm, self.order)

    @property
    def label(self) -> str:
        return f"clip only (L{self.order} <= {number(self.clip_norm)})"

    @property
    def unbounded_reason(self) -> str | None:
        return "uploads are clipped but no noise is added, so different uploads remain perfectly distinguishable"
