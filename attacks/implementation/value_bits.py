"""What the bits of released values say without knowing the sampler: grids, spare low bits, values that come back.

Three questions about single values, each answered by a number that is larger where something was added to noise:

* `off_grid`: is it a whole number of the steps that are claimed? A single value that is not denies the claim.
* `spare_bits`: how many low bits of its 24 are zero? Noise from a coarse sampler has many, noise plus a value has few.
* `repeated_values`: does its size occur elsewhere? A sampler that reaches few numbers repeats itself; noise plus a
  value seldom falls on a number that noise alone has taken.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64, Num

from attacks.implementation.claimed_noise import NoiseTest
from attacks.implementation.float_noise import FloatNoise
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores

_MANTISSA = 24
_SMALLEST_EXPONENT = -1074
"""Of float64, in which steps are compared."""
_TOLERANCE = 1e-12
"""Deviation below which numbers are equal."""


def off_grid(values: Float[np.ndarray, "*shape"], step: float) -> NoiseTest:
    """Test the claim that every released value is a whole number of steps; honest values never fail it.

    Args:
        values: Released, of any shape; NaN and infinity are no whole numbers of steps.
        step: A power of two, by which division is exact.

    Raises:
        ValueError: If the step is no power of two.
    """
    mantissa, exponent = np.frexp(step)
    if not (step > 0 and mantissa == 0.5 and exponent > _SMALLEST_EXPONENT):
        raise ValueError(f"The step of a grid is {step}; pass a power of two.")
    wide = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = wide / step
        wrong = int((~np.isfinite(wide) | (np.isfinite(steps) & (steps != np.rint(steps)))).sum())
    share = wrong / max(values.size, 1)
    return NoiseTest(
        name="values are whole numbers of steps",
        statistic=share,
        threshold=0.0,
        p_value=0.0 if wrong else 1.0,
        where=f"{wrong} of {values.size} values are no whole number of steps of {step:g}",
        places=values.size,
    )


def spare_bits(values: Float32[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
    """Low bits of each value's 24 that are zero; 24 for zero itself."""
    whole = np.ldexp(np.frexp(values)[0], _MANTISSA).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float32))[1].astype(np.int64) - 1
    return np.where(whole == 0, _MANTISSA, lowest)


def repeated_values(
    values: Float32[np.ndarray, "*shape"], among: Float32[np.ndarray, "..."] | None = None
) -> Bool[np.ndarray, "*shape"]:
    """Whether the size of each value occurs more than once; that of zero never does.

    Args:
        values: Released.
        among: Values to look for it in, `values` among them; by default these alone.
    """
    sizes = np.abs(values).ravel().view(np.int32)
    known = np.sort(sizes if among is None else np.abs(among).ravel().view(np.int32))
    times = known.searchsorted(sizes, "right") - known.searchsorted(sizes, "left")
    repeated: Bool[np.ndarray, "*shape"] = ((times > 1) & (sizes != 0)).reshape(values.shape)
    return repeated


@dataclass(frozen=True)
class UntouchedBits:
    """Score each row by how many of its values cannot be noise alone.

    Attributes:
        noise: The sampler, where it is known; without it, bits are compared across the whole view.
    """

    noise: FloatNoise | None = None

    name: ClassVar[str] = "bits of the noise"
    observable: ClassVar[str] = "individual item-table uploads of one round, bit by bit"
    adversary: ClassVar[str] = "server"
    knowledge: ClassVar[tuple[str, ...]] = ("the code that draws the noise",)
    unit: ClassVar[str] = "interaction"
    cost: ClassVar[str] = "O(items * width) per user"
    explains: ClassVar[str] = (
        "Counts the numbers of a row that the noise alone could not have come to, because floating-point noise reaches "
        "only some numbers; a row that training touched holds many."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Values of each row that are not noise alone, as far as their bits tell."""
        del knowledge
        everything = view.uploads
        if self.noise is not None:
            return self.of(everything)
        return self.of(everything, everything)

    def of(
        self, rows: Float32[np.ndarray, "*places width"], among: Float32[np.ndarray, "..."] | None = None
    ) -> Float64[np.ndarray, "*places"]:
        """The same of rows by themselves; higher means "more likely touched".

        Args:
            rows: Released.
            among: Everything that was released, these rows among it; where the sampler is not known.
        """
        if self.noise is not None:
            return _count(~self.noise.could_be(rows))
        # Both are small where a row was touched; each counts by how much it varies.
        spare, repeats = _count(spare_bits(rows)), _count(repeated_values(rows, among))
        fewer: Float64[np.ndarray, "*places"] = -(_standardised(spare) + _standardised(repeats))
        return fewer


def _count(
    numbers: Num[np.ndarray, "*places width"] | Bool[np.ndarray, "*places width"],
) -> Float64[np.ndarray, "*places"]:
    total: Float64[np.ndarray, "*places"] = numbers.sum(axis=-1).astype(np.float64)
    return total


def _standardised(numbers: Float64[np.ndarray, "*places"]) -> Float64[np.ndarray, "*places"]:
    scaled: Float64[np.ndarray, "*places"] = (numbers - numbers.mean()) / max(float(numbers.std()), _TOLERANCE)
    return scaled
