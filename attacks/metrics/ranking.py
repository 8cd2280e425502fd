"""Per-user AUC from pairs that are sorted once.

Users are weighted equally: each user's AUC asks how well that user's items are told from the rest. Equal scores count
one half.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.views.types import PerUser, Scores, UserMask, ViewError


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidate pairs of usable users, sorted by score once for all measurements.

    Attributes:
        usable: Users with at least one member and one non-member.
        user: User of each pair, numbered from 0 among the usable ones.
        item: Item of each pair.
        level: Number of distinct scores below the pair's own.
        member: Whether the pair is a member.
    """

    usable: UserMask
    user: Int64[np.ndarray, "pairs"]
    item: Int64[np.ndarray, "pairs"]
    level: Int64[np.ndarray, "pairs"]
    member: Bool[np.ndarray, "pairs"]

    @property
    def n_users(self) -> int:
        """Number of usable users."""
        return int(self.usable.sum())

    @classmethod
    def from_scores(
        cls, scores: Scores, members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
    ) -> "Ranking":
        """Candidates of usable users in ascending order of their scores.

        Args:
            scores: Higher means "more likely a member".
            members: The truth; members are the positive class.
            candidates: Pairs that count.

        Raises:
            ViewError: If shapes differ or candidate scores are not finite.
        """
        if scores.shape != members.shape or scores.shape != candidates.shape:
            raise ViewError(
                f"Scores have shape {scores.shape}, members {members.shape} and candidates {candidates.shape}; "
                "all three must be [users, items] of the same audited users."
            )
        usable = usable_users(members, candidates)
        user, item = np.nonzero(candidates & usable[:, None])
        score = scores[user, item]
        if not np.isfinite(score).all():
            raise ViewError("An attack gave NaN or infinity as a score; scores must be finite numbers.")
        order = score.argsort(kind="stable")
        ordered = score[order]
        level = np.concatenate([[0], (ordered[1:] != ordered[:-1]).cumsum()])[: len(order)]
        number = np.cumsum(usable) - 1
        return cls(usable, number[user[order]], item[order], level, members[user, item][order])

    def user_auc(self) -> PerUser:
        """AUC of each user's own candidates (ties one half); NaN for a user without one side."""
        return self.grouped_auc(np.zeros(int(self.item.max(initial=0)) + 1, np.int64), 1)[:, 0]

    def grouped_auc(self, group: Int64[np.ndarray, "items"], n_groups: int) -> Float64[np.ndarray, "users groups"]:
        """AUC of each user's own candidates within each group of items (ties one half); NaN where a side is missing.

        Args:
            group: Group of each item, from 0.
            n_groups: Number of groups.
        """
        auc = np.full((len(self.usable), n_groups), np.nan)
        if len(self.user):
            owner = self.user * n_groups + group[self.item]
            auc[self.usable] = self._auc_of(owner, self.n_users * n_groups).reshape(-1, n_groups)
        return auc

    def _auc_of(self, owner: Int64[np.ndarray, "pairs"], n_owners: int) -> Float64[np.ndarray, "owners"]:
        """Mann-Whitney U of each owner from counts of members and non-members per group of equal scores."""
        # A small integer type makes the stable sort a radix sort; pairs stay in ascending score within an owner.
        by_owner = owner.astype(np.min_scalar_type(n_owners)).argsort(kind="stable")
        owner, level, member = owner[by_owner], self.level[by_owner], self.member[by_owner]
        starts = np.flatnonzero(np.concatenate([[True], (owner[1:] != owner[:-1]) | (level[1:] != level[:-1])]))
        # One entry per (owner, distinct score) from here on.
        positives = np.add.reduceat(member.astype(np.float64), starts)
        negatives = np.diff(np.append(starts, len(owner))) - positives
        group_owner = owner[starts]
        all_negatives = np.bincount(group_owner, negatives, minlength=n_owners)
        all_positives = np.bincount(group_owner, positives, minlength=n_owners)
        # Negatives of the same owner below a group: the running total minus that of the owners before.
        before = np.concatenate([[0.0], all_negatives.cumsum()[:-1]])
        below = negatives.cumsum() - negatives - before[group_owner]
        wins = np.bincount(group_owner, positives * (below + negatives / 2), minlength=n_owners)
        pairs = all_positives * all_negatives
        return np.asarray(np.divide(wins, pairs, out=np.full(n_owners, np.nan), where=pairs > 0))


def usable_users(members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]) -> UserMask:
    """Mask of users with at least one member and one non-member among their candidates."""
    usable: UserMask = (members & candidates).any(axis=1) & (~members & candidates).any(axis=1)
    return usable


def user_auc(
    scores: Scores, members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
) -> PerUser:
    """AUC of each user's own candidates (ties one half); NaN for a user without one side."""
    return Ranking.from_scores(scores, members, candidates).user_auc()
