"""Neighbours: whose uploads look alike like the same items, and some of them talk.

A server that builds a graph of users from their item tables, as GPFedRec does (Zhang et al., KDD 2024, cosine
similarity of the tables), has in it who shares whose taste. Users who help it know their own histories. A neighbour's
history is then a guess at somebody else's: the k nearest helpers vote with their similarity, as in the oldest
collaborative filter (Resnick et al., "GroupLens", CSCW 1994). A few histories are thin evidence, so popularity counts
as some helpers more:

    score(u, i) = sum_v w_uv h_vi + m pi_i,        w_uv = max(0, cos(x_u, x_v)) over the largest of u's,

where h_v is 1 for the items of helper v, and pi_i the popularity of item i, scaled to helpers' mean history. Nothing
about single rows is read, so what hides the rows of one upload from its neighbours does not hide taste as long as the
direction of the whole survives.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from attacks._scaling import standardise
from attacks.membership.attack import UploadAttackInfo
from attacks.membership.oracle import residual_rows
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class NeighbourVote(UploadAttackInfo):
    """Score each item by how many of the most similar helpers have it.

    Attributes:
        nearest: Helpers who vote on each user.
        prior: m, as how many of the nearest helper popularity counts.

    Raises:
        ValueError: If `nearest` is below 1, or the prior negative or infinite.
    """

    nearest: int = 20
    prior: float = 5.0

    name: ClassVar[str] = "neighbours"
    knowledge: ClassVar[tuple[str, ...]] = (
        "histories of colluding users",
        "item popularity",
        "the pull the server sent",
    )
    cost: ClassVar[str] = "O(items * width) per pair of a user and a helper"
    explains: ClassVar[str] = (
        "Finds the colluding users whose uploads look most like a person's and guesses that this person has what they "
        "have."
    )

    def __post_init__(self) -> None:
        if self.nearest < 1 or not 0 <= self.prior < np.inf:
            raise ValueError(
                f"NeighbourVote got nearest={self.nearest} and prior={self.prior}; let at least 1 helper vote, and "
                "pass a finite prior of at least 0."
            )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Votes with the prior, standardised per user.

        Helpers themselves score 0 throughout. Ask about the others only (:meth:`attacks.view.Targets.without`).

        Raises:
            ViewError: If nobody helps, or the popularity covers another catalogue than the view.
        """
        colluding, histories = knowledge.require_colluders(view, self.name)
        helpers = np.flatnonzero(colluding & view.present())
        popularity = knowledge.popularity_for(view)
        known = histories[helpers].astype(np.float64)
        total = popularity.sum()
        share = popularity * (known.sum() / max(len(helpers), 1) / total if total > 0 else 0.0)
        weights = _similarity(view)[:, helpers].clip(min=0)
        if self.nearest < len(helpers):
            least = np.partition(weights, -self.nearest, axis=1)[:, -self.nearest, None]
            weights = np.where(weights >= least, weights, 0.0)
        most = weights.max(axis=1, keepdims=True, initial=0.0)
        votes = np.divide(weights, most, out=np.zeros_like(weights), where=most > 0) @ known + self.prior * share
        votes[colluding] = 0
        return standardise(votes)


def _similarity(view: ServerView) -> Float64[np.ndarray, "users users"]:
    """Cosines between whole uploads, each less the mean upload, which says what everybody likes."""
    rows = residual_rows(view).reshape(view.n_users, -1)
    present = view.present()
    gram = (rows @ rows.T).astype(np.float64)
    mean = gram[:, present].mean(axis=1)
    gram = gram - mean[:, None] - mean[None] + mean[present].mean()
    length = np.sqrt(np.diagonal(gram).clip(min=0))
    scale = np.outer(length, length)
    cosines: Float64[np.ndarray, "users users"] = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
    return cosines
