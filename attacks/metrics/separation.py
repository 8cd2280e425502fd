"""How well scores separate members from non-members, with intervals over users.

Two AUCs are reported, because each hides something the other shows. *Per user* averages the users' own AUCs: it asks
how well one user's items are told from the rest and gives every user the same weight. *Pooled* ranks all (user, item)
pairs on one scale: it asks what a single threshold achieves and rewards scores that are comparable between users.
True-positive rates at low false-positive rates are pooled, since one user rarely has enough non-members (Carlini et
al., S&P 2022, on why the left end of the ROC curve matters most).

Equal scores count one half in an AUC and are all above or all below a threshold, so a rate at "FPR 1 %" is the best one
among thresholds whose FPR is at most 1 %.

The bootstrap does not sort again. Every pair is assigned once to one of about 1,500 bins of pooled rank (edges in equal
steps of false-positive rate, and in equal log steps towards its left end); a resample is then a weighted sum of the
users' bin counts. Point values are exact, only the ends of intervals depend on the bins.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.metrics.bootstrap import SHARES, interval, user_weights
from attacks.metrics.estimate import Estimate, from_resamples
from attacks.metrics.ranking import Ranking
from attacks.views.types import PerUser, Scores, ViewError

FPR_TARGETS = (0.1, 0.01, 0.001)
"""False-positive rates at which the true-positive rate is reported."""

MIN_FALSE_POSITIVES = 10
"""Number of allowed false positives below which a rate is not reported, because it would be noise."""

ROC_POINTS = 200
"""Maximal number of points of a reported ROC curve."""


@dataclass(frozen=True)
class TprAtFpr:
    """True-positive rate at a false-positive rate.

    Attributes:
        fpr: Target; the chosen threshold has at most this false-positive rate.
        tpr: True-positive rate with its interval, or None if fewer than 10 false positives would be allowed.
        false_positives: Number of non-members at or above the chosen threshold; 0 if `tpr` is None.
    """

    fpr: float
    tpr: Estimate | None
    false_positives: int


@dataclass(frozen=True)
class RocCurve:
    """At most 200 points of the pooled ROC curve, evenly spaced in log FPR; from (0, .) to (1, 1).

    `lo` and `hi` are the ends of the pointwise 95 % band of `tpr` over users.
    """

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    lo: tuple[float, ...] = ()
    hi: tuple[float, ...] = ()


@dataclass(frozen=True)
class Separation:
    """All measurements of one set of scores.

    Attributes:
        n_users: Number of users with at least one member and one non-member among the candidates; only they count.
        n_members: Number of member pairs of those users.
        n_nonmembers: Number of non-member pairs of those users.
        auc: Mean of the users' own AUCs.
        auc_pooled: AUC over all pairs on one scale.
        tpr_at_fpr: Pooled rates at :data:`FPR_TARGETS`.
        advantage: Largest TPR - FPR over pooled thresholds; 1 for a perfect attack, and a little above 0 for random
            guesses, as the best threshold is looked for among the same pairs.
        roc: Pooled curve.
    """

    n_users: int
    n_members: int
    n_nonmembers: int
    auc: Estimate
    auc_pooled: Estimate
    tpr_at_fpr: tuple[TprAtFpr, ...]
    advantage: Estimate
    roc: RocCurve


def pooled_auc(
    scores: Scores, members: Bool[np.ndarray, "users items"], candidates: Bool[np.ndarray, "users items"]
) -> float:
    """AUC over all candidate pairs of usable users on one scale (ties one half).

    Raises:
        ViewError: If no user has both a member and a non-member.
    """
    ranking = Ranking.from_scores(scores, members, candidates)
    _require_users(ranking)
    return float(_auc_of_counts(*_level_counts(ranking)))


def separation(
    scores: Scores,
    members: Bool[np.ndarray, "users items"],
    candidates: Bool[np.ndarray, "users items"],
    *,
    resamples: int = 200,
    seed: int = 0,
) -> Separation:
    """Compare scores with the truth.

    Args:
        scores: Higher means "more likely a member".
        members: The truth; members are the positive class.
        candidates: Pairs that count.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ViewError: If shapes differ, candidate scores are not finite, or no user has both a member and a
        non-member.
    """
    ranking = Ranking.from_scores(scores, members, candidates)
    return separation_of(ranking, ranking.user_auc(), resamples=resamples, seed=seed)


def separation_of(ranking: Ranking, auc: PerUser, *, resamples: int = 200, seed: int = 0) -> Separation:
    """:func:`separation` of pairs that are already sorted.

    Args:
        ranking: The pairs.
        auc: Result of :meth:`Ranking.user_auc`.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ViewError: If no user has both a member and a non-member.
    """
    _require_users(ranking)
    per_user = auc[ranking.usable]
    weights = user_weights(ranking.n_users, resamples, seed)
    positives, negatives = _level_counts(ranking)
    n_members, n_nonmembers = int(positives.sum()), int(negatives.sum())
    tpr, fpr = _rates(positives[None]), _rates(negatives[None])  # [1, thresholds]

    # [resamples, users] @ [users, bins]: counts of every resample without sorting its pairs.
    binned_positives, binned_negatives = _binned(ranking, negatives)
    boot_positives, boot_negatives = weights @ binned_positives, weights @ binned_negatives
    boot_tpr, boot_fpr = _rates(boot_positives), _rates(boot_negatives)

    rates = []
    for target in FPR_TARGETS:
        if n_nonmembers * target < MIN_FALSE_POSITIVES:
            rates.append(TprAtFpr(target, None, 0))
            continue
        value, threshold = _rate_at(tpr, fpr, target)
        resampled, _ = _rate_at(boot_tpr, boot_fpr, target)
        false_positives = round(float(fpr[0, threshold[0]]) * n_nonmembers)
        rates.append(TprAtFpr(target, from_resamples(value[0], resampled, ranking.n_users, SHARES), false_positives))

    return Separation(
        n_users=ranking.n_users,
        n_members=n_members,
        n_nonmembers=n_nonmembers,
        auc=from_resamples(per_user.mean(), weights @ per_user / ranking.n_users, ranking.n_users, SHARES),
        auc_pooled=from_resamples(
            _auc_of_counts(positives, negatives),
            _auc_of_counts(boot_positives, boot_negatives),
            ranking.n_users,
            SHARES,
        ),
        tpr_at_fpr=tuple(rates),
        advantage=from_resamples((tpr - fpr).max(), (boot_tpr - boot_fpr).max(axis=1), ranking.n_users, SHARES),
        roc=_with_band(_thinned(tpr[0], fpr[0], n_nonmembers), boot_tpr, boot_fpr, ranking.n_users),
    )


def _require_users(ranking: Ranking) -> None:
    if not ranking.usable.any():
        raise ViewError(
            "No user has both a member and a non-member among the candidates; widen the candidates or audit "
            "users with training items."
        )


def _level_counts(ranking: Ranking) -> tuple[Float64[np.ndarray, "levels"], Float64[np.ndarray, "levels"]]:
    """Numbers of members and non-members at each distinct score, ascending."""
    levels = int(ranking.level[-1]) + 1
    pairs = np.bincount(ranking.level, minlength=levels).astype(np.float64)
    positives = np.bincount(ranking.level, ranking.member, minlength=levels)
    return positives, pairs - positives


def _auc_of_counts(
    positives: Float64[np.ndarray, "*resamples bins"], negatives: Float64[np.ndarray, "*resamples bins"]
) -> Float64[np.ndarray, "*resamples"]:
    """AUC from numbers of members and non-members per ascending bin of score; pairs in one bin count one half."""
    below = negatives.cumsum(axis=-1) - negatives / 2
    wins = (positives * below).sum(axis=-1)
    return np.asarray(wins / (positives.sum(axis=-1) * negatives.sum(axis=-1)))


def _rates(counts: Float64[np.ndarray, "resamples bins"]) -> Float64[np.ndarray, "resamples bins+1"]:
    """Share of pairs at or above each threshold, from the threshold above all scores down."""
    above = np.cumsum(counts[:, ::-1], axis=1)
    return np.pad(above / above[:, -1:], ((0, 0), (1, 0)))


def _rate_at(
    tpr: Float64[np.ndarray, "resamples thresholds"],
    fpr: Float64[np.ndarray, "resamples thresholds"],
    target: float,
) -> tuple[Float64[np.ndarray, "resamples"], Int64[np.ndarray, "resamples"]]:
    """Best TPR among thresholds whose FPR is at most the target, and the index of that threshold."""
    # FPR ascends, so the last threshold within the target has the best TPR; the factor absorbs rounding of the shares.
    threshold = (fpr <= target * (1 + 1e-12)).sum(axis=1) - 1
    return np.take_along_axis(tpr, threshold[:, None], axis=1)[:, 0], threshold


def _binned(
    ranking: Ranking, negatives: Float64[np.ndarray, "levels"]
) -> tuple[Float64[np.ndarray, "users bins"], Float64[np.ndarray, "users bins"]]:
    """Numbers of each user's members and non-members per bin of pooled rank, lowest scores first."""
    # False-positive rate just above each level; bins are intervals of it, numbered from its right end.
    above = 1 - negatives.cumsum() / negatives.sum()
    edges = np.union1d(np.linspace(0, 1, 1001), np.geomspace(1e-5, 0.1, 500))
    _, bin_of_level = np.unique(-np.searchsorted(edges, above.clip(0, 1)), return_inverse=True)
    n_bins = int(bin_of_level.max()) + 1
    # Flat index into [users, bins].
    cell = ranking.user * n_bins + bin_of_level[ranking.level]
    shape = (ranking.n_users, n_bins)
    pairs = np.bincount(cell, minlength=ranking.n_users * n_bins).reshape(shape).astype(np.float64)
    positives = np.bincount(cell, ranking.member, minlength=ranking.n_users * n_bins).reshape(shape)
    return positives, pairs - positives


def _thinned(
    tpr: Float64[np.ndarray, "thresholds"], fpr: Float64[np.ndarray, "thresholds"], n_nonmembers: int
) -> RocCurve:
    """ROC curve at log-spaced false-positive rates, with both ends."""
    targets = np.concatenate([[0.0], np.geomspace(min(1 / n_nonmembers, 0.5), 1, ROC_POINTS - 1)])
    points = np.unique(np.searchsorted(fpr, targets * (1 + 1e-12), side="right") - 1)
    return RocCurve(tuple(fpr[points].tolist()), tuple(tpr[points].tolist()))


def _with_band(
    roc: RocCurve,
    boot_tpr: Float64[np.ndarray, "resamples thresholds"],
    boot_fpr: Float64[np.ndarray, "resamples thresholds"],
    n_users: int,
) -> RocCurve:
    """The curve with its band; ends are widened to hold the curve, which is exact where they depend on bins."""
    targets = np.array(roc.fpr) * (1 + 1e-12)
    # [resamples, points]: the best rate of every resample among thresholds within each target.
    rates = np.stack([tpr[fpr.searchsorted(targets, "right") - 1] for tpr, fpr in zip(boot_tpr, boot_fpr, strict=True)])
    low, high = interval(np.array(roc.tpr), rates, n_users, SHARES)
    low, high = np.minimum(low, roc.tpr).round(5), np.maximum(high, roc.tpr).round(5)
    return RocCurve(roc.fpr, roc.tpr, tuple(low.tolist()), tuple(high.tolist()))
