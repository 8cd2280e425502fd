"""`DistributedGaussian`: distributed differential privacy, by shares of integer noise inside a masked sum.

See `privfed.privacy.mechanisms.masking` for rounding and noise. Compared are a user's vector and zero in its place,
with the same shares of noise in both worlds.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import Clipped, ReleaseKind, Schema
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Event, SchemaSummary, Shares
from privfed.privacy.mechanisms.base import Neighbours
from privfed.privacy.mechanisms.clipping import NoiseMultiplier
from privfed.privacy.mechanisms.l2_clipped import L2Clipped
from privfed.privacy.mechanisms.masking import MIN_SUMMED, Masking, NoiseShares, RingBits, weighted
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise
from privfed.privacy.sampling import Trust
from privfed.privacy.wording import SAME_SHAPE, number


class DistributedGaussian(L2Clipped):
    """Distributed differential privacy: shares of integer noise inside a secure sum."""

    preset: ClassVar[str] = "distributed-gaussian"
    noise_setting: ClassVar[str | None] = "noise_multiplier"
    clipped: ClassVar[Clipped | None] = "upload"
    release: ClassVar[ReleaseKind] = "total"
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

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"distributed-gaussian": cls(clip_norm=1.0, noise_multiplier=1.0, n_min_honest=100)}

    @property
    def noise_shares(self) -> NoiseShares:
        return NoiseShares(self.noise_multiplier, self.n_min_honest, self.colluding, self.law)

    @property
    def masking(self) -> Masking:
        return Masking(self.bits, self.clip_norm, noise=self.noise_shares)

    @property
    def noise_over_clip(self) -> float | None:
        return self.noise_multiplier

    @property
    def neighbours(self) -> Neighbours:
        """A user's vector counts, or is replaced by zero; its noise share is there in both worlds."""
        return "zero_out_one"

    @property
    def trust(self) -> Trust:
        return "distributed"

    @property
    def label(self) -> str:
        law = "Skellam" if self.law == "skellam" else "discrete Gaussian"
        strength = f"z = {number(self.noise_multiplier)}, C = {number(self.clip_norm)}{self.clipping_label}"
        return f"distributed {law} ({strength}, {self.n_min_honest} honest)"

    @property
    def unbounded_reason(self) -> str | None:
        return None

    @property
    def min_clients(self) -> int:
        return max(MIN_SUMMED, self.n_min_honest + self.colluding)

    def refuse_cohort(self, max_cohort: int) -> None:
        if self.min_clients > max_cohort:
            raise PlanError(
                f"n_min_honest = {self.n_min_honest} with {self.colluding} colluding clients needs rounds of "
                f"{self.min_clients} clients, and a round can have {max_cohort}, so none would ever be "
                f"released: use at most the cohort minus dropouts and colluders"
            )

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        code = self.masking.noised(self.noise_shares, schema.coordinates, max_cohort, schema.share)
        return Shares.from_event(code.event())

    @property
    def tier_refusal(self) -> str | None:
        return None

    def weighted_event(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Event:
        code = self.masking.noised(self.noise_shares, schema.coordinates, max_cohort, schema.share)
        return Shares.from_event(weighted(code, weight).event())

    @property
    def account_refusal(self) -> str | None:
        return None if self.clipping == "flat" else "an account is of the joint norm: use clipping = 'flat'"

    def account_event(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Shares:
        code = self.masking.noised(self.noise_shares, schema.coordinates, max_cohort, schema.share)
        return Shares.from_event(weighted(code, weight).account_event(schema.refreshes))

    def requirements(self) -> list[str]:
        return [
            f"Every device clips to a joint L2 norm of C = {self.clip_norm:g}, rounds to whole steps and adds "
            f"its share of integer noise. At least {self.n_min_honest} clients of every opened round are honest: "
            f"a round is opened with {self.min_clients} clients or more, of which at most "
            f"{self.colluding} may work for the server.",
            "Secure aggregation holds, so the server sees sums only.",
            "Compared are a sum in which a user's vector counts and one in which it is zero; who takes part is seen.",
            SAME_SHAPE,
        ]

    def upload_bytes(self, schema: Schema, sent_rows: Mapping[str, float], upload_bits: int | None = None) -> float:
        del sent_rows, upload_bits
        return float(self.masking.upload_bytes(schema))

    def sum_deviation(self, clients: float) -> float:
        surplus = max(clients / self.n_min_honest, 1.0)
        return self.noise_multiplier * self.clip_norm * math.sqrt(surplus)

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        if not target.known_size:
            raise PlanError("coordinates is missing: rounding depends on how many numbers an upload has, so give it")
        return SizedNoise({"noise_multiplier": target.unsampled_multiplier()}, exact=False)
