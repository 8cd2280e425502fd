"""Gradient inversion: optimise a history until the client's step, done again with it, gives the upload.

Zhu, Liu & Han, "Deep leakage from gradients" (NeurIPS 2019), match one gradient of pixels; here the client may take
several local steps, what is sought is a history (a weight between 0 and 1 for each item) with whatever else is private
in the step (a user vector, drawn negatives), and only the distance of whole uploads counts. So rows need not be
visible: low-rank factors, products, and sketches of an upload are matched as they are. Whoever knows the code writes
the step once with automatic differentiation; this module knows no framework.
"""

from typing import Protocol

import numpy as np
from jaxtyping import Float64

from attacks.views.types import Scores, ViewError

_FIRST, _SECOND = 0.9, 0.999
"""Adam's memories."""


class _Adam:
    """Changes an array in place, step by step.

    Args:
        values: the array.
        rate: of learning.
    """

    def __init__(self, values: Float64[np.ndarray, "..."], rate: float) -> None:
        self.values, self.rate, self.taken = values, rate, 0
        self.mean, self.square = np.zeros_like(values), np.zeros_like(values)

    def follow(self, gradient: Float64[np.ndarray, "..."]) -> None:
        """A step against the gradient."""
        self.taken += 1
        self.mean += (1 - _FIRST) * (gradient - self.mean)
        self.square += (1 - _SECOND) * (gradient**2 - self.square)
        scale = np.sqrt(self.square / (1 - _SECOND**self.taken)) + 1e-12
        self.values -= self.rate * self.mean / (1 - _FIRST**self.taken) / scale


class SimulatedStep(Protocol):
    """A client's step that can be done again, and the uploads of people in a fixed order.

    Attributes:
        people: whose uploads are matched.
        private: numbers that are private besides the history.
    """

    people: int
    private: int

    def mismatch(
        self,
        history: Float64[np.ndarray, "starts people items"],
        private: Float64[np.ndarray, "starts people private"],
    ) -> tuple[
        Float64[np.ndarray, "starts people"],
        Float64[np.ndarray, "starts people items"],
        Float64[np.ndarray, "starts people private"],
    ]:
        """How far simulated uploads are from the real ones, and its gradients.

        Args:
            history: weight of each item between 0 and 1.
            private: what else is private, of about unit size.
        """


def gradient_inversion(
    step: SimulatedStep,
    prior: Float64[np.ndarray, " items"],
    *,
    starts: int = 4,
    steps: int = 300,
    rate: float = 0.1,
    proximal: float = 1e-3,
    seed: int = 0,
) -> Scores:
    """Scores of every item for every upload: log-odds of the history that explains it best.

    Args:
        step: what is matched.
        prior: probability of each item, from popularity.
        starts: random starts for each upload; the best explanation is kept. Where only the history is private, all
            are one.
        steps: of Adam.
        rate: of Adam, on log-odds and private numbers.
        proximal: weight of the pull towards the prior, over the mean squared distance of log-odds from it.
        seed: of the starts.

    Raises:
        ViewError: If a probability is not strictly between 0 and 1, or there is nothing to do.
    """
    if not ((prior > 0) & (prior < 1)).all() or min(starts, steps) < 1:
        raise ViewError(
            f"Got probabilities from {prior.min(initial=1.0)} to {prior.max(initial=0.0)}, {starts} starts and {steps} "
            "steps; pass probabilities strictly between 0 and 1, and at least one start and step."
        )
    anchor = np.log(prior) - np.log1p(-prior)
    shape = (starts if step.private else 1, step.people)
    private = np.random.default_rng(seed).normal(size=(*shape, step.private))
    sought = [np.broadcast_to(anchor, (*shape, len(anchor))).copy(), private]
    adam = [_Adam(values, rate) for values in sought]
    best, lowest = sought[0].copy(), np.full(shape, np.inf)
    for _ in range(steps):
        weight = 1 / (1 + np.exp(-sought[0]))
        mismatch, by_weight, by_private = step.mismatch(weight, sought[1])
        away = sought[0] - anchor
        objective = mismatch + proximal * np.square(away).mean(axis=2)
        better = objective < lowest
        lowest = np.where(better, objective, lowest)
        best[better] = sought[0][better]
        slope = by_weight * weight * (1 - weight) + 2 * proximal * away / len(anchor)
        adam[0].follow(slope)
        adam[1].follow(by_private)
    scores: Scores = best[lowest.argmin(axis=0), np.arange(step.people)]
    return scores
