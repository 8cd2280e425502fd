"""AUC of an attack by deciles of the items and by deciles of the users.

An AUC over everything hides who pays. Items of the long tail are rarely interacted with, so a user who has one moves
its row alone; people with short histories are few among many. Two slicings of the same scores show this:

* by *popularity*, a tenth of the catalogue at a time: a user's members in the tenth are compared with the user's
  non-members in the same tenth, so popularity explains little of what is left; the mean over users who have both;
* by *activity*, a tenth of the audited users at a time: the mean of their own AUCs over all their candidates.

Tenths are by rank, with equal values in the given order, so all are of one size (to within one). Intervals are 95 %
percentile bootstraps over all audited users (`attacks.metrics.bootstrap`); the size of a tenth varies with the
resample.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64, Num

from attacks.metrics.bootstrap import SHARES, interval, user_weights
from attacks.metrics.estimate import Estimate
from attacks.metrics.ranking import Ranking
from attacks.views.types import PerUser

TENTHS = 10
"""Number of slices of the items, and of the users."""


@dataclass(frozen=True)
class Slice:
    """AUC of an attack over a tenth of the items, or of the audited users.

    Attributes:
        by: "popularity" slices the items, "activity" the users.
        group: 0 for the least popular or least active tenth, up to 9.
        lowest: Lowest popularity of its items, or activity of its users.
        highest: Highest popularity or activity.
        n_users: Number of users with at least one member and one non-member in it; only they count.
        n_members: Number of member pairs of those users.
        auc: Mean of the users' own AUCs.
        popularity_auc: Mean AUC of the popularity guesser on the same pairs.
    """

    by: str
    group: int
    lowest: float
    highest: float
    n_users: int
    n_members: int
    auc: Estimate
    popularity_auc: float


@dataclass(frozen=True, eq=False)
class Slicing:
    """Division of a catalogue and of the audited users into tenths.

    Attributes:
        popularity: Popularity of each item.
        activity: Number of training items of each audited user.
    """

    popularity: Float64[np.ndarray, "items"]
    activity: Num[np.ndarray, "users"]

    @cached_property
    def item_tenth(self) -> Int64[np.ndarray, "items"]:
        """Tenth of each item."""
        return tenths(self.popularity)

    @cached_property
    def user_tenth(self) -> Int64[np.ndarray, "users"]:
        """Tenth of each audited user."""
        return tenths(self.activity)

    def auc(self, ranking: Ranking, user_auc: PerUser) -> "SlicedAuc":
        """AUC of each user in each tenth.

        Args:
            ranking: Sorted pairs of the same users and items.
            user_auc: Result of :meth:`attacks.metrics.Ranking.user_auc`.
        """
        in_tenth = self.user_tenth[:, None] == np.arange(TENTHS)
        return SlicedAuc(
            by_item=ranking.grouped_auc(self.item_tenth, TENTHS), by_user=np.where(in_tenth, user_auc[:, None], np.nan)
        )

    def slices(
        self,
        members: Bool[np.ndarray, "users items"],
        auc: "SlicedAuc",
        popularity_auc: "SlicedAuc",
        *,
        resamples: int = 200,
        seed: int = 0,
    ) -> tuple[Slice, ...]:
        """Slices of one attack; a tenth in which no user has both members and non-members is left out.

        Args:
            members: Member pairs among the candidates.
            auc: AUCs of the attack.
            popularity_auc: AUCs of the popularity guesser on the same pairs.
            resamples: Number of bootstrap resamples of users.
            seed: Seed of the bootstrap.
        """
        weights = user_weights(len(members), resamples, seed)
        # [users, items] @ [items, 10]: number of members of each user in each tenth of the items.
        in_tenth = members.astype(np.float32) @ np.eye(TENTHS, dtype=np.float32)[self.item_tenth]
        of_user = np.broadcast_to(members.sum(axis=1)[:, None], in_tenth.shape)
        return (
            *_rows(
                "popularity",
                _ends(self.popularity, self.item_tenth),
                auc.by_item,
                popularity_auc.by_item,
                in_tenth,
                weights,
            ),
            *_rows(
                "activity", _ends(self.activity, self.user_tenth), auc.by_user, popularity_auc.by_user, of_user, weights
            ),
        )


@dataclass(frozen=True, eq=False)
class SlicedAuc:
    """AUC of each user in each tenth, NaN without members or without non-members.

    Attributes:
        by_item: AUC among the items of each tenth.
        by_user: AUC among all items, in the column of the user's tenth.
    """

    by_item: Float64[np.ndarray, "users 10"]
    by_user: Float64[np.ndarray, "users 10"]


def tenths(values: Num[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """Tenth of each value by rank, 0 for the lowest; equal values in the order given."""
    rank = np.empty(len(values), np.int64)
    rank[values.argsort(kind="stable")] = np.arange(len(values))
    return np.asarray(rank * TENTHS // len(values))


def _ends(
    values: Num[np.ndarray, "n"], group: Int64[np.ndarray, "n"]
) -> tuple[Float64[np.ndarray, "10"], Float64[np.ndarray, "10"]]:
    """Lowest and highest value of each tenth; infinite for an empty one."""
    lowest, highest = np.full(TENTHS, np.inf), np.full(TENTHS, -np.inf)
    np.minimum.at(lowest, group, values)
    np.maximum.at(highest, group, values)
    return lowest, highest


def _rows(
    by: str,
    ends: tuple[Float64[np.ndarray, "10"], Float64[np.ndarray, "10"]],
    auc: Float64[np.ndarray, "users 10"],
    popularity_auc: Float64[np.ndarray, "users 10"],
    n_members: Num[np.ndarray, "users 10"],
    weights: Float64[np.ndarray, "resamples users"],
) -> list[Slice]:
    """One slice for each tenth with a user."""
    known = np.isfinite(auc)
    n_users = known.sum(axis=0)
    sums = np.where(known, auc, 0.0)
    value = _mean(sums.sum(axis=0), n_users, np.zeros(TENTHS))
    resampled = _mean(weights @ sums, weights @ known, value)
    low, high = interval(value, resampled, n_users, SHARES)
    baseline = np.where(known, popularity_auc, 0.0).sum(axis=0)
    return [
        Slice(
            by=by,
            group=group,
            lowest=float(ends[0][group]),
            highest=float(ends[1][group]),
            n_users=int(n_users[group]),
            n_members=int(n_members[known[:, group], group].sum()),
            auc=Estimate(float(value[group]), float(low[group]), float(high[group])),
            popularity_auc=float(baseline[group] / n_users[group]),
        )
        for group in np.flatnonzero(n_users).tolist()
    ]


def _mean(
    sums: Float64[np.ndarray, "*resamples 10"],
    counts: Num[np.ndarray, "*resamples 10"],
    otherwise: Float64[np.ndarray, "10"],
) -> Float64[np.ndarray, "*resamples 10"]:
    """Means, with a given value for resamples without users."""
    filled = np.broadcast_to(otherwise, sums.shape).copy()
    return np.asarray(np.divide(sums, counts, out=filled, where=counts > 0))
