"""What an adversary saw, what it knew beforehand, and what it tries to find out.

Every attack in this package is a pure function of a :class:`ServerView` (what passed the point in the system
where the adversary listens), a :class:`ScoreView` (what a user's device shows) or an
:class:`attacks.support_view.SupportView` (which rows clients send), and a :class:`Knowledge` (what the adversary knew
before). :class:`Targets` holds the truth and is seen only by the measurement, never by an attack.

The two games on training items follow the membership game of Shokri et al. (S&P 2017) in its recommender form (Yuan
et al., WWW 2023): "did user u train on item i?". Members are natural, not coin-flipped, so a score here mixes leakage
with popularity (and, for held-out items, with time); read it beside the popularity guesser and never convert
it to an epsilon. Two more games ask about the examinations in a support, where purchases are public.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from attacks.views.types import check_block


@dataclass(frozen=True, eq=False)
class ScoreView:
    """What somebody sees who looks at users' own recommendations: a score for every item.

    Attributes:
        round: Rounds trained before, less one.
        scores: How each audited user's device ranks the catalogue, training items included.

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
