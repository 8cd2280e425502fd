"""`InteractionDPSGD`: noise inside local training that hides single interactions, not whole users.

DP-SGD (Abadi et al., CCS 2016, algorithm 1) on each device over that user's own interactions. A record is one
interaction together with its sampled negatives. In each of S local steps every record is drawn by its own coin of
probability q, the gradient of each drawn record over everything that is trained is clipped to L2 norm C, and noise
N(0, (zC)^2) covers every coordinate of their sum. So one interaction moves a step by at most C, and an upload is S
Poisson-sampled Gaussian mechanisms of multiplier z. What leaves the device, and what it keeps, is computed from noisy
steps alone, so nothing is clipped or noised again.

The coins stay on the device: no server sees which interactions a step used, so sampling them amplifies although nobody
is trusted. Sampling users amplifies nothing, because who uploads is visible. One step with every interaction (q = 1,
S = 1, the default) has the most signal for its noise at a given epsilon; small q buys more and noisier steps per round.

The unit is the weak point, and every guarantee says so: k interactions of one user cost up to k times as much.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from privfed.contracts import NoisySteps
from privfed.privacy.mechanisms.base import MechanismModel, Neighbours, Release, Unit, number
from privfed.privacy.mechanisms.gaussian import NoiseMultiplier
from privfed.privacy.sampling import Trust

MOST_STEPS = 10_000

NO_RECORDS = (
    "the plan protects single interactions inside local training, and this method has no training step with a bounded "
    "gradient per interaction (over a softmax of all items, none even exists); methods that have one say so with "
    "`interaction_level`"
)


class InteractionDPSGD(MechanismModel):
    """Local DP-SGD over one user's interactions; see the module."""

    release: ClassVar[Release] = "individual"
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
    local_steps: int = Field(default=1, ge=1, le=MOST_STEPS, description="local steps per round")
    expected_records: float = Field(
        default=100.0,
        gt=0,
        description="interactions of a typical user, a public guess: a step divides by local_rate x this, whatever the "
        "user's own number is",
    )

    @property
    def noisy_steps(self) -> NoisySteps:
        """What the device is told."""
        return NoisySteps(
            self.clip_norm, self.noise_multiplier, self.local_rate, self.local_steps, self.expected_records
        )

    @property
    def dense(self) -> bool:
        """True: noise on touched rows only would show which they are."""
        return True

    @property
    def unit(self) -> Unit:
        """One interaction of one user."""
        return "interaction"

    @property
    def neighbours(self) -> Neighbours:
        """A user's training history with one interaction, or without it."""
        return "add_or_remove_one"

    @property
    def trust(self) -> Trust:
        """Nobody but the user's own device."""
        return "local"

    @property
    def label(self) -> str:
        """Names the unit first, then noise, clip and steps."""
        steps = f"{self.local_steps} step{'s' if self.local_steps > 1 else ''} at rate {number(self.local_rate)}"
        return f"per interaction, DP-SGD (z = {number(self.noise_multiplier)}, C = {number(self.clip_norm)}, {steps})"

    @property
    def unbounded_reason(self) -> str | None:
        """None: clip and noise fit."""
        return None
