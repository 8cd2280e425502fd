"""Scores that tell two worlds apart, fitted to one half of the trials and measured on the other.

Whatever a score was fitted to, on fresh trials its threshold is a fixed event, and Clopper and Pearson bound how often
each world shows it. So a score may be anything; several kinds are fitted, and the one that tells most is kept:

* linear: along the difference of the means, in units of the noise;
* noiseless: along the part of that difference in which the noise does not vary;
* scale: the squared distance from the mean;
* values: how many numbers equal one that only one of the worlds takes;
* grid: how many numbers leave the grid on which those of one world lie;
* range: how many numbers pass the ends between which those of one world lie;
* form: whether a number is not finite, or the outputs have another layout.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from attacks.empirical.bounds import clopper_pearson_upper
from attacks.mechanism.grids import grid_step, off_grid
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
    """

    name: str
    detail: str
    function: ScoreFunction
    threshold: float
    estimate: float


def fit_score(without: Trials, member: Trials, delta: float, kinds: tuple[str, ...] | None = None) -> FittedScore:
    """The score and threshold that tell the two worlds apart best, on these trials.

    Args:
        without: Trials without the unit.
        member: Trials with it.
        delta: Of the claim.
        kinds: Kinds that may be fitted; by default all.
    """
    fitted = [
        fit_threshold(name, detail, function, *_judged(name, without, member), delta)
        for name, detail, function in _candidates(without, member)
        if kinds is None or name in kinds
    ]
    return max(fitted, key=lambda score: score.estimate)


def fit_certain(without: Trials, member: Trials) -> tuple[FittedScore, float]:
    """The score and threshold that one world never passes, on these trials, and the rate at which the other does."""
    best, largest = None, -1.0
    for name, detail, function in _candidates(without, member):
        null, positive = (function(trials) for trials in _judged(name, without, member))
        above, below = float(np.nextafter(null.max(), np.inf)), float(positive.min())
        for threshold, rate in ((above, (positive >= above).mean()), (below, (null < below).mean())):
            if rate > largest:
                largest = float(rate)
                estimate = math.log(max(rate * len(null), 1.0))
                best = FittedScore(name, detail, function, threshold, estimate)
    assert best is not None  # there is always the form of the outputs
    return best, largest


def _judged(name: str, without: Trials, member: Trials) -> tuple[Trials, Trials]:
    """Trials for the threshold: ends of a range, taken from the first half, are passed by none of it."""
    half = len(without) // 2
    return (without.after(half), member.after(half)) if name == "range" else (without, member)


def fit_threshold(
    name: str, detail: str, function: ScoreFunction, without: Trials, member: Trials, delta: float
) -> FittedScore:
    """A score with the threshold that tells the two worlds apart best, on these trials."""
    null, positive = function(without), function(member)
    quantiles = np.quantile(np.concatenate([null, positive]), np.linspace(0, 1, _CUTS), method="nearest")
    # Just past what one world shows at most, or the other at least: where noise ends, these are never passed.
    cuts = np.unique([*quantiles, np.nextafter(null.max(), np.inf), positive.min()])
    true = len(positive) - np.searchsorted(np.sort(positive), cuts, side="left")
    false = len(null) - np.searchsorted(np.sort(null), cuts, side="left")
    fnr = clopper_pearson_upper(len(positive) - true, len(positive), 0.01)
    fpr = clopper_pearson_upper(false, len(null), 0.01)
    with np.errstate(divide="ignore"):
        forwards = np.log(np.maximum(1 - fnr - delta, 0)) - np.log(fpr)
        backwards = np.log(np.maximum(1 - fpr - delta, 0)) - np.log(fnr)
    estimates = np.maximum(forwards, backwards)
    best = int(estimates.argmax())
    return FittedScore(name, detail, function, float(cuts[best]), max(0.0, float(estimates[best])))


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
    yield from _grids(without, a, b, usable)
    for here, sign in ((a, 1.0), (b, -1.0)):
        half = here[: max(len(here) // 2, 1)]
        yield (
            "range",
            "outputs outside the range of the others",
            _outside(usable, half.min(axis=0), half.max(axis=0), sign),
        )
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
            often = np.argsort(-counts, kind="stable")[:64]
            if counts[often[0]] < 3:
                continue
            taken, counts = taken[often], counts[often]
            gain = counts - (there[:, column][:, None] == taken[None, :]).sum(axis=0)
            best = int(gain.argmax())
            values[column], lead[column] = taken[best], gain[best]
        typical[swapped] = np.where(lead > 0.02 * len(here), values, np.nan)
        if np.isfinite(typical[swapped]).any():
            first = int(lead.argmax())
            detail = f"{without.name(int(where[first]))} equals {values[first]:.6g}"
            yield "values", detail, _hits(usable, typical[swapped], -1.0 if swapped else 1.0)


def _grids(
    without: Trials, a: np.ndarray, b: np.ndarray, usable: np.ndarray
) -> Iterator[tuple[str, str, ScoreFunction]]:
    """Numbers that lie off the grid of one world, where that world's numbers lie on one."""
    where = np.flatnonzero(usable)
    for here, sign in ((a, 1.0), (b, -1.0)):
        steps = np.array([grid_step(column) for column in here.T])
        columns = np.flatnonzero(steps)
        if len(columns):
            detail = f"{without.name(int(where[columns[0]]))} is off a grid of step {steps[columns[0]]:.4g}"
            yield "grid", detail, _off(where[columns], here[0, columns], steps[columns], sign)


def _off(columns: np.ndarray, origin: np.ndarray, step: np.ndarray, sign: float) -> ScoreFunction:
    def score(trials: Trials) -> np.ndarray:
        return np.asarray(sign * off_grid(trials.numbers[:, columns], origin, step).sum(axis=1))

    return score


def _outside(usable: np.ndarray, low: np.ndarray, high: np.ndarray, sign: float) -> ScoreFunction:
    def score(trials: Trials) -> np.ndarray:
        numbers = trials.numbers[:, usable]
        return np.asarray(sign * ((numbers < low) | (numbers > high)).sum(axis=1))

    return score


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
