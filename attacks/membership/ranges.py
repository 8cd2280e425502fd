"""Range membership: did a user train on any of these items?

A yes to one of twenty films may be as embarrassing as a yes to one, and is easier to get: evidence about single items
adds up. The question is that of range membership inference (Tao & Shokri, "Range membership inference attacks", SaTML
2025); here a range is a set of items, and any attack on single items answers for it.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks._scaling import standardise
from attacks.views.types import Scores, ViewError


def range_scores(scores: Scores, ranges: Bool[np.ndarray, "ranges items"]) -> Float64[np.ndarray, "users ranges"]:
    """The score of every range: the largest of its items', each user's scores having mean 0 and variance 1.

    Args:
        scores: Of single items, by any attack.
        ranges: Items of each range.

    Raises:
        ViewError: If a range is empty or is about other items than the scores.
    """
    if ranges.shape[1] != scores.shape[1] or not ranges.any(axis=1).all():
        raise ViewError(
            f"Got ranges of shape {ranges.shape} for scores of {scores.shape[1]} items; pass one boolean per item, and "
            f"at least one item in each range."
        )
    standard = standardise(scores)
    return np.stack([standard[:, items].max(axis=1) for items in ranges], axis=1)


def range_members(
    members: Bool[np.ndarray, "users items"], ranges: Bool[np.ndarray, "ranges items"]
) -> Bool[np.ndarray, "users ranges"]:
    """True where a user trained on any item of the range."""
    held: Bool[np.ndarray, "users ranges"] = (members.astype(np.int64) @ ranges.T.astype(np.int64)) > 0
    return held


def balanced_ranges(
    popularity: Float64[np.ndarray, " items"], size: int, count: int, seed: int
) -> Bool[np.ndarray, "ranges items"]:
    """Random ranges of items of like popularity, so that a range says no more than its popularity.

    Args:
        popularity: Of the items, on any scale.
        size: Items in a range.
        count: Number of ranges.
        seed: Of the draw.

    Raises:
        ViewError: If the catalogue is smaller than a range.
    """
    n_items = len(popularity)
    if size > n_items:
        raise ViewError(f"A range of {size} items is larger than the catalogue of {n_items}; make it smaller.")
    order: Int64[np.ndarray, " items"] = np.argsort(-popularity, kind="stable")
    rng = np.random.default_rng(seed)
    out = np.zeros((count, n_items), dtype=bool)
    window = min(5 * size, n_items)
    for row, start in zip(out, rng.integers(0, n_items - window + 1, count), strict=True):
        row[order[start : start + window][rng.permutation(window)[:size]]] = True
    return out
