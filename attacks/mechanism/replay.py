"""Exact sensitivity against measured noise, from replays of one randomness on two neighbouring inputs.

Where the same seed gives A on one input and B on the other, and B = a A + c holds in every coordinate under every seed,
the two laws are known up to the law of A: the noise, which is measured by replaying one input under many seeds. If that
is Gaussian or Laplace (a goodness-of-fit test does not reject the one and the likelihood speaks against the other), the
privacy loss follows exactly from a and c; only the scale of the noise has to be bounded, by its chi-squared interval.

No size of epsilon is out of reach of this bound, while one from n trials cannot exceed ln n. It is valid as far as the
noise has the law it seems to have, and says nothing where replays are not aligned.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import chi2, kstest, kurtosis, norm

from attacks.empirical import epsilon_from_mu, gaussian_pair_epsilon

Law: TypeAlias = Literal["gaussian", "laplace"]

MAX_MU = 1e4
"""Ratio of sensitivity to noise above which it is not told apart from infinity."""

PURE_DELTA = 1e-5
"""Stands for a delta of 0: epsilon there is at least as large, and what seems Gaussian need not be further out."""

_ROUNDING = 1e-5
"""Deviation from an exact relation that counts as rounding, in standard deviations of the noise."""

_MAX_TESTED = 5_000
"""Numbers that a goodness-of-fit test reads; more would reject for rounding."""


_MAX_COMPARED = 256
"""Coordinates up to which it is looked for those that follow each other."""

_ALIKE = 0.4
"""Correlation above which one coordinate follows another."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Exact relation between two worlds under the same randomness: B = factor A + shift.

    Attributes:
        noisy: Coordinates that vary.
        factor: Factor of each noisy coordinate.
        shift: Shift of each noisy coordinate.
    """

    noisy: np.ndarray
    factor: np.ndarray
    shift: np.ndarray

    @property
    def scaled(self) -> bool:
        """Whether the unit changes the scale of the noise."""
        return bool(np.any(np.abs(self.factor - 1) > 1e-4))

    def holds(self, without: np.ndarray, member: np.ndarray) -> bool:
        """Whether other replays have the same relation."""
        spread = np.maximum(without[:, self.noisy].std(axis=0), 1e-300)
        return _within_rounding(without[:, self.noisy], member[:, self.noisy], self.factor, self.shift, spread)


def align(without: np.ndarray, member: np.ndarray) -> Alignment | None:
    """Relation between replays in two worlds; None if it is not exact, or nothing is noisy and finite."""
    if without.shape != member.shape or len(without) < 3:
        return None
    with np.errstate(all="ignore"):
        finite = np.isfinite(without).all(axis=0) & np.isfinite(member).all(axis=0)
        spread = np.where(finite, np.std(np.where(finite, without, 0.0), axis=0), 0.0)
        size = np.abs(np.where(finite, without, 0.0)).max(axis=0)
    noisy = spread > 1e-9 * np.maximum(size, 1e-300)
    if not noisy.any() or not finite.all():
        return None
    a, b, spread = without[:, noisy], member[:, noisy], spread[noisy]
    shift = (b - a).mean(axis=0)
    if _within_rounding(a, b, np.ones_like(shift), shift, spread):
        return Alignment(noisy, np.ones_like(shift), shift)
    centred = a - a.mean(axis=0)
    factor = (centred * (b - b.mean(axis=0))).sum(axis=0) / (centred**2).sum(axis=0)
    shift = b.mean(axis=0) - factor * a.mean(axis=0)
    usable = (np.abs(factor) > 1e-9).all() and _within_rounding(a, b, factor, shift, spread)
    return Alignment(noisy, factor, shift) if usable else None


def noise_law(noise: np.ndarray) -> Law | None:
    """Law of the noise, from samples (calls, coordinates); None if it is neither, or cannot be told."""
    noise = noise[: max(50, _MAX_TESTED // max(noise.shape[1], 1))]
    if len(noise) < 50:
        return None
    noise = noise[:, _unlike(noise)]
    centred = noise - np.median(noise, axis=0)
    laplace = centred / np.abs(centred).mean(axis=0)
    gaussian = (noise - noise.mean(axis=0)) / noise.std(axis=0)
    # Log-likelihood of a Gaussian with these moments over that of a Laplace law with these.
    lead = float((np.log(2 * np.abs(centred).mean(axis=0)) + 0.5).mean()) - float(
        (np.log(noise.std(axis=0)) + 0.5 * math.log(2 * math.pi)).mean()
    )
    n = gaussian.size
    if n * lead > 5 and seems_gaussian(gaussian.ravel(), len(noise)):
        return "gaussian"
    if n * lead < -5 and kstest(laplace.ravel()[:_MAX_TESTED], "laplace").pvalue > 1e-3:
        return "laplace"
    return None


def _unlike(noise: np.ndarray) -> np.ndarray:
    """Columns of which none follows an earlier one, as tests count every number for a new one."""
    if not 1 < noise.shape[1] <= _MAX_COMPARED:
        return np.arange(noise.shape[1])
    alike = np.abs(np.corrcoef(noise, rowvar=False)) > _ALIKE
    kept: list[int] = []
    for column in range(noise.shape[1]):
        if not alike[column, kept].any():
            kept.append(column)
    return np.array(kept)


def seems_gaussian(standardised: np.ndarray, samples: int | None = None) -> bool:
    """Whether neither the distribution nor the tails of numbers of mean 0 and variance 1 deny a Gaussian.

    Args:
        standardised: The numbers.
        samples: How many each column was standardised over; all, if they were one column.
    """
    # A sum of a few Laplace noises passes the second test, and its tails are heavier. Of a Gaussian's n samples, in
    # units of their own standard deviation, the fourth moment is 3 (n - 1) / (n + 1) on average.
    expected = -6 / ((samples or standardised.size) + 1)
    tails = abs(float(kurtosis(standardised)) - expected) < 2.5 * math.sqrt(24 / standardised.size)
    return tails and bool(kstest(standardised[:_MAX_TESTED], norm.cdf).pvalue > 1e-3)


def replayed_epsilon(
    alignment: Alignment,
    law: Law,
    noise: np.ndarray,
    selected: np.ndarray,
    *,
    delta: float,
    steps: int,
    confidence: float,
) -> float:
    """Lower bound on epsilon of `steps` calls, given the law of the noise.

    Args:
        alignment: Relation of the two worlds, established on other replays.
        law: Law of the noise, established on other replays.
        noise: Fresh replays of the world without the unit.
        selected: Other replays of it, by which the direction is chosen in which Gaussian noise is measured.
        delta: Of the claim.
        steps: Calls on the same people.
        confidence: Probability that the scale of the noise is below its bound.
    """
    noise, selected = noise[:, alignment.noisy], selected[:, alignment.noisy]
    if law == "laplace":
        return 0.0 if alignment.scaled else _laplace(alignment, noise, delta, steps, 1 - confidence)
    if alignment.scaled:
        return _scaled_gaussian(alignment, noise, max(delta, PURE_DELTA), 1 - confidence)
    weights = _direction(alignment.shift, selected)
    return _gaussian(alignment.shift, noise, weights, max(delta, PURE_DELTA), steps, 1 - confidence)


def _direction(shift: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """Weights of the sum that tells most, as far as there are replays to estimate the noise's covariance from."""
    if selected.shape[1] > len(selected) // 5:
        return np.asarray(shift / selected.var(axis=0).mean())
    scale = selected.std(axis=0)
    correlation = np.corrcoef(selected, rowvar=False).reshape(len(scale), -1)
    return np.asarray(np.linalg.solve(correlation + 1e-6 * np.eye(len(scale)), shift / scale) / scale)


def _gaussian(
    shift: np.ndarray, noise: np.ndarray, weights: np.ndarray, delta: float, steps: int, alpha: float
) -> float:
    """Through mu of the sum of scores along the shift, whose noise is Gaussian whatever its covariance."""
    size = float(np.abs(weights * shift).sum())
    if size == 0:
        return 0.0
    scores = noise @ (weights / size)
    n = len(scores)
    upper = float(scores.std(ddof=1)) * math.sqrt((n - 1) / float(chi2.ppf(alpha, n - 1)))
    mu = float(shift @ (weights / size)) / max(upper, 1e-300) * math.sqrt(steps)
    return epsilon_from_mu(min(mu, MAX_MU), delta)


def _scaled_gaussian(alignment: Alignment, noise: np.ndarray, delta: float, alpha: float) -> float:
    """Of the single coordinate that tells most, with mean and scale at the harmless ends of their intervals."""
    n, d = noise.shape
    sd = noise.std(axis=0, ddof=1)
    upper = sd * math.sqrt((n - 1) / float(chi2.ppf(alpha / (2 * d), n - 1)))
    moved = np.abs((alignment.factor - 1) * noise.mean(axis=0) + alignment.shift)
    uncertain = np.abs(alignment.factor - 1) * upper / math.sqrt(n) * float(norm.isf(alpha / (4 * d)))
    shift = np.clip(moved - uncertain, 0.0, MAX_MU * upper) / upper
    factor = np.clip(np.abs(alignment.factor), 1e-4, 1e4)
    ones, zeros = np.ones(d), np.zeros(d)
    return float(gaussian_pair_epsilon(shift, factor, zeros, ones, delta).max())


def _laplace(alignment: Alignment, noise: np.ndarray, delta: float, steps: int, alpha: float) -> float:
    """Of the k calls and coordinates that lose most, all of which lose it in full with probability 2^-k."""
    n, d = noise.shape
    scale = np.abs(noise - np.median(noise, axis=0)).mean(axis=0)
    upper = scale * 2 * n / float(chi2.ppf(alpha / d, 2 * n - 2))
    losses = np.sort(np.abs(alignment.shift) / upper)[::-1]
    if delta == 0:
        return float(losses.sum() * steps)
    repeated = losses.repeat(min(steps, 64))
    k = np.arange(1, len(repeated) + 1)
    remaining = np.clip(1 - delta * 2.0 ** np.minimum(k, 1000), 1e-300, None)
    return max(0.0, float((repeated.cumsum() + np.log(remaining)).max()))


def _within_rounding(a: np.ndarray, b: np.ndarray, factor: np.ndarray, shift: np.ndarray, spread: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        error = np.abs(b - (factor * a + shift))
        # Numbers far larger than the noise are themselves rounded, in single precision at worst.
        allowed = _ROUNDING * spread + 4e-7 * np.maximum(np.abs(a), np.abs(b)).max(axis=0)
    return bool((error <= allowed).all())
