"""Whose neighbour is whose: what personalised tables and single uploads say about who is like whom.

GPFedRec (KDD 2024) sends each person a table averaged over their neighbours; its server has every table and so the
graph. Whoever sees the tables, or uploads, can ask the same of any pair of people.
"""

import numpy as np
from jaxtyping import Bool, Float64

from attacks.metrics import user_auc
from attacks.views.types import PerUser, ViewError


def nearest(histories: Bool[np.ndarray, "users items"], neighbours: int) -> Bool[np.ndarray, "users users"]:
    """True for the people whose histories overlap most with each person's, by Jaccard's index.

    Raises:
        ViewError: If there are not more people than neighbours.
    """
    if len(histories) <= neighbours:
        raise ViewError(f"{len(histories)} people have fewer than {neighbours} others; ask for fewer neighbours.")
    held = histories.astype(np.float64)
    both, sizes = held @ held.T, held.sum(axis=1)
    overlap = both / np.maximum(sizes[:, None] + sizes - both, 1.0)
    np.fill_diagonal(overlap, -np.inf)
    out = np.zeros(overlap.shape, dtype=bool)
    np.put_along_axis(out, np.argsort(-overlap, axis=1, kind="stable")[:, :neighbours], values=True, axis=1)
    return out


def neighbour_auc(similar: Float64[np.ndarray, "users users"], neighbours: Bool[np.ndarray, "users users"]) -> PerUser:
    """AUC with which each person's neighbours are told from the others."""
    auc: PerUser = user_auc(similar, neighbours, ~np.eye(len(similar), dtype=bool))
    return auc
