"""Empirical lower bounds on epsilon: the largest claim that a game denies, with a confidence.

Somebody throws a coin, runs the mechanism on one of two neighbouring inputs, and an attack gives a score. Over many
throws the scores of the two worlds bound its false-positive rate (FPR) and its false-negative rate (FNR) from above,
each by Clopper & Pearson (Biometrika 1934) at alpha / 2. A claim that allows no attack with such rates is wrong.

* `clopper_pearson_epsilon` denies (epsilon, delta), whose trade-off between the rates is two straight lines
  (`attacks.ceilings`; Jagielski, Ullman & Oprea, NeurIPS 2020; Nasr et al., S&P 2021):

      epsilon >= ln((1 - FNR - delta) / FPR)        epsilon >= ln((1 - FPR - delta) / FNR)

* `gdp_epsilon` denies mu-GDP, the trade-off between N(0, 1) and N(mu, 1) (Dong, Roth & Su, JRSS B 2022; as an audit
  Nasr et al., USENIX Security 2023):

      mu >= Phi^-1(1 - FPR) - Phi^-1(FNR)

  and turns mu into epsilon at delta exactly. It says something only where the claim is about Gaussian noise without
  sampling. There the bound is tight, while the two lines touch the Gaussian's curve too deep in its tail to be seen.

Where to cut the scores must not be picked by looking for the largest bound: that alone denied true claims in 6.5 % of
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
from scipy.optimize import brentq
from scipy.special import betaincinv, log_ndtr, ndtri

CONFIDENCE = 0.95
"""Probability, over the throws, with which a bound stays below the truth."""

CUTS = 12
"""False-positive rates tried where no threshold is given."""


@dataclass(frozen=True)
class EpsilonBound:
    """An empirical lower bound, with everything needed to judge it.

    Attributes:
        estimator: "Clopper-Pearson" or "GDP".
        kind: "lower_bound": with `confidence`, no claim below `epsilon` can be true. 0 is no evidence of privacy.
        epsilon: The bound; 0 where the scores deny nothing.
        delta: At which `epsilon` is bounded.
        confidence: Of the bound, all cuts considered.
        n_members: Trials with the member.
        n_nonmembers: Trials without.
        true_positives: Members at or above the cut that gave the bound.
        false_positives: Non-members at or above it.
        cuts: Thresholds tried; they share 1 - confidence.
        mu: Bound on mu for "GDP", None otherwise.
        assumes: What must hold for the bound to be one, or "".
    """

    estimator: str
    kind: str
    epsilon: float
    delta: float
    confidence: float
    n_members: int
    n_nonmembers: int
    true_positives: int
    false_positives: int
    cuts: int
    mu: float | None = None
    assumes: str = ""


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Both error counts and their upper bounds at every cut."""

    positives: Int64[np.ndarray, "cuts"]
    false_positives: Int64[np.ndarray, "cuts"]
    fnr: Float64[np.ndarray, "cuts"]
    fpr: Float64[np.ndarray, "cuts"]


def clopper_pearson_epsilon(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    *,
    delta: float = 0.0,
    threshold: float | None = None,
    fprs: Sequence[float] | None = None,
    confidence: float = CONFIDENCE,
) -> EpsilonBound:
    """Lower bound on epsilon of an (epsilon, delta) claim.

    Args:
        members: Scores of the trials with the member; higher means "more likely with".
        nonmembers: Scores of the trials without.
        delta: Of the claim, in [0, 1).
        threshold: Cut fixed before any score was seen. Scores at or above it are guessed "with".
        fprs: False-positive rates fixed beforehand, in (0, 1); by default :data:`CUTS` rates (`default_fprs`).
        confidence: Probability with which the bound must be below the truth.

    Raises:
        ValueError: If a world is empty or holds NaN or infinity, delta, a rate or the confidence is outside its
        range, or both a threshold and rates are given.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta}; pass a value of at least 0 and below 1.")
    cuts = _cut(members, nonmembers, threshold, fprs, confidence)
    with np.errstate(divide="ignore"):
        forwards = np.log(np.maximum(1 - cuts.fnr - delta, 0)) - np.log(cuts.fpr)
        backwards = np.log(np.maximum(1 - cuts.fpr - delta, 0)) - np.log(cuts.fnr)
    epsilons = np.maximum(forwards, backwards)
    best = int(epsilons.argmax())
    return EpsilonBound(
        estimator="Clopper-Pearson",
        kind="lower_bound",
        epsilon=max(0.0, float(epsilons[best])),
        delta=delta,
        confidence=confidence,
        n_members=len(members),
        n_nonmembers=len(nonmembers),
        true_positives=int(cuts.positives[best]),
        false_positives=int(cuts.false_positives[best]),
        cuts=len(epsilons),
    )


def gdp_epsilon(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    *,
    delta: float,
    threshold: float | None = None,
    fprs: Sequence[float] | None = None,
    confidence: float = CONFIDENCE,
) -> EpsilonBound:
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
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; pass a value between 0 and 1: Gaussian noise has no finite epsilon at 0.")
    cuts = _cut(members, nonmembers, threshold, fprs, confidence)
    mus = -ndtri(cuts.fpr) - ndtri(cuts.fnr)
    best = int(mus.argmax())
    mu = max(0.0, float(mus[best]))
    return EpsilonBound(
        estimator="GDP",
        kind="lower_bound",
        epsilon=epsilon_from_mu(mu, delta),
        delta=delta,
        confidence=confidence,
        n_members=len(members),
        n_nonmembers=len(nonmembers),
        true_positives=int(cuts.positives[best]),
        false_positives=int(cuts.false_positives[best]),
        cuts=len(mus),
        mu=mu,
        assumes="the claim is mu-GDP (Gaussian noise, no sampling)",
    )


def default_fprs(n_nonmembers: int, count: int = CUTS) -> tuple[float, ...]:
    """`count` false-positive rates in equal log steps from one half down to five non-members (or 1e-4)."""
    lowest = min(0.5, max(5 / n_nonmembers, 1e-4))
    return tuple(np.geomspace(0.5, lowest, count).tolist())


def clopper_pearson_upper(
    errors: Int64[np.ndarray, "*cuts"], trials: int, alpha: float
) -> Float64[np.ndarray, "*cuts"]:
    """Upper 1 - alpha confidence bound of an error rate: Beta^-1(1 - alpha; errors + 1, trials - errors)."""
    upper = betaincinv(errors + 1.0, np.maximum(trials - errors, 1.0), 1 - alpha)
    return np.asarray(np.where(errors < trials, upper, 1.0))


def delta_from_mu(mu: float, epsilon: float) -> float:
    """delta(epsilon) of mu-GDP: Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Dong, Roth & Su, corollary 1).

    Args:
        mu: L2 sensitivity over the standard deviation of the noise, at least 0.
        epsilon: At least 0.

    Raises:
        ValueError: If mu or epsilon is negative, NaN or infinite.
    """
    if not (0 <= mu < math.inf and 0 <= epsilon < math.inf):
        raise ValueError(f"Got mu={mu} and epsilon={epsilon}; both must be finite and at least 0.")
    if mu == 0:
        return 0.0
    here = float(log_ndtr(mu / 2 - epsilon / mu))
    there = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(here) * -math.expm1(min(0.0, there - here))


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Smallest epsilon at which mu-GDP gives `delta`; 0 where delta alone covers it.

    Args:
        mu: At least 0.
        delta: In (0, 1).

    Raises:
        ValueError: If an argument is outside its range.
    """
    _check_delta(delta)
    if delta_from_mu(mu, 0.0) <= delta:
        return 0.0
    above = 1.01 * mu * (mu / 2 - float(ndtri(delta)))
    return float(brentq(lambda epsilon: delta_from_mu(mu, epsilon) - delta, 0.0, above, xtol=1e-12))


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (epsilon, delta).

    Args:
        epsilon: At least 0 and finite.
        delta: In (0, 1).

    Raises:
        ValueError: If an argument is outside its range.
    """
    _check_delta(delta)
    above = 1.0
    while delta_from_mu(above, epsilon) <= delta:
        above *= 2
    return float(brentq(lambda mu: delta_from_mu(mu, epsilon) - delta, 0.0, above, xtol=1e-12))


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; pass a value between 0 and 1, both excluded.")


def _cut(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    threshold: float | None,
    fprs: Sequence[float] | None,
    confidence: float,
) -> _Cuts:
    for name, scores in (("members", members), ("nonmembers", nonmembers)):
        if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
            raise ValueError(f"{name} has shape {scores.shape}; pass at least one finite score in one dimension.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; pass a value between 0 and 1, such as 0.95.")
    at = _thresholds(nonmembers, threshold, fprs)
    positives, false_positives = _at_or_above(members, at), _at_or_above(nonmembers, at)
    alpha = (1 - confidence) / len(at) / 2
    return _Cuts(
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
