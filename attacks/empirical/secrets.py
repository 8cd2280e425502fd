"""A lower bound on epsilon from secrets that were recovered from a release.

Every trial draws a secret of `bits` fair bits and runs the mechanism on the input that encodes it. The adversary
guesses the bits from the release; a guess is correct if at most `errors` of them are wrong. Under (epsilon, delta) for
any input against one fixed input, which is independent of the secret, a guess is correct with probability at most

    e^epsilon V / 2^bits + delta        V = sum over i <= errors of C(bits, i)

(the chance of a blind guess, grown by what the definition lets it grow). With the lower Clopper-Pearson limit p of the
share that was right,

    epsilon >= ln(p - delta) + bits ln 2 - ln V

However large a claim is, enough bits reject it if the release has no noise: two worlds never could, because their
error rates cannot be seen to be smaller than one over the number of draws.
"""

import math

import numpy as np
from scipy.special import betaincinv, gammaln, logsumexp

from attacks.empirical._checks import check_claim_delta
from attacks.empirical.results import CONFIDENCE, LowerBound, SecretGuesses, check_confidence


def secrets_epsilon(
    right: int, trials: int, *, bits: int, errors: int = 0, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    """Lower bound on epsilon of an (epsilon, delta) claim about one input against any other, or against none.

    Args:
        right: Number of trials with a correct guess.
        trials: Number of trials.
        bits: Number of bits of a secret.
        errors: Number of wrong bits that a correct guess may have, fixed before the trials were seen.
        delta: Of the claim, in [0, 1).
        confidence: Probability with which the bound must be below the truth.

    Raises:
        ValueError: If counts do not fit one another, or delta or the confidence is outside its range.
    """
    check_claim_delta(delta)
    check_confidence(confidence)
    if not (0 <= right <= trials and trials >= 1 and 0 <= errors <= bits and bits >= 1):
        raise ValueError(
            f"Got {right} right guesses of {trials} secrets of {bits} bits with {errors} errors allowed; pass at "
            "least one trial and one bit, no more right guesses than trials and no more errors than bits."
        )
    lower = float(betaincinv(right, trials - right + 1, 1 - confidence)) if right else 0.0
    epsilon = math.log(lower - delta) - _log_blind(bits, errors) if lower > delta else 0.0
    return LowerBound(
        estimator="secrets",
        epsilon=max(0.0, epsilon),
        delta=delta,
        confidence=confidence,
        trials=trials,
        evidence=SecretGuesses(trials=trials, right=right, bits=bits, errors=errors),
    )


def _log_blind(bits: int, errors: int) -> float:
    """Logarithm of the chance of a blind guess."""
    i = np.arange(errors + 1)
    ball = logsumexp(gammaln(bits + 1) - gammaln(i + 1) - gammaln(bits - i + 1))
    return min(0.0, float(ball) - bits * math.log(2))
