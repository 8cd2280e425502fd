"""Settings of a joint L2 clip, which several mechanisms share."""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import Mechanism
from privfed.privacy.mechanisms.clipping import BlockNorms, Clip, L2ClipNorm


class L2Clipped(Mechanism):
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
    def clipping_label(self) -> str:
        """What a label says after the clip norm where the clip is not flat."""
        return "" if self.clipping == "flat" else " per block"
