"""Real and whole numbers as words of a ring, with proof that their sum cannot wrap.

A masked or shared vector lives in the ring of integers modulo 2^b. Unsigned machine words of w >= b bits compute in
it by wrapping around, because 2^b divides 2^w: the lowest b bits of a sum are the sum of the lowest b bits. So words
are added and masked whole, and b bits of each travel (`secure_agg.packing`). For the same reason the lowest b bits of a
mask that is uniform over machine words are uniform modulo 2^b, and hide a word of the ring just as well.

A whole number v is written as v mod 2^b and read back as the centred residue in [-2^(b-1), 2^(b-1)). Adding words adds
the numbers exactly as long as the true sum stays inside that interval, so every code here proves at set-up that

    clients * ceil(bound * scale) + tail < 2^(b-1)

for values of magnitude at most `bound`, written in steps of 1/scale, and noise of magnitude at most `tail` steps on
the sum. The proof is done in whole numbers and fractions, never in floating point.

Sources: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017), for sums
in a ring wide enough; Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning
with Secure Aggregation" (ICML 2021), for scaled rounding and centred residues.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError, HeadroomError
from secure_agg.packing import Bytes, pack, packed_bytes, unpack, word_dtype
from secure_agg.prg import Words, random_words

FEWEST_BITS, MOST_BITS = 2, 64
"""Widths of rings: one bit would hold no positive number, and machine words end at 64."""

CHUNK = 1 << 16
"""Values encoded at a time: the working arrays stay in cache, and their memory does not grow with the vector."""

_KEY_BYTES = 32
_LARGEST_BOUND = Fraction(2**900)
"""Bounds lie between its inverse and itself; with bound * scale between 1 and 2^63, float64 holds 1/scale exactly."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The integers modulo 2^bits, one element per word of an unsigned numpy array.

    Arrays that a ring, its codes and protocols hand out hold words below 2^bits. Of those they are given, bits above
    have no meaning.

    Attributes:
        bits: 2 to 64. It is public and follows from the plan alone, never from data.

    Raises:
        ConfigurationError: another number of bits.
    """

    bits: int

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not FEWEST_BITS <= self.bits <= MOST_BITS:
            raise ConfigurationError(
                f"a ring of {self.bits!r} bits was asked for; give an int from {FEWEST_BITS} to {MOST_BITS}"
            )

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The unsigned little-endian dtype whose lowest bits compute in this ring."""
        return word_dtype(self.bits)

    @property
    def modulus(self) -> int:
        """2^bits."""
        return 1 << self.bits

    @property
    def half(self) -> int:
        """2^(bits-1): centred residues lie in [-half, half)."""
        return 1 << (self.bits - 1)

    @property
    def whole(self) -> bool:
        """Whether its words fill machine words."""
        return self.bits == 8 * self.dtype.itemsize

    def zeros(self, shape: int | tuple[int, ...]) -> Words:
        """Words that are all 0."""
        return np.zeros(shape, self.dtype)

    def reduce_(self, words: Words) -> Words:
        """The words modulo 2^bits, in place; nothing to do where they fill machine words."""
        if not self.whole:
            np.bitwise_and(words, self.dtype.type(self.modulus - 1), out=words)
        return words

    def packed_bytes(self, count: int) -> int:
        """Bytes in which `count` words travel: `count` times `bits` bits, rounded up once."""
        return packed_bytes(count, self.bits)

    def pack(self, words: Words) -> Bytes:
        """The words as they travel, `bits` bits each; the memory of `words` where they fill machine words.

        Raises:
            ConfigurationError: the words are of another ring.
        """
        self.accept(words)
        return pack(words, self.bits)

    def unpack(self, data: bytes | memoryview, count: int) -> Words:
        """The `count` words that `pack` wrote; a read-only view of `data` where they fill machine words.

        Raises:
            MalformedMessage: another number of bytes, or bits set after the last word.
        """
        return unpack(data, self.bits, count)

    def accept(self, words: Words) -> None:
        """Return quietly when `words` is an array of this ring's dtype.

        Raises:
            ConfigurationError: it is not.
        """
        if not isinstance(words, np.ndarray) or words.dtype != self.dtype:
            raise ConfigurationError(
                f"got {_kind(words)}; the ring of {self.bits} bits takes a numpy array of {self.dtype}, "
                "which is what its codes return"
            )

    def sum(self, vectors: Iterable[Words]) -> Words:
        """The sum of the vectors in the ring: what secure aggregation computes, computed in the open.

        Args:
            vectors: one or more arrays of this ring, all of one shape; read once, so a generator will do.

        Returns:
            A new array of that shape.

        Raises:
            ConfigurationError: no vector, another dtype, or two shapes.
        """
        arriving = iter(vectors)
        first = next(arriving, None)
        if first is None:
            raise ConfigurationError("no vector was given to add; give at least one")
        self.accept(first)
        total = first.copy()
        for vector in arriving:
            self.accept(vector)
            if vector.shape != total.shape:
                raise ConfigurationError(
                    f"vectors of shapes {total.shape} and {vector.shape} cannot be added; give all of one shape"
                )
            np.add(total, vector, out=total)
        return self.reduce_(total)

    def lift(self, integers: NDArray[np.integer[Any]]) -> Words:
        """Whole numbers as words: v becomes v mod 2^bits.

        Args:
            integers: any shape, any signed or unsigned dtype, every value in [-half, half).

        Returns:
            A new array of the same shape.

        Raises:
            ConfigurationError: the dtype is not one of whole numbers.
            HeadroomError: a value lies outside [-half, half) and would be read back as another.
        """
        least, largest = _extremes(integers)
        if least < -self.half or largest >= self.half:
            raise HeadroomError(
                f"values from {least} to {largest} were given; a ring of {self.bits} bits holds "
                f"{-self.half} to {self.half - 1}, so take more bits or smaller values"
            )
        return self.reduce_(integers.astype(self.dtype))

    def centred(self, words: Words) -> NDArray[np.int64]:
        """The centred residues in [-half, half): each word read as two's complement, in the same shape.

        Words of 64 bits are the same memory read as signed; others are widened into a new array.

        Raises:
            ConfigurationError: the words are of another ring.
        """
        return self.signed(words).astype(np.int64, copy=False)

    def signed(self, words: Words) -> NDArray[np.signedinteger[Any]]:
        """As `centred`, in the machine's width; the same memory where words fill machine words.

        Raises:
            ConfigurationError: the words are of another ring.
        """
        self.accept(words)
        if self.whole:
            return _signed(words)
        # The highest bit of the ring goes to the machine word's sign, which the shift back copies downwards.
        spare = self.dtype.type(8 * words.itemsize - self.bits)
        risen = _signed(np.left_shift(words, spare))
        risen >>= risen.dtype.type(spare)
        return risen


def needed_bits(*, clients: int, bound: float, scale: float = 1, tail: int = 0) -> int:
    """The fewest bits b with clients * ceil(bound * scale) + tail < 2^(b-1).

    Args:
        clients: how many values are added at most.
        bound: the largest magnitude of one value.
        scale: steps per unit; 1 for whole numbers.
        tail: the largest magnitude, in steps, of noise on the sum.

    Raises:
        ConfigurationError: clients below 1, bound or scale not positive and finite, or a negative tail.
    """
    steps = math.ceil(_fraction("bound", bound) * _fraction("scale", scale))
    largest_sum = _whole("clients", clients, least=1) * steps + _whole("tail", tail, least=0)
    return largest_sum.bit_length() + 1


def require_headroom(ring: Ring, *, clients: int, bound: float, scale: float = 1, tail: int = 0) -> None:
    """Return quietly when clients * ceil(bound * scale) + tail < 2^(bits-1), so that no sum can wrap around.

    The inequality is decided exactly: floats enter as the fractions they are. Arguments as in `needed_bits`.

    Raises:
        HeadroomError: the inequality fails.
        ConfigurationError: an argument is out of its range.
    """
    needed = needed_bits(clients=clients, bound=bound, scale=scale, tail=tail)
    if needed > ring.bits:
        wider = f"a ring of {needed} bits, " if needed <= MOST_BITS else ""
        raise HeadroomError(
            f"the sum of {clients} clients within {bound} at {scale} steps per unit and noise within {tail} steps "
            f"needs {needed} bits and the ring has {ring.bits}, {needed - ring.bits} too few; "
            f"take {wider}a coarser scale, a smaller clip or fewer clients"
        )


@dataclass(frozen=True, slots=True)
class IntegerCode:
    """Whole numbers, exactly: for protocols whose values are integers already.

    Attributes:
        ring: where the words live.
        bound: the largest magnitude of one value.
        clients: the most vectors that will be added.

    Raises:
        HeadroomError: clients * bound is not below 2^(bits-1).
        ConfigurationError: bound or clients is not a whole number of at least 1.
    """

    ring: Ring
    bound: int
    clients: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _whole("bound", self.bound, least=1))
        object.__setattr__(self, "clients", _whole("clients", self.clients, least=1))
        require_headroom(self.ring, clients=self.clients, bound=self.bound)

    def encode(self, values: NDArray[np.integer[Any]]) -> Words:
        """One client's values as words of the same shape.

        Args:
            values: any shape, signed or unsigned, of magnitude at most `bound`.

        Raises:
            ConfigurationError: a dtype that is not one of whole numbers (floats are refused even where they are
                whole), or a value over the bound.
        """
        least, largest = _extremes(values)
        magnitude = max(-least, largest)
        if magnitude > self.bound:
            raise ConfigurationError(
                f"a value of magnitude {magnitude} was given and the code holds up to {self.bound}; "
                "clip the values or build the code with a larger bound"
            )
        return self.ring.lift(values)

    def decode(self, words: Words) -> NDArray[np.int64]:
        """The sum of the added vectors, exactly, in the same shape; shares memory as `Ring.centred` does.

        Raises:
            ConfigurationError: the words are of another ring.
        """
        return self.ring.centred(words)


class Rounding(StrEnum):
    """How a value between two steps becomes one of them."""

    NEAREST = "nearest"
    """The nearer step, the even one of two equally near: the smallest error of a single value."""

    STOCHASTIC = "stochastic"
    """The upper step with probability equal to the fraction, else the lower: right on average for every value."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Real numbers in steps of 1/scale.

    The scale is a power of two, so value * scale is exact in float64 and encoding errs by its rounding alone.

    A value may not exceed the bound by even one unit in the last place. Clipping in float32 rounds the bound itself
    to float32, possibly upwards: clip to, and build the code with, a bound that float32 holds, such as a power of two
    or `float(numpy.float32(clip))`.

    Attributes:
        ring: where the words live.
        bound: the largest magnitude of one value, between 2^-900 and 2^900.
        clients: the most vectors that will be added.
        scale: steps per unit, a power of two with bound * scale >= 1, so that a step is no wider than the bound.
        rounding: how values between two steps are treated.
        tail: the largest magnitude, in steps, of integer noise that the sum will carry.

    Raises:
        HeadroomError: clients * ceil(bound * scale) + tail is not below 2^(bits-1).
        ConfigurationError: an attribute is out of its range.
    """

    ring: Ring
    bound: float
    clients: int
    scale: float
    rounding: Rounding
    tail: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _float_bound(self.bound))
        object.__setattr__(self, "clients", _whole("clients", self.clients, least=1))
        object.__setattr__(self, "tail", _whole("tail", self.tail, least=0))
        if not isinstance(self.rounding, Rounding):
            raise ConfigurationError(f"rounding is {self.rounding!r}; give Rounding.NEAREST or Rounding.STOCHASTIC")
        coarsest, scale = _coarsest_scale(self.bound), _fraction("scale", self.scale)
        if scale < coarsest or not _is_power_of_two(scale):
            raise ConfigurationError(
                f"scale is {self.scale}; give a power of two, which multiplies without a rounding error, of at least "
                f"{coarsest}, at which a step is no wider than the bound {self.bound}"
            )
        require_headroom(self.ring, clients=self.clients, bound=self.bound, scale=self.scale, tail=self.tail)
        object.__setattr__(self, "scale", float(scale))

    @classmethod
    def for_sum(
        cls, ring: Ring, *, bound: float, clients: int, tail: int = 0, rounding: Rounding = Rounding.NEAREST
    ) -> "FixedPoint":
        """The code of the finest scale whose sums fit into the ring.

        The search starts at the coarsest scale, the smallest power of two whose steps are no wider than the bound.
        There the bound is S steps, 1 <= S < 2. With M the most steps that each client may take, doubling the scale j
        times fits exactly when ceil(S * 2^j) <= M, which is 2^j <= M // S because M and 2^j are whole.

        Args:
            ring: where the words live.
            bound: the largest magnitude of one value, between 2^-900 and 2^900.
            clients: the most vectors that will be added.
            tail: the largest magnitude, in steps, of integer noise that the sum will carry.
            rounding: how values between two steps are treated.

        Raises:
            HeadroomError: not even the coarsest scale fits; the sentence says how many bits are missing.
            ConfigurationError: an argument is out of its range.
        """
        bound = _float_bound(bound)
        coarsest = _coarsest_scale(bound)
        require_headroom(ring, clients=clients, bound=bound, scale=coarsest, tail=tail)
        most_steps = (ring.half - 1 - int(tail)) // int(clients)
        doublings = (most_steps // Fraction(bound * coarsest)).bit_length() - 1
        return cls(ring, bound, clients, math.ldexp(coarsest, doublings), rounding, tail)

    @property
    def resolution(self) -> float:
        """The width of a step, 1/scale, exactly."""
        return 1 / self.scale

    def error_bound(self) -> float:
        """The largest |decoded sum - true sum| over all inputs of up to `clients` vectors, noise apart.

        Each client errs by up to half a step under nearest rounding and by less than a step under stochastic
        rounding. A sum of L > 53 bits, which only the ring of 64 can hold, is rounded once more when it becomes a
        float64: neighbours are then up to 2^(L-53) steps apart, and the error is up to half of that.
        """
        per_client = Fraction(1, 2) if self.rounding is Rounding.NEAREST else Fraction(1)
        widest = needed_bits(clients=self.clients, bound=self.bound, scale=self.scale, tail=self.tail) - 1
        as_float64 = Fraction(2) ** (widest - 54) if widest > 53 else Fraction(0)
        return float((self.clients * per_client + as_float64) / Fraction(self.scale))

    def encode(self, values: NDArray[np.floating[Any]], key: bytes | None = None) -> Words:
        """One client's values as words of the same shape.

        Exactness: float32 widens to float64 without loss, and times a power of two is exact (a product too small for
        float64 is far nearer to 0 than to any other step). Rounded, it is whole and of magnitude at most
        ceil(bound * scale), which is below 2^(bits-1), and such a float64 converts to a signed word exactly.

        Stochastic rounding goes up with the fraction as its probability, to within 2^-32, so the mean of an encoded
        value is within 2^-32 steps of the value.

        Args:
            values: any shape, float32 or float64, finite, of magnitude at most `bound`; encoded `CHUNK` at a time.
            key: read by stochastic rounding only. `None` draws from the operating system; 32 bytes, used for nothing
                else, make the rounding a simulation that can be repeated.

        Raises:
            ConfigurationError: another dtype, a value not finite or over the bound, or a key of another length.
        """
        if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
            raise ConfigurationError(
                f"got {_kind(values)}; give a numpy array of float32 or float64, or use IntegerCode for integers"
            )
        flat, words = values.reshape(-1), self.ring.zeros(values.shape)
        signed, workspace = _signed(words).reshape(-1), np.empty(min(CHUNK, flat.size))
        starts = range(0, flat.size, CHUNK)
        stochastic = self.rounding is Rounding.STOCHASTIC
        keys = random_words(_KEY_BYTES * len(starts), np.uint8, key).tobytes() if stochastic else b""
        for number, start in enumerate(starts):
            piece = flat[start : start + CHUNK]
            self._refuse_outside(piece)
            steps = np.multiply(piece, self.scale, out=workspace[: piece.size], dtype=np.float64)
            if stochastic:
                _round_up_or_down(steps, keys[_KEY_BYTES * number : _KEY_BYTES * (number + 1)])
            else:
                np.rint(steps, out=steps)
            signed[start : start + CHUNK] = steps
        return self.ring.reduce_(words)

    def decode(self, words: Words, clients: int | None = None) -> NDArray[np.float64]:
        """The sum of the added vectors, in the same shape, within `error_bound` and the noise.

        Args:
            words: the sum of encoded vectors.
            clients: how many were added, where that is known: more than the code was built for are refused, because
                their sum may have wrapped around.

        Raises:
            ConfigurationError: the words are of another ring, or `clients` is below 1.
            HeadroomError: `clients` is above the code's.
        """
        residues = self.ring.signed(words)
        if clients is not None and _whole("clients", clients, least=1) > self.clients:
            raise HeadroomError(
                f"{clients} clients were added and the code has room for {self.clients}, so the sum may have wrapped "
                "around; build the code for as many clients as can take part"
            )
        total: NDArray[np.float64] = np.empty(words.shape)
        np.multiply(residues, self.resolution, out=total, dtype=np.float64)
        return total

    def _refuse_outside(self, values: NDArray[np.floating[Any]]) -> None:
        """Refuse what is not within the bound; a NaN makes both extremes NaN, which no comparison holds for."""
        least, largest = float(values.min()), float(values.max())
        if not (-self.bound <= least and largest <= self.bound):
            raise ConfigurationError(
                f"values from {least} to {largest} were given; the code takes finite values of magnitude up to "
                f"{self.bound}, so clip the values or build the code with a larger bound"
            )


def _round_up_or_down(steps: NDArray[np.float64], key: bytes) -> None:
    """Round in place: up when a uniform 32-bit word is below fraction * 2^32, else down.

    The probability of going up is the fraction rounded up to a multiple of 2^-32. It is 0 for a whole number, so no
    result leaves [floor, ceil]. The fraction itself is exact but for values in (-1/2, 0), where it is within 2^-54.
    """
    lower = np.floor(steps)
    np.subtract(steps, lower, out=steps)
    np.multiply(steps, 2.0**32, out=steps)
    goes_up = random_words(steps.size, np.uint32, key) < steps
    np.add(lower, goes_up, out=steps)


def _signed(words: Words) -> NDArray[np.signedinteger[Any]]:
    """The same memory read as two's complement of the same width."""
    return words.view(f"<i{words.itemsize}")


def _extremes(integers: NDArray[np.integer[Any]]) -> tuple[int, int]:
    """The least and the largest value as Python integers, which cannot overflow; (0, 0) of an empty array."""
    if not isinstance(integers, np.ndarray) or integers.dtype.kind not in "iu":
        raise ConfigurationError(f"got {_kind(integers)}; give a numpy array of signed or unsigned integers")
    return (int(integers.min()), int(integers.max())) if integers.size else (0, 0)


def _kind(given: object) -> str:
    """What was given, for a sentence."""
    return f"an array of {given.dtype}" if isinstance(given, np.ndarray) else f"a {type(given).__name__}"


def _is_power_of_two(positive: Fraction) -> bool:
    """Whether numerator and denominator, which share no factor, multiply to one set bit: 2^e / 1 or 1 / 2^e."""
    return (positive.numerator * positive.denominator).bit_count() == 1


def _coarsest_scale(bound: float) -> float:
    """The smallest power of two at which the bound is at least a step: m * 2^e with 1/2 <= m < 1 gives 2^(1-e)."""
    return math.ldexp(1.0, 1 - math.frexp(bound)[1])


def _float_bound(bound: float) -> float:
    """The bound as a float64, or a refusal."""
    exact = _fraction("bound", bound)
    if not 1 / _LARGEST_BOUND <= exact <= _LARGEST_BOUND:
        raise ConfigurationError(f"bound is {bound}; give a number between 2^-900 and 2^900")
    return float(exact)


def _whole(name: str, value: int, least: int) -> int:
    """The value as a Python integer, whatever integer type it came in."""
    if not isinstance(value, Integral) or value < least:
        raise ConfigurationError(f"{name} is {value!r}; give a whole number of at least {least}")
    return int(value)


def _fraction(name: str, value: float) -> Fraction:
    """The value exactly."""
    if not (isinstance(value, Integral) or math.isfinite(value)) or value <= 0:
        raise ConfigurationError(f"{name} is {value!r}; give a positive finite number")
    return Fraction(int(value) if isinstance(value, Integral) else float(value))
