"""The fast sampler: inversion of a tabulated cumulative distribution, exact because it reads more bits where needed.

A draw is the cell of the cumulative distribution into which a uniform number falls. A table knows each threshold to
within one unit of 2^-64 on one side and two on the other, so the first 64 bits of the number decide unless they come
within one unit of a threshold. In that case, of probability about 3 * support / 2^64 per draw, the number is extended
to 128, 256, ... bits and the thresholds are computed again to match, until it is decided. So nothing is rounded: if the
bits are uniform, the values have exactly the probabilities of the law. The only assumption is that on AES in counter
mode, on which the masks of secure aggregation rest as well.

Among words with the same leading bits the thresholds lie so evenly that a parabola says how many are below a word. By
how much it errs at each threshold is known, so it decides alone except near thresholds and far out in the tails, where
a binary search does. The parabolas stay in a core's cache, where the thresholds would not.

Sources: inversion and guide tables as in Devroye, "Non-Uniform Random Variate Generation" (1986), chapter III; reading
more bits of a number as they are needed is Knuth and Yao (1976). The laws are those of `laws.py`.
"""

import math
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_positive
from secure_agg.errors import ConfigurationError
from secure_agg.noise.kernels import MAX_WORD, WORD_BITS, Uints, guide_of, in_use
from secure_agg.noise.laws import Law, check_law, integer_weights
from secure_agg.noise.random_source import RandomSource
from secure_agg.noise.subkeys import subkey
from secure_agg.noise.tail_bounds import tail_bound
from secure_agg.primitives.prg import keystream_pieces

MAX_STANDARD_DEVIATION = 1 << 14
"""Standard deviation up to which tables are built: 0.4 million cells, 3 MB."""


class InverseCdfTable:
    """The cumulative distribution of one law at one variance, tabulated for inversion.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter v.

    Raises:
        ConfigurationError: an unknown law, a variance that is not positive and finite, or a standard deviation above
            2^14.
    """

    def __init__(self, law: Law, variance: float | Fraction) -> None:
        check_law(law)
        self._law, self._variance = law, check_positive("variance", variance)
        if self._variance > MAX_STANDARD_DEVIATION**2:
            raise ConfigurationError(
                f"one client's noise has a standard deviation of {math.sqrt(self._variance):.6g} steps and tables go "
                f"up to {MAX_STANDARD_DEVIATION}; coarsen the grid, as steps so far below the noise gain nothing, or "
                "sample by exact arithmetic"
            )
        thresholds = cumulative(law, self._variance, WORD_BITS)  # of -last, ..., last + 1
        self._lowest = 1 - len(thresholds) // 2
        # The last threshold is 2^64, which no 64-bit word holds; the largest word stands for it.
        self._edges = np.array([*thresholds[:-1], MAX_WORD], np.uint64)
        self._guide = guide_of(self._edges)

    def sample(self, count: int, key: bytes | None = None) -> NDArray[np.int64]:
        """Independent draws.

        Args:
            count: number of draws.
            key: `None` draws from the operating system; 32 bytes make the draws reproducible, for simulations.

        Returns:
            [count].

        Raises:
            ConfigurationError: a key of another length.
        """
        values = np.zeros(count, np.int64)
        self.add_to(values, key)
        return values

    def add_to(self, values: NDArray[np.int64], key: bytes | None = None) -> None:
        """Add an independent draw to every value, those that `sample` draws from the same key.

        Args:
            values: [count], contiguous; written.
            key: as in `sample`.

        Raises:
            ConfigurationError: a key of another length.
        """
        stream_key, start = secrets.token_bytes(32) if key is None else key, 0
        for words in keystream_pieces(stream_key, values.size, np.uint64):
            self._add(words, values[start : start + words.size], partial(_further_bits, stream_key, start))
            start += words.size

    def invert(self, uints: Uints, further_bits: Callable[[int], RandomSource]) -> NDArray[np.int64]:
        """The values at given uniform numbers.

        Args:
            uints: [count], the first 64 bits of each number.
            further_bits: source of the further bits of a number, by its position in `uints`; called only where 64 bits
                do not decide.

        Returns:
            [count].
        """
        values = np.zeros(uints.size, np.int64)
        self._add(uints, values, further_bits)
        return values

    def _add(self, uints: Uints, values: NDArray[np.int64], further_bits: Callable[[int], RandomSource]) -> None:
        """Add the draws at given uniform numbers to values."""
        look_up = in_use().look_up
        for position in look_up(uints, self._edges, self._guide, self._lowest - 1, values).tolist():
            values[position] += self._decide(int(uints[position]), further_bits(position))

    def _decide(self, word: int, source: RandomSource) -> int:
        """The value at the number that begins with `word`, read to as many further bits as it takes."""
        precision = WORD_BITS
        while True:
            word = word << precision | source.random_bits(precision)
            precision *= 2
            thresholds = cumulative(self._law, self._variance, precision)
            surely_below, possibly_below = bisect_left(thresholds, word - 1), bisect_right(thresholds, word + 1)
            if surely_below == possibly_below:
                return surely_below - len(thresholds) // 2


def _further_bits(stream_key: bytes, start: int, position: int) -> RandomSource:
    """The further bits of one draw of a keystream, at a position after `start`."""
    return RandomSource(subkey(stream_key, "further bits", start + position))


@lru_cache(maxsize=8)
def inverse_cdf_table(law: Law, variance: Fraction) -> InverseCdfTable:
    """The table of a law and variance, built once (milliseconds to half a second) and cached."""
    return InverseCdfTable(law, variance)


def cumulative(law: Law, variance: Fraction, precision: int) -> list[int]:
    """Integers T with T - 1 < 2^precision P(X < k) < T + 2, for k = -last, ..., last + 1, with `last` a tail bound.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter v.
        precision: number of bits.
    """
    # The weights are cut off where 2^-(precision + 40) of the law is left and carry 100 bits more than `precision`, so
    # by their error bound (`integer_weights`, last below 2^30) the distribution function errs by less than
    # 2^-precision; the rest is rounding down. A number u within 2^precision, known as U <= u < U + 1, is therefore
    # surely on one side of the threshold unless T - 1 <= U <= T + 1.
    last = tail_bound(law, float(variance), -(precision + 40) * math.log(2.0))
    half = integer_weights(law, variance, last, precision + 100)
    total = 2 * sum(half) - half[0]
    return [(below << precision) // total for below in accumulate([*half[:0:-1], *half], initial=0)]
