"""The loops of noisy encoding as machine code, one pass over the numbers; equal to those of `secure_agg.noise`."""

import numpy as np
from jaxtyping import Float64, Int64, UInt32, UInt64

from privfed.compute.compiled import compiled
from secure_agg.noise import Kernels


@compiled
def look_up(
    uints: UInt64[np.ndarray, " count"],
    edges: UInt64[np.ndarray, " edges"],
    places: Float64[np.ndarray, " cells+1"],
    first: int,
    values: Int64[np.ndarray, " count"],
) -> Int64[np.ndarray, " undecided"]:
    """Add the draws of all uints that are clear of thresholds to values, and return the positions of the others."""
    undecided, found = np.empty(len(uints), np.int64), 0
    one, top, last = np.uint64(1), ~np.uint64(0), np.int64(len(edges) - 1)
    bits = 0
    while 1 << bits < len(places) - 1:
        bits += 1
    shift = np.uint64(64 - bits)
    rest, unit = (one << shift) - one, 2.0 ** -float(64 - bits)
    for i in range(len(uints)):
        uint = uints[i]
        low, high = max(uint, one) - one, uint if uint == top else uint + one
        cell = np.int64(uint >> shift)
        place = places[cell] + np.float64(np.int64(uint & rest)) * unit * (places[cell + 1] - places[cell])
        below = np.int64(place) + 1
        below = min(below, last)
        if edges[below - 1] >= low or edges[below] <= high:
            below, end = np.int64(0), np.int64(last + 1)
            while below < end:
                middle = (below + end) // 2
                if edges[middle] < low:
                    below = middle + 1
                else:
                    end = middle
            # Decided unless an edge lies within a unit of the uint.
            if below <= last and edges[below] <= high:
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
