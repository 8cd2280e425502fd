"""Clip norms that methods declare for plans that name none, and where each comes from."""

from dataclasses import dataclass
from typing import Literal

Clipped = Literal["upload", "upload_l1", "gradient"]
"""What a clip norm bounds: the L2 or the L1 norm of an upload, or the L2 norm of one interaction's gradient."""


@dataclass(frozen=True, slots=True)
class DefaultClip:
    """The clip norm of a method where a plan with a target epsilon names none.

    Attributes:
        clipped: what it bounds.
        norm: the clip norm.
        of_median: the clip norm of `auto` over the median norm.
        ground: where it comes from, in one sentence.
    """

    clipped: Clipped
    norm: float
    of_median: float
    ground: str


_OF_UPLOADS = "norm of the first uploads on MovieLens-100K, by rule and not by quality"


def half_of_median(*, upload: float | None = None, upload_l1: float | None = None) -> tuple[DefaultClip, ...]:
    """Clip norms by rule where none was chosen by quality (`benchmarks.quality.upload_norms` measures the medians).

    Args:
        upload: half of the median L2 norm of the first uploads on MovieLens-100K; None for no such default.
        upload_l1: the same of the L1 norm.
    """
    norms: tuple[tuple[Clipped, str, float | None], ...] = (("upload", "L2", upload), ("upload_l1", "L1", upload_l1))
    return tuple(
        DefaultClip(clipped, norm, 0.5, f"half of the median {name} {_OF_UPLOADS}")
        for clipped, name, norm in norms
        if norm is not None
    )
