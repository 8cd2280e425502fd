"""Exact randomness: whole numbers, coins of rational bias and coins of bias exp(-rational), without floats.

Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2004.00010), algorithm 1.
"""

import secrets

import numpy as np

from secure_agg.noise.subkeys import subkey
from secure_agg.prg import random_words

_BLOCK = 1 << 13


class Coins:
    """Uniform whole numbers and biased coins.

    Args:
        key: `None` asks the operating system for every draw; 32 bytes make the draws a simulation that can be repeated.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._pool = b""
        self._used = 0
        self._block = 0

    def bits(self, count: int) -> int:
        """A uniform whole number of `count` bits."""
        if self._key is None:
            return secrets.randbits(count)
        size = (count + 7) // 8
        while len(self._pool) - self._used < size:
            self._refill(self._key)
        start, self._used = self._used, self._used + size
        return int.from_bytes(self._pool[start : self._used], "little") >> (8 * size - count)

    def below(self, bound: int) -> int:
        """A uniform whole number in [0, bound), by drawing again what lies outside."""
        width = (bound - 1).bit_length()
        while (drawn := self.bits(width)) >= bound:
            pass
        return drawn

    def flip(self, numerator: int, denominator: int) -> bool:
        """True with probability numerator / denominator, which lies in [0, 1]."""
        return self.below(denominator) < numerator

    def flip_exp(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(-numerator / denominator), for any rational that is not negative.

        For g in [0, 1], let K be the first k at which a coin of bias g/k shows False: K is odd with probability
        exp(-g), by the series of the exponential. A larger exponent is split into ones and a rest, whose coins must all
        be True. Fewer than 3 flips each on average.
        """
        ones, rest = divmod(numerator, denominator)
        return all(self._flip_exp(1, 1) for _ in range(ones)) and self._flip_exp(rest, denominator)

    def _flip_exp(self, numerator: int, denominator: int) -> bool:
        """`flip_exp` for exponents in [0, 1]."""
        trial = 1
        while self.flip(numerator, denominator * trial):
            trial += 1
        return trial % 2 == 1

    def _refill(self, key: bytes) -> None:
        block_key = subkey(key, "coins", self._block)
        self._pool = self._pool[self._used :] + random_words(_BLOCK, np.uint8, block_key).tobytes()
        self._used = 0
        self._block += 1
