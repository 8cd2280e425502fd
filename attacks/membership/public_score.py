"""Public score: what the model that a user sent recommends, to somebody without a private half.

A device keeps its user vector, but it sends the item table and the head that it trained on its items. Put a newcomer's
private half (zeros, or the start of a fresh one) under them and rank the catalogue: local training has raised the
scores of the user's items and lowered those of its negatives, and both show without the vector. That uploaded
parameters hold most of what a user prefers is the idea of PubPara ("Interaction privacy vulnerability in federated
recommendation and lossless countermeasure", ACM TOIS 2025). Only its abstract was open here, so the form is our own
and no number of it is comparable. This score mixes the user's taste with what the model recommends to everybody.

*Delta score* takes the second part out: the score under the model that was sent back, minus the score under the model
that the server had sent. An item whose row did not move keeps what the head alone changes.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from attacks._scaling import divide_by_rms, standardise
from attacks.membership.oracle import OracleAttackInfo
from attacks.views.knowledge import Knowledge
from attacks.views.server import ServerView
from attacks.views.types import Scores


class _PublicScoreInfo(OracleAttackInfo):
    """The declaration shared by both scores."""

    knowledge: ClassVar[tuple[str, ...]] = ("the architecture of the model",)


@dataclass(frozen=True)
class PublicScore(_PublicScoreInfo):
    """Score each item as the uploaded model does for a newcomer."""

    name: ClassVar[str] = "public score"
    cost: ClassVar[str] = "one evaluation of the model per user"
    explains: ClassVar[str] = (
        "Asks the model that the user sent what it would recommend to a newcomer, because its public half alone has "
        "learnt most of the user's taste."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Standardised per user.

        Raises:
            ViewError: If the adversary has no recipe.
        """
        return standardise(knowledge.require_oracle(self.name).public_scores(view))


@dataclass(frozen=True)
class DeltaScore(_PublicScoreInfo):
    """Score each item by how far the upload raised it for a newcomer."""

    name: ClassVar[str] = "delta score"
    cost: ClassVar[str] = "two evaluations of the model per user"
    explains: ClassVar[str] = (
        "Asks by how much the user's upload raised each item in the eyes of a newcomer, which takes out what the model "
        "recommends to everybody."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Differences over their root mean square, so that users compare; 0 means "not raised".

        Raises:
            ViewError: If the adversary has no recipe.
        """
        oracle = knowledge.require_oracle(self.name)
        return divide_by_rms(oracle.public_scores(view) - oracle.public_scores(_nothing_sent(view)))


def _nothing_sent(view: ServerView) -> ServerView:
    """The same round, had nobody sent anything."""
    empty = {
        name: np.zeros_like(block)
        for name in ("uploads", "inputs", "bias")
        if (block := getattr(view, name)) is not None
    }
    return replace(view, proximal=None, **empty)
