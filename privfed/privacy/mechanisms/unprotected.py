"""`Unprotected`: uploads, or their exact sum, are released as they are."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import ReleaseKind
from privfed.privacy.mechanisms.base import Mechanism


class Unprotected(Mechanism):
    """No protection: uploads, or their exact sum, are released as they are."""

    preset: ClassVar[str] = "none"
    protects: ClassVar[bool] = False
    kind: Literal["unprotected"] = "unprotected"
    release: ReleaseKind = Field(default="individual", description="what the server gets: each upload, or only the sum")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"none": cls(), "none:release=total": cls(release="total")}

    @property
    def protects_integers(self) -> bool:
        return True

    @property
    def label(self) -> str:
        return "none" if self.release == "individual" else "none (only the sum is seen)"

    @property
    def unbounded_reason(self) -> str | None:
        if self.release == "total":
            return "the exact sum of the uploads is released without noise, and a sum alone bounds nothing"
        return "uploads are released as they are, without clipping and without noise"
