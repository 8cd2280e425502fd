"""Public score: what the model that a user uploaded recommends to somebody without private parameters.

A device keeps its user vector, but it uploads the item table and the head that it trained on its items. Combine them
with a newcomer's private parameters (zeros, or a fresh start) and rank the catalogue: local training has raised the
scores of the user's items and lowered those of its negatives, and both show without the vector. That uploaded
parameters hold most of a user's preferences is the idea of PubPara ("Interaction privacy vulnerability in federated
recommendation and lossless countermeasure", ACM TOIS 2025). Only its abstract was accessible to us, so the form is our
own and its numbers are not comparable. This score mixes the user's taste with what the model recommends to everybody.

*Delta score* removes the second part: the score under the uploaded model minus the score under the model that the
server had sent. An item whose row did not move keeps the change that is due to the head alone.
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
    """Declaration shared by both scores."""

    knowledge: ClassVar[tuple[str, ...]] = ("the architecture of the model",)


@dataclass(frozen=True)
class PublicScore(_PublicScoreInfo):
    """Score each item by the uploaded model's score for a newcomer."""

    name: ClassVar[str] = "public score"
    cost: ClassVar[str] = "one evaluation of the model per user"
    explains: ClassVar[str] = (
        "Asks the model that the user sent what it would recommend to a newcomer, because its public half alone has "
        "learnt most of the user's taste."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Scores standardised per user.

        Raises:
            ViewError: If the adversary has no training oracle.
        """
        return standardise(knowledge.require_oracle(self.name).public_scores(view))


@dataclass(frozen=True)
class DeltaScore(_PublicScoreInfo):
    """Score each item by how far the upload raised its score for a newcomer."""

    name: ClassVar[str] = "delta score"
    cost: ClassVar[str] = "two evaluations of the model per user"
    explains: ClassVar[str] = (
        "Asks by how much the user's upload raised each item in the eyes of a newcomer, which takes out what the model "
        "recommends to everybody."
    )

    def score(self, view: ServerView, knowledge: Knowledge) -> Scores:
        """Differences divided by their root mean square, so that users are comparable; 0 means "not raised".

        Raises:
            ViewError: If the adversary has no training oracle.
        """
        oracle = knowledge.require_oracle(self.name)
        return divide_by_rms(oracle.public_scores(view) - oracle.public_scores(_without_uploads(view)))


def _without_uploads(view: ServerView) -> ServerView:
    """The same round without any upload."""
    empty = {
        name: np.zeros_like(block)
        for name in ("uploads", "inputs", "bias")
        if (block := getattr(view, name)) is not None
    }
    return replace(view, proximal=None, **empty)
