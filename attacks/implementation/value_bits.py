"""What the bits of released values reveal without the sampler: grids, spare low bits, repeated values.

Three statistics of single values, each of which shows that something was added to noise:

* `off_grid`: is the value a multiple of the claimed step? A single value that is not rejects the claim.
* `spare_bits`: number of zero low bits of its 24. Noise from a coarse sampler has many, noise plus a value has few.
* `repeated_values`: does its size occur elsewhere? A sampler that reaches few numbers repeats itself; noise plus a
  value seldom equals a number that noise alone has taken.
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
"""Exponent of the smallest float64, in which steps are compared."""
_TOLERANCE = 1e-12
"""Standard deviation below which numbers count as equal."""


def off_grid(values: Float[np.ndarray, "*shape"], step: float) -> NoiseTest:
    """Test the claim that every released value is a whole number of steps; honest values always pass it.

    Args:
        values: Released values of any shape; NaN and infinity are no whole numbers of steps.
        step: Step of the grid, a power of two, by which division is exact.

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
        n_tested=values.size,
    )


def spare_bits(values: Float32[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
    """Number of zero low bits of each value's 24; 24 for zero itself."""
    # x & -x keeps the lowest set bit of the integer mantissa; its exponent is the number of zero bits below it.
    whole = np.ldexp(np.frexp(values)[0], _MANTISSA).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float32))[1].astype(np.int64) - 1
    return np.where(whole == 0, _MANTISSA, lowest)


def repeated_values(
    values: Float32[np.ndarray, "*shape"], among: Float32[np.ndarray, "..."] | None = None
) -> Bool[np.ndarray, "*shape"]:
    """Whether the size of each value occurs more than once; False for zero.

    Args:
        values: Released values.
        among: Values to search, which include `values`; by default only these.
    """
    sizes = np.abs(values).ravel().view(np.int32)
    known = np.sort(sizes if among is None else np.abs(among).ravel().view(np.int32))
    # Equal sizes have equal bits, so they are compared as integers.
    times = known.searchsorted(sizes, "right") - known.searchsorted(sizes, "left")
    repeated: Bool[np.ndarray, "*shape"] = ((times > 1) & (sizes != 0)).reshape(values.shape)
    return repeated


@dataclass(frozen=True)
class UntouchedBits:
    """Score each row by the number of its values that cannot be noise alone.

    Attributes:
        noise: Sampler, if it is known; otherwise bits are compared across the whole view.
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
        """Number of values of each row that are not noise alone, as far as their bits show."""
        del knowledge
        uploads = view.uploads
        if self.noise is not None:
            return self.score_rows(uploads)
        return self.score_rows(uploads, uploads)

    def score_rows(
        self, rows: Float32[np.ndarray, "*positions width"], among: Float32[np.ndarray, "..."] | None = None
    ) -> Float64[np.ndarray, "*positions"]:
        """Scores of rows by themselves; higher means "more likely touched".

        Args:
            rows: Released rows.
            among: All released values, which include these rows; needed if the sampler is unknown.
        """
        if self.noise is not None:
            return _count(~self.noise.could_be(rows))
        # Both are small where a row was touched; standardising gives them equal weight.
        spare, repeats = _count(spare_bits(rows)), _count(repeated_values(rows, among))
        scores: Float64[np.ndarray, "*positions"] = -(_standardised(spare) + _standardised(repeats))
        return scores


def _count(
    numbers: Num[np.ndarray, "*positions width"] | Bool[np.ndarray, "*positions width"],
) -> Float64[np.ndarray, "*positions"]:
    total: Float64[np.ndarray, "*positions"] = numbers.sum(axis=-1).astype(np.float64)
    return total


def _standardised(numbers: Float64[np.ndarray, "*positions"]) -> Float64[np.ndarray, "*positions"]:
    scaled: Float64[np.ndarray, "*positions"] = (numbers - numbers.mean()) / max(float(numbers.std()), _TOLERANCE)
    return scaled
