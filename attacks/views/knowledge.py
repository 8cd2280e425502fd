"""Prior knowledge of an adversary: item popularity, a training oracle, histories of colluding users."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float64

from attacks.views.server import ServerView
from attacks.views.types import AttackView, Scores, UserMask, ViewError


class TrainingOracle(Protocol):
    """Local training that an adversary can query: it knows the code, its settings and the model that it sent.

    The oracle does not know a user's private parameters, so its training starts from those of a newcomer.

    Implement it next to the training code: `simulate_uploads` runs the device's own training step on a guessed history
    and returns the upload that would have been sent, in the same blocks as the view under attack. Attacks that use it
    stay pure functions of a view.
    """

    def simulate_uploads(
        self,
        round: int,
        positives: Bool[np.ndarray, "users items"],
        candidates: Bool[np.ndarray, "users items"],
        world: int,
    ) -> ServerView:
        """Uploads that the users of the view would have sent in `round`, had they trained on `positives`.

        Args:
            round: Round of a view; training starts from the model that was sent in it.
            positives: Guessed histories. A user without positives sends zeros.
            candidates: Items from which negatives are sampled, except positives.
            world: Number of the simulation; equal numbers give equal randomness, other numbers independent randomness.
        """

    def public_scores(self, view: ServerView) -> Scores:
        """Scores of all items by the model that each user uploaded, with the private parameters of a newcomer.

        Args:
            view: Uploads. The scores of a user with only zeros are those of the model that the server had sent.
        """


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Prior knowledge of the adversary.

    Attributes:
        popularity: Interactions of each item on any scale (counts, shares); higher is more popular.
        oracle: Local training that the adversary can query; None if it cannot.
        colluding: Users of the view whose histories the adversary knows; None without collusion.
        histories: Training items of the colluding users; rows of all other users are ignored.

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
            raise ViewError("Knowledge got only one of colluding and histories; pass both, or neither.")
        if self.colluding is not None and self.histories is not None:
            users, items = self.colluding, self.histories
            if users.dtype != bool or items.dtype != bool or items.shape != (*users.shape, len(p)):
                raise ViewError(
                    f"Knowledge got colluding {users.dtype} {users.shape} and histories {items.dtype} {items.shape}; "
                    f"pass boolean masks of shapes [users] and [users, {len(p)} items]."
                )

    def popularity_for(self, view: AttackView) -> Float64[np.ndarray, "items"]:
        """Popularity of the catalogue of a view.

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
        """The training oracle, for an attack that needs one.

        Args:
            attack: Name of the attack.

        Raises:
            ViewError: If there is no oracle.
        """
        if self.oracle is None:
            raise ViewError(f"The {attack} attack needs Knowledge.oracle, which is None; pass a TrainingOracle.")
        return self.oracle

    def require_colluders(self, view: AttackView, attack: str) -> tuple[UserMask, Bool[np.ndarray, "users items"]]:
        """Colluding users and their histories, for an attack that needs them.

        Args:
            view: View under attack.
            attack: Name of the attack.

        Raises:
            ViewError: If nobody colludes, or the masks are about other users than the view.
        """
        if self.colluding is None or self.histories is None or not self.colluding.any():
            raise ViewError(
                f"The {attack} attack needs Knowledge.colluding and Knowledge.histories of at least one user; pass the "
                "histories of the users who collude."
            )
        if len(self.colluding) != view.n_users:
            raise ViewError(
                f"Knowledge.colluding is about {len(self.colluding)} users but the view about {view.n_users}; pass "
                "both for the same audited users."
            )
        return self.colluding, self.histories
