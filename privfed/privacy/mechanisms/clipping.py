"""Clips: how long an upload may be, flat or block by block, fixed or following a quantile of the norms.

Adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy, NeurIPS 2021, algorithm 1) follows a quantile of the norms.
The count of users within the norm gets noise of its own, of standard deviation s; a user moves the centred count by
1/2. Both releases together cost exactly z when the sum gets z_sum = (z^-2 - (2s)^-2)^(-1/2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from privfed.privacy.errors import PlanError

CONFIG = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

MIN_CLIP_NORM, MAX_CLIP_NORM = 1e-15, 1e15
"""Clip norms that float32 uploads and their noise can carry."""

CLIP_SLACK = 1e-6
"""What materialising in float32 may add to a clipped norm."""

L2ClipNorm = Annotated[
    float,
    Field(
        gt=MIN_CLIP_NORM,
        lt=MAX_CLIP_NORM,
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
        """The bound of every block of a query, where clipping is per block.

        Raises:
            PlanError: bounds were given for other blocks.
        """
        given = self.per_block or dict.fromkeys(blocks, self.norm / math.sqrt(max(len(blocks), 1)))
        if set(blocks) - set(given):
            raise PlanError(
                f"block_norms names {', '.join(sorted(given))} while this query uploads {', '.join(blocks)}: give a "
                f"bound for every block, or none for equal ones"
            )
        return [given[name] for name in blocks]


MOVING_UNIT = "its clip norm follows the data, and an account is in units of one: give a clip_norm"
FOLLOWED = (
    "its clip norm follows a count in which everybody has the same part, whatever budget they chose: give a clip_norm, "
    "or leave it out for the method's default"
)
"""Why there are no tiers under a clip norm that moves."""


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

    @property
    def counted_over_clip(self) -> float:
        """Norm within which users are counted, over the clip norm."""
        return 1.0

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """Multiplier of the sum's noise for which sum and count together cost `noise_multiplier`."""
        return 1 / math.sqrt(noise_multiplier**-2 - (2 * self.count_noise) ** -2)

    def rate_in(self, round: int) -> float:
        """Speed of the clip norm after a round, counted from 0."""
        del round
        return self.rate

    def follow(self, clip_norm: float, share_within: float, round: int) -> float:
        """The next clip norm after a noised share of users (of which noise may make any number) was within this one."""
        share, rate = min(max(share_within, 0.0), 1.0), self.rate_in(round)
        return min(max(clip_norm * math.exp(-rate * (share - self.quantile)), MIN_CLIP_NORM), MAX_CLIP_NORM)


AUTO_SHARE = 0.05
"""Share of the budget, in mu^2 (the squared distance of two Gaussians), that `clip_norm = auto` spends on counts."""
_SLOWING, _MIN_RATE = 0.7, 1e-6


class MedianClip(AdaptiveClip):
    """Find the median norm in the first rounds, and clip at a multiple of it: what `clip_norm = auto` comes to.

    The speed falls from round to round. Noise in the model makes later uploads longer, so a clip norm that went on
    following them would grow, and the noise with it.

    Attributes:
        of_median: the clip norm over the median.
    """

    rate: float = 2.0
    of_median: float = Field(gt=0)

    @classmethod
    def for_noise(cls, of_median: float, noise_multiplier: float) -> "MedianClip":
        """The clip whose counts cost `AUTO_SHARE` of what one release of this noise multiplier costs.

        A user moves the centred count by 1/2, so noise s on it is a multiplier of 2s: (2s)^-2 = AUTO_SHARE z^-2.
        """
        return cls(of_median=of_median, count_noise=noise_multiplier / (2 * math.sqrt(AUTO_SHARE)))

    def rate_in(self, round: int) -> float:
        return max(self.rate * _SLOWING**round, _MIN_RATE)

    @property
    def counted_over_clip(self) -> float:
        return 1 / self.of_median
