"""The two loops in which noisy encoding spends its time, and where to put faster ones.

Here they are numpy's. Whoever can compile loops hands over `Kernels` that find the same (`compute_with`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Uints = NDArray[np.unsignedinteger]

LookUp = Callable[[Uints, Uints, NDArray[np.float64], int, NDArray[np.int64]], NDArray[np.intp]]
"""What `numpy_look_up` does."""

RoundUp = Callable[[NDArray[np.float64], Uints, NDArray[np.int64]], NDArray[np.float64]]
"""What `numpy_round_up` does."""

MAX_WORD = (1 << 64) - 1

_PIECE = 1 << 13
"""Numbers that are rounded at a time."""


class Kernels(NamedTuple):
    """The loops."""

    look_up: LookUp
    round_up: RoundUp


def numpy_look_up(
    uints: Uints, edges: Uints, places: NDArray[np.float64], first: int, values: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Add the draws of all uints that are clear of thresholds to values, and return the positions of the others.

    Args:
        uints: the first 64 bits of uniform numbers, `[count]`.
        edges: rising thresholds from 0 to the largest word, each known to within a unit.
        places: about how many edges are below the words with given leading bits, `[2^bits + 1]`.
        first: the draw of a word that no edge is below.
        values: `[count]`, written; those of the positions returned are left as they are.
    """
    shift = np.uint64(65 - len(places).bit_length())
    cells = (uints >> shift).astype(np.intp)
    start = places[cells]
    within = (uints & ((np.uint64(1) << shift) - np.uint64(1))) * 2.0 ** -int(shift)
    below = (start + within * (places[cells + 1] - start)).astype(np.intp) + 1
    np.minimum(below, len(edges) - 1, out=below)
    # An edge is below a word surely where it is below word - 1, and possibly where it is no more than word + 1,
    # saturating at the ends of the range. A threshold is known to within a unit, so where both count the same the
    # cell is certain.
    low, high = np.maximum(uints, 1) - np.uint64(1), np.minimum(uints, MAX_WORD - 1) + np.uint64(1)
    missed = np.flatnonzero((edges[below - 1] >= low) | (edges[below] <= high))
    below[missed] = surely_below = np.searchsorted(edges, low[missed], side="left")
    undecided: NDArray[np.intp] = missed[surely_below != np.searchsorted(edges, high[missed], side="right")]
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
    """Let noisy encoding of this process use these loops, which have to be equal to numpy's."""
    _in_use[0] = kernels


def in_use() -> Kernels:
    """The loops of this process."""
    return _in_use[0]
