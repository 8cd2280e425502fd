"""How uploads become ring elements whose masked sum alone is opened, with a share of integer noise or without.

A masked sum hides single uploads from the server and gives no differential privacy: the exact sum is revealed. With a
share of integer noise from every client the sum is private against the server too, as long as at least `min_honest`
honest clients remain; the noise is sized for them, never for the realised or the expected cohort. Rounding, noise and
their accounting are those of `secure_agg.noise` (Skellam: Agarwal, Kairouz and Liu 2021; discrete Gaussian: Kairouz,
Liu and Steinke 2021).

Who takes part in a masked sum is visible, so sampling amplifies nothing here.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from privfed.contracts import Schema, share_of
from privfed.privacy.mechanisms.clipping import CLIP_SLACK
from secure_agg.encoding import MAX_BITS, MIN_BITS, FixedPoint, Ring, Rounding
from secure_agg.noise import DistributedMechanism, fit_to_ring

RingBits = Annotated[
    int,
    Field(
        ge=MIN_BITS,
        le=MAX_BITS,
        description="width of a ring element, 2 to 64 bits, which is what every number of an upload takes on the wire; "
        "it must have room for the sum of a round",
    ),
]

MIN_SUMMED = 3
"""A sum of one client is that client's upload, and each of two can subtract its own."""


@dataclass(frozen=True, slots=True)
class NoiseShares:
    """Integer noise that every client adds a share of.

    Attributes:
        multiplier: standard deviation of `min_honest` shares together, over the clip norm.
        min_honest: number of honest clients whose shares a released sum holds at least.
        colluding: number of clients of a round who may work for the server: their noise does not count.
        law: of the integer noise.
    """

    multiplier: float
    min_honest: int
    colluding: int
    law: Literal["skellam", "discrete_gaussian"]


@dataclass(frozen=True, slots=True)
class SumError:
    """What writing real numbers as ring elements does to a coordinate of a sum; noise of a plan comes on top.

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


@dataclass(frozen=True, slots=True)
class Masking:
    """Ring, clip and rounding of a masked sum.

    Attributes:
        bits: width of a ring element.
        clip_norm: C, which the real blocks of an upload are within.
        rounding: of real numbers that carry no noise.
        noise: shares of noise inside the sum; None where the exact sum is opened.
        held_blocks: whether every block is a sum of its own over the clients that hold it.
    """

    bits: int
    clip_norm: float
    rounding: Rounding = Rounding.NEAREST
    noise: NoiseShares | None = None
    held_blocks: bool = False

    def upload_bytes(self, schema: Schema) -> int:
        """Bytes of one client's masked upload of these blocks: `bits` bits per number, rounded up once."""
        return Ring(self.bits).packed_bytes(sum(block.size for block in schema.values()))

    def fixed_point(self, max_clients: int, share: float = 1.0) -> FixedPoint:
        """Fixed point for rounds of at most `max_clients` clients, on the finest grid that has room.

        Args:
            max_clients: number of clients that a round can have.
            share: of the squared clip norm that the upload may use.

        Raises:
            RingOverflowError: the sum does not fit the ring.
        """
        bound = self.clip_norm * math.sqrt(share) * (1 + CLIP_SLACK)
        return FixedPoint.for_sum(Ring(self.bits), bound=bound, clients=max_clients, rounding=self.rounding)

    def noised(
        self, noise: NoiseShares, coordinates: int, max_clients: int, share: float = 1.0
    ) -> DistributedMechanism:
        """Rounding and shares of noise for vectors of so many coordinates and rounds of at most `max_clients` clients.

        Args:
            noise: the shares.
            coordinates: numbers in an upload.
            max_clients: number of clients that a round can have.
            share: of the squared clip norm that the upload may use; the noise is the same for all.

        Raises:
            RingOverflowError: the sum does not fit the ring.
        """
        return _fitted(self.bits, self.clip_norm, noise, coordinates, max_clients, share)

    def sum_error(self, schema: Schema, max_clients: int) -> SumError:
        """The error of sums of these blocks over rounds of at most `max_clients` clients; it depends on no data.

        Raises:
            RingOverflowError: the sum does not fit the ring.
        """
        if self.noise is None:
            return fixed_point_error(self.fixed_point(max_clients, share_of(schema)))
        coordinates = sum(block.size for block in schema.values() if block.kind == "real") or 1
        grid = self.noised(self.noise, coordinates, max_clients, share_of(schema)).grid
        # Conditional rounding moves a coordinate by less than a step, and is not right on average.
        return SumError(grid, max_clients * grid, None)


def fixed_point_error(code: FixedPoint) -> SumError:
    """The error of a sum of as many clients as the code has room for: a stochastic step has variance 1/4 at most."""
    stochastic = code.rounding is Rounding.STOCHASTIC
    deviation = math.sqrt(code.clients) * code.resolution / 2 if stochastic else None
    return SumError(code.resolution, code.error_bound(), deviation)


def weighted(code: DistributedMechanism, weight: float) -> DistributedMechanism:
    """The same grid and noise for vectors within `weight` of the clip; rounding them is bounded by that norm, too."""
    return code if weight == 1 else replace(code, clip=code.clip * weight)


@lru_cache(maxsize=64)
def _fitted(
    bits: int, clip_norm: float, noise: NoiseShares, coordinates: int, max_clients: int, share: float
) -> DistributedMechanism:
    return fit_to_ring(
        Ring(bits),
        noise.multiplier / math.sqrt(share),
        clients=max_clients,
        min_honest=noise.min_honest,
        dimension=coordinates,
        clip=clip_norm * math.sqrt(share),
        law=noise.law,
    )
