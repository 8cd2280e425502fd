"""The score threshold: what a user has trained on, its own model ranks high.

The oldest membership attack compares a record's loss with a threshold (Yeom, Giacomelli, Fredrikson & Jha, CSF 2018).
For a recommender that is the score of (user, item): the loss of a label 1 falls as the score rises. It needs no upload,
only the user's own recommendations, with nothing left out of the list.

Two things must be kept apart when reading it. Taste: a good model ranks liked items high, trained on or not, so
only the game against held-out items of the same user speaks of training at all. And input: a model that reads the
user's history when it recommends (autoencoders) was given the training items and not the held-out ones, so its
scores tell them apart even if nothing was ever learnt from that user. No protection of uploads covers what a device
shows its own user.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attacks._scaling import standardise
from attacks.views.knowledge import Knowledge
from attacks.views.scores import ScoreView
from attacks.views.types import Scores


@dataclass(frozen=True)
class ScoreThreshold:
    """Score each item by how high the user's own model ranks it."""

    name: ClassVar[str] = "score threshold"
    observable: ClassVar[str] = "the user's own recommendations: a score for every item"
    adversary: ClassVar[str] = "whoever sees what the device shows"
    knowledge: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "interaction"
    cost: ClassVar[str] = "one evaluation of the model per user"
    explains: ClassVar[str] = (
        "Calls the items that the user's own model scores highest members, because a model fits what it was trained on."
    )

    def score(self, view: ScoreView, knowledge: Knowledge) -> Scores:  # noqa: ARG002 - uses no prior knowledge
        """Standardised per user, as a softmax gives scores only up to a constant of the user's own."""
        return standardise(view.scores.astype(np.float64))
