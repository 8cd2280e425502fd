"""How well an attack tells whole users apart: members of a training set, or participants of a sum, from others.

Intervals draw users with replacement. One user may be the subject of several guesses (one in every sum); these are
drawn together, because they are made from one history.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.evaluation.info import AttackInfo
from attacks.metrics.bootstrap import SHARES, user_weights
from attacks.metrics.estimate import Estimate, from_resamples
from attacks.metrics.separation import MIN_FALSE_POSITIVES, TprAtFpr
from attacks.views.types import ViewError

USER_FPR_TARGETS = (0.1, 0.01)
"""False-positive rates at which the true-positive rate is reported; there are too few users for lower rates."""


@dataclass(frozen=True)
class UserResult:
    """Result of one attack on whole users.

    Attributes:
        attack: Name of the attack.
        observable: What had to be visible.
        adversary: Party that can see the observable.
        knowledge: Prior knowledge that the attack used.
        unit: "user".
        explains: One sentence for a newcomer.
        game: The question asked.
        n_users: Number of users that the guesses are about.
        n_members: Number of guesses whose true answer is yes.
        n_nonmembers: Number of guesses whose true answer is no.
        auc: Share of (yes, no) pairs in the right order, ties one half, with its 95 % bootstrap interval.
        tpr_at_fpr: True-positive rates at :data:`USER_FPR_TARGETS`.
    """

    attack: str
    observable: str
    adversary: str
    knowledge: tuple[str, ...]
    unit: str
    explains: str
    game: str
    n_users: int
    n_members: int
    n_nonmembers: int
    auc: Estimate
    tpr_at_fpr: tuple[TprAtFpr, ...]


def measure_users(
    attack: AttackInfo,
    scores: Float64[np.ndarray, "guesses"],
    members: Bool[np.ndarray, "guesses"],
    game: str,
    *,
    users: Int64[np.ndarray, "guesses"] | None = None,
    resamples: int = 200,
    seed: int = 0,
) -> UserResult:
    """Compare scores of whole users with the truth.

    Args:
        attack: Attack that gave the scores.
        scores: Higher means "more likely yes".
        members: The truth.
        game: The question in words.
        users: User that each guess is about; None if every guess is about another user.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ViewError: If shapes differ, a score is not finite, or one of the sides is empty.
    """
    if scores.shape != members.shape or scores.ndim != 1 or members.dtype != bool:
        raise ViewError(
            f"Scores have shape {scores.shape} and members are {members.dtype} of shape {members.shape}; pass one "
            "score and one boolean per guess."
        )
    if not np.isfinite(scores).all():
        raise ViewError("An attack gave NaN or infinity as a score; scores must be finite numbers.")
    if members.all() or not members.any():
        raise ViewError("All users are on one side of the question; pass members and non-members.")
    _, owner = np.unique(np.arange(len(scores)) if users is None else users, return_inverse=True)
    n_users = int(owner.max()) + 1
    order = scores.argsort(kind="stable")
    _, level = np.unique(scores[order], return_inverse=True)
    # Row 0 takes every user once, so one computation gives the value and its resamples: [1 + resamples, guesses].
    weights = np.concatenate([np.ones((1, n_users)), user_weights(n_users, resamples, seed)])[:, owner[order]]
    # Equal scores are adjacent after sorting and are added up into one level.
    starts = np.flatnonzero(np.diff(level, prepend=-1))
    positives = np.add.reduceat(weights * members[order], starts, axis=1)
    negatives = np.add.reduceat(weights * ~members[order], starts, axis=1)
    # A resample without members or without non-members has no AUC.
    usable = positives.any(axis=1) & negatives.any(axis=1)
    positives, negatives = positives[usable], negatives[usable]
    return UserResult(
        attack=attack.name,
        observable=attack.observable,
        adversary=attack.adversary,
        knowledge=attack.knowledge,
        unit=attack.unit,
        explains=attack.explains,
        game=game,
        n_users=n_users,
        n_members=int(members.sum()),
        n_nonmembers=int((~members).sum()),
        auc=_estimate(_auc(positives, negatives), n_users),
        tpr_at_fpr=tuple(_rate(positives, negatives, fpr, n_users) for fpr in USER_FPR_TARGETS),
    )


def _auc(
    positives: Float64[np.ndarray, "resamples levels"], negatives: Float64[np.ndarray, "resamples levels"]
) -> Float64[np.ndarray, "resamples"]:
    """Share of pairs in the right order, from the weight of both sides at each score, ascending."""
    below = negatives.cumsum(axis=1) - negatives / 2
    return np.asarray((positives * below).sum(axis=1) / (positives.sum(axis=1) * negatives.sum(axis=1)))


def _rate(
    positives: Float64[np.ndarray, "resamples levels"],
    negatives: Float64[np.ndarray, "resamples levels"],
    fpr: float,
    n_users: int,
) -> TprAtFpr:
    """True-positive rate at the lowest threshold whose false-positive rate is at most `fpr`."""
    if fpr * negatives[0].sum() < MIN_FALSE_POSITIVES:
        return TprAtFpr(fpr, None, 0)
    # Cumulated from the highest score down, starting with the threshold above all scores.
    false_positives = np.pad(negatives[:, ::-1].cumsum(axis=1), ((0, 0), (1, 0)))
    true_positives = np.pad(positives[:, ::-1].cumsum(axis=1), ((0, 0), (1, 0)))
    threshold = (false_positives <= fpr * false_positives[:, -1:] * (1 + 1e-12)).sum(axis=1)[:, None] - 1
    rates = np.take_along_axis(true_positives, threshold, axis=1)[:, 0] / true_positives[:, -1]
    return TprAtFpr(
        fpr, _estimate(rates, n_users), round(float(np.take_along_axis(false_positives, threshold, axis=1)[0, 0]))
    )


def _estimate(values: Float64[np.ndarray, "resamples"], n_users: int) -> Estimate:
    """Estimate whose first value is the measured one and whose others are resampled."""
    return from_resamples(values[0], values[1:], n_users, SHARES)
