"""The law that noise is claimed to have, and the result of a test of that claim."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtr

MAX_FALSE_ALARM = 1e-6
"""Probability with which tests of honest noise may deny it, all tests of a run together."""


@dataclass(frozen=True)
class ClaimedNoise:
    """Independent noise that every coordinate is claimed to carry.

    Attributes:
        law: Of the noise: symmetric around zero, with one mode.
        scale: Laplace scale or Gaussian standard deviation.
        step: Width of the grid that values are released on; 0 for floating-point numbers.
        excess: Share by which small noise may be likelier than the law says (sums of integer noise, for example).

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
        """Upper bound on P(|value + noise| <= bound), whatever the value is.

        Noise that is symmetric with one mode is likeliest near zero when nothing is added to it (Anderson 1955); a step
        on top pays for rounding value and noise to the grid.
        """
        t = (bounds + self.step) / self.scale
        within = -np.expm1(-t) if self.law == "laplace" else 2 * ndtr(t) - 1
        capped: Float64[np.ndarray, bounds] = np.minimum(1.0, within * (1 + self.excess))
        return capped

    @property
    def log2_atom(self) -> float:
        """Logarithm of an upper bound on the probability of any single released value.

        A float32 takes up at most 2^-23 of its own size, and no law here has density above 1 / (2 size). The factor
        left over allows for samplers that reach only a sixteenth of the numbers.
        """
        return max(-20.0, math.log2(min(1.0, self.step / self.scale))) if self.step > 0 else -20.0


@dataclass(frozen=True)
class NoiseTest:
    """One test of a claim about noise.

    Attributes:
        name: What was tested.
        statistic: Of the most suspicious place.
        threshold: Largest statistic that is still likely enough at `MAX_FALSE_ALARM`.
        p_value: Upper bound on the probability of such a statistic under the claim, all places considered.
        where: The most suspicious place, in words.
        places: How many were looked at.
    """

    name: str
    statistic: float
    threshold: float
    p_value: float
    where: str
    places: int

    def rejects(self, level: float = MAX_FALSE_ALARM) -> bool:
        """Whether the claim is denied at this false-alarm probability."""
        return self.p_value < level
