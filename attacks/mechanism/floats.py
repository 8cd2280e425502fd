"""Released floating-point numbers that only one of two neighbouring inputs can give.

Noise near minus v, added to v, leaves a small number that is still a multiple of the spacing of numbers near v, while
noise alone, when it is small, has finer bits (Mironov, CCS 2012). The lowest set bit of the outputs tells the two
apart. Single-precision noise of a guessed scale is also tried as a lattice (`attacks.implementation.FloatNoise`).
"""

from collections.abc import Iterator

import numpy as np

from attacks.implementation import FloatNoise
from attacks.mechanism.release import Trials
from attacks.mechanism.replay import Law
from attacks.mechanism.scores import FittedScore, ScoreFunction, fit_threshold

_MANTISSA = 53
_NO_BIT = 2000.0
"""Exponent that stands for the lowest set bit of zero, above every real one."""


def lowest_bits(numbers: np.ndarray) -> np.ndarray:
    """Exponent of the lowest set bit of each number."""
    fraction, exponent = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
    whole = np.ldexp(fraction, _MANTISSA).astype(np.int64)
    spare = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, _NO_BIT, exponent - _MANTISSA + spare)


def fit_bits(without: Trials, member: Trials, delta: float, law: Law | None) -> FittedScore:
    """The property of bits that tells the two worlds apart best, on these trials."""
    fitted = [
        fit_threshold("bits", detail, function, without, member, delta)
        for detail, function in _candidates(without, law)
    ]
    return max(fitted, key=lambda score: score.estimate)


def _candidates(without: Trials, law: Law | None) -> Iterator[tuple[str, ScoreFunction]]:
    yield "the lowest set bit of the outputs", lambda trials: lowest_bits(trials.numbers).min(axis=1)
    single = without.numbers.astype(np.float32)
    if law is None or not np.array_equal(single, without.numbers):
        return
    for lattice in _lattices(single, law):
        detail = f"outputs that are {lattice.scale:g} times a single-precision {law} number"

        def outside(trials: Trials, lattice: FloatNoise = lattice) -> np.ndarray:
            return np.asarray((~lattice.could_be(trials.numbers.astype(np.float32))).sum(axis=1))

        yield detail, outside


def _lattices(noise: np.ndarray, law: Law) -> Iterator[FloatNoise]:
    """Lattices with a scale of few digits that hold all noise."""
    spread = float(noise.std() if law == "gaussian" else np.abs(noise).mean())
    for scale in dict.fromkeys(float(f"{spread:.{digits}g}") for digits in (1, 2, 3)):
        lattice = FloatNoise(law, scale) if scale > 0 else None
        if lattice is not None and lattice.could_be(noise).mean() > 0.999:
            yield lattice
