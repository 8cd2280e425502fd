"""What a plan that protects single interactions tells a device about its local training."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoisySteps:
    """Local training in which one interaction moves a step by a bounded amount that the step's noise hides.

    Attributes:
        clip_norm: the largest L2 norm of what one interaction adds to a step, over everything that is trained.
        noise_multiplier: standard deviation of the noise on every coordinate of a step's sum, over `clip_norm`.
        rate: the probability with which each interaction takes part in a step, by a secret random bit of its own.
        steps: steps of one call.
        expected_records: interactions of a typical user, a public guess; never the user's own number.
    """

    clip_norm: float
    noise_multiplier: float
    rate: float
    steps: int
    expected_records: float

    @property
    def divisor(self) -> float:
        """What a step divides its sum by: the interactions that a typical user draws into it."""
        return self.rate * self.expected_records
