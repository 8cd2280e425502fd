"""Interface of attacks with shadow recommenders, and the moments over worlds that they share."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64
from scipy.special import expit, logit

from attacks.evaluation.info import AttackInfo
from attacks.views.shadows import ShadowView
from attacks.views.types import Scores

_MIN_PROBABILITY = 1e-12
"""Distance from 0 and 1 to which probabilities are clipped before their log-odds are taken."""


@runtime_checkable
class ShadowAttack(AttackInfo, Protocol):
    """A pure function from a target's and its shadows' scores to one score per (user, item)."""

    def score(self, view: ShadowView) -> Scores:
        """Score every (user, item) of the view; higher means "more likely trained on"."""


class ShadowAttackInfo:
    """Declaration shared by attacks on scores with shadow recommenders."""

    observable: ClassVar[str] = "the user's own recommendations: a score for every item"
    adversary: ClassVar[str] = "whoever sees what the device shows"
    knowledge: ClassVar[tuple[str, ...]] = (
        "shadow recommenders trained with the same code and settings",
        "histories but for the interactions asked about",
    )
    unit: ClassVar[str] = "interaction"


@dataclass(frozen=True, eq=False)
class ShadowMoments:
    """Means and variances over the worlds on either side of each interaction's inclusion bit.

    Attributes:
        mean_in: Mean over worlds that trained on the interaction.
        mean_out: Mean over worlds that did not.
        var_in: Variance within the worlds that did, shared by all interactions.
        var_out: Variance within those that did not, shared likewise.
        n_out: Number of worlds that did not.
        decided: Interactions that some worlds trained on and some did not, whose inclusion was thus randomised.
    """

    mean_in: Float64[np.ndarray, "users items"]
    mean_out: Float64[np.ndarray, "users items"]
    var_in: float
    var_out: float
    n_out: Float64[np.ndarray, "users items"]
    decided: Bool[np.ndarray, "users items"]


def shadow_moments(view: ShadowView, *, probabilities: bool) -> ShadowMoments:
    """Means and shared variances of phi, or of p, on both sides; one world in memory at a time.

    An interaction without any world on one side gets that side's mean from the other side and the mean gap between the
    two over interactions that have both (0 if there are none); means of p are shifted as log-odds, so they stay
    probabilities. Variances pool the squared deviations of these interactions over their degrees of freedom, as Carlini
    et al. do with few shadows, and leave out the rest of the catalogue, whose variation differs. A side with no
    interaction in two worlds takes the other side's variance, and 1 is taken if neither has one.
    """
    # Index 0 is "in" (trained on), index 1 "out"; all three are [2, users, items].
    sums = np.zeros((2, view.n_users, view.n_items))
    squares = np.zeros_like(sums)
    counts = np.zeros_like(sums)
    for scores, trained in zip(view.shadows, view.trained, strict=True):
        phi = view.log_odds(scores)
        values = expit(phi) if probabilities else phi
        for side, here in enumerate((trained, ~trained)):
            sums[side] += np.where(here, values, 0.0)
            squares[side] += np.where(here, values**2, 0.0)
            counts[side] += here
    means = sums / np.maximum(counts, 1)
    has_in, has_out = counts > 0
    decided = has_in & has_out
    var_in, var_out = _pooled_variances(squares, counts, means, decided)
    if probabilities:
        means = logit(means.clip(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY))
    gap = float((means[0] - means[1])[decided].mean()) if decided.any() else 0.0
    mean_in = np.where(has_in, means[0], means[1] + gap)
    mean_out = np.where(has_out, means[1], means[0] - gap)
    if probabilities:
        mean_in, mean_out = expit(mean_in), expit(mean_out)
    return ShadowMoments(mean_in, mean_out, var_in, var_out, counts[1], decided)


def _pooled_variances(
    squares: Float64[np.ndarray, "2 users items"],
    counts: Float64[np.ndarray, "2 users items"],
    means: Float64[np.ndarray, "2 users items"],
    decided: Bool[np.ndarray, "users items"],
) -> tuple[float, float]:
    """Variance within the worlds of each side, "in" and "out", pooled over the randomised interactions."""
    deviations = (squares - counts * means**2)[:, decided].clip(min=0).sum(axis=1)
    freedom = (counts[:, decided] - 1).sum(axis=1)
    known = [float(d / f) if f > 0 and d > 0 else None for d, f in zip(deviations, freedom, strict=True)]
    var_in, var_out = (own or other or 1.0 for own, other in (known, known[::-1]))
    return var_in, var_out
