"""Lower bounds on epsilon from a single run: many canaries with random inclusion bits, and guesses at these bits.

m canaries (interactions, or whole clients) are each included or excluded by a fair bit of their own, and the run is
made once. An auditor guesses r of the bits and abstains from the others; v guesses are correct. A claim under which so
many correct guesses are too unlikely is wrong.

* `one_run_epsilon` rejects (epsilon, delta) (Steinke, Nasr & Jagielski, NeurIPS 2023, theorem 5.2). With
  W ~ Binomial(r, e^eps / (1 + e^eps)), the chance of v or more right guesses is at most

      P[W >= v] + 2 m delta max_{i = 1..v} P[v - i <= W < v] / i

* `one_run_gdp_epsilon` rejects mu-GDP (Mahloujifar, Melis & Chaudhuri, ICML 2025, "Auditing f-differential privacy in
  one run", the recursion over the number of right guesses, here with the Gaussian trade-off). From
  R = alpha v / m and H = alpha (r - v) / m, for i = v - 1 down to 0:

      H' = max(H, Phi(Phi^-1(R) - mu)),    R = R + i / (r - i) (H' - H),    H = H'

  and the claim is rejected if R + H ends above r / m. It says something only where the claim is about Gaussian noise
  without sampling; there it sees some 40 % more than the first one does.

How many canaries are guessed in and out must be fixed before the inclusion bits are revealed, as `count_guesses` does:
the highest scores in, the lowest out. With one Gaussian release the bounds stay far below the truth however many
canaries there are, because a guess may be sure only of the few in the tail; a bound of 0 is no evidence of privacy.
"""

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Num
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, gammaln, logit

from attacks.empirical._checks import check_claim_delta, check_gaussian_delta, check_scores
from attacks.empirical.bounds import ASSUMES_GDP
from attacks.empirical.gaussian import epsilon_from_mu
from attacks.empirical.results import CONFIDENCE, CanaryGuesses, LowerBound, check_confidence

ASSUMES_INDEPENDENT_INCLUSION = "every canary was included by its own fair and independent bit"
"""Assumption of both bounds."""

MIN_FAIR_PROBABILITY = 1e-9
"""Probability under fair inclusion bits below which the observed bits are refused as unfair."""


def count_guesses(
    scores: Num[np.ndarray, "canaries"],
    included: Bool[np.ndarray, "canaries"],
    *,
    guess_in: int,
    guess_out: int = 0,
    seed: int = 0,
) -> CanaryGuesses:
    """Guess that the highest scores were in and the lowest out, and count what was right.

    Args:
        scores: Higher means "more likely in".
        included: Inclusion bits.
        guess_in: Canaries guessed in, fixed beforehand.
        guess_out: Canaries guessed out, fixed beforehand.
        seed: Equal scores are put in an order drawn from it, so that it cannot follow the inclusion bits.

    Raises:
        ValueError: If shapes differ, a score is not finite, the guesses are not between 1 and the number of canaries,
        or the inclusion bits are so unequal that they cannot be fair (natural membership, for example).
    """
    check_scores("scores", scores)
    m = len(scores)
    if included.shape != scores.shape or included.dtype != bool:
        raise ValueError(
            f"included is {included.dtype} {included.shape} but there are {m} scores; pass one boolean for each."
        )
    if min(guess_in, guess_out) < 0 or not 1 <= guess_in + guess_out <= m:
        raise ValueError(
            f"Got guess_in={guess_in} and guess_out={guess_out} for {m} canaries; pass at least one guess in all and "
            "at most one for each canary."
        )
    n_included = int(included.sum())
    # Hoeffding (JASA 1963): fair bits deviate this far from one half with a probability below MIN_FAIR_PROBABILITY.
    if abs(n_included - m / 2) > math.sqrt(m * math.log(2 / MIN_FAIR_PROBABILITY) / 2):
        raise ValueError(
            f"{n_included} of {m} canaries were in, which fair inclusion bits do not give; pass canaries that were "
            "included independently, and never natural members."
        )
    shuffled = np.random.default_rng(seed).permutation(m)
    order = shuffled[scores[shuffled].argsort(kind="stable")]
    guessed_out, guessed_in = included[order[:guess_out]], included[order[m - guess_in :]]
    correct = int(guessed_in.sum()) + guess_out - int(guessed_out.sum())
    return CanaryGuesses(canaries=m, guesses=guess_in + guess_out, correct=correct)


def one_run_epsilon(guesses: CanaryGuesses, *, delta: float = 0.0, confidence: float = CONFIDENCE) -> LowerBound:
    """Lower bound on epsilon of an (epsilon, delta) claim.

    Args:
        guesses: For example from :func:`count_guesses`.
        delta: Delta of the claim, in [0, 1).
        confidence: Probability with which the bound is below the truth.

    Raises:
        ValueError: If delta or the confidence is outside its range.
    """
    check_claim_delta(delta)
    check_confidence(confidence)
    alpha, r, v = 1 - confidence, guesses.guesses, guesses.correct
    upper = float(logit(betaincinv(v, r - v + 1, alpha))) if v else 0.0
    if upper <= 0 or one_run_p_value(guesses, 0.0, delta) > alpha:
        epsilon = 0.0
    elif delta == 0 or one_run_p_value(guesses, upper, delta) <= alpha:
        epsilon = upper
    else:
        epsilon = float(brentq(lambda e: one_run_p_value(guesses, e, delta) - alpha, 0.0, upper, xtol=1e-9))
    return LowerBound(
        estimator="one run",
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        trials=guesses.canaries,
        evidence=guesses,
        assumes=ASSUMES_INDEPENDENT_INCLUSION,
    )


def one_run_gdp_epsilon(guesses: CanaryGuesses, *, delta: float, confidence: float = CONFIDENCE) -> LowerBound:
    """Lower bound on epsilon at `delta` of a claim that follows from mu-GDP: Gaussian noise, no sampling.

    Args:
        guesses: As in :func:`one_run_epsilon`.
        delta: In (0, 1), as a Gaussian has no finite epsilon at 0.
        confidence: As in :func:`one_run_epsilon`.

    Raises:
        ValueError: As in :func:`one_run_epsilon`.
    """
    check_gaussian_delta(delta)
    check_confidence(confidence)
    alpha, low, high = 1 - confidence, 0.0, 1.0
    while _rejects_gdp(guesses, high, alpha):
        low, high = high, 2 * high
    while high - low > 1e-7 * max(1.0, high):
        middle = (low + high) / 2
        if _rejects_gdp(guesses, middle, alpha):
            low = middle
        else:
            high = middle
    return LowerBound(
        estimator="one run, GDP",
        epsilon=epsilon_from_mu(low, delta),
        delta=delta,
        confidence=confidence,
        trials=guesses.canaries,
        evidence=guesses,
        assumes=f"{ASSUMES_INDEPENDENT_INCLUSION}; {ASSUMES_GDP}",
        mu=low,
    )


def one_run_p_value(guesses: CanaryGuesses, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of as many correct guesses under (epsilon, delta) (theorem 5.2).

    Args:
        guesses: Counted guesses.
        epsilon: Epsilon of the claim, at least 0.
        delta: Delta of the claim.
    """
    r, v = guesses.guesses, guesses.correct
    k = np.arange(r + 1)  # log_pmf[k]: k correct guesses of r, in logarithms because binomials overflow
    right = float(expit(epsilon))
    log_pmf = gammaln(r + 1) - gammaln(k + 1) - gammaln(r - k + 1)
    log_pmf += k * math.log(right) - (r - k) * float(np.logaddexp(0.0, epsilon))
    pmf = np.exp(log_pmf)
    p = pmf[v:].sum()
    if delta > 0 and v:
        p += 2 * guesses.canaries * delta * (pmf[:v][::-1].cumsum() / k[1 : v + 1]).max()
    return min(1.0, float(p))


def _rejects_gdp(guesses: CanaryGuesses, mu: float, alpha: float) -> bool:
    """Whether mu-GDP makes so many correct guesses too unlikely.

    Each step needs the one before, so this is a loop over plain floats: 0.6 microseconds a step where arrays of one
    number would take ten. R and H only grow, so it ends as soon as they are large enough or stand still.
    """
    m, r, v = guesses.canaries, guesses.guesses, guesses.correct
    quantile, enough = NormalDist().inv_cdf, r / m
    right, wrong = alpha * v / m, alpha * (r - v) / m
    for i in range(v - 1, -1, -1):
        grown = math.erfc((mu - quantile(right)) / math.sqrt(2)) / 2
        if grown <= wrong:
            return False
        right += i / (r - i) * (grown - wrong)
        wrong = grown
        if right + wrong > enough:
            return True
    return False
