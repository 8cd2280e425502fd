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
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float64

from attacks.views.server import ServerView
from attacks.views.types import Scores, UserMask, View, ViewError


class TrainingOracle(Protocol):
    """Local training as an adversary can repeat it: it knows the code, its settings and the model that it sent.

    It does not know a user's private half, so replays start from one that a newcomer would have.

    Implement it beside the training code: `replay` fills a guessed history into the device's own training step and
    hands back what would have been sent, in the same blocks as the view that is attacked. Attacks that use it stay pure
    functions of a view.
    """

    def simulate_uploads(
        self,
        round: int,
        positives: Bool[np.ndarray, "users items"],
        candidates: Bool[np.ndarray, "users items"],
        world: int,
    ) -> ServerView:
        """What the users of the view would have sent in `round`, had they trained on `positives`.

        Args:
            round: A round of a view; training starts from the model that was sent in it.
            positives: Guessed histories. A user without any sends zeros.
            candidates: Items that sampled negatives may come from, positives left out.
            world: Number of the replay; equal numbers give equal randomness, other numbers another one.
        """

    def public_scores(self, view: ServerView) -> Scores:
        """Scores of all items by the model that each user sent, with a newcomer's private half.

        Args:
            view: Uploads. A user with nothing but zeros sent nothing, so its scores are those of the model that the
                server had sent.
        """


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the adversary knows before it looks at anything.

    Attributes:
        popularity: How often each item was interacted with, on any scale (counts, shares); higher is more
            popular.
        recipe: Local training as the adversary can repeat it; None where it cannot.
        colluding: Users of the view whose histories the adversary has; None where nobody helps it.
        histories: What these users trained on; the rows of all others are ignored.

    Raises:
        ViewError: If popularity is not one finite float64 number per item, or only one of `colluding` and `histories`
        is given, or their shapes do not fit each other and the popularity.
    """

    popularity: Float64[np.ndarray, "items"]
    oracle: TrainingOracle | None = None
    colluding: UserMask | None = None
    histories: Bool[np.ndarray, "users items"] | None = None

    def __post_init__(self) -> None:
        p = self.popularity
        if p.dtype != np.float64 or p.ndim != 1 or not np.isfinite(p).all():
            raise ViewError(
                f"Knowledge.popularity is {p.dtype} of shape {p.shape}; pass one finite float64 number per item."
            )
        if (self.colluding is None) != (self.histories is None):
            raise ViewError(
                "Knowledge got only one of colluding and histories; say who helps and what they trained on, or neither."
            )
        if self.colluding is not None and self.histories is not None:
            who, what = self.colluding, self.histories
            if who.dtype != bool or what.dtype != bool or what.shape != (*who.shape, len(p)):
                raise ViewError(
                    f"Knowledge got colluding {who.dtype} {who.shape} and histories {what.dtype} {what.shape}; pass "
                    f"boolean masks of shapes [users] and [users, {len(p)} items]."
                )

    def popularity_for(self, view: View) -> Float64[np.ndarray, "items"]:
        """The popularity, once it is known to be about the catalogue of the view.

        Raises:
            ViewError: If it covers another number of items.
        """
        if len(self.popularity) != view.n_items:
            raise ViewError(
                f"Knowledge.popularity has {len(self.popularity)} items but the view has {view.n_items}; "
                "pass the popularity of the catalogue that was trained on."
            )
        return self.popularity

    def require_oracle(self, attack: str) -> TrainingOracle:
        """The recipe, for an attack that cannot do without.

        Args:
            attack: Its name.

        Raises:
            ViewError: If there is none.
        """
        if self.oracle is None:
            raise ViewError(f"The {attack} attack needs Knowledge.recipe, which is None; pass how clients train.")
        return self.oracle

    def require_colluders(self, view: View, attack: str) -> tuple[UserMask, Bool[np.ndarray, "users items"]]:
        """Who helps the adversary and what they trained on, for an attack that cannot do without.

        Args:
            view: What the attack looks at.
            attack: Its name.

        Raises:
            ViewError: If nobody helps, or the masks are about other users than the view.
        """
        if self.colluding is None or self.histories is None or not self.colluding.any():
            raise ViewError(
                f"The {attack} attack needs Knowledge.colluding and Knowledge.histories of at least one user; pass the "
                "histories of those who help."
            )
        if len(self.colluding) != view.n_users:
            raise ViewError(
                f"Knowledge.colluding is about {len(self.colluding)} users but the view about {view.n_users}; pass "
                "both for the same audited users."
            )
        return self.colluding, self.histories
