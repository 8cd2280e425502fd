"""Law of the noise that is claimed, and the result of a test of that claim."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtr

MAX_FALSE_ALARM = 1e-6
"""Probability with which honest noise may be rejected, over all tests of a run."""


@dataclass(frozen=True)
class ClaimedNoise:
    """Claim of independent noise on every coordinate.

    Attributes:
        law: Law of the noise, symmetric around zero with one mode.
        scale: Laplace scale or Gaussian standard deviation.
        step: Spacing of the grid on which values are released; 0 for floating-point numbers.
        excess: Relative excess of the probability of small noise over the law (of sums of integer noise, for example).

    Raises:
        ValueError: If the scale is not positive, or step or excess is negative.
    """

    law: Literal["laplace", "gaussian"]
    scale: float
    step: float = 0.0
    excess: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and self.step >= 0 and self.excess >= 0):
            raise ValueError(
                f"Got noise of scale {self.scale}, step {self.step} and excess {self.excess}; pass a positive scale "
                "and a step and an excess of at least 0."
            )

    def max_probability_within(self, bounds: Float64[np.ndarray, "bounds"]) -> Float64[np.ndarray, "bounds"]:
        """Upper bound on P(|value + noise| <= bound) for any value.

        Symmetric noise with one mode is most likely near zero if nothing is added to it (Anderson 1955); one more step
        accounts for rounding value and noise to the grid.
        """
        t = (bounds + self.step) / self.scale
        within = -np.expm1(-t) if self.law == "laplace" else 2 * ndtr(t) - 1
        capped: Float64[np.ndarray, bounds] = np.minimum(1.0, within * (1 + self.excess))
        return capped

    @property
    def log2_atom(self) -> float:
        """Logarithm of an upper bound on the probability of any single released value.

        A float32 takes up at most 2^-23 of its own size, and no law here has density above 1 / (2 size). The remaining
        factor allows for samplers that reach only a sixteenth of the numbers.
        """
        return max(-20.0, math.log2(min(1.0, self.step / self.scale))) if self.step > 0 else -20.0


@dataclass(frozen=True)
class NoiseTest:
    """Result of a test of a claim about noise.

    Attributes:
        name: Tested claim.
        statistic: Test statistic at the most suspicious position.
        threshold: Largest statistic that is not rejected at `MAX_FALSE_ALARM`.
        p_value: Upper bound on the probability of such a statistic under the claim, over all positions.
        where: Most suspicious position, in words.
        n_tested: Number of positions tested.
    """

    name: str
    statistic: float
    threshold: float
    p_value: float
    where: str
    n_tested: int

    def rejects(self, level: float = MAX_FALSE_ALARM) -> bool:
        """Whether the claim is rejected at this false-alarm probability."""
        return self.p_value < level
