"""Bayesian credible bound on epsilon from the error counts of a two-world game.

Jeffreys priors on the two error rates, which are independent given the truth, give the posteriors

    FPR ~ Beta(1/2 + FP, 1/2 + TN)        FNR ~ Beta(1/2 + FN, 1/2 + TP)

and with them a posterior of the epsilon that these rates need (Zanella-Beguelin et al., ICML 2023, "Bayesian estimation
of differential privacy"):

    epsilon = max(0, ln((1 - FNR - delta) / FPR), ln((1 - FPR - delta) / FNR))

`bayesian_epsilon` gives its lower quantile. It is a belief, not a confidence: it comes out a little above Clopper &
Pearson on the same counts, and promises nothing about how often it lies above the truth.

Epsilon is at most e where FNR >= max((1 - delta - FPR) e^-e, 1 - delta - e^e FPR), so its distribution function is one
integral over the posterior of FPR. It is taken at equal steps of probability; nothing is drawn.
"""

import math

import numpy as np
from jaxtyping import Num
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv

from attacks.empirical._checks import check_claim_delta, check_scores
from attacks.empirical.results import CONFIDENCE, CredibleBound, TrialCounts, check_confidence

JEFFREYS_PRIOR = "Jeffreys, Beta(1/2, 1/2), on each error rate"

_STEPS = 500


def bayesian_epsilon(
    members: Num[np.ndarray, "members"],
    nonmembers: Num[np.ndarray, "nonmembers"],
    *,
    threshold: float,
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
) -> CredibleBound:
    """Epsilon that the posterior puts a share of `confidence` above, at a cut fixed before any score was seen.

    Args:
        members: Scores of the trials with the member; higher means "more likely with".
        nonmembers: Scores of the trials without.
        threshold: Scores at or above it are guessed "with".
        delta: Of the claim, in [0, 1).
        confidence: Posterior probability that epsilon is at least the bound.

    Raises:
        ValueError: If a world is empty or holds NaN or infinity, or an argument is outside its range.
    """
    check_scores("members", members)
    check_scores("nonmembers", nonmembers)
    check_claim_delta(delta)
    check_confidence(confidence)
    if not math.isfinite(threshold):
        raise ValueError(f"threshold is {threshold}; pass a finite cut, fixed before any score was seen.")
    counts = TrialCounts(
        n_members=len(members),
        n_nonmembers=len(nonmembers),
        true_positives=int((members >= threshold).sum()),
        false_positives=int((nonmembers >= threshold).sum()),
    )
    return CredibleBound(
        estimator="Bayesian",
        epsilon=_quantile(counts, delta, 1 - confidence),
        delta=delta,
        confidence=confidence,
        trials=counts.n_members + counts.n_nonmembers,
        evidence=counts,
        prior=JEFFREYS_PRIOR,
    )


def _quantile(counts: TrialCounts, delta: float, share: float) -> float:
    """Epsilon that the posterior puts `share` below."""
    right, wrong = counts.true_positives + 0.5, counts.n_members - counts.true_positives + 0.5
    alarms, quiet = counts.false_positives + 0.5, counts.n_nonmembers - counts.false_positives + 0.5
    fpr = betaincinv(alarms, quiet, (np.arange(_STEPS) + 0.5) / _STEPS)

    def beyond(epsilon: float) -> float:
        """P[epsilon of the rates <= epsilon] - share."""
        lowest_fnr = np.maximum((1 - delta - fpr) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * fpr)
        return float((1 - betainc(wrong, right, lowest_fnr.clip(0, 1))).mean()) - share

    if beyond(0.0) >= 0:
        return 0.0
    low, high = 0.0, 1.0
    while beyond(high) < 0:
        low, high = high, 2 * high
    return float(brentq(beyond, low, high, xtol=1e-6))
