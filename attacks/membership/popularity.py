"""The popularity guesser: the baseline that looks at nothing.

People interact with popular items, so "everybody has the popular ones" already beats random guessing. Any other attack
is informative only by how far it exceeds this baseline.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attacks.views.knowledge import Knowledge
from attacks.views.types import AttackView, Scores


@dataclass(frozen=True)
class PopularityGuesser:
    """Score each item by its global popularity, the same for every user."""

    name: ClassVar[str] = "popularity"
    observable: ClassVar[str] = "nothing"
    adversary: ClassVar[str] = "anyone"
    knowledge: ClassVar[tuple[str, ...]] = ("item popularity",)
    unit: ClassVar[str] = "interaction"
    cost: ClassVar[str] = "none"
    explains: ClassVar[str] = (
        "Guesses that every user has the popular items, without looking at any upload; it is the floor that "
        "a real attack has to beat."
    )

    def score(self, view: AttackView, knowledge: Knowledge) -> Scores:
        """Popularity of each item, repeated for every user.

        Raises:
            ViewError: If the popularity covers another catalogue than the view.
        """
        return np.broadcast_to(knowledge.popularity_for(view), (view.n_users, view.n_items))
