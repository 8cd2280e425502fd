"""The ring of integers modulo 2^b, in which masked and secret-shared vectors are added.

Unsigned machine words of w >= b bits compute in this ring by wrapping around, because 2^b divides 2^w: the lowest b
bits of a sum are the sum of the lowest b bits. Elements are therefore added and masked as whole machine words, and only
b bits of each are transmitted (`secure_agg.encoding.packing`). For the same reason the lowest b bits of a mask that is
uniform over machine words are uniform modulo 2^b, and hide a ring element just as well.

An integer v is represented as v mod 2^b and decoded as the centred residue in [-2^(b-1), 2^(b-1)).

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017), for sums in
a sufficiently wide ring.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.encoding.packing import Bytes, element_dtype, pack, packed_bytes, unpack
from secure_agg.errors import ConfigurationError, RingOverflowError
from secure_agg.primitives.prg import RingElements

MIN_BITS, MAX_BITS = 2, 64
"""Supported ring widths: one bit holds no positive number, and machine words end at 64 bits."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The integers modulo 2^bits, one element per entry of an unsigned numpy array.

    Arrays returned by a ring, its encodings and the protocols hold elements below 2^bits. In arrays passed to them,
    bits above the lowest `bits` are ignored.

    Attributes:
        bits: width from 2 to 64. It is public and follows from the configuration alone, never from data.

    Raises:
        ConfigurationError: another width.
    """

    bits: int

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not MIN_BITS <= self.bits <= MAX_BITS:
            raise ConfigurationError(
                f"a ring of {self.bits!r} bits was requested; give an int from {MIN_BITS} to {MAX_BITS}"
            )

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The narrowest unsigned little-endian dtype that holds an element."""
        return element_dtype(self.bits)

    @property
    def modulus(self) -> int:
        """2^bits."""
        return 1 << self.bits

    @property
    def half_modulus(self) -> int:
        """2^(bits-1): centred residues lie in [-half_modulus, half_modulus)."""
        return 1 << (self.bits - 1)

    @property
    def fills_dtype(self) -> bool:
        """Whether an element uses every bit of its machine word."""
        return self.bits == 8 * self.dtype.itemsize

    def zeros(self, shape: int | tuple[int, ...]) -> RingElements:
        """An array of zeros."""
        return np.zeros(shape, self.dtype)

    def reduce_(self, elements: RingElements) -> RingElements:
        """Reduce modulo 2^bits in place and return the same array."""
        # Unsigned overflow has already reduced elements that fill their machine word.
        if not self.fills_dtype:
            np.bitwise_and(elements, self.dtype.type(self.modulus - 1), out=elements)
        return elements

    def packed_bytes(self, count: int) -> int:
        """Number of bytes that `count` packed elements take: `count * bits` bits, rounded up once."""
        return packed_bytes(count, self.bits)

    def pack(self, elements: RingElements) -> Bytes:
        """Pack elements for transmission, `bits` bits each; shares memory where elements fill machine words.

        Raises:
            ConfigurationError: the elements belong to another ring.
        """
        self.check(elements)
        return pack(elements, self.bits)

    def unpack(self, data: bytes | memoryview, count: int) -> RingElements:
        """Invert `pack`; the result is a read-only view of `data` where elements fill machine words.

        Raises:
            MalformedMessage: another number of bytes, or bits set after the last element.
        """
        return unpack(data, self.bits, count)

    def check(self, elements: RingElements) -> None:
        """Refuse anything but an array of this ring's dtype.

        Raises:
            ConfigurationError: `elements` is something else.
        """
        if not isinstance(elements, np.ndarray) or elements.dtype != self.dtype:
            raise ConfigurationError(
                f"got {describe(elements)}; the ring of {self.bits} bits takes a numpy array of {self.dtype}, "
                "which is what its encodings return"
            )

    def sum(self, vectors: Iterable[RingElements]) -> RingElements:
        """Sum of the vectors in the ring: the result of secure aggregation, computed without any protection.

        Args:
            vectors: one or more arrays of this ring, all of one shape; read once, so a generator works.

        Returns:
            A new array of that shape.

        Raises:
            ConfigurationError: no vector, another dtype, or two shapes.
        """
        remaining = iter(vectors)
        first = next(remaining, None)
        if first is None:
            raise ConfigurationError("no vector was given to add; give at least one")
        self.check(first)
        total = first.copy()
        for vector in remaining:
            self.check(vector)
            if vector.shape != total.shape:
                raise ConfigurationError(
                    f"vectors of shapes {total.shape} and {vector.shape} cannot be added; give all of one shape"
                )
            np.add(total, vector, out=total)
        return self.reduce_(total)

    def from_integers(self, integers: NDArray[np.integer[Any]]) -> RingElements:
        """Map each integer v to v mod 2^bits.

        Args:
            integers: any shape, any signed or unsigned dtype, every value in [-half_modulus, half_modulus).

        Returns:
            A new array of the same shape.

        Raises:
            ConfigurationError: the dtype is not an integer dtype.
            RingOverflowError: a value lies outside the interval and would be decoded as another value.
        """
        lowest, highest = value_range(integers)
        if lowest < -self.half_modulus or highest >= self.half_modulus:
            raise RingOverflowError(
                f"values from {lowest} to {highest} were given; a ring of {self.bits} bits holds "
                f"{-self.half_modulus} to {self.half_modulus - 1}, so take more bits or smaller values"
            )
        return self.reduce_(integers.astype(self.dtype))

    def centred(self, elements: RingElements) -> NDArray[np.int64]:
        """The centred residues in [-half_modulus, half_modulus), of the same shape.

        Elements of 64 bits are the same memory read as signed; narrower ones are widened into a new array.

        Raises:
            ConfigurationError: the elements belong to another ring.
        """
        return self.signed(elements).astype(np.int64, copy=False)

    def signed(self, elements: RingElements) -> NDArray[np.signedinteger[Any]]:
        """The centred residues in the machine word's width; shares memory where elements fill machine words.

        Raises:
            ConfigurationError: the elements belong to another ring.
        """
        self.check(elements)
        if self.fills_dtype:
            return as_signed(elements)
        # Sign extension: shift the ring's highest bit into the machine word's sign bit; the arithmetic shift back then
        # copies it into all the unused high bits.
        unused = self.dtype.type(8 * elements.itemsize - self.bits)
        shifted = as_signed(np.left_shift(elements, unused))
        shifted >>= shifted.dtype.type(unused)
        return shifted


def as_signed(elements: RingElements) -> NDArray[np.signedinteger[Any]]:
    """The same memory read as two's complement of the same width."""
    return elements.view(f"<i{elements.itemsize}")


def value_range(integers: NDArray[np.integer[Any]]) -> tuple[int, int]:
    """Smallest and largest value as Python integers, which cannot overflow; (0, 0) for an empty array.

    Raises:
        ConfigurationError: not a numpy array of integers.
    """
    if not isinstance(integers, np.ndarray) or integers.dtype.kind not in "iu":
        raise ConfigurationError(f"got {describe(integers)}; give a numpy array of signed or unsigned integers")
    return (int(integers.min()), int(integers.max())) if integers.size else (0, 0)


def describe(value: object) -> str:
    """The dtype or type of a value, for error messages."""
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
