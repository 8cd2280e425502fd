"""How well scores separate members from non-members, with intervals by user.

Two AUCs are reported, because each hides something the other shows. *Per user* averages the users' own AUCs:
it asks how well one user's items are told from the rest and gives every user the same weight. *Pooled* ranks
all (user, item) pairs on one scale: it asks what a single threshold does and rewards scores that compare
between users. True-positive rates at small false-positive rates are pooled, since one user rarely has enough
non-members (Carlini et al., S&P 2022, on why the left end of the ROC curve is what matters).

Equal scores count one half in an AUC and are all taken or all left at a threshold, so a rate at "FPR 1 %" is
the best one among thresholds whose FPR is at most 1 %.

A bootstrap does not sort again. Every pair is put once in one of about 1,500 bins of pooled rank (edges in
equal steps of false-positive rate, and in equal log steps towards its left end); a resample is then a
weighted sum of the users' bin counts. Point values are exact, only the interval ends see the bins.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.views.types import PerUser, Scores, UserMask, ViewError


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidate pairs of the users that count, sorted by score once, for everything that is measured on them.

    Attributes:
        usable: Users with at least one member and one non-member.
        user: Whose pair it is, numbered from 0 among these.
        item: The pair's item.
        level: Number of distinct scores below its own.
        member: The truth.
    """

    usable: UserMask
    user: Int64[np.ndarray, "pairs"]
    item: Int64[np.ndarray, "pairs"]
    level: Int64[np.ndarray, "pairs"]
    member: Bool[np.ndarray, "pairs"]

    @property
    def n_users(self) -> int:
        """Users that count."""
        return int(self.usable.sum())

    @classmethod
    def of(
        cls, scores: Scores, members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
    ) -> "Ranking":
        """Sort the candidates.

        Args:
            scores: Higher means "more likely a member".
            members: The truth; member is the positive class.
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
        by_owner = owner.astype(np.min_scalar_type(n_owners)).argsort(kind="stable")
        owner, level, member = owner[by_owner], self.level[by_owner], self.member[by_owner]
        starts = np.flatnonzero(np.concatenate([[True], (owner[1:] != owner[:-1]) | (level[1:] != level[:-1])]))
        positives = np.add.reduceat(member.astype(np.float64), starts)
        negatives = np.diff(np.append(starts, len(owner))) - positives
        whose = owner[starts]
        all_negatives = np.bincount(whose, negatives, minlength=n_owners)
        all_positives = np.bincount(whose, positives, minlength=n_owners)
        others = np.concatenate([[0.0], all_negatives.cumsum()[:-1]])
        below = negatives.cumsum() - negatives - others[whose]
        wins = np.bincount(whose, positives * (below + negatives / 2), minlength=n_owners)
        compared = all_positives * all_negatives
        return np.asarray(np.divide(wins, compared, out=np.full(n_owners, np.nan), where=compared > 0))


def usable_users(members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]) -> UserMask:
    """Users with at least one member and one non-member among their candidates."""
    usable: UserMask = (members & candidates).any(axis=1) & (~members & candidates).any(axis=1)
    return usable


def user_auc(
    scores: Scores, members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
) -> PerUser:
    """AUC of each user's own candidates (ties one half); NaN for a user without one side."""
    return Ranking.from_scores(scores, members, candidates).user_auc()
