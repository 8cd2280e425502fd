"""RMIA (Zarifzadeh, Liu & Shokri, "Low-cost high-power membership inference attacks", ICML 2024).

How much more did training raise the probability of this record than that of other records of its kind? With p the
probability that the target gives a record x and p-bar its mean over trainings with and without x,

    score(x) = share of references z with  [p(x) / pbar(x)] / [p(z) / pbar(z)] >= gamma

    online:    pbar = (p_in + p_out) / 2
    offline:   pbar = ((1 + a) p_out + 1 - a) / 2,    which assumes p_in = a p_out + 1 - a if only p_out is known

References of an item are the same user's other items, so the score is a rank within the user and does not show how
strongly a user was fitted as a whole. It works with 1 to 4 shadows, because it uses only their mean, and is therefore
the default of the attacks with shadows.

How far apart p_in and p_out lie depends on the recommender: a lies between 0 (training brings every p to 1) and 1 (it
hardly moves p). As in the paper it is fitted on shadows: each takes the role of the target once, with the others as
its shadows, and the a with the largest AUC on the randomised interactions is kept. With one shadow it is 0.3, the
paper's value for images.

The paper's gamma is 2. Here it is 1, so that the score is the rank of the ratio and no pair is lost to ties; 1.5 and 2
gave the same AUC on planted scores.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import expit

from attacks.metrics.ranking import usable_users, user_auc
from attacks.shadow.attack import ShadowAttackInfo, ShadowMoments, shadow_moments
from attacks.views.shadows import ShadowView
from attacks.views.types import Scores

A_GRID = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Grid of values of a."""

A_ONE_SHADOW = 0.3
"""Value of a with a single shadow, which leaves nothing to fit it on."""

_MIN_PROBABILITY = 1e-150
"""Lower limit of probabilities in a denominator."""


@dataclass(frozen=True)
class Rmia(ShadowAttackInfo):
    """Score each interaction by the share of the user's other items whose likelihood ratio it exceeds.

    Attributes:
        mode: "offline" uses worlds without the interaction, "online" both kinds.
        a: Coefficient of the offline correction, in [0, 1]; None fits it on the shadows.
        gamma: Factor by which a ratio must exceed another, at least 1.

    Raises:
        ValueError: If a setting is outside its range.
    """

    mode: Literal["offline", "online"] = "offline"
    a: float | None = None
    gamma: float = 1.0

    cost: ClassVar[str] = "1 to 4 trainings of the recommender"
    explains: ClassVar[str] = (
        "Asks for how many of a user's other items training raised the probability by less than for this one, with "
        "shadow recommenders to say what it would have been anyway."
    )

    def __post_init__(self) -> None:
        if self.mode not in ("offline", "online") or not 1 <= self.gamma < np.inf or not 0 <= (self.a or 0) <= 1:
            raise ValueError(
                f"Rmia got mode={self.mode!r}, a={self.a} and gamma={self.gamma}; use 'offline' or 'online', an a "
                "between 0 and 1, and a finite gamma of at least 1."
            )

    @property
    def name(self) -> str:
        """Short name used in reports."""
        return "RMIA" if self.mode == "offline" else "RMIA, online"

    def score(self, view: ShadowView) -> Scores:
        """Share of the user's other items whose ratio is at most the item's own over gamma."""
        moments = shadow_moments(view, probabilities=True)
        if self.mode == "offline":
            usual = offline_mean(moments.mean_out, fit_offline_a(view, moments) if self.a is None else self.a)
        else:
            usual = (moments.mean_in + moments.mean_out) / 2
        ratio = expit(view.log_odds(view.target)).clip(min=_MIN_PROBABILITY) / usual.clip(min=_MIN_PROBABILITY)
        # With gamma = 1 every ratio is at most itself, which is no evidence and is not counted.
        itself = 1.0 if self.gamma == 1 else 0.0
        share: Scores = (count_at_most(ratio, ratio / self.gamma) - itself) / max(view.n_items - 1, 1)
        return share


def offline_mean(p_out: Scores, a: float) -> Scores:
    """p-bar estimated from the mean probability p_out over worlds that did not train on the item."""
    usual: Scores = ((1 + a) * p_out + 1 - a) / 2
    return usual


def fit_offline_a(view: ShadowView, moments: ShadowMoments) -> float:
    """The value of :data:`A_GRID` that best separates each shadow's training items, with the other shadows as its own.

    Args:
        view: Target and shadow recommenders; the target is not used.
        moments: Means of p over the shadows.
    """
    sums = moments.mean_out * moments.n_out
    aucs = np.zeros(len(A_GRID))
    for scores, trained in zip(view.shadows, view.trained, strict=True):
        p = expit(view.log_odds(scores)).clip(min=_MIN_PROBABILITY)
        # Take this shadow out of the means of the worlds that did not train on the item.
        n_others = moments.n_out - ~trained
        candidates = moments.decided & (n_others > 0)
        if not usable_users(trained, candidates).any():
            continue
        p_out = (sums - np.where(trained, 0.0, p)).clip(min=0) / np.maximum(n_others, 1)
        for number, a in enumerate(A_GRID):
            ratio = p / offline_mean(p_out, a).clip(min=_MIN_PROBABILITY)
            aucs[number] += np.nanmean(user_auc(ratio, trained, candidates))
    return A_GRID[int(aucs.argmax())] if aucs.any() else A_ONE_SHADOW


def count_at_most(values: Scores, limits: Scores) -> Scores:
    """Number of a user's values that are at most each of the user's limits, by one sort per user."""
    width = values.shape[1]
    # A stable sort of [users, values then limits] puts equal values before the limit, so "at most" includes ties.
    order = np.concatenate([values, limits], axis=1).argsort(axis=1, kind="stable")
    below = (order < width).cumsum(axis=1, dtype=np.float64)
    counts = np.empty_like(below)
    np.put_along_axis(counts, order, below, axis=1)
    at_limits: Scores = counts[:, width:]
    return at_limits
