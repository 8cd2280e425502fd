"""Words of b bits as ceil(n b / 8) bytes and back: bit j of word i is bit i b + j of the string, lowest bit first.

Words of whole machine widths are their own memory. For the others, 64 / gcd(b, 64) words fill b / gcd(b, 64) lanes of
64 bits exactly, so groups of so many words are shifted into their lanes, one place of all groups at a time, in pieces
that stay in cache. The bits after the last word are zero, so that every vector has one encoding.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import MalformedMessage
from secure_agg.prg import Words

PIECE = 1 << 15
"""Words packed at a time, rounded to whole groups: their lanes stay in a second-level cache."""

Bytes = NDArray[np.uint8]


def word_dtype(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The narrowest little-endian unsigned dtype that holds words of so many bits, 1 to 64."""
    return np.dtype(f"<u{max(1, 1 << (bits - 1).bit_length() >> 3)}")


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of `count` packed words of `bits` bits."""
    return -(-count * bits // 8)


def pack(words: Words, bits: int) -> Bytes:
    """The lowest `bits` bits of every word, one after the other.

    Args:
        words: of `word_dtype(bits)`, any shape, contiguous; higher bits are left out.
        bits: 1 to 64.

    Returns:
        `packed_bytes(words.size, bits)` bytes; the memory of `words` where they fill machine words.
    """
    flat = words.reshape(-1)
    if bits == 8 * flat.itemsize:
        return flat.view(np.uint8)
    group, lanes = _group(bits)
    size = packed_bytes(flat.size, bits)
    out = np.empty(-(-flat.size // group) * lanes, "<u8")
    low = np.uint64((1 << bits) - 1)
    step = max(PIECE // group, 1)
    for first in range(0, len(out) // lanes, step):
        piece = flat[first * group : (first + step) * group]
        groups = -(-piece.size // group)
        columns = np.zeros((group, groups), np.uint64)
        whole = piece.size // group
        columns[:, :whole] = piece[: whole * group].reshape(whole, group).T
        columns[: piece.size - whole * group, whole:] = piece[whole * group :, None]
        columns &= low
        into = np.zeros((lanes, groups), np.uint64)
        for place in range(group):
            lane, shift = divmod(place * bits, 64)
            into[lane] |= columns[place] << np.uint64(shift)
            if shift + bits > 64:
                into[lane + 1] |= columns[place] >> np.uint64(64 - shift)
        out[first * lanes : (first + groups) * lanes].reshape(groups, lanes)[...] = into.T
    return out.view(np.uint8)[:size]


def unpack(data: bytes | memoryview, bits: int, count: int) -> Words:
    """The words that `pack` wrote, a read-only view of `data` where they fill machine words.

    Args:
        data: exactly `packed_bytes(count, bits)` bytes.
        bits: 1 to 64.
        count: of words.

    Returns:
        `[count]` words of `word_dtype(bits)`, each below 2^bits.

    Raises:
        MalformedMessage: another number of bytes, or bits set after the last word.
    """
    dtype, size = word_dtype(bits), packed_bytes(count, bits)
    if len(data) != size:
        raise MalformedMessage(f"{len(data)} bytes arrived where {count} words of {bits} bits take {size}; drop them")
    given = np.frombuffer(data, np.uint8)
    if bits == 8 * dtype.itemsize:
        return given.view(dtype)
    if size and int(given[-1]) >> ((count * bits - 1) % 8 + 1):
        raise MalformedMessage(f"bits are set after the last of {count} words of {bits} bits; drop the message")
    group, lanes = _group(bits)
    groups = -(-count // group)
    padded = np.zeros(8 * groups * lanes, np.uint8)
    padded[:size] = given
    lined = padded.view("<u8").reshape(groups, lanes)
    out = np.empty((groups, group), dtype)
    low = np.uint64((1 << bits) - 1)
    step = max(PIECE // group, 1)
    for first in range(0, groups, step):
        held = np.ascontiguousarray(lined[first : first + step].T)
        columns = np.empty((group, held.shape[1]), dtype)
        for place in range(group):
            lane, shift = divmod(place * bits, 64)
            word = held[lane] >> np.uint64(shift)
            if shift + bits > 64:
                word |= held[lane + 1] << np.uint64(64 - shift)
            columns[place] = word & low
        out[first : first + step] = columns.T
    return out.reshape(-1)[:count]


def _group(bits: int) -> tuple[int, int]:
    """How many words fill how many lanes of 64 bits exactly."""
    common = math.gcd(bits, 64)
    return 64 // common, bits // common
