"""The truth of a membership game, seen only by the measurement and never by an attack.

The two games on training items follow the membership game of Shokri et al. (S&P 2017) in its recommender form (Yuan
et al., WWW 2023): "did user u train on item i?". Members are natural and not randomised, so a score mixes leakage with
popularity (and, for held-out items, with time); compare it with the popularity guesser and never convert it to an
epsilon. Two more games ask about the examinations in a support, where purchases are public.
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
    """A membership game: the question asked and its true answers.

    Attributes:
        members: True where the user trained on the item.
        candidates: True where the pair is scored at all; members outside the candidates are ignored.
        game: The question in words.
        scope: Items that count, :data:`ALL_ITEMS` or :data:`TOUCHED_ITEMS`.
        note: Caveat about this scope for the reader, or "".
        membership: "natural" if the members are people's real items, "randomised" if fair inclusion bits of the
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

        Items of both sides are to the user's taste, so popularity and taste help less. What remains is the memory of
        training (and, with a split by time, whatever changes over time).

        Args:
            train: Items each user trained on.
            held_out: The user's validation and test items.
        """
        return cls(members=train, candidates=train | (held_out & ~train), game="trained vs held-out of the same user")

    @classmethod
    def randomised_inclusion(
        cls, included: Bool[np.ndarray, "users items"], excluded: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Game 3: interactions that a fair inclusion bit kept in training against those that it removed.

        Popularity, taste and time are the same on both sides, so only training tells them apart. This is the game
        that epsilon bounds.

        Args:
            included: Interactions that stayed in training.
            excluded: Interactions that were removed before training.
        """
        return cls(
            members=included, candidates=included | excluded, game="randomised inclusion", membership="randomised"
        )

    @classmethod
    def examined_vs_rest(
        cls, examined: Bool[np.ndarray, "users items"], public: Bool[np.ndarray, "users items"]
    ) -> "Targets":
        """Examinations against the rest of the catalogue. Purchases are public and therefore no candidates.

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
        """Examinations against the padding items among the rows that a client sends.

        A client without padding has nothing to tell apart and is not measured.

        Args:
            examined: Items each user examined.
            sent: Rows each user sends.
            public: Items each user bought (in training).
        """
        return cls(members=examined & sent, candidates=sent & ~public, game="examined vs padding", scope=TOUCHED_ITEMS)

    def among_touched(self, support: UploadSupport) -> "Targets":
        """The same game among the items whose row the upload touched.

        This separates "which rows moved" from "which of the moved rows are real": the remaining non-members are a
        client's own sampled negatives.
        """
        hidden = int((~support.identifiable).sum())
        note = (
            f"every row differs from zero for {hidden} of {len(support.identifiable)} users, so their touched rows "
            "cannot be told and all items count as touched"
            if hidden
            else ""
        )
        return replace(self, candidates=self.candidates & support.rows, scope=TOUCHED_ITEMS, note=note)

    def excluding(self, users: UserMask) -> "Targets":
        """The same game about the other users: a colluding user is no success of an attack.

        Args:
            users: Users to leave out, for example :attr:`Knowledge.colluding`.
        """
        return replace(self, candidates=self.candidates & ~users[:, None])
