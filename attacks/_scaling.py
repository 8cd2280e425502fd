"""Scores of different users on one scale, and choices among one user's items."""

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.views.types import Scores


def divide_by_rms(scores: Scores) -> Scores:
    """Each user's scores divided by their root mean square; 0 for a user whose scores are all 0."""
    scale = np.sqrt(np.square(scores).mean(axis=1, keepdims=True))
    scaled: Scores = np.divide(scores, scale, out=np.zeros_like(scores), where=scale > 0)
    return scaled


def standardise(scores: Scores) -> Scores:
    """Scores of mean 0 and variance 1 per user; 0 for a user whose scores are all equal."""
    return divide_by_rms(scores - scores.mean(axis=1, keepdims=True))


def floor_non_candidates(scores: Scores, candidates: Bool[np.ndarray, "users items"]) -> Scores:
    """Scores of the candidates, with all other pairs one below the lowest candidate of any user."""
    floor = scores.min(where=candidates, initial=0.0) - 1
    return np.where(candidates, scores, floor)


def select_smallest(
    values: Float64[np.ndarray, "users items"],
    among: Bool[np.ndarray, "users items"],
    count: Int64[np.ndarray, "users"],
) -> Bool[np.ndarray, "users items"]:
    """Mask of each user's `count` smallest values among the allowed items, or of all of them if there are fewer."""
    # rank[u, order[u, r]] = r, so rank holds each item's position in ascending order: [users, items].
    order = np.where(among, values, np.inf).argsort(axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(values.shape[1])[None], axis=1)
    chosen: Bool[np.ndarray, "users items"] = among & (rank < count[:, None])
    return chosen
