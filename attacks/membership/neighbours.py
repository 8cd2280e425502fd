"""Neighbours: users with similar uploads like similar items, and some of them collude.

A server that builds a graph of users from their item tables, as GPFedRec does (Zhang et al., KDD 2024, cosine
similarity of the tables), knows from it which users share a taste. Colluding users know their own histories, so a
neighbour's history predicts the history of another user: the k nearest colluders vote with their similarity, as in the
oldest collaborative filter (Resnick et al., "GroupLens", CSCW 1994). A few histories are thin evidence, so popularity
counts as some more colluders:

    score(u, i) = sum_v w_uv h_vi + m pi_i,        w_uv = max(0, cos(x_u, x_v)) over the largest of u's,

where h_v is 1 for the items of colluder v, and pi_i the popularity of item i, scaled to the colluders' mean history.
Single rows are not read, so a mechanism that hides the rows of one upload among others does not hide taste as long as
the direction of the whole upload survives.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from attacks._scaling import standardise
from attacks.membership.attack import UploadAttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.rows import residual_rows
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class NeighbourVote(UploadAttackInfo):
    """Score each item by the number of most similar colluders who have it.

    Attributes:
        nearest: Number of colluders who vote on each user.
        prior: m, the weight of popularity as a number of votes of the nearest colluder.

    Raises:
        ValueError: If `nearest` is below 1, or the prior negative or infinite.
    """

    nearest: int = 20
    prior: float = 5.0

    name: ClassVar[str] = "neighbours"
    knowledge: ClassVar[tuple[str, ...]] = (
        "histories of colluding users",
        "item popularity",
        "the proximal term that the server sent",
    )
    cost: ClassVar[str] = "O(items * width) per pair of a user and a colluder"
    explains: ClassVar[str] = (
        "Finds the colluding users whose uploads look most like a person's and guesses that this person has what they "
        "have."
    )

    def __post_init__(self) -> None:
        if self.nearest < 1 or not 0 <= self.prior < np.inf:
            raise ValueError(
                f"NeighbourVote got nearest={self.nearest} and prior={self.prior}; let at least 1 colluder vote, and "
                "pass a finite prior of at least 0."
            )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Votes with the prior, standardised per user.

        Colluders score 0 throughout. Measure the other users only (:meth:`attacks.Targets.excluding`).

        Raises:
            ViewError: If nobody colludes, or the popularity covers another catalogue than the view.
        """
        colluding, histories = knowledge.require_colluders(view, self.name)
        colluders = np.flatnonzero(colluding & view.present())
        popularity = knowledge.popularity_for(view)
        known = histories[colluders].astype(np.float64)
        total = popularity.sum()
        # Popularity as the history of an average colluder: it sums to the mean length of the known histories.
        share = popularity * (known.sum() / max(len(colluders), 1) / total if total > 0 else 0.0)
        weights = _similarity(view)[:, colluders].clip(min=0)  # [users, colluders]
        if self.nearest < len(colluders):
            # Ties at the k-th similarity all keep their vote.
            kth = np.partition(weights, -self.nearest, axis=1)[:, -self.nearest, None]
            weights = np.where(weights >= kth, weights, 0.0)
        nearest = weights.max(axis=1, keepdims=True, initial=0.0)
        votes = np.divide(weights, nearest, out=np.zeros_like(weights), where=nearest > 0) @ known + self.prior * share
        votes[colluding] = 0
        return standardise(votes)


def _similarity(view: ServerView) -> Float64[np.ndarray, "users users"]:
    """Cosines between whole uploads minus the mean upload, which only shows what everybody likes."""
    rows = residual_rows(view).reshape(view.n_users, -1)
    present = view.present()
    gram = (rows @ rows.T).astype(np.float64)
    mean = gram[:, present].mean(axis=1)
    # <x_u - m, x_v - m> from the inner products, without a centred copy of the uploads.
    gram = gram - mean[:, None] - mean[None] + mean[present].mean()
    length = np.sqrt(np.diagonal(gram).clip(min=0))
    scale = np.outer(length, length)
    cosines: Float64[np.ndarray, "users users"] = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    return cosines
