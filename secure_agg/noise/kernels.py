"""The two loops in which noisy encoding spends its time, and where to put faster ones.

Here they are numpy's. Whoever can compile loops hands over `Kernels` that find the same (`compute_with`), which a
trial confirms: wrong loops would draw other noise, or report norms that a bound is then not kept by.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError

Uints = NDArray[np.unsignedinteger]

LookUp = Callable[[Uints, Uints, NDArray[np.float64], int, NDArray[np.int64]], NDArray[np.intp]]
"""What `numpy_look_up` does."""

RoundUp = Callable[[NDArray[np.float64], Uints, NDArray[np.int64]], NDArray[np.float64]]
"""What `numpy_round_up` does."""

WORD_BITS = 64
MAX_WORD = (1 << WORD_BITS) - 1

_MIN_BITS, _MAX_BITS = 10, 12
"""Cells of a guide: few enough for a core's second cache."""

_PASSED_OVER = 1e-6
"""Far more than the rounding of a place, which is below 2^20 and computed in float64."""

_PIECE = 1 << 13
"""Numbers that are rounded at a time."""

_TRIED = 1 << 10
"""Words, and numbers of a row, of the trial of loops."""


class Kernels(NamedTuple):
    """The loops."""

    look_up: LookUp
    round_up: RoundUp


def guide_of(edges: Uints) -> NDArray[np.float64]:
    """A parabola for each range of words with the same leading bits that says about how many edges are below a word.

    Args:
        edges: rising thresholds from 0 to the largest word, each known to within a unit.

    Returns:
        `[2^bits, 4]`: p, q, r and a margin. At the fraction t of its range a word has the place p + q t + r t^2, and
        farther than the margin from integers the place tells surely between which edges a word lies, as places rise
        with words, and those of edges and of the words next to them are no farther from the edges' indices.
    """
    bits = min(max(edges.size.bit_length() - 2, _MIN_BITS), _MAX_BITS)
    shift = np.uint64(WORD_BITS - bits)
    starts = np.arange(1 << bits, dtype=np.uint64) << shift
    ends = np.append(_between_edges(edges, starts), edges.size - 1.0)
    start, end = ends[:-1], ends[1:]
    bend = 2.0 * (start + end) - 4.0 * _between_edges(edges, starts | np.uint64(1) << shift - np.uint64(1))
    slope = end - start - bend
    guide = np.stack([start, slope, bend, np.zeros(1 << bits)], axis=1)
    for words in (np.maximum(edges, 1) - np.uint64(1), edges, np.minimum(edges, MAX_WORD - 1) + np.uint64(1)):
        cells, place = _places(words, guide)
        np.maximum.at(guide[:, 3], cells, np.abs(place - np.arange(edges.size)))
    guide[:, 3] += _PASSED_OVER
    # Where a parabola turns round, all words are searched for.
    guide[(slope < 0.0) | (slope + 2.0 * bend < 0.0), 3] = 1.0
    return guide


def _between_edges(edges: Uints, words: Uints) -> NDArray[np.float64]:
    """How many edges but the first are below words, between edges in proportion."""
    above = np.searchsorted(edges, words).clip(1, edges.size - 1)
    below, width = edges[above - 1], edges[above] - edges[above - 1]
    found: NDArray[np.float64] = above - 1 + ((words - below) / np.maximum(width, 1)).clip(0.0, 1.0)
    return found


def _places(uints: Uints, guide: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Cells of words in a guide, and their places by it."""
    shift = np.uint64(WORD_BITS + 1 - len(guide).bit_length())
    cells = (uints >> shift).astype(np.intp)
    within = (uints & ((np.uint64(1) << shift) - np.uint64(1))) * 2.0 ** -int(shift)
    start, slope, bend, _ = guide[cells].T
    return cells, start + within * (slope + within * bend)


def numpy_look_up(
    uints: Uints, edges: Uints, guide: NDArray[np.float64], first: int, values: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Add the draws of all uints that are clear of thresholds to values, and return the positions of the others.

    Args:
        uints: the first 64 bits of uniform numbers, `[count]`.
        edges: rising thresholds from 0 to the largest word, each known to within a unit.
        guide: as `guide_of` finds it.
        first: the draw of a word that no edge is below.
        values: `[count]`, written; those of the positions returned are left as they are.
    """
    cells, place = _places(uints, guide)
    below = place.astype(np.intp)
    beyond = place - below
    below += 1
    missed = np.flatnonzero(np.minimum(beyond, 1.0 - beyond) <= guide[cells, 3])
    # An edge is below a word surely where it is below word - 1, and possibly where it is no more than word + 1,
    # saturating at the ends of the range. A threshold is known to within a unit, so where both count the same the
    # cell is certain.
    low = np.maximum(uints[missed], 1) - np.uint64(1)
    high = np.minimum(uints[missed], MAX_WORD - 1) + np.uint64(1)
    below[missed] = surely_below = np.searchsorted(edges, low, side="left")
    undecided: NDArray[np.intp] = missed[surely_below != np.searchsorted(edges, high, side="right")]
    below[undecided] = -first
    values += below
    values += first
    return undecided


def numpy_round_up(values: NDArray[np.float64], uints: Uints, rounded: NDArray[np.int64]) -> NDArray[np.float64]:
    """Round up with probability the fraction, itself rounded up to a multiple of 2^-32, else down; integers stay.

    Args:
        values: `[rows, columns]`.
        uints: 32 uniform bits for each value, in its order.
        rounded: written, `[rows, columns]`.

    Returns:
        The squared norms of the rounded rows, exact below 2^53.
    """
    whole, flat = np.empty(values.shape), values.reshape(-1)
    found = whole.reshape(-1)
    # In pieces that stay in a core's cache from one pass to the next.
    for start in range(0, flat.size, _PIECE):
        piece = slice(start, start + _PIECE)
        lower = np.floor(flat[piece], out=found[piece])
        fraction = flat[piece] - lower
        fraction *= 2.0**32
        lower += uints[piece] < fraction
    rounded[:] = whole
    return squared_norms(whole)


def squared_norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """[rows] from [rows, columns]; exact for integers, as long as sums stay below 2^53."""
    return np.asarray(np.vecdot(rows, rows))


NUMPY = Kernels(numpy_look_up, numpy_round_up)

_in_use = [NUMPY]


def compute_with(kernels: Kernels) -> None:
    """Let noisy encoding of this process use these loops.

    Raises:
        ConfigurationError: in a trial they found something else than numpy's.
    """
    if kernels is _in_use[0]:
        return
    ours, theirs = _trial(NUMPY), _trial(kernels)
    for what, mine in ours.items():
        if not np.array_equal(mine, theirs[what]):
            raise ConfigurationError(
                f"the loops handed over for noisy encoding find other {what} than numpy's; noise and norms would not "
                "be what a guarantee says: correct them, or compute without"
            )
    _in_use[0] = kernels


def in_use() -> Kernels:
    """The loops of this process."""
    return _in_use[0]


def _trial(kernels: Kernels) -> dict[str, NDArray[Any]]:
    """What they find for some thousand words and numbers, many of them at a threshold or an integer."""
    rng = np.random.default_rng(0)
    found: dict[str, NDArray[Any]] = {}
    uints = rng.integers(0, MAX_WORD, _TRIED, np.uint64, endpoint=True)
    # Few and far between, and as near to each other as in the tails of a law.
    edges = np.sort(np.concatenate([uints[:20], uints[0] + np.arange(20, dtype=np.uint64), [np.uint64(MAX_WORD)]]))
    near = (edges[:, None] + np.array([-2, -1, 0, 1, 2]).astype(np.uint64)).ravel()
    uints = np.concatenate([uints, near])
    draws = np.full(uints.size, 7)
    found["undecided words"] = kernels.look_up(uints, edges, guide_of(edges), -20, draws)
    found["draws"] = draws
    values = rng.normal(0.0, 50.0, (3, _TRIED))
    values[:, ::3] = np.round(values[:, ::3])
    bits = rng.integers(0, 1 << 32, values.size, np.uint32)
    rounded = np.empty(values.shape, np.int64)
    found["norms"] = kernels.round_up(values, bits, rounded)
    found["rounded numbers"] = rounded
    return found
