"""How well whole users are told apart: members of a training set, or participants of a sum, from those who are not.

Intervals draw users with replacement. One user may be asked about several times (in every sum), and then all its
guesses are drawn together, since they are made from one history.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from attacks.evaluation.info import AttackInfo
from attacks.metrics.bootstrap import percentile_interval, user_weights
from attacks.metrics.estimate import Estimate
from attacks.metrics.separation import MIN_FALSE_POSITIVES, TprAtFpr
from attacks.views.types import ViewError

USER_FPR_TARGETS = (0.1, 0.01)
"""False-positive rates at which the true-positive rate is reported; users are too few for smaller ones."""


@dataclass(frozen=True)
class UserResult:
    """What one attack on whole users achieved.

    Attributes:
        attack: Name of the attack.
        observable: What it needed to see.
        adversary: Who can see that.
        knowledge: What it used besides.
        unit: "user".
        explains: One sentence for a newcomer.
        game: The question asked.
        n_users: Users asked about.
        n_members: Guesses to which the answer is yes.
        n_nonmembers: Guesses to which it is no.
        auc: Share of pairs of the two in the right order, ties one half, with its 95 % bootstrap interval.
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
        attack: Which attack gave them.
        scores: Higher means "more likely yes".
        members: The truth.
        game: The question in words.
        users: Whom each guess is about; None where every guess is about another user.
        resamples: Bootstrap resamples of users.
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
        raise ViewError("All users are on one side of the question; ask about some who are in and some who are not.")
    _, owner = np.unique(np.arange(len(scores)) if users is None else users, return_inverse=True)
    n_users = int(owner.max()) + 1
    order = scores.argsort(kind="stable")
    _, level = np.unique(scores[order], return_inverse=True)
    weights = np.concatenate([np.ones((1, n_users)), user_weights(n_users, resamples, seed)])[:, owner[order]]
    starts = np.flatnonzero(np.diff(level, prepend=-1))
    inside = np.add.reduceat(weights * members[order], starts, axis=1)
    outside = np.add.reduceat(weights * ~members[order], starts, axis=1)
    both = inside.any(axis=1) & outside.any(axis=1)
    inside, outside = inside[both], outside[both]
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
        auc=_estimate(_auc(inside, outside)),
        tpr_at_fpr=tuple(_rate(inside, outside, fpr) for fpr in USER_FPR_TARGETS),
    )


def _auc(
    inside: Float64[np.ndarray, "resamples levels"], outside: Float64[np.ndarray, "resamples levels"]
) -> Float64[np.ndarray, "resamples"]:
    """Share of pairs in the right order, from the weight of both sides at each score, ascending."""
    below = outside.cumsum(axis=1) - outside / 2
    return np.asarray((inside * below).sum(axis=1) / (inside.sum(axis=1) * outside.sum(axis=1)))


def _rate(
    inside: Float64[np.ndarray, "resamples levels"], outside: Float64[np.ndarray, "resamples levels"], fpr: float
) -> TprAtFpr:
    """Share of members found at the lowest cut that accuses at most `fpr` of the others."""
    if fpr * outside[0].sum() < MIN_FALSE_POSITIVES:
        return TprAtFpr(fpr, None, 0)
    accused = np.pad(outside[:, ::-1].cumsum(axis=1), ((0, 0), (1, 0)))
    found = np.pad(inside[:, ::-1].cumsum(axis=1), ((0, 0), (1, 0)))
    cut = (accused <= fpr * accused[:, -1:] * (1 + 1e-12)).sum(axis=1)[:, None] - 1
    rates = np.take_along_axis(found, cut, axis=1)[:, 0] / found[:, -1]
    return TprAtFpr(fpr, _estimate(rates), round(float(np.take_along_axis(accused, cut, axis=1)[0, 0])))


def _estimate(values: Float64[np.ndarray, "resamples"]) -> Estimate:
    """The first value is the one measured, the others are resampled."""
    low, high = percentile_interval(values[1:])
    return Estimate(float(values[0]), float(low), float(high))
