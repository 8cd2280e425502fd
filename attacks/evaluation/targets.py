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

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool

from attacks.views.rows import UploadSupport
from attacks.views.types import UserMask, ViewError

ALL_ITEMS = "all items"
TOUCHED_ITEMS = "touched items"


@dataclass(frozen=True, eq=False)
class Targets:
    """The question asked and its true answers.

    Attributes:
        members: True where the user trained on the item.
        candidates: True where the pair is scored at all; members outside the candidates are ignored.
        game: The question in words.
        scope: Which items take part, :data:`ALL_ITEMS` or :data:`TOUCHED_ITEMS`.
        note: Anything a reader must know about this scope, or "".
        membership: "natural" where the members are people's real items, "randomised" where a fair coin of the
            experimenter decided which of them were trained on.

    Raises:
        ViewError: If the masks are not boolean of one [users, items] shape.
    """

    members: Bool[np.ndarray, "users items"]
    candidates: Bool[np.ndarray, "users items"]
    game: str = "custom"
    scope: str = ALL_ITEMS
    note: str = ""
    membership: Literal["natural", "randomised"] = "natural"

    def __post_init__(self) -> None:
        same = self.members.shape == self.candidates.shape
        if not same or self.members.ndim != 2 or self.members.dtype != bool or self.candidates.dtype != bool:
            raise ViewError(
                f"Targets got members {self.members.dtype} {self.members.shape} and candidates "
                f"{self.candidates.dtype} {self.candidates.shape}; pass two boolean masks of one [users, "
                "items] shape."
            )

    @classmethod
    def trained_vs_never_seen(
        cls, train: Bool[np.ndarray, "users items"], seen: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Game 1: training items against items the user never interacted with in any split.

        Args:
            train: Items each user trained on.
            seen: Items each user has in any split (train, valid or test). Held-out items are no candidates.
        """
        return cls(members=train, candidates=train | ~seen, game="trained vs never seen")

    @classmethod
    def trained_vs_held_out(
        cls, train: Bool[np.ndarray, "users items"], held_out: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Game 2: training items against held-out items of the same user.

        Both sides are to the user's taste, so popularity and taste help less; what is left is memory of
        training (and, with a split by time, whatever time changes).

        Args:
            train: Items each user trained on.
            held_out: The user's validation and test items.
        """
        return cls(members=train, candidates=train | (held_out & ~train), game="trained vs held-out of the same user")

    @classmethod
    def randomised_inclusion(
        cls, kept: Bool[np.ndarray, "users items"], dropped: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Game 3: of interactions put to a fair coin before training, those it kept against those it dropped.

        Popularity, taste and time are the same on both sides, so only training tells them apart. This is the game
        that epsilon bounds.

        Args:
            kept: Interactions that the coin left in training.
            dropped: Interactions that it took out.
        """
        return cls(members=kept, candidates=kept | dropped, game="coin decided", membership="randomised")

    @classmethod
    def examined_vs_rest(
        cls, examined: Bool[np.ndarray, "users items"], public: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Examinations against the rest of the catalogue. Purchases are public, so they are no candidates.

        Args:
            examined: Items each user examined.
            public: Items each user bought (in training).
        """
        return cls(members=examined, candidates=~public, game="examined vs rest")

    @classmethod
    def examined_vs_padding(
        cls,
        examined: Bool[np.ndarray, "users items"],
        sent: Bool[np.ndarray, "users items"],
        public: Bool[np.ndarray, "users items"],
    ) -> "Targets":
        """Examinations against the cover items among the rows that a client sends.

        A client without cover has nothing to tell apart and is not measured.

        Args:
            examined: Items each user examined.
            sent: Rows each user sends.
            public: Items each user bought (in training).
        """
        return cls(members=examined & sent, candidates=sent & ~public, game="examined vs cover", scope=TOUCHED_ITEMS)

    def among_touched(self, support: UploadSupport) -> "Targets":
        """The same game, asked only of items whose row the upload touched.

        This separates "which rows moved" from "which of the moved rows are real": a client's own sampled
        negatives are the non-members that are left.
        """
        hidden = int((~support.identifiable).sum())
        note = (
            f"every row differs from zero for {hidden} of {len(support.told)} users, so their touched rows "
            "cannot be told and all items count as touched"
            if hidden
            else ""
        )
        return replace(self, candidates=self.candidates & support.rows, scope=TOUCHED_ITEMS, note=note)

    def excluding(self, users: UserMask) -> "Targets":
        """The same game, asked only of the other users: those who told the adversary are no success of an attack.

        Args:
            users: To leave out, for example :attr:`Knowledge.colluding`.
        """
        return replace(self, candidates=self.candidates & ~users[:, None])
