"""Row support and row norm: membership from which rows moved, and how far.

An item table's gradient is zero on rows the user never looked up, so a plain upload shows the user's items
(and its sampled negatives) as its non-zero rows. Positives are rarer than negatives and are pushed harder, so
among the touched rows the longer ones are more often real. The observation is as old as federated
recommendation (Chai et al., "Secure federated matrix factorization", IEEE Intelligent Systems 2020).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attacks._scaling import divide_by_rms
from attacks.membership.attack import UploadAttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.rows import row_norms, upload_support
from attacks.views.server import ServerView
from attacks.views.types import Scores


@dataclass(frozen=True)
class RowSupport(UploadAttackInfo):
    """Score 1 for rows that moved, 0 for rows that did not."""

    name: ClassVar[str] = "row support"
    knowledge: ClassVar[tuple[str, ...]] = ("the proximal term that the server sent",)
    cost: ClassVar[str] = "O(items * width) per user"
    explains: ClassVar[str] = (
        "Calls every item whose row changed in the upload a member; exact when clients train on their own "
        "items only, diluted by sampled negatives or fake items, and blind once noise lies on every row."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:  # noqa: ARG002 - uses no prior knowledge
        """1.0 where the row was touched; all equal if the support cannot be identified."""
        return upload_support(view).rows.astype(np.float64)


@dataclass(frozen=True)
class RowNorm(UploadAttackInfo):
    """Score each item by the Euclidean norm of its upload row."""

    name: ClassVar[str] = "row norm"
    knowledge: ClassVar[tuple[str, ...]] = ("the proximal term that the server sent",)
    cost: ClassVar[str] = "O(items * width) per user"
    explains: ClassVar[str] = (
        "Ranks items by how far their row moved, because the items a user really has are pushed harder than "
        "the negatives sampled against them."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:  # noqa: ARG002 - uses no prior knowledge
        """Row norms without the proximal term, divided by the user's root mean square, so that users are comparable."""
        return divide_by_rms(row_norms(view).astype(np.float64))
