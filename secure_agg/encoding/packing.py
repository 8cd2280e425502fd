"""Packing of n elements of b bits into ceil(n b / 8) bytes: bit j of element i is bit i b + j, lowest bit first.

The bits after the last element are zero, so that every vector has exactly one encoding.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import MalformedMessage
from secure_agg.primitives.prg import RingElements

CHUNK = 1 << 15
"""Elements packed at a time, rounded to whole groups: their limbs stay in a second-level cache."""

Bytes = NDArray[np.uint8]


def element_dtype(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The narrowest little-endian unsigned dtype for elements of `bits` bits, from 1 to 64."""
    return np.dtype(f"<u{max(1, 1 << (bits - 1).bit_length() >> 3)}")


def packed_bytes(count: int, bits: int) -> int:
    """Number of bytes that `count` packed elements of `bits` bits take."""
    return -(-count * bits // 8)


def pack(elements: RingElements, bits: int) -> Bytes:
    """Concatenate the lowest `bits` bits of every element.

    Args:
        elements: of `element_dtype(bits)`, any shape, contiguous; higher bits are ignored.
        bits: 1 to 64.

    Returns:
        `packed_bytes(elements.size, bits)` bytes; shares memory with `elements` where these fill machine words.
    """
    flat = elements.reshape(-1)
    if bits == 8 * flat.itemsize:
        return flat.view(np.uint8)
    # 64 / gcd(b, 64) elements fill exactly b / gcd(b, 64) limbs of 64 bits. All groups share one layout, so the shifts
    # are the same for all of them: transpose to [position in group, groups] and shift one position of all groups at
    # once.
    group, limbs = _group_layout(bits)
    size = packed_bytes(flat.size, bits)
    out = np.empty(-(-flat.size // group) * limbs, "<u8")
    mask = np.uint64((1 << bits) - 1)
    groups_per_chunk = max(CHUNK // group, 1)
    for first in range(0, len(out) // limbs, groups_per_chunk):
        chunk = flat[first * group : (first + groups_per_chunk) * group]
        groups = -(-chunk.size // group)
        complete = chunk.size // group
        columns = np.zeros((group, groups), np.uint64)  # zeros pad the last, incomplete group
        columns[:, :complete] = chunk[: complete * group].reshape(complete, group).T
        columns[: chunk.size - complete * group, complete:] = chunk[complete * group :, None]
        columns &= mask
        packed = np.zeros((limbs, groups), np.uint64)
        for position in range(group):
            limb, shift = divmod(position * bits, 64)
            packed[limb] |= columns[position] << np.uint64(shift)
            if shift + bits > 64:  # the element straddles two limbs: its high bits open the next one
                packed[limb + 1] |= columns[position] >> np.uint64(64 - shift)
        out[first * limbs : (first + groups) * limbs].reshape(groups, limbs)[...] = packed.T
    return out.view(np.uint8)[:size]


def unpack(data: bytes | memoryview, bits: int, count: int) -> RingElements:
    """Invert `pack`; the result is a read-only view of `data` where elements fill machine words.

    Args:
        data: exactly `packed_bytes(count, bits)` bytes.
        bits: 1 to 64.
        count: number of elements.

    Returns:
        `[count]` elements of `element_dtype(bits)`, each below 2^bits.

    Raises:
        MalformedMessage: another number of bytes, or bits set after the last element.
    """
    dtype, size = element_dtype(bits), packed_bytes(count, bits)
    if len(data) != size:
        raise MalformedMessage(
            f"{len(data)} bytes arrived where {count} elements of {bits} bits take {size}; drop them"
        )
    octets = np.frombuffer(data, np.uint8)
    if bits == 8 * dtype.itemsize:
        return octets.view(dtype)
    if size and int(octets[-1]) >> ((count * bits - 1) % 8 + 1):
        raise MalformedMessage(f"bits are set after the last of {count} elements of {bits} bits; drop the message")
    group, limbs = _group_layout(bits)
    groups = -(-count // group)
    padded = np.zeros(8 * groups * limbs, np.uint8)
    padded[:size] = octets
    by_group = padded.view("<u8").reshape(groups, limbs)
    out = np.empty((groups, group), dtype)
    mask = np.uint64((1 << bits) - 1)
    groups_per_chunk = max(CHUNK // group, 1)
    for first in range(0, groups, groups_per_chunk):
        packed = np.ascontiguousarray(by_group[first : first + groups_per_chunk].T)  # [limbs, groups in chunk]
        columns = np.empty((group, packed.shape[1]), dtype)
        for position in range(group):
            limb, shift = divmod(position * bits, 64)
            column = packed[limb] >> np.uint64(shift)
            if shift + bits > 64:
                column |= packed[limb + 1] << np.uint64(64 - shift)
            columns[position] = column & mask
        out[first : first + groups_per_chunk] = columns.T
    return out.reshape(-1)[:count]


def _group_layout(bits: int) -> tuple[int, int]:
    """Number of elements per group and of 64-bit limbs that they fill exactly."""
    common = math.gcd(bits, 64)
    return 64 // common, bits // common
