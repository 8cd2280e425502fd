"""The prime field of 2^64 - 2^32 + 1 elements on numpy arrays of 64-bit words, all below the modulus.

Products are exact: four products of 32-bit halves, then 2^64 = 2^32 - 1 and 2^96 = -1 modulo p. The multiplicative
group has a subgroup of every order 2^k up to 2^32, on which polynomials are transformed.

Sources: the field is Field64 of draft-irtf-cfrg-vdaf; the reduction is folklore of such primes (Solinas 1999).
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError, MalformedMessage
from secure_agg.primitives.prg import random_uints

Elements = NDArray[np.uint64]
"""Field elements in [0, p)."""

MODULUS: Final = 2**64 - 2**32 + 1
ELEMENT_BYTES: Final = 8

_P: Final = np.uint64(MODULUS)
_LOW: Final = np.uint64(2**32 - 1)
"""The low half of a word, and 2^64 modulo p."""
_HALF: Final = np.uint64(32)
_ONE: Final = np.uint64(1)
_GENERATOR: Final = pow(7, 2**32 - 1, MODULUS)
"""A root of unity of order 2^32."""
_BLOCK: Final = 1 << 14
_LIMB_BITS: Final = 22
_WRAPS = np.errstate(over="ignore")
"""Words wrap around on purpose."""


@_WRAPS
def add(a: Elements, b: Elements) -> Elements:
    """The sum of a and b."""
    total = a + b
    # A sum that wrapped around 2^64 and one in [p, 2^64) are corrected alike: minus p modulo 2^64.
    return np.where((total < a) | (total >= _P), total - _P, total)


@_WRAPS
def subtract(a: Elements, b: Elements) -> Elements:
    """The difference of a and b."""
    difference = a - b
    return np.where(a < b, difference + _P, difference)


def multiply(a: Elements, b: Elements) -> Elements:
    """The product of a and b, with broadcasting."""
    a, b = np.broadcast_arrays(a, b)
    if a.size <= _BLOCK:
        return _multiply(a, b)
    # Blocks keep the working arrays in cache.
    first, second, product = a.reshape(-1), b.reshape(-1), np.empty(a.size, np.uint64)
    for start in range(0, product.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        product[block] = _multiply(first[block], second[block])
    return product.reshape(a.shape)


def total(a: Elements, axis: int = 0) -> Elements:
    """Sum along an axis of up to 2^32 elements."""
    low = np.sum(a & _LOW, axis=axis, dtype=np.uint64)
    high = np.sum(a >> _HALF, axis=axis, dtype=np.uint64)
    return add(_canonical(np.asarray(low)), multiply(_canonical(np.asarray(high)), constant(2**32)))


def dot(a: Elements, b: Elements, axis: int = -1) -> Elements:
    """Sum of products along an axis, with broadcasting."""
    return total(multiply(a, b), axis)


def power(base: Elements, exponent: int) -> Elements:
    """Powers with one exponent of 0 or more."""
    result, square = np.full_like(base, _ONE), base
    while exponent:
        if exponent & 1:
            result = multiply(result, square)
        square, exponent = multiply(square, square), exponent >> 1
    return result


def inverse(a: Elements) -> Elements:
    """1 / a of an array with one axis, and 0 for 0."""
    # Python's own inverse takes microseconds; the power p - 2 takes a hundred products of whole arrays.
    return np.array([pow(one, -1, MODULUS) if one else 0 for one in a.tolist()], np.uint64)


def constant(value: int) -> Elements:
    """An integer as an element of no axes."""
    return np.asarray(value % MODULUS, np.uint64)


@_WRAPS
def from_signed(integers: NDArray[np.int64]) -> Elements:
    """Integers modulo p."""
    words = integers.astype(np.uint64)
    return _canonical(np.where(integers < 0, words + _P, words))


@_WRAPS
def centred(a: Elements) -> NDArray[np.int64]:
    """The centred residues, in (-p/2, p/2)."""
    return np.where(a > np.uint64(MODULUS // 2), a - _P, a).view(np.int64)


def expand(seed: bytes, count: int) -> Elements:
    """Uniform elements from a 32-byte seed: the words of its keystream that are below p, in order."""
    # A word is rejected with probability below 2^-32. A longer keystream begins like a shorter one, so the result
    # does not depend on how many words were drawn.
    drawn = count + 8
    while True:
        words = random_uints(drawn, np.uint64, seed)
        if len(kept := words if bool((words < _P).all()) else words[words < _P]) >= count:
            return kept[:count]
        drawn *= 2


def encode(a: Elements) -> bytes:
    """8 bytes for each element, little-endian."""
    return np.ascontiguousarray(a).astype("<u8", copy=False).tobytes()


def decode(data: bytes | memoryview, count: int) -> Elements:
    """Invert `encode`; a read-only view.

    Raises:
        MalformedMessage: another number of bytes, or a word that is no element.
    """
    if len(data) != ELEMENT_BYTES * count:
        raise MalformedMessage(f"{len(data)} bytes were given for {count} field elements; drop the message")
    words: Elements = np.frombuffer(data, "<u8")
    if bool((words >= _P).any()):
        raise MalformedMessage("a word of the message is not below the field's modulus; drop the message")
    return words


@lru_cache(maxsize=32)
def roots(order: int) -> Elements:
    """All powers of the root of unity of an order, a power of two.

    Raises:
        ConfigurationError: another order.
    """
    if order < 1 or order & (order - 1) or order > 2**32:
        raise ConfigurationError(f"roots of unity of order {order} were requested; give a power of two up to 2^32")
    step, found = constant(pow(_GENERATOR, 2**32 // order, MODULUS)), np.ones(1, np.uint64)
    while len(found) < order:
        found = np.concatenate([found, multiply(found, power(step[None], len(found)))])
    found.flags.writeable = False
    return found


def evaluate(coefficients: Elements) -> Elements:
    """Values at all roots of unity of the polynomials in the columns: `[n, columns]` to `[n, columns]`."""
    size = len(coefficients)
    values, points = coefficients[_bit_reversed(size)], roots(size)
    half = 1
    while half < size:
        twiddles = points[:: size // (2 * half)][:half, None]
        pairs = values.reshape(size // (2 * half), 2, half, -1)
        odd = multiply(pairs[:, 1], twiddles)
        values = np.stack([add(pairs[:, 0], odd), subtract(pairs[:, 0], odd)], axis=1).reshape(size, -1)
        half *= 2
    return values


def interpolate(values: Elements) -> Elements:
    """Coefficients of the polynomials that have these values at all roots of unity: the inverse of `evaluate`."""
    size = len(values)
    reversed_powers = evaluate(values)
    back = np.concatenate([reversed_powers[:1], reversed_powers[:0:-1]])
    return multiply(back, inverse(constant(size)[None])[None])


def lagrange_weights(order: int, point: int) -> Elements:
    """Weights by which values at all roots of unity of an order give the value at a point that is none of them."""
    points = roots(order)
    # L_i(t) = w^i (t^n - 1) / (n (t - w^i)).
    outside = subtract(constant(point)[None], points)
    scale = constant((pow(point, order, MODULUS) - 1) * pow(order, -1, MODULUS))
    return multiply(multiply(points, scale[None]), inverse(outside))


def limbs(a: Elements) -> NDArray[np.float64]:
    """Three limbs of 22 bits each, lowest first: `[n]` to `[3, n]`, for exact products of matrices in float64."""
    shifts = np.arange(3, dtype=np.uint64)[:, None] * np.uint64(_LIMB_BITS)
    return ((a[None] >> shifts) & np.uint64(2**_LIMB_BITS - 1)).astype(np.float64)


def from_limb_sums(sums: NDArray[np.int64]) -> Elements:
    """Sums of limbs, each of any sign and below 2^62 in magnitude, as elements: `[3, n]` to `[n]`."""
    weights = from_signed(np.int64(1) << (_LIMB_BITS * np.arange(3, dtype=np.int64)))
    return total(multiply(from_signed(sums), weights[:, None]))


@_WRAPS
def _multiply(a: Elements, b: Elements) -> Elements:
    a_low, a_high, b_low, b_high = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    lowest = a_low * b_low
    # Neither sum overflows: (2^32 - 1)^2 + 2^32 - 1 < 2^64.
    middle = a_low * b_high + (lowest >> _HALF)
    second = a_high * b_low + (middle & _LOW)
    high = a_high * b_high + (middle >> _HALF) + (second >> _HALF)
    low = (second << _HALF) | (lowest & _LOW)
    # low + 2^64 high = low + (2^32 - 1) (high mod 2^32) - (high >> 32).
    top = high >> _HALF
    reduced = low - top
    reduced -= np.where(low < top, _LOW, np.uint64(0))
    folded = (high & _LOW) * _LOW
    reduced += folded
    reduced += np.where(reduced < folded, _LOW, np.uint64(0))
    return _canonical(reduced)


@_WRAPS
def _canonical(words: Elements) -> Elements:
    """Words of 64 bits modulo p."""
    return np.where(words >= _P, words - _P, words)


def _bit_reversed(size: int) -> NDArray[np.int64]:
    places = np.zeros(1, np.int64)
    while len(places) < size:
        places = np.concatenate([2 * places, 2 * places + 1])
    return places
