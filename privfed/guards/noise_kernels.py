"""The loops of noisy encoding as machine code, one pass over the numbers; equal to those of `secure_agg.noise`."""

import numpy as np
from jaxtyping import Float64, Int64, UInt32, UInt64

from privfed.compute.compiled import compiled
from secure_agg.noise import Kernels


@compiled
def look_up(
    uints: UInt64[np.ndarray, " count"],
    edges: UInt64[np.ndarray, " edges"],
    guide: Float64[np.ndarray, "cells 4"],
    first: int,
    values: Int64[np.ndarray, " count"],
) -> Int64[np.ndarray, " undecided"]:
    """Add the draws of all uints that are clear of thresholds to values, and return the positions of the others."""
    undecided, found = np.empty(len(uints), np.int64), 0
    bits = 0
    while 1 << bits < len(guide):
        bits += 1
    shift = np.uint64(64 - bits)
    rest, unit = (np.uint64(1) << shift) - np.uint64(1), 2.0 ** -float(64 - bits)
    for i in range(len(uints)):
        uint = uints[i]
        cell = np.int64(uint >> shift)
        within = np.float64(np.int64(uint & rest)) * unit
        place = guide[cell, 0] + within * (guide[cell, 1] + within * guide[cell, 2])
        below = np.int64(place)
        beyond = place - np.float64(below)
        below += 1
        if min(beyond, 1.0 - beyond) <= guide[cell, 3]:
            below = np.int64(searched(uint, edges))
            if below < 0:
                undecided[found] = i
                found += 1
                continue
        values[i] += first + below
    return undecided[:found].copy()


@compiled
def searched(uint: np.uint64, edges: UInt64[np.ndarray, " edges"]) -> int:
    """How many edges are below a uint, or -1 where one lies within a unit of it."""
    one, top = np.uint64(1), ~np.uint64(0)
    low, high = uint - one if uint else uint, uint if uint == top else uint + one
    below, end = 0, len(edges)
    while below < end:
        middle = (below + end) // 2
        if edges[middle] < low:
            below = middle + 1
        else:
            end = middle
    return -1 if below < len(edges) and edges[below] <= high else below


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
