"""`SecureSum`: secure aggregation alone, which hides single uploads and not their exact sum."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from privfed.contracts import ReleaseKind, Schema
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.l2_clipped import L2Clipped
from privfed.privacy.mechanisms.masking import MIN_SUMMED, Masking, RingBits, fixed_point_error
from privfed.privacy.sampling import Trust
from privfed.privacy.wording import number
from secure_agg.encoding import Rounding
from secure_agg.errors import RingOverflowError


class SecureSum(L2Clipped):
    """Secure aggregation alone: single uploads are hidden, their exact sum is not.

    Clients of unequal size own different blocks. Either all send elements for all blocks, zeros where they own nothing;
    or every block is a sum of its own over the clients that hold it, which is shorter, shows who holds what, and
    suppresses a block that fewer than `min_clients` hold. The opened sums are the same to the bit.
    """

    preset: ClassVar[str] = "secure-sum"
    release: ClassVar[ReleaseKind] = "total"
    kind: Literal["secure_sum"] = "secure_sum"
    bits: RingBits = 32
    rounding: Literal["nearest", "stochastic"] = Field(
        default="nearest",
        description="nearest: each number goes to the nearer step, so values below half a step vanish; stochastic: up "
        "or down at random, right on average, which narrow rings need",
    )
    blocks: Literal["all", "held"] = Field(
        default="all",
        description="all: every client sends elements for every block, so the length of an upload says nothing; held: "
        "a client takes part only in the sums of the blocks that it holds, and the server sees which these are",
    )

    @model_validator(mode="after")
    def _held_blocks_take_whole_bytes(self) -> Self:
        if self.blocks == "held" and self.bits % 8:
            raise PlanError(
                f"blocks = 'held' sums every block by itself, in whole bytes, and bits = {self.bits} is no multiple of "
                f"8: use {self.bits + 8 - self.bits % 8}"
            )
        return self

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"secure-sum": cls(clip_norm=1.0)}

    @property
    def masking(self) -> Masking:
        return Masking(self.bits, self.clip_norm, Rounding(self.rounding), held_blocks=self.blocks == "held")

    @property
    def protects_integers(self) -> bool:
        return True

    @property
    def trust(self) -> Trust:
        return "distributed"

    @property
    def label(self) -> str:
        extras = [
            *(["stochastic rounding"] if self.rounding == "stochastic" else []),
            *(["held blocks only"] if self.blocks == "held" else []),
        ]
        ring = ", ".join([f"{self.bits}-bit ring", *extras])
        return f"secure sum (L2 <= {number(self.clip_norm)}{self.clipping_label}, {ring})"

    @property
    def min_clients(self) -> int:
        """Number of clients without which a round is not opened; nor a block, where clients send held blocks only."""
        return MIN_SUMMED

    @property
    def unbounded_reason(self) -> str | None:
        return (
            "secure aggregation hides single uploads but reveals their exact sum, and a sum without noise bounds "
            "nothing about any one of them"
        )

    def unbounded_statements(self, max_cohort: int, *, seeded: bool) -> list[str]:
        del seeded
        held = (
            "A client takes part only in the sums of the blocks that it holds, so the server sees who holds which "
            "block (a size, a tier, a group) and how many do. A block that fewer than "
            f"{self.min_clients} clients hold is not opened; a sum over few says more about each of them."
        )
        return [
            "What is hidden are single uploads, from a server that fewer clients than a threshold work for.",
            *([held] if self.blocks == "held" else []),
            self._ring_statement(max_cohort),
        ]

    def _ring_statement(self, max_cohort: int) -> str:
        """What the width of a ring element costs, and that it hides and shows nothing by itself."""
        width = (
            f"Every number of an upload takes {self.bits} bits on the wire, whatever the data; masks are uniform in "
            f"the ring of that width"
        )
        try:
            error = fixed_point_error(self.masking.fixed_point(max_cohort))
        except RingOverflowError:
            return f"{width}, which has no room for real numbers of rounds of {max_cohort:,} clients."
        average = (
            "and not right on average, since what is below half a step vanishes from every upload"
            if error.deviation is None
            else f"right on average, with a standard deviation of at most {error.deviation:.2g}"
        )
        return (
            f"{width}. Real numbers are rounded to steps of {error.step:.2g}, so a coordinate of a sum of up to "
            f"{max_cohort:,} clients errs by at most {error.largest:.2g}, {average}."
        )

    def upload_bytes(self, schema: Schema, sent_rows: Mapping[str, float], upload_bits: int | None = None) -> float:
        del sent_rows, upload_bits
        return float(self.masking.upload_bytes(schema))

    @property
    def node_refusal(self) -> str | None:
        if self.blocks == "all":
            return None
        return (
            "sums of held blocks show who holds what, client by client, and nodes add up their users first: use "
            "blocks = 'all'"
        )
