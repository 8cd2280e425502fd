"""Scores that tell two worlds apart, fitted to one half of the trials and measured on the other.

Whatever a score was fitted to, on fresh trials its threshold is a fixed event, and Clopper and Pearson bound how often
each world shows it. So a score may be anything; several kinds are fitted, and the one that tells most is kept:

* linear: along the difference of the means, in units of the noise;
* noiseless: along the part of that difference in which the noise does not vary;
* scale: the squared distance from the mean;
* values: how many numbers equal one that only one of the worlds takes;
* form: whether a number is not finite, or the outputs have another layout.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from attacks.empirical.bounds import clopper_pearson_upper
from attacks.mechanism.release import Trials

ScoreFunction: TypeAlias = Callable[[Trials], np.ndarray]

_LARGEST = 1e300
_CUTS = 64


@dataclass(frozen=True, eq=False)
class FittedScore:
    """A score with its threshold.

    Attributes:
        name: Kind of the score.
        detail: What it looks at, in words.
        function: From trials to scores.
        threshold: Scores at or above it are guessed "member".
        estimate: Epsilon that the trials show to which it was fitted.
        certain: Rate of its event in one world if the other world never showed it there, or 0.
    """

    name: str
    detail: str
    function: ScoreFunction
    threshold: float
    estimate: float
    certain: float


def fit_score(without: Trials, member: Trials, delta: float, kinds: tuple[str, ...] | None = None) -> FittedScore:
    """The score and threshold that tell the two worlds apart best, on these trials.

    Args:
        without: Trials without the unit.
        member: Trials with it.
        delta: Of the claim.
        kinds: Kinds that may be fitted; by default all.
    """
    fitted = [
        fit_threshold(name, detail, function, without, member, delta)
        for name, detail, function in _candidates(without, member)
        if kinds is None or name in kinds
    ]
    return max(fitted, key=lambda score: score.estimate)


def fit_threshold(
    name: str, detail: str, function: ScoreFunction, without: Trials, member: Trials, delta: float
) -> FittedScore:
    """A score with the threshold that tells the two worlds apart best, on these trials."""
    null, positive = function(without), function(member)
    cuts = np.unique(np.quantile(np.concatenate([null, positive]), np.linspace(0, 1, _CUTS), method="nearest"))
    true = len(positive) - np.searchsorted(np.sort(positive), cuts, side="left")
    false = len(null) - np.searchsorted(np.sort(null), cuts, side="left")
    fnr = clopper_pearson_upper(len(positive) - true, len(positive), 0.01)
    fpr = clopper_pearson_upper(false, len(null), 0.01)
    with np.errstate(divide="ignore"):
        forwards = np.log(np.maximum(1 - fnr - delta, 0)) - np.log(fpr)
        backwards = np.log(np.maximum(1 - fpr - delta, 0)) - np.log(fnr)
    estimates = np.maximum(forwards, backwards)
    best = int(estimates.argmax())
    if forwards[best] >= backwards[best]:
        certain = true[best] / len(positive) if false[best] == 0 else 0.0
    else:
        certain = 1 - false[best] / len(null) if true[best] == len(positive) else 0.0
    return FittedScore(name, detail, function, float(cuts[best]), max(0.0, float(estimates[best])), float(certain))


def _candidates(without: Trials, member: Trials) -> Iterator[tuple[str, str, ScoreFunction]]:
    """Every score, and its opposite where the worlds may differ in either direction."""
    yield "form", _odd_detail(without, member), _odd
    yield "form", _odd_detail(without, member), lambda trials: -_odd(trials)
    a, b = without.numbers, member.numbers
    usable = np.isfinite(a).all(axis=0) & np.isfinite(b).all(axis=0)
    if not usable.any():
        return
    a, b = a[:, usable], b[:, usable]
    yield from _values(without, a, b, usable)
    center, variance = a.mean(axis=0), (a.var(axis=0) + b.var(axis=0)) / 2
    noisy = a.var(axis=0) > 0
    difference = b.mean(axis=0) - center
    if not noisy.any():
        return
    weights = np.where(variance > 0, difference / np.maximum(variance, 1e-300), 0.0)
    yield "linear", "the sum of the outputs along the unit's influence", _linear(usable, weights)
    if (hidden := _noiseless(a[:, noisy], difference[noisy])) is not None:
        full = np.zeros(a.shape[1])
        full[noisy] = hidden
        yield "noiseless", "a combination of outputs in which the noise cancels", _linear(usable, full)
    scale = np.where(noisy, a.var(axis=0), np.inf)
    for sign in (1.0, -1.0):
        yield "scale", "how far the outputs scatter", _distance(usable, center, scale, sign)


def _linear(usable: np.ndarray, weights: np.ndarray) -> ScoreFunction:
    largest = max(float(np.abs(weights).max(initial=0.0)), 1e-300)

    def score(trials: Trials) -> np.ndarray:
        return _finite(trials.numbers[:, usable] @ (weights / largest))

    return score


def _distance(usable: np.ndarray, center: np.ndarray, variance: np.ndarray, sign: float) -> ScoreFunction:
    def score(trials: Trials) -> np.ndarray:
        squares = (trials.numbers[:, usable] - center) ** 2 / variance
        return _finite(sign * squares.sum(axis=1))

    return score


def _noiseless(noise: np.ndarray, difference: np.ndarray) -> np.ndarray | None:
    """Part of the difference of the means in whose direction the noise does not vary; None if there is none."""
    n, d = noise.shape
    if d < 2 or d > n // 4 or d > 512:
        return None
    spread = noise.std(axis=0)
    scaled = (noise - noise.mean(axis=0)) / spread
    values, vectors = np.linalg.eigh(scaled.T @ scaled / n)
    flat = vectors[:, values < 1e-9]
    part = flat @ (flat.T @ (difference / spread))
    # What is left of the noise there is rounding; the difference has to be far above it.
    return part / spread if np.abs(part).max(initial=0.0) > 1e-3 else None


def _values(
    without: Trials, a: np.ndarray, b: np.ndarray, usable: np.ndarray
) -> Iterator[tuple[str, str, ScoreFunction]]:
    """Numbers that equal a value which occurs often in one world and hardly in the other."""
    typical: dict[bool, np.ndarray] = {}
    where = np.flatnonzero(usable)
    for swapped, here, there in ((False, b, a), (True, a, b)):
        values = np.full(here.shape[1], np.nan)
        lead = np.zeros(here.shape[1])
        for column in range(here.shape[1]):
            taken, counts = np.unique(here[:, column], return_counts=True)
            if len(taken) > len(here) // 2 or counts.max() < 3:
                continue
            others = (there[:, column][:, None] == taken[None, :64]).sum(axis=0) if len(taken) <= 64 else None
            gain = counts - others if others is not None else counts - counts.mean()
            best = int(gain.argmax())
            values[column], lead[column] = taken[best], gain[best]
        typical[swapped] = np.where(lead > 0.02 * len(here), values, np.nan)
        if np.isfinite(typical[swapped]).any():
            first = int(lead.argmax())
            detail = f"{without.name(int(where[first]))} equals {values[first]:.6g}"
            yield "values", detail, _hits(usable, typical[swapped], -1.0 if swapped else 1.0)


def _hits(usable: np.ndarray, values: np.ndarray, sign: float) -> ScoreFunction:
    def score(trials: Trials) -> np.ndarray:
        return np.asarray(sign * (trials.numbers[:, usable] == values).sum(axis=1))

    return score


def _odd(trials: Trials) -> np.ndarray:
    return np.asarray(trials.odd * 2.0 + (~np.isfinite(trials.numbers)).sum(axis=1))


def _odd_detail(without: Trials, member: Trials) -> str:
    if without.odd.any() or member.odd.any():
        return "the outputs have other names or shapes"
    for trials in (member, without):
        odd = ~np.isfinite(trials.numbers).all(axis=0)
        if odd.any():
            return f"{trials.name(int(odd.argmax()))} is not finite"
    return "form of the outputs"


def _finite(scores: np.ndarray) -> np.ndarray:
    return np.asarray(np.nan_to_num(scores, nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST))
