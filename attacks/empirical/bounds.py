"""Empirical lower bounds on epsilon: the largest claim that a game rejects, with a confidence.

The mechanism runs on one of two neighbouring inputs, chosen at random, and an attack gives a score. Over many trials
the scores of the two worlds bound its false-positive rate (FPR) and its false-negative rate (FNR) from above,
each by Clopper & Pearson (Biometrika 1934) at alpha / 2. A claim that allows no attack with such rates is wrong.

* `clopper_pearson_epsilon` rejects (epsilon, delta), whose trade-off between the rates is two straight lines
  (`attacks.empirical.ceilings`; Jagielski, Ullman & Oprea, NeurIPS 2020; Nasr et al., S&P 2021):

      epsilon >= ln((1 - FNR - delta) / FPR)        epsilon >= ln((1 - FPR - delta) / FNR)

* `gdp_epsilon` rejects mu-GDP, the trade-off between N(0, 1) and N(mu, 1) (Dong, Roth & Su, JRSS B 2022; as an audit
  Nasr et al., USENIX Security 2023):

      mu >= Phi^-1(1 - FPR) - Phi^-1(FNR)

  and turns mu into epsilon at delta exactly. It says something only where the claim is about Gaussian noise without
  sampling. There the bound is tight, while the two lines touch the Gaussian's curve too deep in its tail to be seen.

Where to cut the scores must not be picked by looking for the largest bound: that alone rejected true claims in 6.5 % of
trials at 5 %. Either fix a threshold beforehand, or fix K false-positive rates; the K cuts are then order statistics of
the non-members' scores, and each gets alpha / K (Bonferroni). At such a cut the FPR is Beta distributed with the
parameters that Clopper & Pearson use, and members' scores do not know of it, so both bounds keep their confidence.

Only randomised membership can be used here. Natural members differ from non-members without any training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64, Num
from scipy.special import betaincinv, ndtri

from attacks.empirical._checks import check_claim_delta, check_gaussian_delta, check_scores
from attacks.empirical.gaussian import epsilon_from_mu
from attacks.empirical.results import CONFIDENCE, LowerBound, TrialCounts, check_confidence

DEFAULT_CUTS = 12
"""Number of false-positive rates tried without a given threshold."""

ASSUMES_GDP = "the claim is mu-GDP (Gaussian noise, no sampling)"
"""Assumption of a bound through mu."""


@dataclass(frozen=True, eq=False)
class _ErrorBounds:
    """Error counts and their upper bounds at every threshold."""

    n_members: int
    n_nonmembers: int
    positives: Int64[np.ndarray, "cuts"]
    false_positives: Int64[np.ndarray, "cuts"]
    fnr: Float64[np.ndarray, "cuts"]
    fpr: Float64[np.ndarray, "cuts"]

    def counts(self, cut: int) -> TrialCounts:
        """Counts at one threshold."""
        return TrialCounts(
            n_members=self.n_members,
            n_nonmembers=self.n_nonmembers,
            true_positives=int(self.positives[cut]),
            false_positives=int(self.false_positives[cut]),
            cuts=len(self.positives),
        )


def clopper_pearson_epsilon(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    *,
    delta: float = 0.0,
    threshold: float | None = None,
    fprs: Sequence[float] | None = None,
    confidence: float = CONFIDENCE,
) -> LowerBound:
    """Lower bound on epsilon of an (epsilon, delta) claim.

    Args:
        members: Scores of the trials with the member; higher means "more likely with".
        nonmembers: Scores of the trials without.
        delta: Of the claim, in [0, 1).
        threshold: Threshold fixed before any score was seen. Scores at or above it are guessed "with".
        fprs: False-positive rates fixed beforehand, in (0, 1); by default :data:`DEFAULT_CUTS` rates (`default_fprs`).
        confidence: Probability with which the bound must be below the truth.

    Raises:
        ValueError: If a world is empty or holds NaN or infinity, delta, a rate or the confidence is outside its
        range, or both a threshold and rates are given.
    """
    check_claim_delta(delta)
    cuts = _error_bounds(members, nonmembers, threshold, fprs, confidence)
    with np.errstate(divide="ignore"):
        forwards = np.log(np.maximum(1 - cuts.fnr - delta, 0)) - np.log(cuts.fpr)
        backwards = np.log(np.maximum(1 - cuts.fpr - delta, 0)) - np.log(cuts.fnr)
    epsilons = np.maximum(forwards, backwards)
    best = int(epsilons.argmax())
    return LowerBound(
        estimator="Clopper-Pearson",
        epsilon=max(0.0, float(epsilons[best])),
        delta=delta,
        confidence=confidence,
        trials=len(members) + len(nonmembers),
        evidence=cuts.counts(best),
    )


def gdp_epsilon(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    *,
    delta: float,
    threshold: float | None = None,
    fprs: Sequence[float] | None = None,
    confidence: float = CONFIDENCE,
) -> LowerBound:
    """Lower bound on epsilon at `delta` of a claim that follows from mu-GDP: Gaussian noise, no sampling.

    Args:
        members: As in :func:`clopper_pearson_epsilon`.
        nonmembers: As there.
        delta: In (0, 1), as a Gaussian has no finite epsilon at 0.
        threshold: As there.
        fprs: As there.
        confidence: As there.

    Raises:
        ValueError: As there.
    """
    check_gaussian_delta(delta)
    cuts = _error_bounds(members, nonmembers, threshold, fprs, confidence)
    mus = -ndtri(cuts.fpr) - ndtri(cuts.fnr)
    best = int(mus.argmax())
    mu = max(0.0, float(mus[best]))
    return LowerBound(
        estimator="GDP",
        epsilon=epsilon_from_mu(mu, delta),
        delta=delta,
        confidence=confidence,
        trials=len(members) + len(nonmembers),
        evidence=cuts.counts(best),
        mu=mu,
        assumes=ASSUMES_GDP,
    )


def default_fprs(n_nonmembers: int, count: int = DEFAULT_CUTS) -> tuple[float, ...]:
    """`count` false-positive rates in equal log steps from one half down to five non-members (or 1e-4)."""
    lowest = min(0.5, max(5 / n_nonmembers, 1e-4))
    return tuple(np.geomspace(0.5, lowest, count).tolist())


def clopper_pearson_upper(
    errors: Int64[np.ndarray, "*cuts"], trials: int, alpha: float
) -> Float64[np.ndarray, "*cuts"]:
    """Upper 1 - alpha confidence bound of an error rate: Beta^-1(1 - alpha; errors + 1, trials - errors)."""
    upper = betaincinv(errors + 1.0, np.maximum(trials - errors, 1.0), 1 - alpha)
    return np.asarray(np.where(errors < trials, upper, 1.0))


def _error_bounds(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    threshold: float | None,
    fprs: Sequence[float] | None,
    confidence: float,
) -> _ErrorBounds:
    check_scores("members", members)
    check_scores("nonmembers", nonmembers)
    check_confidence(confidence)
    thresholds = _thresholds(nonmembers, threshold, fprs)
    positives, false_positives = _at_or_above(members, thresholds), _at_or_above(nonmembers, thresholds)
    # Bonferroni over the thresholds, and over the two error rates.
    alpha = (1 - confidence) / len(thresholds) / 2
    return _ErrorBounds(
        len(members),
        len(nonmembers),
        positives,
        false_positives,
        fnr=clopper_pearson_upper(len(members) - positives, len(members), alpha),
        fpr=clopper_pearson_upper(false_positives, len(nonmembers), alpha),
    )


def _thresholds(
    nonmembers: Num[np.ndarray, "nonmembers"], threshold: float | None, fprs: Sequence[float] | None
) -> Float64[np.ndarray, "cuts"]:
    """The fixed threshold, or for every rate the non-member score that this share of non-members reaches."""
    if threshold is not None:
        if fprs is not None or not math.isfinite(threshold):
            raise ValueError(f"Got threshold={threshold} and fprs={fprs}; pass one finite threshold, or rates alone.")
        return np.array([threshold], np.float64)
    n = len(nonmembers)
    rates = np.asarray(default_fprs(n) if fprs is None else fprs, np.float64)
    if rates.ndim != 1 or not len(rates) or not ((rates > 0) & (rates < 1)).all():
        raise ValueError(f"fprs is {fprs}; pass at least one false-positive rate between 0 and 1.")
    reached = np.ceil(rates * n - 1e-9).astype(np.int64).clip(1, n)
    return np.asarray(np.sort(nonmembers)[n - reached], np.float64)


def _at_or_above(
    scores: Num[np.ndarray, "trials"], thresholds: Float64[np.ndarray, "cuts"]
) -> Int64[np.ndarray, "cuts"]:
    return np.asarray(len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left"))
