"""Keyed mixing of whole numbers: the hash functions behind subspaces, the same to the bit on every platform.

Clients whose masked words are added up must agree on every slot, so nothing here uses a random generator's stream or
floating point: only products below 2^63, sums, shifts and masks of non-negative 64-bit integers. A round multiplies by
an odd number modulo 2^bits and folds the upper half onto the lower; both can be undone, so a round is a bijection of
[0, 2^bits). Range [0, size) is reached by cycle walking (Black and Rogaway, Ciphers with arbitrary finite domains,
CT-RSA 2002): what falls outside is mixed again. This spreads; it hides nothing from who knows the key.
"""

import hashlib

from jaxtyping import Int64
from torch import Tensor

Keys = tuple[tuple[int, int], ...]
"""One odd multiplier and one summand a round, below 2^31."""

WIDEST = 31
"""Most bits of a mixed number: a product of two still fits a signed 64-bit integer."""

ROUNDS = 4


def keys(seed: int, purpose: str) -> Keys:
    """Round keys of a seed, other ones for every purpose.

    Args:
        seed: any integer.
        purpose: what is mixed with them.
    """
    digest = hashlib.blake2b(f"privfed subspace {purpose} {seed}".encode(), digest_size=8 * ROUNDS).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") & (2**WIDEST - 1) for i in range(0, len(digest), 4)]
    return tuple((odd | 1, plus) for odd, plus in zip(words[::2], words[1::2], strict=True))


def mix(x: Int64[Tensor, "..."], keys: Keys, bits: int = WIDEST) -> Int64[Tensor, "..."]:
    """A bijection of [0, 2^bits), number by number.

    Args:
        x: numbers in [0, 2^bits).
        keys: of a seed and a purpose.
        bits: 1 to 31.
    """
    mask, fold = 2**bits - 1, max(1, bits // 2)
    for odd, plus in keys:
        x = (x * (odd & mask)).add_(plus & mask).bitwise_and_(mask)
        x ^= x >> fold
    return x


def permute(x: Int64[Tensor, "..."], keys: Keys, size: int) -> Int64[Tensor, "..."]:
    """A bijection of [0, size), number by number.

    Args:
        x: numbers in [0, size).
        keys: of a seed and a purpose.
        size: 1 to 2^31.
    """
    bits = max(1, (size - 1).bit_length())
    shape = x.shape
    x = mix(x.reshape(-1), keys, bits)
    outside = (x >= size).nonzero().squeeze(1)
    while len(outside):
        again = mix(x[outside], keys, bits)
        x[outside] = again
        outside = outside[again >= size]
    return x.view(shape)
