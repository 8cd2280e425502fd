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
        of_median: the clip norm over the median norm, where it was chosen; `auto` keeps this ratio on other data.
        ground: where it comes from, in one sentence.
    """

    clipped: Clipped
    norm: float
    of_median: float
    ground: str
