"""The power-of-two grids on which noised values lie, and what rounding to them costs.

A release is a whole number of steps (`rounded_noise` says why). A step is a power of two, so that dividing by it and
multiplying with it are exact, and so small that rounding changes nothing that anybody could measure.

One upload is rounded towards zero, coordinate by coordinate. That lengthens no vector in any norm, so an upload clipped
to norm C keeps to it on the grid, and its noise is sized for C as ever.

A sum S is rounded to the nearest grid point. With a user and without, rounding moves the two apart by at most half a
step per coordinate each, so s sqrt(d) in L2 norm over d coordinates. Besides, a float64 sum of n vectors of norm C or
less errs, whatever the order, by at most (n - 1) 2^-53 times the sum of their norms, so n^2 2^-53 C; with the user and
without, twice that. A sum therefore moves by at most

    C (1 + n^2 2^-52) + s sqrt(d),        s <= 2^-12 C / sqrt(d)    (larger where the noise is over 2^32 steps wide),

and the noise is made wider by the same factor: a noise multiplier that is claimed holds as it is written.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privfed.compute.compiled import compiled
from privfed.federation.rounded_noise import FARTHEST, WHOLE

if TYPE_CHECKING:
    from torch import Tensor

DEVICE_BITS = 20
"""A device's noise has a scale of 2^20 steps or a little more."""

_SUM_BITS, _WIDEST_BITS = 12, 32
_ROUNDING_UP = 1 + 2.0**-40
"""Makes scales so much larger that no rounding of the few products they pass through makes them smaller."""


def power_of_two_below(size: float) -> float:
    """The largest power of two that is not above `size`."""
    # size = m 2^e with m in [1/2, 1), so 2^(e - 1) <= size.
    return math.ldexp(1.0, math.frexp(size)[1] - 1)


@dataclass(frozen=True, slots=True)
class Grid:
    """Noise on multiples of a step.

    Attributes:
        step: a power of two.
        ratio: scale of the noise in steps.
    """

    step: float
    ratio: float


def device_grid(scale: float) -> Grid:
    """The grid of noise that a device adds to one upload.

    Args:
        scale: of the noise, in the units of the values.
    """
    step = power_of_two_below(scale * 2.0**-DEVICE_BITS)
    # Division by a power of two is exact; the factor covers what the products before it may have rounded away.
    return Grid(step, scale / step * _ROUNDING_UP)


@dataclass(frozen=True, slots=True)
class NoisedSum:
    """Gaussian noise on a float64 sum of vectors of bounded L2 norm.

    Attributes:
        clip_norm: C, of every vector.
        deviation: of the noise, were the sum exact and not rounded.
        coordinates: d, of the sum.
        summands: n, the largest number of vectors in it.
    """

    clip_norm: float
    deviation: float
    coordinates: int
    summands: int

    @property
    def step(self) -> float:
        """Largest step of a coordinate."""
        # s sqrt(d) <= 2^-12 C, the bound of the module's formula, unless the noise is far wider than that.
        finest = self.clip_norm * 2.0**-_SUM_BITS / math.sqrt(max(self.coordinates, 1))
        return power_of_two_below(max(finest, self.deviation * 2.0**-_WIDEST_BITS))

    @property
    def widening(self) -> float:
        """Largest distance between the sums with and without one user, divided by C."""
        rounding = self.step * math.sqrt(self.coordinates) / self.clip_norm
        # Relative to C: float64 summation, then rounding to the grid.
        return (1 + self.summands**2 * 2.0**-52 + rounding) * _ROUNDING_UP

    def grid(self, weight: float = 1.0) -> Grid:
        """The grid of a block whose values count with `weight`."""
        # Steps and noise hold in weighted coordinates; a block's own values are 1 / weight times as large.
        step = power_of_two_below(self.step / weight)
        return Grid(step, self.deviation * self.widening / weight / step)


def released(values: "Tensor", noise: "Tensor", grid: Grid) -> "Tensor":
    """Float64 values rounded to the grid, in place, with noise of so many steps; what floats round of it is no secret.

    Zero comes out without a sign, which could be that of a value.
    """
    # Whole numbers are added to whole numbers, and both scalings are by a power of two: exact but for the rounding.
    return values.mul_(1 / grid.step).round_().add_(noise).mul_(grid.step)


def release_upload_(values: "Tensor", noise: "Tensor", grid: Grid) -> None:
    """Round float32 values towards zero, in place, and add noise of so many float64 steps, which are spent."""
    if values.is_cpu:
        _release_upload(values.numpy(), noise.numpy(), grid.step)
    else:
        # In float64, whose quotient by the step is exact, so that nothing but `trunc_` rounds.
        values.copy_(noise.add_(values.double().mul_(1 / grid.step).trunc_()).mul_(grid.step))


@compiled
def _release_upload(values: np.ndarray, noise: np.ndarray, step: float) -> None:
    per_step = 1.0 / step
    for row in range(len(values)):
        own, steps = values[row], noise[row]
        for i in range(len(own)):
            # Exact, and without a branch: rounded to a whole number, then one back where that went away from zero.
            value = np.float64(own[i]) * per_step
            near = (value + WHOLE) - WHOLE
            back = np.float64(abs(near) > abs(value))
            near = near - (back if value > 0 else -back)
            whole = near if abs(value) < FARTHEST else value
            own[i] = np.float32((whole + steps[i]) * step)
