"""View of a device's own recommendations: a score for every item."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from attacks.views.types import check_block


@dataclass(frozen=True, eq=False)
class ScoreView:
    """Scores of every item on users' own devices.

    Attributes:
        round: Number of rounds trained before, minus one.
        scores: Scores with which each audited user's device ranks the catalogue, training items included.

    Raises:
        ViewError: If the scores are not float32 of [users, items] shape, or hold NaN or infinity.
    """

    round: int
    scores: Float32[np.ndarray, "users items"]

    def __post_init__(self) -> None:
        check_block("ScoreView.scores", self.scores, "[users, items]", self.round)

    @property
    def n_users(self) -> int:
        """Number of audited users."""
        return len(self.scores)

    @property
    def n_items(self) -> int:
        """Catalogue size."""
        return len(self.scores[0])
