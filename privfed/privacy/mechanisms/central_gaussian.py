"""`CentralGaussian`: a trusted server adds Gaussian noise to the sum of clipped uploads.

`noise_multiplier` z is the standard deviation over the clip norm C. A user is in the data or not, which moves the sum
by at most C, so one release is a Gaussian mechanism of multiplier z. Each user's independent, secret inclusion (Poisson
cohorts) amplifies it, and the denominator is the expected cohort.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privfed.contracts import Clipped, ReleaseKind
from privfed.privacy.errors import PlanError
from privfed.privacy.events import Event, Gaussian, SchemaSummary
from privfed.privacy.mechanisms.base import Neighbours
from privfed.privacy.mechanisms.clipping import (
    AUTO_SHARE,
    FOLLOWED,
    MOVING_UNIT,
    AdaptiveClip,
    MedianClip,
    NoiseMultiplier,
)
from privfed.privacy.mechanisms.l2_clipped import L2Clipped
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise
from privfed.privacy.sampling import Sampling, Trust
from privfed.privacy.wording import WIDENED, number

_COUNT = "The count behind the adaptive clip norm has noise of its own, which is paid for."
_MEDIAN = (
    f"The count behind the clip norm, of users whose norm is at most the median's estimate, has noise of its own: "
    f"{AUTO_SHARE:.0%} of the budget in mu^2 pays for it."
)


class CentralGaussian(L2Clipped):
    """Central differential privacy: a trusted server adds Gaussian noise to the sum of clipped uploads."""

    preset: ClassVar[str] = "central-gaussian"
    noise_setting: ClassVar[str | None] = "noise_multiplier"
    clipped: ClassVar[Clipped | None] = "upload"
    release: ClassVar[ReleaseKind] = "total"
    kind: Literal["central_gaussian"] = "central_gaussian"
    noise_multiplier: NoiseMultiplier
    adaptive: AdaptiveClip | None = Field(default=None, description="follow a quantile of the norms")
    of_median: float | None = Field(
        default=None,
        gt=1e-6,
        lt=1e6,
        description="begin with clip_norm, find the median norm in the first rounds, and clip at this multiple of it, "
        "for 5 % of the budget; clip_norm = auto sets it",
    )

    @model_validator(mode="after")
    def _count_is_affordable(self) -> Self:
        if self.adaptive is not None and 2 * self.adaptive.count_noise <= self.noise_multiplier:
            raise PlanError(
                f"adaptive.count_noise = {self.adaptive.count_noise:g} alone costs more than noise_multiplier = "
                f"{self.noise_multiplier:g} allows: use more than {self.noise_multiplier / 2:g}"
            )
        if self.adaptive is not None and self.of_median is not None:
            raise PlanError(
                f"of_median = {self.of_median:g} (which clip_norm = auto sets) follows norms by itself, and adaptive "
                "was given beside it: leave one of the two out"
            )
        if self.adaptive_clip is not None and self.clipping == "per_block":
            raise PlanError("adaptive clipping follows the joint norm: use it with clipping = 'flat'")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Noise is addressed by the plan's settings, so a plan that follows no median has to stay what it was.
        settings: dict[str, Any] = write(self)
        return {key: value for key, value in settings.items() if key != "of_median" or value is not None}

    def following_norms(self, of_median: float) -> Mapping[str, Any]:
        return {"of_median": of_median}

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"central-gaussian": cls(clip_norm=1.0, noise_multiplier=1.0)}

    @property
    def adaptive_clip(self) -> AdaptiveClip | None:
        if self.of_median is not None:
            return MedianClip.for_noise(self.of_median, self.noise_multiplier)
        return self.adaptive

    @property
    def server_noise_multiplier(self) -> float:
        """The noise multiplier, or a little more where the count of an adaptive clip has to be paid."""
        adaptive = self.adaptive_clip
        return self.noise_multiplier if adaptive is None else adaptive.sum_multiplier(self.noise_multiplier)

    @property
    def noise_over_clip(self) -> float | None:
        return self.noise_multiplier

    def query_multiplier(self, share: float) -> float:
        """Noise multiplier of a query that may use this share of the squared clip norm, an adaptive count included.

        The count of an adaptive clip costs the same whatever the share.
        """
        adaptive = self.adaptive_clip
        if adaptive is None or share == 1:
            return self.noise_multiplier / math.sqrt(share)
        return 1 / math.sqrt(share * self.server_noise_multiplier**-2 + (2 * adaptive.count_noise) ** -2)

    @property
    def neighbours(self) -> Neighbours:
        return "add_or_remove_one"

    @property
    def trust(self) -> Trust:
        return "central"

    @property
    def label(self) -> str:
        bound = "adaptive from " if self.adaptive is not None else "auto from " if self.of_median is not None else ""
        strength = f"z = {number(self.noise_multiplier)}, C = {bound}{number(self.clip_norm)}{self.clipping_label}"
        return f"central Gaussian ({strength})"

    @property
    def unbounded_reason(self) -> str | None:
        return None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        del max_cohort
        return Gaussian(noise_multiplier=self.query_multiplier(schema.share))

    @property
    def tier_refusal(self) -> str | None:
        return None if self.adaptive_clip is None else FOLLOWED

    def weighted_event(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Event:
        return self._rounded(schema, max_cohort, weight)

    @property
    def account_refusal(self) -> str | None:
        if self.adaptive_clip is not None:
            return MOVING_UNIT
        return None if self.clipping == "flat" else "an account is of the joint norm: use clipping = 'flat'"

    def account_event(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Gaussian:
        return self._rounded(schema, max_cohort, weight)

    def _rounded(self, schema: SchemaSummary, max_cohort: int, weight: float) -> Gaussian:
        """The event of somebody whose uploads to all refreshes have a joint norm of `weight`."""
        # A sum moves by weight C and by the rounding that noise is widened for, r C; noise has z C (1 + r).
        # The terms of r are in `privfed.federation.grid`: n^2 2^-52, and s sqrt(d) <= 2^-12 C or, of a sum of less than
        # 2^32 numbers whose noise is very wide, <= 2^-32 z C 2^16. The larger r is, the less this claims.
        z = self.query_multiplier(schema.share)
        rounding = max_cohort**2 * 2.0**-52 + max(2.0**-12, z * 2.0**-16)
        # Every refresh rounds: sqrt(sum_t (|u_t| + r)^2) <= sqrt(sum_t |u_t|^2) + sqrt(T) r.
        distance = weight + math.sqrt(schema.refreshes) * rounding
        return Gaussian(noise_multiplier=z * (1 + rounding) / distance)

    def requirements(self) -> list[str]:
        clip = "the announced clip norm" if self.adaptive_clip else f"C = {self.clip_norm:g}"
        return [
            f"Every device clips its upload to a joint L2 norm of {clip} over all real blocks, and the server adds "
            f"Gaussian noise of {self.server_noise_multiplier:g} times that norm to the sum before anybody else sees "
            "it.",
            "Compared are the data with one user and without, so the sum moves by at most the clip norm.",
            "Means divide by the expected cohort, whoever took part; the number of users is public.",
            WIDENED,
            *([_COUNT] if self.adaptive else []),
            *([_MEDIAN] if self.of_median else []),
        ]

    def sum_deviation(self, clients: float) -> float:
        del clients
        return self.server_noise_multiplier * self.clip_norm

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        if target.rate is not None:
            return SizedNoise({"noise_multiplier": target.amplified_multiplier(target.rate)}, exact=False)
        return SizedNoise({"noise_multiplier": target.unsampled_multiplier()}, exact=target.uniform)

    def refuse_sampling(self, sampling: Sampling) -> None:
        """Refuse cohorts of a fixed size: one user less moves others into the round, and others again after them.

        Raises:
            PlanError: that, and what to do.
        """
        if sampling.kind in ("fixed", "epoch"):
            raise PlanError(
                f"cohorts of a fixed size (sampling '{sampling.label}') cannot be accounted as Poisson sampling, which "
                f"needs an independent random bit of every user, nor unsampled, because leaving one user out changes "
                f"who else takes part: set sampling.kind = 'poisson' with sampling.rate = size / users, or 'all'"
            )
