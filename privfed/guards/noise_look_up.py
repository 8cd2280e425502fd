"""Look-ups in the tables of exact noise as machine code, one pass over the draws; equal to `numpy_look_up`."""

import numpy as np
from jaxtyping import Int32, Int64, UInt64

from privfed.compute.compiled import compiled


@compiled
def look_up(
    words: UInt64[np.ndarray, " count"],
    edges: UInt64[np.ndarray, " edges"],
    guide: Int32[np.ndarray, " cells"],
    shift: int,
    first: int,
    values: Int64[np.ndarray, " count"],
) -> Int64[np.ndarray, " undecided"]:
    """Write the values of all words that are clear of thresholds, and return the positions of the others."""
    undecided, found = np.empty(len(words), np.int64), 0
    one, by = np.uint64(1), np.uint64(shift)
    for i in range(len(words)):
        word = words[i]
        cell = np.int64(word >> by)
        below = np.int64(guide[cell])
        if below < 0:
            low, high = max(word, one) - one, word if word == ~np.uint64(0) else word + one
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
            # Decided unless an edge lies within a unit of the word.
            if below < len(edges) and edges[below] <= high:
                undecided[found] = i
                found += 1
        values[i] = first + below
    return undecided[:found].copy()
