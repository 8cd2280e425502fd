"""Noise as whole steps of a grid, with exactly the law of ideal continuous noise that was rounded to the grid.

A float32 or float64 that comes out of `scale * log(u)` is one of few, and which ones it could be betrays the value that
it was added to (Mironov, CCS 2012). So no noise of this package is ever a float that is added to a float. A value lies
on a grid of steps s, and what is added is the whole number

    K = round(r Z),    r = scale / s,

with Z a Laplace or normal variable of scale 1. Where v is a whole number, v + round(r Z) = round(v + r Z): the release
is the ideal mechanism's, rounded. Rounding reads nothing but that, so it is post-processing, and the accounting of the
continuous mechanism holds as it stands.

The law of K is exact. A uniform number is known by its first 63 bits, so r Z is known to within a tolerance, float
arithmetic included. Where no half-integer lies so near, K is decided. Elsewhere (one draw in 2^41 / r or fewer, and
one in some ten thousand whose uniform number lies close to 0 or 1) the number is given further bits and interval
arithmetic decides, with as many bits as it takes. No tail is cut off above a probability of 2^-256, and no
result depends on the last bits of a processor's logarithm.

The tolerance 2^-42 r holds for uniform numbers from 2^-20 to 1 - 2^-16 (Laplace: to 1). What is not known of -log(u) is
at most 2^-44 (63 bits, at u = 2^-20) + 2^-53 (u as a float) + 2^-50 (a logarithm right to 4 units in the last place),
and the square root of Box and Muller (1958), whose slope is 1 / sqrt(-2 log u), at most 2^8.5 there, makes 2^-44 of the
2^-52.4 that are not known at u = 1 - 2^-16. The angle errs by 2^-49 at a radius of at most 5.3.
"""

import hashlib
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt64

from privfed.compiled import compiled

Bits = Callable[[int, int], int]
"""(index, count) -> so many further bits of the uniform numbers behind draw `index`, the same every time."""

_KNOWN_BITS = 63
_FURTHER_BITS = 192
_TOLERANCE = 2.0**-42
_SMALLEST, _LARGEST = 2**43, 2**63 - 2**47
LARGEST_RATIO = 2.0**36
"""Standard deviation in steps beyond which too many draws would be undecided by their first bits."""


def laplace_steps(
    words: UInt64[np.ndarray, " n"], ratio: Float64[np.ndarray, " n"], further: Bits
) -> Float64[np.ndarray, " n"]:
    """Laplace variables of scale `ratio`, rounded; one word decides the sign and 63 bits of the size.

    Args:
        words: uniform words.
        ratio: scale of every draw, in steps.
        further: bits beyond those of the words.
    """
    steps = np.empty(len(words))
    for place in _laplace(words, ratio, steps).tolist():
        steps[place] = _decided(
            lambda bits, place=place: _laplace_interval(
                int(words[place]), float(ratio[place]), further(place, bits), bits
            )
        )
    return steps


def normal_steps(
    words: UInt64[np.ndarray, " n"], ratio: Float64[np.ndarray, " n"], further: Bits
) -> Float64[np.ndarray, " n"]:
    """Normal variables of standard deviation `ratio`, rounded: two of each two words, by Box and Muller.

    Args:
        words: uniform words, an even number.
        ratio: standard deviation of every draw, in steps.
        further: bits beyond those of the words.
    """
    steps = np.empty(len(words))
    for place in _normal(words, ratio, steps).tolist():
        first = place - place % 2
        pair = int(words[first]), int(words[first + 1])
        steps[place] = _decided(
            lambda bits, place=place, pair=pair, first=first: _normal_interval(
                pair, float(ratio[place]), (further(first, bits), further(first + 1, bits)), bits, sine=place != first
            )
        )
    return steps


def further_bits(key: bytes, index: int, count: int) -> int:
    """Bits for draw `index` by SHAKE-256 under a secret key; longer strings begin like shorter ones.

    Args:
        key: secret, of fixed length.
        index: of the draw.
        count: of bits, a multiple of 8.
    """
    return int.from_bytes(hashlib.shake_256(key + index.to_bytes(8, "little")).digest(count // 8), "big")


@compiled
def _laplace(words: np.ndarray, ratio: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write what is decided and return the indices of what is not."""
    undecided = np.empty(len(words), dtype=np.int64)
    count = 0
    for i in range(len(words)):
        known = np.int64(words[i] >> np.uint64(1))
        # 2^-63 (known + 1/2) as a float64, whose 53 bits are within the tolerance.
        reach = -math.log((float(known) + 0.5) * 2.0**-63) * ratio[i]
        whole = math.floor(reach + 0.5)
        out[i] = whole if words[i] & np.uint64(1) else -whole
        near = _TOLERANCE * ratio[i]
        if known < _SMALLEST or reach + 0.5 - whole < near or whole + 0.5 - reach < near:
            undecided[count] = i
            count += 1
    return undecided[:count]


@compiled
def _normal(words: np.ndarray, ratio: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write what is decided and return the indices of what is not."""
    undecided = np.empty(len(words), dtype=np.int64)
    count = 0
    for i in range(0, len(words), 2):
        known = np.int64(words[i] >> np.uint64(1))
        radius = math.sqrt(-2.0 * math.log((float(known) + 0.5) * 2.0**-63))
        angle = (float(np.int64(words[i + 1] >> np.uint64(1))) + 0.5) * (2.0**-62 * math.pi)
        for j in range(i, i + 2):
            reach = radius * (math.cos(angle) if j == i else math.sin(angle)) * ratio[j]
            whole = math.floor(reach + 0.5)
            out[j] = whole
            near = _TOLERANCE * ratio[j]
            if known < _SMALLEST or known > _LARGEST or reach + 0.5 - whole < near or whole + 0.5 - reach < near:
                undecided[count] = j
                count += 1
    return undecided[:count]


def _decided(interval: Callable[[int], tuple[Any, Any]]) -> float:
    """The whole number that both ends of an interval round to, with as many further bits as it takes."""
    bits = _FURTHER_BITS
    while True:
        lowest, highest = interval(bits)
        if lowest == highest:
            return float(lowest)
        bits *= 2


def _laplace_interval(word: int, ratio: float, further: int, bits: int) -> tuple[int, int]:
    """Both ends of what is known of a rounded Laplace draw."""
    real, precision = _arithmetic(), _precision(bits)
    reach = _scaled(real.mpi_neg(_logarithm(word >> 1, further, bits)), ratio, precision)
    low, high = _rounded_ends(reach, precision)
    return (low, high) if word & 1 else (-high, -low)


def _normal_interval(
    words: tuple[int, int], ratio: float, further: tuple[int, int], bits: int, *, sine: bool
) -> tuple[int, int]:
    """Both ends of what is known of a rounded normal draw."""
    real, precision = _arithmetic(), _precision(bits)
    square = _scaled(_logarithm(words[0] >> 1, further[0], bits), -2.0, precision)
    pi = real.mpf_pi(precision, "f"), real.mpf_pi(precision, "c")
    angle = _scaled(real.mpi_mul(pi, _uniform(words[1] >> 1, further[1], bits), precision), 2.0, precision)
    part = (real.mpi_sin if sine else real.mpi_cos)(angle, precision)
    reach = real.mpi_mul(real.mpi_sqrt(square, precision), part, precision)
    return _rounded_ends(_scaled(reach, ratio, precision), precision)


def _arithmetic() -> Any:
    """Interval arithmetic without global state, imported where a draw is undecided: most processes never need it."""
    return import_module("mpmath.libmp")


def _precision(bits: int) -> int:
    """Bits that keep all that is known of a uniform number, and some."""
    return _KNOWN_BITS + bits + 64


def _uniform(known: int, further: int, bits: int) -> Any:
    """The interval of a uniform number whose first bits are known."""
    first, exponent, make = known << bits | further, -(_KNOWN_BITS + bits), _arithmetic().from_man_exp
    # The first cell touches zero, where the logarithm has no bound: it starts at its middle.
    lowest = make(first, exponent) if first else make(1, exponent - 1)
    return lowest, make(first + 1, exponent)


def _logarithm(known: int, further: int, bits: int) -> Any:
    return _arithmetic().mpi_log(_uniform(known, further, bits), _precision(bits))


def _scaled(interval: Any, factor: float, precision: int) -> Any:
    exactly = _arithmetic().from_float(factor)
    return _arithmetic().mpi_mul(interval, (exactly, exactly), precision)


def _rounded_ends(reach: Any, precision: int) -> tuple[int, int]:
    """floor(x + 1/2) of both ends."""
    real = _arithmetic()
    half = real.from_float(0.5)
    low, high = real.mpi_add(reach, (half, half), precision)
    return real.to_int(real.mpf_floor(low)), real.to_int(real.mpf_floor(high))
