"""Randomised inclusion of training interactions, so that an epsilon can be compared with attacks.

Which of a person's real items an attack finds says nothing about epsilon: members differ from non-members in taste,
popularity and time. Where a fair random bit keeps or drops an interaction, and nothing else, only training can
distinguish the two, and that is what epsilon bounds (Steinke, Nasr & Jagielski, NeurIPS 2023). Dropped interactions are
taken out of training as if they had never happened; candidates of the evaluation and popularity stay those of before.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int64

from privfed.data import Histories, Split

_SAMPLED, _RESAMPLED = 7, 8
"""Set these seeds apart from others that start from the same number."""


@dataclass(frozen=True, slots=True, eq=False)
class InclusionBits:
    """Interactions of some users that a fair random bit keeps or drops.

    Attributes:
        users: Whose, ascending.
        kept: Left in training.
        dropped: Taken out of it.
    """

    users: Int64[np.ndarray, "users"]
    kept: Bool[np.ndarray, "users items"]
    dropped: Bool[np.ndarray, "users items"]

    @classmethod
    def sample(cls, split: Split, users: Int64[np.ndarray, "users"], share: float, seed: int) -> "InclusionBits":
        """Sample bits for a share of each user's training items, chosen at random and rounded down.

        Items that a user also has in a held-out part are left alone.

        Args:
            split: Before any bit.
            users: Whose items, ascending.
            share: Of each user's items, below 1, so that everybody keeps something to train on.
            seed: Of the choice and of the bits.
        """
        rng = np.random.default_rng([_SAMPLED, seed])
        at_stake = split.train.mask(users) & ~split.valid.mask(users) & ~split.test.mask(users)
        order = np.where(at_stake, rng.random(at_stake.shape), 2.0).argsort(axis=1).argsort(axis=1)
        chosen = order < np.floor(share * at_stake.sum(axis=1))[:, None]
        kept = rng.random(chosen.shape) < 0.5
        return cls(users, chosen & kept, chosen & ~kept)

    @property
    def decided(self) -> Bool[np.ndarray, "users items"]:
        """All interactions that have a bit."""
        decided: Bool[np.ndarray, "users items"] = self.kept | self.dropped
        return decided

    def __len__(self) -> int:
        return int(self.decided.sum())

    def without(self, users: Bool[np.ndarray, "users"]) -> "InclusionBits":
        """Those of the other users."""
        return InclusionBits(self.users, self.kept & ~users[:, None], self.dropped & ~users[:, None])

    def resample(self, seed: int) -> "InclusionBits":
        """The same interactions with other bits."""
        kept = np.random.default_rng([_RESAMPLED, seed]).random(self.kept.shape) < 0.5
        return InclusionBits(self.users, self.decided & kept, self.decided & ~kept)

    def applied_to(self, split: Split) -> Split:
        """The split without the dropped interactions, their ratings and arrivals gone with them."""
        train = split.train
        rows = np.full(train.n_users, -1)
        rows[self.users] = np.arange(len(self.users))
        row = rows[train.owners]
        stays = (row < 0) | ~self.dropped[row, train.items]
        left = Histories.from_pairs(train.owners[stays], train.items[stays], train.n_users, train.n_items)
        ratings, arrived = split.ratings, split.arrived
        if arrived is not None:
            before, start = np.append(0, np.cumsum(stays)), train.indptr[:-1, None]
            arrived = before[start + arrived] - before[start]
        return replace(
            split,
            train=left,
            ratings=None if ratings is None else replace(ratings, train=ratings.train[stays]),
            arrived=arrived,
        )
