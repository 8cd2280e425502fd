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
from jaxtyping import Float64

from attacks.metrics.bootstrap import percentile_interval, user_weights
from attacks.views.types import PerUser


@dataclass(frozen=True)
class Estimate:
    """A measured value with its 95 % bootstrap interval by user."""

    value: float
    lo: float
    hi: float


def auc_gain(
    auc: PerUser,
    baseline: PerUser,
    *,
    resamples: int = 200,
    seed: int = 0,
) -> Estimate:
    """Mean difference of two per-user AUCs over the users that have both, paired, with its interval.

    Args:
        auc: Per-user AUC of the attack (:func:`user_auc`).
        baseline: Per-user AUC of the popularity guesser on the same candidates.
        resamples: Bootstrap resamples (of users).
        seed: Seed of the bootstrap.
    """
    return user_mean(auc - baseline, resamples=resamples, seed=seed)


def user_mean(values: PerUser, *, resamples: int = 200, seed: int = 0) -> Estimate:
    """Mean over the users that have a value (the others hold NaN), with its interval.

    Args:
        values: One number per user.
        resamples: Bootstrap resamples (of users).
        seed: Seed of the bootstrap.

    Raises:
        ValueError: If no user has a value.
    """
    known = values[np.isfinite(values)]
    weights = user_weights(len(known), resamples, seed)
    return _estimate(known.mean(), weights @ known / len(known))


def _estimate(value: float | Float64[np.ndarray, ""], resampled: Float64[np.ndarray, "resamples"]) -> Estimate:
    low, high = percentile_interval(resampled)
    return Estimate(float(value), float(low), float(high))
