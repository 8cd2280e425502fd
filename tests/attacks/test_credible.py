"""The credible bound: against a simulated posterior, beside the confidence bound, over many runs."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from attacks.empirical import bayesian_epsilon, clopper_pearson_epsilon


def worlds(positives, alarms, n):
    return tuple(np.repeat([1.0, 0.0], [count, n - count]) for count in (positives, alarms))


def simulated(positives, alarms, n, delta, share=0.05):
    """Quantile of the ratios over a million draws from both posteriors."""
    rng = np.random.default_rng(0)
    fpr = rng.beta(0.5 + alarms, 0.5 + n - alarms, 10**6)
    fnr = rng.beta(0.5 + n - positives, 0.5 + positives, 10**6)
    ratios = [np.maximum(1 - a - delta, 1e-300) / b for a, b in ((fnr, fpr), (fpr, fnr))]
    return max(0.0, float(np.log(np.quantile(np.maximum(*ratios), share))))


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize(
    "counts", [(1000, 140, 2000), (90, 20, 100), (1990, 1500, 2000), (50, 0, 50), (3, 2, 10), (0, 9, 9)]
)
def test_the_bound_is_the_quantile_of_the_posterior(counts, delta):
    found = bayesian_epsilon(*worlds(*counts), threshold=0.5, delta=delta)
    assert found.epsilon == pytest.approx(simulated(*counts, delta), abs=0.01)


def test_laplace_is_recovered_a_little_above_clopper_and_pearson():
    """1.89 and 1.83 in one run of a prototype at epsilon 2 and 2,000 draws."""
    rng, believed, bounded = np.random.default_rng(1), [], []
    for _ in range(10):
        scores = rng.laplace(1, 0.5, 2000), rng.laplace(0, 0.5, 2000)
        believed.append(bayesian_epsilon(*scores, threshold=1.0).epsilon)
        bounded.append(clopper_pearson_epsilon(*scores, threshold=1.0).epsilon)
    assert np.mean(believed) == pytest.approx(1.89, abs=0.1)
    assert 0.02 < np.mean(believed) - np.mean(bounded) < 0.1
    assert all(b > c for b, c in zip(believed, bounded, strict=True))


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_laplace_runs_lie_above_the_truth_no_more_often_than_seven_in_a_hundred(epsilon):
    """Nothing promises it, but one ratio decides here and the prior is flat enough."""

    @cache
    def bound(positives, alarms):
        return bayesian_epsilon(*worlds(positives, alarms, 400), threshold=0.5).epsilon

    rng = np.random.default_rng(2)
    alarm = float(stats.laplace.sf(1, scale=1 / epsilon))
    counts = zip(rng.binomial(400, 0.5, 500).tolist(), rng.binomial(400, alarm, 500).tolist(), strict=True)
    assert np.mean([bound(*pair) > epsilon for pair in counts]) <= 0.07


def test_a_placebo_gives_nothing():
    rng = np.random.default_rng(3)
    runs = [worlds(*rng.binomial(300, 0.5, 2).tolist(), 300) for _ in range(500)]
    found = [bayesian_epsilon(*run, threshold=0.5).epsilon for run in runs]
    assert found[0] == np.median(found) == 0
    assert np.mean(np.array(found) > 0) <= 0.07


def test_a_belief_says_what_it_is():
    found = bayesian_epsilon(*worlds(90, 20, 100), threshold=0.5)
    assert (found.kind, found.estimator, found.trials) == ("credible bound", "Bayesian", 200)
    assert (found.evidence.true_positives, found.evidence.false_positives) == (90, 20)
    assert found.prior.startswith("Jeffreys")
    assert bayesian_epsilon(*worlds(90, 20, 100), threshold=0.5, confidence=0.5).epsilon > found.epsilon


def test_bad_input_is_refused():
    scores = worlds(5, 2, 10)
    with pytest.raises(ValueError, match="members has shape"):
        bayesian_epsilon(np.zeros(0), scores[1], threshold=0.5)
    with pytest.raises(ValueError, match="threshold is inf"):
        bayesian_epsilon(*scores, threshold=math.inf)
    with pytest.raises(ValueError, match="delta is 1"):
        bayesian_epsilon(*scores, threshold=0.5, delta=1.0)
    with pytest.raises(ValueError, match="confidence is 1"):
        bayesian_epsilon(*scores, threshold=0.5, confidence=1.0)
