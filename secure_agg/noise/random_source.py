"""Exact randomness without floats: uniform integers, and Bernoulli(p) and Bernoulli(exp(-g)) for rational p and g.

Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2004.00010), algorithm 1.
"""

import secrets

import numpy as np

from secure_agg.noise.subkeys import subkey
from secure_agg.primitives.prg import random_uints

_POOL_BYTES = 1 << 13


class RandomSource:
    """Uniform integers and Bernoulli variables.

    Args:
        key: `None` asks the operating system for every draw; 32 bytes make the draws reproducible, for simulations.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._pool = b""
        self._used = 0
        self._refills = 0

    def random_bits(self, count: int) -> int:
        """A uniform integer of `count` bits."""
        if self._key is None:
            return secrets.randbits(count)
        size = (count + 7) // 8
        while len(self._pool) - self._used < size:
            self._refill(self._key)
        start, self._used = self._used, self._used + size
        return int.from_bytes(self._pool[start : self._used], "little") >> (8 * size - count)

    def uniform_below(self, bound: int) -> int:
        """A uniform integer in [0, bound), by rejection."""
        bits = (bound - 1).bit_length()
        while (candidate := self.random_bits(bits)) >= bound:
            pass
        return candidate

    def bernoulli(self, numerator: int, denominator: int) -> bool:
        """True with probability numerator / denominator, which lies in [0, 1]."""
        return self.uniform_below(denominator) < numerator

    def bernoulli_exp(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(-numerator / denominator), for any non-negative rational."""
        # exp(-(n + r)) = exp(-1)^n exp(-r): all of n + 1 independent variables must be True.
        ones, remainder = divmod(numerator, denominator)
        return all(self._bernoulli_exp(1, 1) for _ in range(ones)) and self._bernoulli_exp(remainder, denominator)

    def _bernoulli_exp(self, numerator: int, denominator: int) -> bool:
        """`bernoulli_exp` for exponents g in [0, 1]; fewer than 3 trials on average."""
        # Let K be the first k for which Bernoulli(g / k) is False. P(K > k) = g^k / k!, so P(K odd) is the alternating
        # series of exp(-g).
        trial = 1
        while self.bernoulli(numerator, denominator * trial):
            trial += 1
        return trial % 2 == 1

    def _refill(self, key: bytes) -> None:
        # The label is part of what a key reproduces: it must never change.
        pool_key = subkey(key, "coins", self._refills)
        self._pool = self._pool[self._used :] + random_uints(_POOL_BYTES, np.uint8, pool_key).tobytes()
        self._used = 0
        self._refills += 1
