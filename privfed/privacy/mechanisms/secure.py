"""Sums that nobody sees the parts of: `SecureSum`, `SharedSum`, and `DistributedGaussian`, which adds noise in shares.

A secure sum hides single uploads from the server and gives no differential privacy: the exact sum is revealed. With a
share of integer noise from every client the sum is private against the server too, as long as at least `n_min_honest`
honest clients remain; the noise is sized for them, never for the realised or the expected cohort. Rounding, noise and
their accounting are those of `secure_agg.noise` (Skellam: Agarwal, Kairouz and Liu 2021; discrete Gaussian: Kairouz,
Liu and Steinke 2021).

Who takes part in a secure sum is visible, so sampling amplifies nothing here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from privfed.contracts import Schema, share_of
from privfed.privacy.errors import PlanError
from privfed.privacy.mechanisms.base import Clip, MechanismModel, Neighbours, Release, number
from privfed.privacy.mechanisms.gaussian import ClippedL2, L2ClipNorm, NoiseMultiplier
from privfed.privacy.padding import FullSupport, Padding
from privfed.privacy.sampling import Trust
from secure_agg.encoding import MAX_BITS, MIN_BITS, FixedPoint, Ring, Rounding
from secure_agg.noise import DistributedMechanism, fit_to_ring
from secure_agg.sparse import row_share_bytes

RingBits = Annotated[
    int,
    Field(
        ge=MIN_BITS,
        le=MAX_BITS,
        description="width of a ring word, 2 to 64 bits, which is what every number of an upload takes on the wire; it "
        "must have room for the sum of a round",
    ),
]
Blocks = Literal["all", "held"]

MIN_SUMMED = 3
"""A sum of one client is that client's upload, and each of two can subtract its own."""

CLIP_SLACK = 1e-6
"""What materialising in float32 may add to a clipped norm."""


class SecureSum(ClippedL2):
    """Secure aggregation alone: single uploads are hidden, their exact sum is not.

    Clients of unequal size own different blocks. Either all send words for all blocks, zeros where they own nothing; or
    every block is a sum of its own over the clients that hold it, which is shorter, shows who holds what, and leaves a
    block closed that fewer than `fewest` hold. The opened sums are the same to the bit.
    """

    release: ClassVar[Release] = "total"
    kind: Literal["secure_sum"] = "secure_sum"
    bits: RingBits = 32
    rounding: Literal["nearest", "stochastic"] = Field(
        default="nearest",
        description="nearest: each number goes to the nearer step, so values below half a step vanish; stochastic: up "
        "or down at random, right on average, which narrow rings need",
    )
    blocks: Blocks = Field(
        default="all",
        description="all: every client sends words for every block, so the length of an upload says nothing; held: a "
        "client takes part only in the sums of the blocks that it holds, and the server sees which these are",
    )

    @model_validator(mode="after")
    def _held_blocks_take_whole_bytes(self) -> Self:
        if self.blocks == "held" and self.bits % 8:
            raise PlanError(
                f"blocks = 'held' sums every block by itself, in whole bytes, and bits = {self.bits} is no multiple of "
                f"8: use {self.bits + 8 - self.bits % 8}"
            )
        return self

    @property
    def protects_integers(self) -> bool:
        """They are masked like any other word."""
        return True

    @property
    def trust(self) -> Trust:
        """That fewer clients than the threshold collude with the server."""
        return "distributed"

    @property
    def label(self) -> str:
        """Names the clip and the ring, and what differs from the defaults."""
        extras = [
            *(["stochastic rounding"] if self.rounding == "stochastic" else []),
            *(["held blocks only"] if self.blocks == "held" else []),
        ]
        ring = ", ".join([f"{self.bits}-bit ring", *extras])
        return f"secure sum (L2 <= {number(self.clip_norm)}{self.spread}, {ring})"

    @property
    def min_clients(self) -> int:
        """Clients without which a round is not opened; nor a block, where clients send held blocks only."""
        return MIN_SUMMED

    @property
    def unbounded_reason(self) -> str | None:
        """A sum alone bounds nothing."""
        return (
            "secure aggregation hides single uploads but reveals their exact sum, and a sum without noise bounds "
            "nothing about any one of them"
        )


class SharedSum(MechanismModel):
    """Additive shares between aggregators that do not collude: values are hidden, rows as far as a cover hides them.

    Clients send tables row by row, so an upload is as long as the history and its cover, not as the catalogue; rows
    with few clients are not opened. Integer blocks travel exactly. Real ones need a clip, for the room they take.
    """

    release: ClassVar[Release] = "total"
    kind: Literal["shared_sum"] = "shared_sum"
    aggregators: Literal[2, 3] = Field(default=2, description="how many hold shares; one of them must be honest")
    padding: Padding = Field(default=FullSupport(), description="which rows of a table a client sends besides its own")
    min_cohort: int = Field(
        default=MIN_SUMMED,
        ge=2,
        description="clients without which a row, or a round, is not opened",
    )
    bits: Literal[32, 64] = Field(default=64, description="width of a ring word: 32 or 64")
    clip_norm: L2ClipNorm | None = Field(
        default=None, description="the largest L2 norm of an upload's real blocks; integers need none"
    )

    @property
    def clip(self) -> Clip | None:
        """The joint clip over all real blocks, where there is one."""
        return None if self.clip_norm is None else Clip(self.clip_norm, 2)

    @property
    def protects_integers(self) -> bool:
        """They are shared like any other word."""
        return True

    @property
    def trust(self) -> Trust:
        """That the aggregators do not pool their shares."""
        return "distributed"

    @property
    def label(self) -> str:
        """Names aggregators, cover and the fewest clients of a row."""
        return f"shares between {self.aggregators} ({self.padding.label}, at least {self.min_cohort} clients a row)"

    @property
    def min_clients(self) -> int:
        """Clients without which a round is not opened."""
        return self.min_cohort

    def upload_bytes(self, schema: Schema, sent_rows: Mapping[str, float]) -> float:
        """Bytes of one client's shares of one ask, rows having been named at enrolment.

        Args:
            schema: blocks of the ask.
            sent_rows: table blocks sent row by row -> rows that a client sends, cover included; others are whole.
        """
        rows = {} if isinstance(self.padding, FullSupport) else sent_rows
        words = sum(
            b.size if n not in rows else min(rows[n], b.shape[0]) * b.size / b.shape[0] for n, b in schema.items()
        )
        return row_share_bytes(words, Ring(self.bits), self.aggregators)

    @property
    def unbounded_reason(self) -> str | None:
        """A sum alone bounds nothing."""
        return (
            "secret sharing hides single uploads but their exact sums are opened, and a sum without noise bounds "
            "nothing about any one of them"
        )


class DistributedGaussian(ClippedL2):
    """Distributed differential privacy: shares of integer noise inside a secure sum."""

    release: ClassVar[Release] = "total"
    kind: Literal["distributed_gaussian"] = "distributed_gaussian"
    noise_multiplier: NoiseMultiplier
    n_min_honest: int = Field(
        ge=1,
        description="the fewest honest clients whose noise shares a released sum holds; a round of fewer clients "
        "than these and the colluding ones together is not opened",
    )
    colluding: int = Field(
        default=0, ge=0, description="clients of a round who may work for the server: their noise does not count"
    )
    law: Literal["skellam", "discrete_gaussian"] = Field(default="skellam", description="law of the integer noise")
    bits: RingBits = 32

    @property
    def neighbours(self) -> Neighbours:
        """A user's vector counts, or is replaced by zero; its noise share is there in both worlds."""
        return "zero_out_one"

    @property
    def trust(self) -> Trust:
        """That at least `n_min_honest` honest clients add their noise and at most `colluding` work for the server."""
        return "distributed"

    @property
    def label(self) -> str:
        """Names law, noise, clip and whom the noise is sized for."""
        law = "Skellam" if self.law == "skellam" else "discrete Gaussian"
        strength = f"z = {number(self.noise_multiplier)}, C = {number(self.clip_norm)}{self.spread}"
        return f"distributed {law} ({strength}, {self.n_min_honest} honest)"

    @property
    def unbounded_reason(self) -> str | None:
        """None: clip and noise fit."""
        return None

    @property
    def min_clients(self) -> int:
        """Clients without which a round is not opened."""
        return max(MIN_SUMMED, self.n_min_honest + self.colluding)

    def check(self, max_clients: int) -> None:
        """Refuse more honest clients than a round can have.

        Raises:
            PlanError: a round of at most `most` clients would never be opened.
        """
        if self.min_clients > max_clients:
            raise PlanError(
                f"n_min_honest = {self.n_min_honest} with {self.colluding} colluding clients needs rounds of "
                f"{self.min_clients} clients, and a round can have {max_clients}, so none would ever be "
                f"released: use at most the cohort minus dropouts and colluders"
            )


def ring_bytes(mechanism: SecureSum | DistributedGaussian, schema: Schema) -> int:
    """Bytes of one client's masked upload of these blocks: a ring word of `bits` bits per number, rounded up once."""
    return Ring(mechanism.bits).packed_bytes(sum(block.size for block in schema.values()))


@dataclass(frozen=True, slots=True)
class SumError:
    """What writing real numbers as ring words does to a coordinate of a sum; noise of a plan comes on top.

    Values are weighted as the schema says, so a coordinate of weight w errs by a w-th of it.

    Attributes:
        step: width of a step of the grid.
        largest: no coordinate of a sum of that many clients errs by more.
        deviation: bound on the standard deviation of a coordinate's error, whose mean is zero; None where rounding is
            not right on average, and `largest` is all that can be said.
    """

    step: float
    largest: float
    deviation: float | None


def sum_error(mechanism: SecureSum | DistributedGaussian, schema: Schema, max_clients: int) -> SumError:
    """The error of sums of these blocks over rounds of at most `most` clients; it depends on no data.

    Args:
        mechanism: ring, clip norm and rounding.
        schema: blocks of the ask.
        max_clients: clients that a round can have.

    Raises:
        RingOverflowError: the sum does not fit the ring.
    """
    if isinstance(mechanism, SecureSum):
        return fixed_point_error(fixed_code(mechanism, max_clients, share_of(schema)))
    coordinates = sum(block.size for block in schema.values() if block.kind == "real") or 1
    grid = noise_code(mechanism, coordinates, max_clients, share_of(schema)).grid
    # Conditional rounding moves a coordinate by less than a step, and is not right on average.
    return SumError(grid, max_clients * grid, None)


def fixed_point_error(code: FixedPoint) -> SumError:
    """The error of a sum of as many clients as the code has room for: a stochastic step has variance 1/4 at most."""
    stochastic = code.rounding is Rounding.STOCHASTIC
    deviation = math.sqrt(code.clients) * code.resolution / 2 if stochastic else None
    return SumError(code.resolution, code.error_bound(), deviation)


def fixed_code(mechanism: SecureSum, max_clients: int, share: float = 1.0) -> FixedPoint:
    """Fixed point of a secure sum for rounds of at most `most` clients, on the finest grid that has room.

    Args:
        mechanism: clip norm, ring and rounding.
        max_clients: clients that a round can have.
        share: of the squared clip norm that the upload may use.

    Raises:
        RingOverflowError: the sum does not fit the ring.
    """
    bound = mechanism.clip_norm * math.sqrt(share) * (1 + CLIP_SLACK)
    return FixedPoint.for_sum(
        Ring(mechanism.bits), bound=bound, clients=max_clients, rounding=Rounding(mechanism.rounding)
    )


@lru_cache(maxsize=64)
def noise_code(
    mechanism: DistributedGaussian, coordinates: int, max_clients: int, share: float = 1.0
) -> DistributedMechanism:
    """Rounding and noise of `protection` for vectors of so many coordinates and rounds of at most `most` clients.

    Args:
        mechanism: noise multiplier, clip norm, law and ring.
        coordinates: numbers in an upload.
        max_clients: clients that a round can have.
        share: of the squared clip norm that the upload may use; the noise is the same for all.

    Raises:
        RingOverflowError: the sum does not fit the ring.
    """
    return fit_to_ring(
        Ring(mechanism.bits),
        mechanism.noise_multiplier / math.sqrt(share),
        clients=max_clients,
        min_honest=mechanism.n_min_honest,
        dimension=coordinates,
        clip=mechanism.clip_norm * math.sqrt(share),
        law=mechanism.law,
    )
