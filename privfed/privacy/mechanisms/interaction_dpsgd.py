"""`InteractionDPSGD`: noise inside local training that hides single interactions, not whole users.

DP-SGD (Abadi et al., CCS 2016, algorithm 1) on each device over that user's own interactions. A record is one
interaction together with its sampled negatives. In each of S local steps every record is included with probability q,
independently; the gradient of each included record over everything that is trained is clipped to L2 norm C, and noise
N(0, (zC)^2) covers every coordinate of their sum. So one interaction moves a step by at most C, and an upload is S
Poisson-sampled Gaussian mechanisms of multiplier z. What leaves the device, and what it keeps, is computed from noisy
steps alone, so nothing is clipped or noised again.

The inclusion stays on the device: no server sees which interactions a step used, so sampling them amplifies although
nobody is trusted. Sampling users amplifies nothing, because who uploads is visible. One step with every interaction (q
= 1, S = 1, the default) has the most signal for its noise at a given epsilon; small q buys more and noisier steps per
round.

The unit is the weak point, and every guarantee says so: k interactions of one user cost up to k times as much.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from privfed.contracts import Clipped, MethodProfile, NoisySteps, ReleaseKind
from privfed.privacy.events import Event, SampledGaussian, SchemaSummary
from privfed.privacy.mechanisms.base import Mechanism, Neighbours, Unit
from privfed.privacy.mechanisms.clipping import NoiseMultiplier
from privfed.privacy.mechanisms.sizing import NoiseTarget, SizedNoise
from privfed.privacy.sampling import Trust
from privfed.privacy.wording import SAME_SHAPE, UPLOADS_ADD_UP, WIDENED, number

MAX_STEPS = 10_000

_NO_INTERACTION_LEVEL = (
    "the plan protects single interactions inside local training, and this method has no training step with a bounded "
    "gradient per interaction (over a softmax of all items, none even exists); methods that have one say so with "
    "`interaction_level`"
)

_HIDDEN_INCLUSION = (
    "Which interactions are included never leaves the device, so amplification by sampling interactions is claimed."
)


class InteractionDPSGD(Mechanism):
    """Local DP-SGD over one user's interactions; see the module."""

    preset: ClassVar[str] = "interaction-dpsgd"
    noise_setting: ClassVar[str | None] = "noise_multiplier"
    clipped: ClassVar[Clipped | None] = "gradient"
    release: ClassVar[ReleaseKind] = "individual"
    kind: Literal["interaction_dpsgd"] = "interaction_dpsgd"
    clip_norm: Annotated[
        float,
        Field(
            gt=1e-12,
            lt=1e12,
            description="the largest L2 norm that the gradient of one interaction (with its negatives) may have, over "
            "everything that is trained",
        ),
    ]
    noise_multiplier: NoiseMultiplier
    local_rate: float = Field(
        default=1.0, gt=0, le=1, description="the probability with which an interaction takes part in a local step"
    )
    local_steps: int = Field(default=1, ge=1, le=MAX_STEPS, description="local steps per round")
    expected_records: float = Field(
        default=100.0,
        gt=0,
        description="interactions of a typical user, a public guess: a step divides by local_rate x this, whatever the "
        "user's own number is",
    )

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        return {"interaction-dpsgd": cls(clip_norm=1.0, noise_multiplier=1.0)}

    @property
    def noisy_steps(self) -> NoisySteps:
        return NoisySteps(
            self.clip_norm, self.noise_multiplier, self.local_rate, self.local_steps, self.expected_records
        )

    @property
    def noise_over_clip(self) -> float | None:
        return self.noise_multiplier

    @property
    def unit(self) -> Unit:
        return "interaction"

    @property
    def neighbours(self) -> Neighbours:
        """A user's training history with one interaction, or without it."""
        return "add_or_remove_one"

    @property
    def trust(self) -> Trust:
        return "local"

    @property
    def label(self) -> str:
        steps = f"{self.local_steps} step{'s' if self.local_steps > 1 else ''} at rate {number(self.local_rate)}"
        return f"per interaction, DP-SGD (z = {number(self.noise_multiplier)}, C = {number(self.clip_norm)}, {steps})"

    @property
    def unbounded_reason(self) -> str | None:
        return None

    def event(self, schema: SchemaSummary, max_cohort: int) -> Event:
        del schema, max_cohort
        return SampledGaussian(noise_multiplier=self.noise_multiplier, rate=self.local_rate, steps=self.local_steps)

    def requirements(self) -> list[str]:
        sampled = self.local_rate < 1
        chosen = (
            f"includes each interaction with a probability of {self.local_rate:g}, in secret and independently"
            if sampled
            else "takes all interactions"
        )
        return [
            f"In every local step ({self.local_steps} per upload) the device {chosen}, clips the "
            f"gradient of every one with its negatives to L2 norm C = {self.clip_norm:g} over everything that is "
            f"trained, and adds Gaussian noise of {self.noise_multiplier:g} C to every coordinate of the sum, "
            "private vectors and untouched rows too.",
            *([_HIDDEN_INCLUSION] if sampled else []),
            "Negatives come from the whole public catalogue and depend on no other interaction; a step divides by "
            f"{self.noisy_steps.divisor:g}, whatever the user's own number of interactions is.",
            "Compared are two training histories of one user, with one interaction and without it; filtering the data "
            "and choosing what is held out came before and are not covered.",
            SAME_SHAPE,
            WIDENED,
        ]

    def unit_statements(self, epsilon: float) -> list[str]:
        typical = max(2, round(self.expected_records))
        return [
            "The unit is ONE INTERACTION, NOT A USER: k interactions of one user together cost up to k times this "
            f"epsilon, with a larger delta. For a user of {typical:,} that is up to {typical * epsilon:,.4g}, so "
            "nothing is promised about a taste, a habit or whether somebody is in the data at all."
        ]

    def composition_statements(self) -> list[str]:
        return [UPLOADS_ADD_UP]

    def size_noise(self, target: NoiseTarget) -> SizedNoise:
        return SizedNoise({"noise_multiplier": target.multiplier(target.uploads * self.local_steps, self.local_rate)})

    def refusal(self, method: MethodProfile) -> str | None:
        return super().refusal(method) if method.interaction_level else _NO_INTERACTION_LEVEL
