"""Epsilon from canary clients inside one run: an estimate, its placebo floor, and a lower bound.

k canary clients hold no data. Each sends a direction of its own, uniform on the sphere of R^d and scaled far beyond the
clip, and is sampled, clipped and noised like everybody. Afterwards the cosine between each direction and what was
released is read: large for a canary that took part, and for one that did not, distributed with density proportional to

    (1 - t^2)^((d - 3) / 2),    mean 0, variance 1 / d, close to N(0, 1/d) for large d

whatever was released, because its direction is uniform and nobody knew of it (Andrew, Kairouz, Oh, Oprea, McMahan &
Suriyakumar, ICLR 2024, "One-shot empirical privacy estimation for federated learning").

* `one_shot_epsilon` is their estimate: fit a normal law to the cosines of the canaries that took part, and take the
  epsilon between it and the null, N(0, 1/d) or a fit to canaries that did not take part. Normal laws are a model, and
  even where they are right any error in a fitted scatter adds to epsilon, so this mostly lies above the truth:
  `placebo_floor` is what it gives where nothing leaks.
* `one_shot_lower_bound` assumes no normal law. The false-positive rate of a cut is known exactly from the null, and
  only the false-negative rate is bounded (Clopper & Pearson, Biometrika 1934) at K order statistics of the cosines,
  fixed by k alone, with alpha / K each.

Which cosine to read is the auditor's choice: with the whole change of the model (who sees only the end), the largest
over rounds, or the sum over rounds (who sees every sum; where most canaries join most rounds the sum sees more). Only
the first has a null in closed form. For the others pass `unseen` canaries to the estimate, and for a bound pass both
sets to `attacks.clopper_pearson_epsilon`.

The canaries' own updates are noise to one another. With sigma the standard deviation of the noise over the clip,
sigma^2 d should be at least 10 k, or the estimate is too small.
"""

import numpy as np
from jaxtyping import Float64, Num
from scipy.special import betainc

from attacks.empirical._checks import check_claim_delta, check_gaussian_delta, check_scores
from attacks.empirical.bounds import clopper_pearson_upper
from attacks.empirical.gaussian_pair import PerPair, gaussian_pair_epsilon
from attacks.empirical.results import CONFIDENCE, CanaryCosines, EpsilonEstimate, LowerBound, check_confidence
from attacks.metrics.bootstrap import LEVEL, interval, user_weights

MIN_CANARIES = 10
"""Number of canaries below which no distribution can be fitted."""

DEFAULT_CUTS = 20
"""Number of order statistics that the bound tries."""

MIN_NOISE_TO_CANARIES = 10
"""Lower limit of sigma^2 d over the number of canaries."""

ASSUMES_NORMAL_COSINES = "cosines of canaries are normally distributed and independent of one another"
ASSUMES_INDEPENDENT_COSINES = (
    "cosines of canaries are independent of one another, and their directions uniform on the sphere"
)

_BATCH_SIZE = 2**21


def one_shot_epsilon(
    inserted: Num[np.ndarray, "canaries"],
    *,
    dimensions: int,
    delta: float,
    unseen: Num[np.ndarray, "unseen"] | None = None,
    noise_multiplier: float | None = None,
    resamples: int = 200,
    seed: int = 0,
) -> EpsilonEstimate:
    """Estimate of epsilon, with a bootstrap interval over canaries and the floor that chance gives.

    Args:
        inserted: Cosines of the canaries that took part; with 1,000 of them epsilon 3 comes out between 2.9 and 4.0.
        dimensions: Length of an update (d).
        delta: At which epsilon is meant, in (0, 1).
        unseen: The same statistic of canaries that did not take part; by default its law is taken to be N(0, 1/d),
            which is right for the cosine with the whole change only.
        noise_multiplier: Standard deviation of the noise over the clip, if known; the result carries a note if it is
            too small for so many canaries.
        resamples: Number of bootstrap resamples of the interval.
        seed: Seed of the bootstrap and of the placebo floor.

    Raises:
        ValueError: If there are fewer than :data:`MIN_CANARIES` cosines on a side, one is not between -1 and 1 (unless
        `unseen` is given: other statistics need not be), or an argument is outside its range.
    """
    check_gaussian_delta(delta)
    _check_dimensions(dimensions)
    _check_cosines("inserted", inserted, bounded=unseen is None)
    fitted = [_fits(inserted, resamples, seed)]
    if unseen is not None:
        _check_cosines("unseen", unseen, bounded=False)
        fitted.append(_fits(unseen, resamples, seed + 1))
    else:
        fitted.append((np.zeros(resamples + 1), np.full(resamples + 1, dimensions**-0.5)))
    (mean, sd), (null_mean, null_sd) = fitted
    epsilons = gaussian_pair_epsilon(mean, sd, null_mean, null_sd, delta)
    fewest = len(inserted) if unseen is None else min(len(inserted), len(unseen))
    low, high = interval(float(epsilons[0]), epsilons[1:], fewest, (0.0, np.inf))
    n_unseen = 0 if unseen is None else len(unseen)
    return EpsilonEstimate(
        estimator="one-shot canaries",
        epsilon=float(epsilons[0]),
        delta=delta,
        confidence=LEVEL,
        trials=len(inserted),
        evidence=CanaryCosines(inserted=len(inserted), unseen=n_unseen, dimensions=dimensions),
        assumes=ASSUMES_NORMAL_COSINES,
        note=_crowded(len(inserted), dimensions, noise_multiplier),
        lo=float(low),
        hi=float(high),
        placebo=placebo_floor(len(inserted), dimensions=dimensions, delta=delta, unseen=n_unseen, seed=seed),
    )


def placebo_floor(
    canaries: int,
    *,
    dimensions: int,
    delta: float,
    unseen: int = 0,
    quantile: float = 0.95,
    draws: int = 500,
    seed: int = 0,
) -> float:
    """Quantile of :func:`one_shot_epsilon` for canaries that were never inserted, drawn from the exact null.

    Args:
        canaries: Number of canaries to which a distribution is fitted.
        dimensions: Length of an update.
        delta: At which epsilon is meant.
        unseen: Number of canaries to which the null is fitted; 0 if it is N(0, 1/d).
        quantile: Quantile to return, in (0, 1).
        draws: Number of simulated audits.
        seed: Seed of the simulation.

    Raises:
        ValueError: If there are fewer than :data:`MIN_CANARIES` canaries on a side or an argument is outside its range.
    """
    check_gaussian_delta(delta)
    _check_dimensions(dimensions)
    if canaries < MIN_CANARIES or (unseen and unseen < MIN_CANARIES) or draws < 1 or not 0 < quantile < 1:
        raise ValueError(
            f"Got {canaries} canaries, {unseen} unseen, {draws} draws and quantile {quantile}; pass at least "
            f"{MIN_CANARIES} canaries on a side (or no unseen ones), a draw, and a quantile between 0 and 1."
        )
    rng = np.random.default_rng(seed)
    mean, sd = _null_fits(rng, draws, canaries, dimensions)
    if unseen:
        null_mean, null_sd = _null_fits(rng, draws, unseen, dimensions)
    else:
        null_mean, null_sd = np.zeros(draws), np.full(draws, dimensions**-0.5)
    return float(np.quantile(gaussian_pair_epsilon(mean, sd, null_mean, null_sd, delta), quantile))


def one_shot_lower_bound(
    inserted: Num[np.ndarray, "canaries"],
    *,
    dimensions: int,
    delta: float,
    cuts: int = DEFAULT_CUTS,
    confidence: float = CONFIDENCE,
    noise_multiplier: float | None = None,
) -> LowerBound:
    """Lower bound on epsilon from the cosines with the whole change, without any law for canaries that took part.

    A cut at the (j + 1)-th smallest cosine misses j canaries; the share that it misses of all possible ones is Beta
    distributed with the parameters that Clopper & Pearson use, although the cut itself is random.

    Args:
        inserted: Cosines of the canaries that took part.
        dimensions: Length of an update (d).
        delta: Delta of the claim, in [0, 1).
        cuts: Order statistics tried, in equal steps over the lower 95 % of them; they share 1 - confidence.
        confidence: Probability with which the bound is below the truth.
        noise_multiplier: As in :func:`one_shot_epsilon`.

    Raises:
        ValueError: If there are fewer than :data:`MIN_CANARIES` cosines, one is not between -1 and 1, or an argument is
        outside its range.
    """
    check_claim_delta(delta)
    check_confidence(confidence)
    _check_dimensions(dimensions)
    _check_cosines("inserted", inserted, bounded=True)
    if cuts < 1:
        raise ValueError(f"cuts is {cuts}; pass at least one order statistic to cut at.")
    k = len(inserted)
    missed = np.unique(np.linspace(0, int(0.95 * k), cuts).astype(np.int64))
    log_fpr = log_null_tail(np.sort(inserted)[missed].astype(np.float64), dimensions)
    fnr = clopper_pearson_upper(missed, k, (1 - confidence) / len(missed))
    with np.errstate(divide="ignore"):
        forwards = np.log(np.maximum(1 - fnr - delta, 0)) - log_fpr
        backwards = np.log(np.maximum(-np.expm1(log_fpr) - delta, 0)) - np.log(fnr)
    return LowerBound(
        estimator="one-shot canaries, exact null",
        epsilon=max(0.0, float(forwards.max()), float(backwards.max())),
        delta=delta,
        confidence=confidence,
        trials=k,
        evidence=CanaryCosines(inserted=k, unseen=0, dimensions=dimensions, cuts=len(missed)),
        assumes=ASSUMES_INDEPENDENT_COSINES,
        note=_crowded(k, dimensions, noise_multiplier),
    )


def log_null_tail(cosine: Float64[np.ndarray, "*cuts"], dimensions: int) -> Float64[np.ndarray, "*cuts"]:
    """Logarithm of P[T >= cosine] for a direction uniform on the sphere of R^d.

    The density (1 - t^2)^((d - 3) / 2) gives I_{1 - t^2}((d - 1) / 2, 1 / 2) / 2 for t >= 0, with I the regularised
    incomplete beta function. Where that leaves floating point it is replaced by (1 - t^2)^((d - 1) / 2) / 2, which is
    never smaller.

    Args:
        cosine: Between -1 and 1.
        dimensions: Length of an update, at least 2.
    """
    half = (dimensions - 1) / 2
    squared = cosine**2
    tail = betainc(half, 0.5, 1 - squared) / 2
    with np.errstate(divide="ignore"):
        above = np.where(tail > 1e-290, np.log(tail), half * np.log1p(-squared) - np.log(2))
    return np.asarray(np.where(cosine >= 0, above, np.log1p(-tail)))


def _fits(scores: Num[np.ndarray, "canaries"], resamples: int, seed: int) -> tuple[PerPair, PerPair]:
    """Mean and standard deviation of the scores (first entry) and of each bootstrap resample."""
    k = len(scores)
    weights = np.concatenate([np.ones((1, k)), user_weights(k, resamples, seed)])
    # Deviations from the mean keep the difference of squares below from cancelling.
    centre = float(scores.mean())
    deviations = scores - centre
    mean = weights @ deviations / k
    variance = (weights @ deviations**2 - k * mean**2) / (k - 1)
    return centre + mean, np.sqrt(np.maximum(variance, 0))


def _null_fits(rng: np.random.Generator, draws: int, canaries: int, dimensions: int) -> tuple[PerPair, PerPair]:
    """Mean and standard deviation of the cosines of uniform directions, for every simulated audit.

    One coordinate of a uniform direction is Z / sqrt(Z^2 + X), with Z standard normal and X chi-squared of d - 1.
    """
    # Audits are simulated in batches [audits, canaries] of bounded memory.
    batch = max(1, _BATCH_SIZE // canaries)
    means, sds = [], []
    for start in range(0, draws, batch):
        shape = (min(batch, draws - start), canaries)
        along = rng.standard_normal(shape)
        across = 2 * rng.standard_gamma((dimensions - 1) / 2, shape)
        cosines = along / np.sqrt(along**2 + across)
        means.append(cosines.mean(axis=1))
        sds.append(cosines.std(axis=1, ddof=1))
    return np.concatenate(means), np.concatenate(sds)


def _crowded(canaries: int, dimensions: int, noise_multiplier: float | None) -> str:
    """Note for noise that is too small to hide the canaries' own updates."""
    if noise_multiplier is None or noise_multiplier**2 * dimensions >= MIN_NOISE_TO_CANARIES * canaries:
        return ""
    return (
        f"{canaries} canaries are too many for noise of {noise_multiplier:g} clips in {dimensions} dimensions: their "
        "own updates hide them from one another, so this is too small"
    )


def _check_dimensions(dimensions: int) -> None:
    if dimensions < 2:
        raise ValueError(f"dimensions is {dimensions}; pass the length of an update, at least 2.")


def _check_cosines(name: str, scores: Num[np.ndarray, "canaries"], *, bounded: bool) -> None:
    check_scores(name, scores)
    if len(scores) < MIN_CANARIES:
        raise ValueError(f"{name} holds {len(scores)} cosines; a law needs at least {MIN_CANARIES}.")
    if bounded and np.abs(scores).max() > 1 + 1e-6:
        raise ValueError(f"{name} holds {np.abs(scores).max():g}; pass cosines, which lie between -1 and 1.")
