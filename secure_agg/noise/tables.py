"""The fast sampler: cumulative tables inverted at 128-bit uniform numbers, driven by AES in counter mode.

A table holds floor(2^128 F(k)) for every k of the support. A draw is the cell into which a uniform 128-bit number
falls. Its upper 64 bits decide almost always; only when they equal those of a threshold (a chance of support / 2^64)
are the lower 64 drawn too. A guide over the leading bits answers most draws with one look-up, the rest by binary
search.

Distance from the law, in total variation: at most 2^-100 per draw (`DISTANCE`), as reach < 2^18 here. It is the sum of

    (2 reach + 2) * 2^-140 + 2^-180     cut-off and arithmetic of the weights (`half_weights`),
    (2 reach + 1) * 2^-129              rounding of the thresholds, each by less than 2^-128,

which `InverseTable.distance` states for the table at hand.

Sources: inversion and guide tables as in Devroye, "Non-Uniform Random Variate Generation" (1986), chapter III; the laws
as in `laws.py`.
"""

import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError
from secure_agg.noise.checks import positive
from secure_agg.noise.laws import NEGLIGIBLE, Law, accept_law, half_weights
from secure_agg.noise.tails import reach
from secure_agg.prg import Words, random_words

DISTANCE = 2.0**-100
"""Total variation distance per draw that every table stays under."""

LARGEST_DEVIATION = 1 << 14
"""Standard deviation up to which tables are built: half a million cells, 16 MB with the guide."""

_CHUNK = 1 << 15
_WORD = 64
_FEWEST_GUIDE_BITS, _MOST_GUIDE_BITS = 10, 20


class InverseTable:
    """The cumulative table of one law at one variance.

    Args:
        law: "skellam" or "discrete_gaussian".
        variance: variance parameter v.

    Attributes:
        reach: largest magnitude in the support.
        distance: proven total variation distance of a draw from the law.

    Raises:
        ConfigurationError: an unknown law, a variance that is not positive and finite, or a deviation above 2^14.
    """

    def __init__(self, law: Law, variance: float | Fraction) -> None:
        accept_law(law)
        exactly = positive("variance", variance)
        if exactly > LARGEST_DEVIATION**2:
            raise ConfigurationError(
                f"one client's noise has a standard deviation of {math.sqrt(exactly):.6g} steps and tables go up to "
                f"{LARGEST_DEVIATION}; coarsen the grid, as steps so far below the noise gain nothing, or draw exactly"
            )
        self.reach = reach(law, float(exactly), NEGLIGIBLE)
        support = 2 * self.reach + 1
        self.distance = (support + 1) * NEGLIGIBLE + 2.0**-180 + support * 2.0**-129
        half = half_weights(law, exactly, self.reach)
        self._high, self._low = _thresholds([*half[:0:-1], *half])
        self._shift, self._guide = _guide(self._high)

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
        return self.invert(words, lambda more: random_words(count + more, np.uint64, stream)[count:])

    def invert(self, words: Words, lower: Callable[[int], Words]) -> NDArray[np.int64]:
        """The values at given uniform numbers.

        Args:
            words: [count], the upper 64 bits.
            lower: gives as many lower 64-bit words as are asked for; called at most once, when some are needed.

        Returns:
            [count].
        """
        cells = np.empty(words.size, np.int64)
        ties = [
            start + self._place(words[start : start + _CHUNK], cells[start : start + _CHUNK])
            for start in range(0, words.size, _CHUNK)
        ]
        tied = np.concatenate([np.empty(0, np.intp), *ties])
        if tied.size:
            for place, low in zip(tied.tolist(), lower(tied.size).tolist(), strict=True):
                cells[place] = self._settle(int(cells[place]), int(words[place]), low)
        cells -= self.reach
        return cells

    def _place(self, words: Words, cells: NDArray[np.int64]) -> NDArray[np.intp]:
        """Write how many thresholds lie below each word, and return where the upper half equals a threshold's."""
        np.take(self._guide, (words >> self._shift).astype(np.intp), out=cells, mode="clip")
        unsure = np.flatnonzero(cells < 0)
        searched = words[unsure]
        below = np.searchsorted(self._high, searched)
        cells[unsure] = below
        return np.asarray(unsure[self._high.take(below, mode="clip") == searched], np.intp)

    def _settle(self, cell: int, high: int, low: int) -> int:
        """The cell of the 128-bit number (high, low): up from the first whose threshold shares the upper half."""
        while cell < self._high.size and int(self._high[cell]) == high and int(self._low[cell]) <= low:
            cell += 1
        return cell


@lru_cache(maxsize=8)
def inverse_table(law: Law, variance: Fraction) -> InverseTable:
    """The table of a law and variance, built once (milliseconds to half a second) and kept for later calls."""
    return InverseTable(law, variance)


def _thresholds(weights: list[int]) -> tuple[Words, Words]:
    """Upper and lower 64 bits of floor(2^128 F), for all cells but the last, whose threshold is 2^128 itself."""
    total, below, packed = sum(weights), 0, bytearray()
    for weight in weights[:-1]:
        below += weight
        packed += ((below << 2 * _WORD) // total).to_bytes(2 * _WORD // 8, "little")
    pairs = np.frombuffer(bytes(packed), "<u8").reshape(-1, 2)
    return pairs[:, 1].astype(np.uint64), pairs[:, 0].astype(np.uint64)


def _guide(high: Words) -> tuple[np.uint64, NDArray[np.int64]]:
    """By leading bits: the cell where no threshold has them, else -1."""
    bits = min(max(high.size.bit_length() + 3, _FEWEST_GUIDE_BITS), _MOST_GUIDE_BITS)
    shift = np.uint64(_WORD - bits)
    within = np.bincount((high >> shift).astype(np.intp), minlength=1 << bits)
    return shift, np.where(within == 0, np.cumsum(within), -1)
