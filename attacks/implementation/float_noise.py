"""The noise lattice: only some floating-point numbers are values of scale x (a float32 draw), so others carry data.

Scaling by a number that is no power of two leaves gaps: with a scale of 1.5, only two in three of the float32 numbers
between 1.5 and 2 are products. Laplace noise from -log(uniform) has further gaps, because a float32 uniform near 1 has
few logarithms. A value that is no such number cannot be noise alone: something was added to it. Conversely, noise alone
is always such a number.

Mironov, "On significance of the least significant bits for differential privacy" (CCS 2012), for the Laplace mechanism;
Jin, McMurtry, Rubinstein and Ohrimenko, "Are we there yet? Timing and floating-point attacks on differential privacy
systems" (S&P 2022), for Gaussian noise.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64

_LOG_ERROR = 0.6
"""In units of the last place: 99 % of logarithms of vectorised float32 libraries are within it of the true one."""


@dataclass(frozen=True)
class FloatNoise:
    """Floating-point noise: a float32 draw of scale 1 times a scale, added to a value.

    Attributes:
        law: "laplace" draws are +-log(u) of a float32 u; "gaussian" ones are float32 numbers of any kind.
        scale: Factor of a draw.
        sums: False if draw, product and sum are float32, as on a device; True if product and sum are float64 and the
            result is rounded to float32 once, as in a server's sums.

    Raises:
        ValueError: If the scale is not a positive number.
    """

    law: Literal["laplace", "gaussian"]
    scale: float
    sums: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"The scale of noise is {self.scale}; pass a positive number.")

    def could_be(
        self, values: Float32[np.ndarray, "*shape"], candidate: Float64[np.ndarray, "*shape"] | float = 0.0
    ) -> Bool[np.ndarray, "*shape"]:
        """Whether each value can be `candidate` plus noise; for candidate 0, whether it can be noise alone.

        Args:
            values: Released values.
            candidate: Values that the noise may have been added to.
        """
        # Rounding in the division may miss the draw by one unit in the last place, so its neighbours are tried too.
        draw = ((values.astype(np.float64) - candidate) / self.scale).astype(np.float32)
        possible = np.zeros(values.shape, dtype=bool)
        for neighbour in (draw, np.nextafter(draw, np.float32(np.inf)), np.nextafter(draw, np.float32(-np.inf))):
            hit = self._released(neighbour, candidate) == values
            if self.law == "laplace":
                hit[hit] = _is_logarithm(np.abs(neighbour[hit]))
            possible |= hit
        return possible

    def _released(
        self, draw: Float32[np.ndarray, "*shape"], candidate: Float64[np.ndarray, "*shape"] | float
    ) -> Float32[np.ndarray, "*shape"]:
        """Value that the noise sampler releases for a draw, in its own precision."""
        if self.sums:
            return (candidate + draw.astype(np.float64) * self.scale).astype(np.float32)
        return np.asarray(candidate, dtype=np.float32) + draw * np.float32(self.scale)


def _is_logarithm(sizes: Float32[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Whether each size is -log(u) of some float32 u, to within the error of a logarithm."""
    wide = sizes.astype(np.float64)
    uniform = np.exp(-wide).astype(np.float32)
    allowed = _LOG_ERROR * np.spacing(sizes).astype(np.float64)
    possible = np.zeros(sizes.shape, dtype=bool)
    for neighbour in (uniform, np.nextafter(uniform, np.float32(2)), np.nextafter(uniform, np.float32(0))):
        with np.errstate(divide="ignore"):
            possible |= np.abs(-np.log(neighbour.astype(np.float64)) - wide) <= allowed
    return possible
