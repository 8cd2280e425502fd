"""RMIA (Zarifzadeh, Liu & Shokri, "Low-cost high-power membership inference attacks", ICML 2024).

How much likelier did training make this record than other records of the same kind? With p the probability that the
target gives a record x and p-bar what it gets over trainings with and without it,

    score(x) = share of references z with  [p(x) / pbar(x)] / [p(z) / pbar(z)] >= gamma

    online:    pbar = (p_in + p_out) / 2
    offline:   pbar = ((1 + a) p_out + 1 - a) / 2,    which puts p_in = a p_out + 1 - a where only p_out is known

References of an item are the same user's other items, so the score is a rank within the user and says nothing about how
strongly a user was fitted as a whole. It works with 1 to 4 shadows, because a mean is all it takes from them, and is
therefore the default of the attacks with shadows.

How far apart p_in and p_out lie depends on the recommender: a lies between 0 (training brings every p to 1) and 1 (it
hardly moves p). As in the paper it is found on shadows: each is taken for the target once, with the others as its
shadows, and the a with the largest AUC on the interactions that these tell apart is kept. With one shadow it is 0.3,
the paper's for images.

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
"""Values of a that are tried."""

A_ONE_SHADOW = 0.3
"""Where one shadow is all there is to try them on."""

_TINY = 1e-150
"""Smallest probability that is divided by."""


@dataclass(frozen=True)
class Rmia(ShadowAttackInfo):
    """Score each interaction by how many of the user's other items its likelihood ratio exceeds.

    Attributes:
        mode: "offline" uses worlds without the interaction, "online" both kinds.
        a: Of the offline correction, in [0, 1]; None finds it on the shadows.
        gamma: By which factor a ratio must exceed another, at least 1.

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
        worlds = shadow_moments(view, probabilities=True)
        if self.mode == "offline":
            usual = offline_mean(worlds.mean_out, fit_offline_a(view, worlds) if self.a is None else self.a)
        else:
            usual = (worlds.mean_in + worlds.mean_out) / 2
        ratio = expit(view.log_odds(view.target)).clip(min=_TINY) / usual.clip(min=_TINY)
        own = 1.0 if self.gamma == 1 else 0.0
        share: Scores = (count_at_most(ratio, ratio / self.gamma) - own) / max(view.n_items - 1, 1)
        return share


def offline_mean(p_out: Scores, a: float) -> Scores:
    """p-bar from what items get without being trained on."""
    usual: Scores = ((1 + a) * p_out + 1 - a) / 2
    return usual


def fit_offline_a(view: ShadowView, worlds: ShadowMoments) -> float:
    """The a that tells apart best what each shadow trained on, with the other shadows for its own.

    Args:
        view: Target and shadows; the target is not looked at.
        worlds: Means of p over them.
    """
    sums = worlds.mean_out * worlds.n_out
    found = np.zeros(len(A_GRID))
    for scores, trained in zip(view.shadows, view.trained, strict=True):
        p = expit(view.log_odds(scores)).clip(min=_TINY)
        others = worlds.n_out - ~trained
        asked = worlds.decided & (others > 0)
        if not usable_users(trained, asked).any():
            continue
        p_out = (sums - np.where(trained, 0.0, p)).clip(min=0) / np.maximum(others, 1)
        for number, a in enumerate(A_GRID):
            ratio = p / offline_mean(p_out, a).clip(min=_TINY)
            found[number] += np.nanmean(user_auc(ratio, trained, asked))
    return A_GRID[int(found.argmax())] if found.any() else A_ONE_SHADOW


def count_at_most(values: Scores, limits: Scores) -> Scores:
    """How many of a user's values are at most each of the user's limits, by one sort per user."""
    width = values.shape[1]
    order = np.concatenate([values, limits], axis=1).argsort(axis=1, kind="stable")
    below = (order < width).cumsum(axis=1, dtype=np.float64)
    counts = np.empty_like(below)
    np.put_along_axis(counts, order, below, axis=1)
    counted: Scores = counts[:, width:]
    return counted
