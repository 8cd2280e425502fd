"""Noise as whole steps of a grid, with exactly the law of ideal continuous noise that was rounded to the grid.

A float32 or float64 that comes out of `scale * log(u)` is one of few, and which ones it could be betrays the value that
it was added to (Mironov, CCS 2012). So no noise of this package is ever a float that is added to a float. A value lies
on a grid of steps s, and what is added is the whole number

    K = round(r Z),    r = scale / s,

with Z a Laplace or normal variable of scale 1. Where v is a whole number, v + round(r Z) = round(v + r Z): the release
is the ideal mechanism's, rounded. Rounding reads nothing but that, so it is post-processing, and the accounting of the
continuous mechanism holds as it stands.

The law of K is exact. A uniform number is known by its first 63 bits, so r Z is known to within a tolerance, float
arithmetic included. Where no half-integer lies so near, K is decided. Elsewhere (one draw in 2^41 / r, and one in sixty
thousand whose uniform number lies close to 0 or 1) the number is given further bits and interval arithmetic decides,
with as many bits as it takes. No tail is cut off above a probability of 2^-256, and no result depends on the last bits
of a processor's logarithm.

The tolerance 2^-42 r holds for uniform numbers from 2^-20 to 1 - 2^-16 (Laplace: to 1). What is not known of -log(u) is
at most 2^-44 (63 bits, at u = 2^-20) + 2^-53 (u as a float64) + 2^-49 (the series, summed in float64). The square root
of Box and Muller (1958), whose slope is 1 / sqrt(-2 log u), makes 2^-44 of the 2^-52.4 that are not known where u comes
near 1 - 2^-16, and less elsewhere. Cosine and sine err by less than 2^-49, at a radius of at most 5.3.
"""

import hashlib
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt64

from privfed.compute.compiled import compiled

Bits = Callable[[int, int], int]
"""(index, count) -> so many further bits of the uniform numbers behind draw `index`, the same every time."""

OwnBits = Callable[[int], int]
"""count -> further bits of the uniform numbers behind one draw."""

_KNOWN_BITS = 63
_FURTHER_BITS = 192
_TOLERANCE = 2.0**-42
_SMALLEST_SIZE, _LARGEST_SIZE = 2.0**-16, 13.8
"""Of -log(u), between which the tolerance holds: u up to 1 - 2^-16, and from 2^-20 = exp(-13.86)."""

_AT_ONCE = 512
_FEW = 1024
WHOLE = 1.5 * 2.0**52
"""Adding and subtracting it rounds a float64 below `FARTHEST` to a whole number."""
FARTHEST = 2.0**50
_ONE, _ONES_PLACE = np.uint64(0x3FF << 52), np.uint64(0x433 << 52)
"""Bits of the float64 1.0, and of 2^52, whose last place is 1."""
_FRACTION, _LOW_BITS = np.uint64((1 << 52) - 1), np.uint64(0x7FF)
_BIT, _TWELVE, _FIFTY_TWO, _SIXTY_THREE = np.uint64(1), np.uint64(12), np.uint64(52), np.uint64(63)
_LOG_2, _ROOT_2, _TURN = math.log(2.0), math.sqrt(2.0), 2.0 * math.pi


def laplace_steps(
    uints: UInt64[np.ndarray, " n"],
    ratio: Float64[np.ndarray, " n_or_1"],
    further: Bits,
    steps: Float64[np.ndarray, " n"],
) -> None:
    """Laplace variables of scale `ratio`, rounded; one word decides the sign and 63 bits of the size.

    Args:
        uints: uniform words.
        ratio: scale of every draw, in steps, or one for all.
        further: bits beyond those of the words.
        steps: where the draws are written.
    """
    for place in _laplace(uints, ratio, steps).tolist():
        # One by one and with Python's integers: so few draws are undecided that speed does not matter here.
        word, scale = int(uints[place]), float(ratio[place % len(ratio)])
        steps[place] = _decided(partial(_laplace_interval, word, scale, partial(further, place)))


def normal_steps(
    uints: UInt64[np.ndarray, " n"],
    ratio: Float64[np.ndarray, " n_or_1"],
    further: Bits,
    steps: Float64[np.ndarray, " n"],
) -> None:
    """Normal variables of standard deviation `ratio`, rounded: two of each two words, by Box and Muller.

    Args:
        uints: uniform words, an even number.
        ratio: standard deviation of every draw, in steps, or one for all.
        further: bits beyond those of the words.
        steps: where the draws are written.
    """
    for place in _normal(uints, ratio, steps).tolist():
        # Both draws of a pair come from both words, so each reads the further bits of both.
        first = place - place % 2
        pair, scale = (int(uints[first]), int(uints[first + 1])), float(ratio[place % len(ratio)])
        bits = partial(further, first), partial(further, first + 1)
        steps[place] = _decided(partial(_normal_interval, pair, scale, bits, place != first))


def further_bits(key: bytes, index: int, count: int) -> int:
    """Bits for draw `index` by SHAKE-256 under a secret key; longer strings begin like shorter ones.

    Args:
        key: secret, of fixed length.
        index: of the draw.
        count: of bits, a multiple of 8.
    """
    return int.from_bytes(hashlib.shake_256(key + index.to_bytes(8, "little")).digest(count // 8), "big")


# The loops below run over buffers of a few kilobytes, and none of them branches or calls a library, so that a compiler
# makes vector code of them: float64 bits are put together as integers and read as floats through a view.


@compiled
def _uniforms(words: np.ndarray, count: int, bits: np.ndarray, floats: np.ndarray) -> None:
    """Row 0 of the buffer becomes 2^-63 (the leading 63 bits of every word + 1/2), to 53 bits."""
    for i in range(count):
        word = words[i]
        # 52 leading bits as the fraction of a float64 in [1, 2), from which 1 is subtracted exactly.
        bits[0, i] = (word >> _TWELVE) | _ONE
        # The next 11 as a whole number on top of 2^52, likewise; the last bit of the word is left for a sign.
        bits[1, i] = ((word >> _BIT) & _LOW_BITS) | _ONES_PLACE
    for i in range(count):
        floats[0, i] = (floats[0, i] - 1.0) + ((floats[1, i] - 2.0**52) + 0.5) * 2.0**-63


@compiled
def _sizes(count: int, bits: np.ndarray, floats: np.ndarray, out: np.ndarray) -> None:
    """-log of row 0, to 2^-51 of itself or 2^-49: exponent and fraction m, log m = 2 artanh((m - 1) / (m + 1))."""
    for i in range(count):
        bits[1, i] = (bits[0, i] & _FRACTION) | _ONE
        bits[2, i] = (bits[0, i] >> _FIFTY_TWO) | _ONES_PLACE
    for i in range(count):
        m, exponent = floats[1, i], floats[2, i] - (2.0**52 + 1023.0)
        # m in [sqrt(1/2), sqrt(2)] keeps |s| below 0.172, where these terms reach 2^-51; selects, not branches.
        upper = m > _ROOT_2
        m = m * 0.5 if upper else m
        exponent = exponent + 1.0 if upper else exponent
        s = np.divide(m - 1.0, m + 1.0)
        t = s * s
        # Small terms first, so that their sum is rounded before it meets the large ones.
        series = t * (1 / 21 + t * (1 / 23))
        series = t * (1 / 13 + t * (1 / 15 + t * (1 / 17 + t * (1 / 19 + series))))
        series = t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9 + t * (1 / 11 + series)))))
        out[i] = -(exponent * _LOG_2 + (2.0 * s + 2.0 * s * series))


@compiled
def _cosines_and_sines(count: int, turns: np.ndarray, cosines: np.ndarray, sines: np.ndarray) -> None:
    """Cosine and sine of 2 pi times `turns` in (0, 1), to 2^-50: series around the nearest quarter turn."""
    for i in range(count):
        # The nearest quarter turn, so that |y| <= pi / 4; the quarter decides which series is which, and its sign.
        quarter = (4.0 * turns[i] + WHOLE) - WHOLE
        y = (turns[i] - 0.25 * quarter) * _TURN
        t = y * y
        sine = t * (1 / 39916800 - t * (1 / 6227020800 - t * (1 / 1307674368000 - t * (1 / 355687428096000))))
        sine = y - y * t * (1 / 6 - t * (1 / 120 - t * (1 / 5040 - t * (1 / 362880 - sine))))
        cosine = t * (1 / 479001600 - t * (1 / 87178291200 - t * (1 / 20922789888000 - t * (1 / 6402373705728000))))
        cosine = 1.0 - t * (0.5 - t * (1 / 24 - t * (1 / 720 - t * (1 / 40320 - t * (1 / 3628800 - cosine)))))
        odd = (quarter == 1.0) | (quarter == 3.0)
        across, along = (sine, cosine) if odd else (cosine, sine)
        cosines[i] = -across if (quarter == 1.0) | (quarter == 2.0) else across
        sines[i] = -along if (quarter == 2.0) | (quarter == 3.0) else along


@compiled
def _rounded(
    count: int, reach: np.ndarray, ratio: np.ndarray, sizes: np.ndarray, smallest: float, unsure: np.ndarray
) -> float:
    """Round in place; `unsure` becomes 1 where that is not decided, and their number is returned."""
    found = 0.0
    for i in range(count):
        # The nearest whole number, by the rounding of the addition. Ties lie within the tolerance of a half-integer.
        whole = (reach[i] + WHOLE) - WHOLE
        near = 0.5 - abs(reach[i] - whole) < _TOLERANCE * ratio[i]
        outside = (sizes[i] < smallest) | (sizes[i] > _LARGEST_SIZE) | (abs(reach[i]) > FARTHEST)
        # As floats, so that flags fill the same vector lanes as the numbers.
        unsure[i] = np.float64(near | outside)
        found += unsure[i]
        reach[i] = whole
    return found


@compiled
def _laplace(words: np.ndarray, ratio: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the decided draws and return the indices of the others."""
    undecided, found = np.empty(_FEW, dtype=np.int64), 0
    bits = np.empty((3, _AT_ONCE), dtype=np.uint64)
    floats, sizes, reach = bits.view(np.float64), np.empty(_AT_ONCE), np.empty(_AT_ONCE)
    unsure, scale = np.empty(_AT_ONCE), np.full(_AT_ONCE, ratio[0])
    for first in range(0, len(words), _AT_ONCE):
        count = min(_AT_ONCE, len(words) - first)
        own = words[first : first + count]
        if len(ratio) > 1:
            scale[:count] = ratio[first : first + count]
        _uniforms(own, count, bits, floats)
        _sizes(count, bits, floats, sizes)
        for i in range(count):
            reach[i] = sizes[i] * scale[i]
        some = _rounded(count, reach, scale, sizes, -1.0, unsure)
        for i in range(count):
            # 1.0 or -1.0: the word's last bit, which the size did not use, becomes the sign bit of a float64.
            bits[0, i] = _ONE | ((own[i] & _BIT) ^ _BIT) << _SIXTY_THREE
        steps = out[first : first + count]
        for i in range(count):
            # Adding 0.0 takes the sign off a zero.
            steps[i] = reach[i] * floats[0, i] + 0.0
        # A buffer adds no more than _AT_ONCE, so doubling once is always enough.
        if found + some > len(undecided):
            undecided = np.append(undecided, np.empty_like(undecided))
        for i in range(count if some > 0 else 0):
            if unsure[i] > 0:
                undecided[found] = first + i
                found += 1
    return undecided[:found]


@compiled
def _normal(words: np.ndarray, ratio: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the decided draws and return the indices of the others; every two words make two draws."""
    undecided, found = np.empty(_FEW, dtype=np.int64), 0
    bits, own = np.empty((3, _AT_ONCE), dtype=np.uint64), np.empty(_AT_ONCE, dtype=np.uint64)
    floats, sizes, turns = bits.view(np.float64), np.empty(_AT_ONCE), np.empty(_AT_ONCE)
    units, reach = np.empty((2, _AT_ONCE)), np.empty(_AT_ONCE)
    unsure, scale = np.empty(_AT_ONCE), np.full(_AT_ONCE, ratio[0])
    for first in range(0, len(words), 2 * _AT_ONCE):
        pairs = min(_AT_ONCE, (len(words) - first) // 2)
        for i in range(pairs):
            # The second word of a pair is its angle, the first one its radius.
            own[i] = words[first + 2 * i + 1]
        _uniforms(own, pairs, bits, floats)
        for i in range(pairs):
            turns[i] = floats[0, i]
        _cosines_and_sines(pairs, turns, units[0], units[1])
        for i in range(pairs):
            own[i] = words[first + 2 * i]
        _uniforms(own, pairs, bits, floats)
        _sizes(pairs, bits, floats, sizes)
        for part in range(2):
            unit = units[part]
            if len(ratio) > 1:
                for i in range(pairs):
                    scale[i] = ratio[first + part + 2 * i]
            for i in range(pairs):
                # Part 0 takes the cosine to even positions, part 1 the sine to odd ones; both share the radius.
                reach[i] = np.sqrt(2.0 * sizes[i]) * unit[i] * scale[i]
            some = _rounded(pairs, reach, scale, sizes, _SMALLEST_SIZE, unsure)
            for i in range(pairs):
                out[first + part + 2 * i] = reach[i] + 0.0
            if found + some > len(undecided):
                undecided = np.append(undecided, np.empty_like(undecided))
            for i in range(pairs if some > 0 else 0):
                if unsure[i] > 0:
                    undecided[found] = first + part + 2 * i
                    found += 1
    return undecided[:found]


def _decided(interval: Callable[[int], tuple[Any, Any]]) -> float:
    """The whole number that both ends of an interval round to, with as many further bits as it takes."""
    bits = _FURTHER_BITS
    while True:
        lowest, highest = interval(bits)
        if lowest == highest:
            return float(lowest)
        # Ends that round apart enclose a half-integer: longer strings begin like shorter ones, so the interval shrinks.
        bits *= 2


def _laplace_interval(word: int, ratio: float, further: OwnBits, bits: int) -> tuple[int, int]:
    """Ends of the interval in which a rounded Laplace variable lies."""
    real, precision = _arithmetic(), _precision(bits)
    reach = _scaled(real.mpi_neg(_logarithm(word >> 1, further(bits), bits)), ratio, precision)
    low, high = _rounded_ends(reach, precision)
    return (low, high) if word & 1 else (-high, -low)


def _normal_interval(
    words: tuple[int, int],
    ratio: float,
    further: tuple[OwnBits, OwnBits],
    sine: bool,  # noqa: FBT001 (bound before the number of bits)
    bits: int,
) -> tuple[int, int]:
    """Ends of the interval in which a rounded normal variable lies."""
    real, precision = _arithmetic(), _precision(bits)
    # -2 log u, from the first word: the square of the radius.
    square = _scaled(_logarithm(words[0] >> 1, further[0](bits), bits), -2.0, precision)
    # pi rounded down and up: an interval as well, so that no constant is taken for exact.
    pi = real.mpf_pi(precision, "f"), real.mpf_pi(precision, "c")
    angle = _scaled(real.mpi_mul(pi, _uniform(words[1] >> 1, further[1](bits), bits), precision), 2.0, precision)
    part = (real.mpi_sin if sine else real.mpi_cos)(angle, precision)
    reach = real.mpi_mul(real.mpi_sqrt(square, precision), part, precision)
    return _rounded_ends(_scaled(reach, ratio, precision), precision)


def _arithmetic() -> Any:
    """Interval arithmetic without global state, imported where a draw is undecided: most processes never need it."""
    return import_module("mpmath.libmp")


def _precision(bits: int) -> int:
    """Working precision: all known bits of a uniform number, and 64 more."""
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
