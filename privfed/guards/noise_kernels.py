"""The loops of noisy encoding as machine code, one pass over the numbers; equal to those of `secure_agg.noise`."""

import numpy as np
from jaxtyping import Float64, Int32, Int64, UInt32, UInt64

from privfed.compute.compiled import compiled
from secure_agg.noise import Kernels


@compiled
def look_up(
    uints: UInt64[np.ndarray, " count"],
    edges: UInt64[np.ndarray, " edges"],
    guide: Int32[np.ndarray, " cells"],
    shift: int,
    first: int,
    values: Int64[np.ndarray, " count"],
) -> Int64[np.ndarray, " undecided"]:
    """Add the draws of all uints that are clear of thresholds to values, and return the positions of the others."""
    undecided, found = np.empty(len(uints), np.int64), 0
    one, by = np.uint64(1), np.uint64(shift)
    for i in range(len(uints)):
        uint = uints[i]
        cell = np.int64(uint >> by)
        below = np.int64(guide[cell])
        if below < 0:
            low, high = max(uint, one) - one, uint if uint == ~np.uint64(0) else uint + one
            # Between the edges below this cell, less one that is a unit away, and those below the next.
            below, last = ~below, np.int64(len(edges))
            if cell + 1 < len(guide):
                last = np.int64(guide[cell + 1])
                last = ~last if last < 0 else last
            while below > 0 and edges[below - 1] >= low:
                below -= 1
            while below < last:
                middle = (below + last) // 2
                if edges[middle] < low:
                    below = middle + 1
                else:
                    last = middle
            # Decided unless an edge lies within a unit of the uint.
            if below < len(edges) and edges[below] <= high:
                undecided[found] = i
                found += 1
                continue
        values[i] += first + below
    return undecided[:found].copy()


@compiled(reassociate=True)
def round_up(
    values: Float64[np.ndarray, "rows columns"],
    uints: UInt32[np.ndarray, " rows*columns"],
    rounded: Int64[np.ndarray, "rows columns"],
) -> Float64[np.ndarray, " rows"]:
    """Round up with probability the fraction, in multiples of 2^-32, and return the squared norms of the rows."""
    rows, columns = values.shape
    norms = np.empty(rows)
    for row in range(rows):
        real, uint, whole = values[row], uints[row * columns : (row + 1) * columns], rounded[row]
        # Sums of squared integers below 2^53 are exact in any order.
        total = 0.0
        for column in range(columns):
            value = real[column]
            lower = np.floor(value)
            # Without a branch, so that vector units take several numbers at once.
            found = lower + 1.0 if np.float64(uint[column]) < (value - lower) * 2.0**32 else lower
            whole[column] = np.int64(found)
            total += found * found
        norms[row] = total
    return norms


COMPILED = Kernels(look_up, round_up)
