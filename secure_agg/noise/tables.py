"""The fast sampler: cumulative tables inverted at uniform words, exact to the last bit of as many bits as it takes.

A draw is the cell of the cumulative distribution into which a uniform number falls. A table knows each threshold to
within one unit of 2^-64 on one side and two on the other, so 64 bits of the number decide unless they come within one
unit of a threshold. Then, a chance of about 3 * support / 2^64 per draw, the number is given more bits and the
thresholds are computed again to match, 128, 256, ... of them, until it is decided. So nothing is rounded: the values
have exactly the probabilities of the law if the bits are uniform, and the only assumption is that on AES in counter
mode, which the masks of secure aggregation rest on too.

A guide over the leading bits answers most draws with one look-up, and the rest by binary search.

Sources: inversion and guide tables as in Devroye, "Non-Uniform Random Variate Generation" (1986), chapter III; giving a
number more bits as they are needed is Knuth and Yao (1976). The laws are those of `laws.py`.
"""

import math
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError
from secure_agg.noise.checks import positive
from secure_agg.noise.coins import Coins
from secure_agg.noise.laws import Law, accept_law, half_weights
from secure_agg.noise.subkeys import subkey
from secure_agg.noise.tails import reach
from secure_agg.prg import Words, random_words

LARGEST_DEVIATION = 1 << 14
"""Standard deviation up to which tables are built: 0.4 million cells, 11 MB with the guide."""

_WORD = 64
_LARGEST_WORD = (1 << _WORD) - 1
_CHUNK = 1 << 15
_FEWEST_GUIDE_BITS, _MOST_GUIDE_BITS = 10, 20


class InverseTable:
    """The cumulative table of one law at one variance.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter v.

    Raises:
        ConfigurationError: an unknown law, a variance that is not positive and finite, or a deviation above 2^14.
    """

    def __init__(self, law: Law, variance: float | Fraction) -> None:
        accept_law(law)
        self._law, self._variance = law, positive("variance", variance)
        if self._variance > LARGEST_DEVIATION**2:
            raise ConfigurationError(
                f"one client's noise has a standard deviation of {math.sqrt(self._variance):.6g} steps and tables go "
                f"up to {LARGEST_DEVIATION}; coarsen the grid, as steps so far below the noise gain nothing, or draw "
                "by exact arithmetic"
            )
        thresholds = cumulative(law, self._variance, _WORD)
        self._lowest = 1 - len(thresholds) // 2
        self._edges = np.array([*thresholds[:-1], _LARGEST_WORD], np.uint64)
        self._shift, self._guide = _guide(self._edges)

    def draw(self, count: int, key: bytes | None = None) -> NDArray[np.int64]:
        """Independent draws.

        Args:
            count: how many.
            key: `None` draws from the operating system; 32 bytes make it a simulation.

        Returns:
            [count].

        Raises:
            ConfigurationError: a key of another length.
        """
        stream = secrets.token_bytes(32) if key is None else key
        words = random_words(count, np.uint64, stream)

        return self.invert(words, lambda place: Coins(subkey(stream, "further bits", place)))

    def invert(self, words: Words, more: Callable[[int], Coins]) -> NDArray[np.int64]:
        """The values at given uniform numbers.

        Args:
            words: [count], the first 64 bits of each number.
            more: by place in `words`, where further bits of that number come from; asked only where 64 do not decide.

        Returns:
            [count].
        """
        values = np.empty(words.size, np.int64)
        for start in range(0, words.size, _CHUNK):
            undecided = self._look_up(words[start : start + _CHUNK], values[start : start + _CHUNK])
            for place in (start + undecided).tolist():
                values[place] = self._decide(int(words[place]), more(place))
        return values

    def _look_up(self, words: Words, values: NDArray[np.int64]) -> NDArray[np.intp]:
        """Write the values of all words that are clear of thresholds, and return the places of the others."""
        np.take(self._guide, (words >> self._shift).astype(np.intp), out=values, mode="clip")
        unsure = np.flatnonzero(values < 0)
        searched = words[unsure]
        surely_below = np.searchsorted(self._edges, np.maximum(searched, 1) - np.uint64(1), side="left")
        maybe_below = np.searchsorted(self._edges, np.minimum(searched, _LARGEST_WORD - 1) + np.uint64(1), side="right")
        values[unsure] = surely_below
        values += self._lowest - 1
        return np.asarray(unsure[surely_below != maybe_below], np.intp)

    def _decide(self, word: int, coins: Coins) -> int:
        """The value at the number that begins with `word`, with as many further bits as it takes."""
        precision = _WORD
        while True:
            word = word << precision | coins.bits(precision)
            precision *= 2
            thresholds = cumulative(self._law, self._variance, precision)
            surely_below, maybe_below = bisect_left(thresholds, word - 1), bisect_right(thresholds, word + 1)
            if surely_below == maybe_below:
                return surely_below - len(thresholds) // 2


@lru_cache(maxsize=8)
def inverse_table(law: Law, variance: Fraction) -> InverseTable:
    """The table of a law and variance, built once (milliseconds to half a second) and kept for later calls."""
    return InverseTable(law, variance)


def cumulative(law: Law, variance: Fraction, precision: int) -> list[int]:
    """Whole numbers T with T - 1 < 2^precision P(X < k) < T + 2, for k = -reach, ..., reach + 1.

    The weights are cut off where 2^-(precision + 40) of the law is left and carry 100 bits more than `precision`, so by
    their error bound (`half_weights`, reach below 2^30) the distribution function errs by less than 2^-precision; the
    rest is rounding down. A number u within 2^precision, known as U <= u < U + 1, is therefore surely on one side of
    the threshold unless T - 1 <= U <= T + 1.

    Args:
        law: which law.
        variance: its parameter.
        precision: bits.
    """
    last = reach(law, float(variance), -(precision + 40) * math.log(2.0))
    half = half_weights(law, variance, last, precision + 100)
    total = 2 * sum(half) - half[0]
    return [(below << precision) // total for below in accumulate([*half[:0:-1], *half], initial=0)]


def _guide(edges: Words) -> tuple[np.uint64, NDArray[np.int64]]:
    """By leading bits: how many edges lie below where none is within one unit of the words that begin so, else -1."""
    bits = min(max(edges.size.bit_length() + 3, _FEWEST_GUIDE_BITS), _MOST_GUIDE_BITS)
    shift = np.uint64(_WORD - bits)
    within = np.bincount((edges >> shift).astype(np.intp), minlength=1 << bits)
    guide = np.where(within == 0, np.cumsum(within), -1)
    for near in (np.maximum(edges, 1) - np.uint64(1), np.minimum(edges, _LARGEST_WORD - 1) + np.uint64(1)):
        guide[(near >> shift).astype(np.intp)] = -1
    return shift, guide
