"""The score threshold: a user's own model ranks its training items high.

The oldest membership attack compares a record's loss with a threshold (Yeom, Giacomelli, Fredrikson & Jha, CSF 2018).
For a recommender that is the score of (user, item): the loss of a label 1 falls as the score rises. The attack needs no
upload, only the user's own recommendations, with no item left out of the list.

Two effects must be kept apart when reading the result. Taste: a good model ranks liked items high, trained on or not,
so only the game against held-out items of the same user measures training at all. Input: a model that reads the user's
history when it recommends (autoencoders) was given the training items and not the held-out ones, so its scores tell
them apart even if it learnt nothing from that user. No privacy mechanism on uploads covers what a device shows its own
user.
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
    """Score each item by the user's own model."""

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
        """Scores standardised per user, because a softmax defines them only up to a constant per user."""
        return standardise(view.scores.astype(np.float64))
