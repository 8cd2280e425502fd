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

from attacks.metrics.bootstrap import user_weights
from attacks.metrics.estimate import Estimate, _estimate
from attacks.metrics.ranking import Ranking
from attacks.views.types import PerUser, Scores, ViewError

FPR_TARGETS = (0.1, 0.01, 0.001)
"""False-positive rates at which the true-positive rate is reported."""

MIN_FALSE_POSITIVES = 10
"""A rate is left out where its target allows fewer false positives than this: it would be noise."""

ROC_POINTS = 200
"""Most points of a reported ROC curve."""


@dataclass(frozen=True)
class TprAtFpr:
    """True-positive rate at a false-positive rate.

    Attributes:
        fpr: The target; the threshold taken has at most this false-positive rate.
        tpr: The rate with its interval, or None where fewer than 10 false positives would be allowed.
        false_positives: Non-members above the threshold taken; 0 if `tpr` is None.
    """

    fpr: float
    tpr: Estimate | None
    false_positives: int


@dataclass(frozen=True)
class RocCurve:
    """At most 200 points of the pooled ROC curve, evenly spaced in log FPR; from (0, .) to (1, 1)."""

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]


@dataclass(frozen=True)
class Separation:
    """Everything measured about one set of scores.

    Attributes:
        n_users: Users with at least one member and one non-member among the candidates; only they count.
        n_members: Member pairs of those users.
        n_nonmembers: Non-member pairs of those users.
        auc: Mean of the users' own AUCs.
        auc_pooled: AUC over all pairs on one scale.
        tpr_at_fpr: Pooled rates at :data:`FPR_TARGETS`.
        advantage: Largest TPR - FPR over pooled thresholds (balanced advantage; 0 for a coin, 1 for a perfect
        attack).
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
    """Measure scores against the truth.

    Args:
        scores: Higher means "more likely a member".
        members: The truth; member is the positive class.
        candidates: Pairs that count.
        resamples: Bootstrap resamples (of users).
        seed: Seed of the bootstrap.

    Raises:
        ViewError: If shapes differ, candidate scores are not finite, or no user has both a member and a
        non-member.
    """
    ranking = Ranking.from_scores(scores, members, candidates)
    return separation_of(ranking, ranking.user_auc(), resamples=resamples, seed=seed)


def separation_of(ranking: Ranking, auc: PerUser, *, resamples: int = 200, seed: int = 0) -> Separation:
    """:func:`separation` of pairs that are sorted already.

    Args:
        ranking: The pairs.
        auc: What :meth:`Ranking.user_auc` gave.
        resamples: Bootstrap resamples (of users).
        seed: Seed of the bootstrap.

    Raises:
        ViewError: If no user has both a member and a non-member.
    """
    _require_users(ranking)
    per_user = auc[ranking.usable]
    weights = user_weights(ranking.n_users, resamples, seed)
    positives, negatives = _level_counts(ranking)
    n_members, n_nonmembers = int(positives.sum()), int(negatives.sum())
    tpr, fpr = _rates(positives[None]), _rates(negatives[None])

    binned_positives, binned_negatives = _binned(ranking, negatives)
    boot_positives, boot_negatives = weights @ binned_positives, weights @ binned_negatives
    boot_tpr, boot_fpr = _rates(boot_positives), _rates(boot_negatives)

    rates = []
    for target in FPR_TARGETS:
        if n_nonmembers * target < MIN_FALSE_POSITIVES:
            rates.append(TprAtFpr(target, None, 0))
            continue
        value, at = _rate_at(tpr, fpr, target)
        resampled, _ = _rate_at(boot_tpr, boot_fpr, target)
        rates.append(TprAtFpr(target, _estimate(value[0], resampled), round(float(fpr[0, at[0]]) * n_nonmembers)))

    return Separation(
        n_users=ranking.n_users,
        n_members=n_members,
        n_nonmembers=n_nonmembers,
        auc=_estimate(per_user.mean(), weights @ per_user / ranking.n_users),
        auc_pooled=_estimate(_auc_of_counts(positives, negatives), _auc_of_counts(boot_positives, boot_negatives)),
        tpr_at_fpr=tuple(rates),
        advantage=_estimate((tpr - fpr).max(), (boot_tpr - boot_fpr).max(axis=1)),
        roc=_thinned(tpr[0], fpr[0], n_nonmembers),
    )


def _require_users(ranking: Ranking) -> None:
    if not ranking.usable.any():
        raise ViewError(
            "No user has both a member and a non-member among the candidates; widen the candidates or audit "
            "users with training items."
        )


def _level_counts(ranking: Ranking) -> tuple[Float64[np.ndarray, "levels"], Float64[np.ndarray, "levels"]]:
    """Members and non-members at each distinct score, ascending."""
    levels = int(ranking.level[-1]) + 1
    everyone = np.bincount(ranking.level, minlength=levels).astype(np.float64)
    positives = np.bincount(ranking.level, ranking.member, minlength=levels)
    return positives, everyone - positives


def _auc_of_counts(
    positives: Float64[np.ndarray, "*resamples bins"], negatives: Float64[np.ndarray, "*resamples bins"]
) -> Float64[np.ndarray, "*resamples"]:
    """AUC from members and non-members per ascending bin of score; pairs in one bin count one half."""
    below = negatives.cumsum(axis=-1) - negatives / 2
    wins = (positives * below).sum(axis=-1)
    return np.asarray(wins / (positives.sum(axis=-1) * negatives.sum(axis=-1)))


def _rates(counts: Float64[np.ndarray, "resamples bins"]) -> Float64[np.ndarray, "resamples bins+1"]:
    """Share of pairs at or above each threshold, from the highest score down, starting with none taken."""
    taken = np.cumsum(counts[:, ::-1], axis=1)
    return np.pad(taken / taken[:, -1:], ((0, 0), (1, 0)))


def _rate_at(
    tpr: Float64[np.ndarray, "resamples thresholds"],
    fpr: Float64[np.ndarray, "resamples thresholds"],
    target: float,
) -> tuple[Float64[np.ndarray, "resamples"], Int64[np.ndarray, "resamples"]]:
    """Best TPR among thresholds whose FPR is at most the target, and which threshold that is."""
    at = (fpr <= target * (1 + 1e-12)).sum(axis=1) - 1
    return np.take_along_axis(tpr, at[:, None], axis=1)[:, 0], at


def _binned(
    ranking: Ranking, negatives: Float64[np.ndarray, "levels"]
) -> tuple[Float64[np.ndarray, "users bins"], Float64[np.ndarray, "users bins"]]:
    """Each user's members and non-members per bin of pooled rank, lowest scores first."""
    above = 1 - negatives.cumsum() / negatives.sum()
    edges = np.union1d(np.linspace(0, 1, 1001), np.geomspace(1e-5, 0.1, 500))
    _, bin_of_level = np.unique(-np.searchsorted(edges, above.clip(0, 1)), return_inverse=True)
    n_bins = int(bin_of_level.max()) + 1
    cell = ranking.user * n_bins + bin_of_level[ranking.level]
    shape = (ranking.n_users, n_bins)
    everyone = np.bincount(cell, minlength=ranking.n_users * n_bins).reshape(shape).astype(np.float64)
    positives = np.bincount(cell, ranking.member, minlength=ranking.n_users * n_bins).reshape(shape)
    return positives, everyone - positives


def _thinned(
    tpr: Float64[np.ndarray, "thresholds"], fpr: Float64[np.ndarray, "thresholds"], n_nonmembers: int
) -> RocCurve:
    """Best TPR at log-spaced false-positive rates, with the two ends."""
    wanted = np.concatenate([[0.0], np.geomspace(min(1 / n_nonmembers, 0.5), 1, ROC_POINTS - 1)])
    at = np.unique(np.searchsorted(fpr, wanted * (1 + 1e-12), side="right") - 1)
    return RocCurve(tuple(fpr[at].tolist()), tuple(tpr[at].tolist()))
