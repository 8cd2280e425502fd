"""Measured values with their bootstrap intervals over users."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from attacks.metrics.bootstrap import interval, user_weights
from attacks.views.types import PerUser


@dataclass(frozen=True)
class Estimate:
    """A measured value with its 95 % bootstrap interval over users."""

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
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.
    """
    return user_mean(auc - baseline, resamples=resamples, seed=seed)


def user_mean(values: PerUser, *, resamples: int = 200, seed: int = 0) -> Estimate:
    """Mean over the users that have a value (the others hold NaN), with its interval.

    Args:
        values: One number per user.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ValueError: If no user has a value.
    """
    known = values[np.isfinite(values)]
    weights = user_weights(len(known), resamples, seed)
    return from_resamples(known.mean(), weights @ known / len(known), len(known))


def from_resamples(
    value: float | Float64[np.ndarray, ""],
    resampled: Float64[np.ndarray, "resamples"],
    n_users: int,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Estimate:
    """Estimate of a value from bootstrap resamples of so many users; the value lies within the bounds."""
    low, high = interval(float(value), resampled, n_users, bounds)
    return Estimate(float(value), float(low), float(high))
