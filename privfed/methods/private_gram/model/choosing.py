"""Choice of estimator settings inside the privacy budget: one thinned copy of the released matrix judges the other.

A matrix G with Gaussian noise of variance v, and N drawn afresh with the same variance, give two matrices, G + N and
G - N, whose noises (of variance 2 v) are independent of each other ("data thinning": Neufeld, Dharamshi, Gao and
Witten, JMLR 25, 2024; for Gaussians long known). Both follow from the release, so whatever is chosen by them costs no
privacy beyond it.

Weights W learned from one are judged by how well W without its diagonal, W0, would predict every entry of a history
from its others, which is linear in the other matrix and so estimated without bias:

    sum_u |u - W0 u|^2 - |u|^2  =  <W0^T W0 - 2 W0, sum_u u u^T>.

Negative is better than to predict nothing beyond popularity, which is 0. Settings are tried one after the other,
not in every combination: content and smoothing, single pairs, how much of the head, what lies below the noise, the form
of EASE.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from privfed.compute.linear_algebra import upper_gram
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram

_SMOOTHINGS, _KEPT, _BELOW = (0.0, 0.3, 0.6, 0.85), 0.5, 0.1
_MARGIN, _MARGIN_OF_PAIRS = 1.01, 1.5
"""How many times larger a change must make the gain: the judge is noisy, and pairs help prediction more than ranks."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen settings and their expected gain.

    Attributes:
        settings: the chosen settings.
        gain: share of the squared length of histories that it predicts beyond popularity; 0 or less means that
            no settings predict anything, and popularity alone is better.
        tried: number of settings compared.
    """

    settings: EstimatorSettings
    gain: float
    tried: int


@dataclass(frozen=True, slots=True, eq=False)
class ThinnedCopies:
    """Two copies of a released matrix whose noises are independent.

    Attributes:
        learning: evidence from one.
        judge: the other, about the same number of clients.
    """

    learning: NoisyGram
    judge: Float64[np.ndarray, "side side"]

    @classmethod
    def from_evidence(cls, evidence: NoisyGram, noise: Float64[np.ndarray, "side side"]) -> "ThinnedCopies":
        """Copies of the matrix of `evidence`, by fresh noise that is distributed as its own, which must not be 0."""
        # Two independent normal noises of equal variance add up to one of twice the variance, on either side.
        learning = replace(evidence, gram=evidence.gram + noise, deviation=evidence.deviation * np.sqrt(2))
        return cls(learning, evidence.gram - noise)


def choose(
    copies: ThinnedCopies, start: EstimatorSettings, *, pairs: float | None, ridge: float | None = None
) -> Choice:
    """Choose the best settings near `start`.

    Args:
        copies: of the released matrix.
        start: what is changed, one setting after the other.
        pairs: threshold of single pairs to try; None tries none.
        ridge: of weights in the form of EASE to try; None tries none.
    """
    learning, judge = copies.learning, copies.judge
    risks: dict[EstimatorSettings, float] = {}

    def risk(recipe: EstimatorSettings) -> float:
        # Choices share candidates, and each costs a solve of [side, side].
        if recipe not in risks:
            risks[recipe] = predicted_risk(learning.weights(recipe), judge) / learning.clients
        return risks[recipe]

    def better(current: EstimatorSettings, others: Sequence[EstimatorSettings], margin: float) -> EstimatorSettings:
        found = min(others, key=risk)
        # Risks are negative gains. One above 0 counts as 0, which predicting nothing reaches.
        return found if risk(found) < margin * min(risk(current), 0.0) else current

    best = start
    if learning.content is not None:
        described = [replace(start, smoothing=share) for share in _SMOOTHINGS]
        best = better(best, [*described, replace(start, rank=0), replace(start, content=False, smoothing=0.0)], _MARGIN)
    if pairs is not None:
        best = better(best, [replace(best, threshold=pairs)], _MARGIN_OF_PAIRS)
    best = better(best, [replace(best, kept=_KEPT)], _MARGIN)
    best = better(best, [replace(best, below=_BELOW)], _MARGIN)
    if ridge is not None:
        best = better(best, [replace(best, ridge=ridge)], _MARGIN)
    return Choice(best, -risk(best), len(risks))


def predicted_risk(weights: Float64[np.ndarray, "side side"], gram: Float64[np.ndarray, "side side"]) -> float:
    """<W0^T W0 - 2 W0, G>: what predicting every entry from the others adds to the squared lengths left to explain."""
    off_diagonal = weights.copy()
    np.fill_diagonal(off_diagonal, 0)
    # Both are symmetric, so the upper triangle of W0^T W0, which is half the work, says everything.
    squares = upper_gram(off_diagonal)
    both = 2 * np.vdot(squares, gram) - squares.diagonal() @ gram.diagonal()
    return float(both - 2 * np.vdot(off_diagonal, gram))
