"""Bounds against the published estimators of jax-privacy 2.0.0: its numbers always, itself where it is installed.

It is no dependency. In an environment of its own (`pip install jax-privacy jaxtyping pytest`), run this file from the
repository's root with `python -m pytest tests/attacks/test_jax_privacy.py --noconftest -o filterwarnings=default`.
"""

import numpy as np
import pytest

from attacks.empirical import (
    CanaryGuesses,
    clopper_pearson_epsilon,
    count_guesses,
    gdp_epsilon,
    one_run_epsilon,
    one_run_gdp_epsilon,
)

# (members above the cut, non-members above it, trials in each world, delta) -> Clopper-Pearson, GDP. Where an attack
# finds nothing, the GDP bound of that version takes the absolute value of a negative mu; ours is 0 there.
TWO_WORLDS = {
    (700, 250, 1000, 1e-5): (0.8802649648917771, 4.344732682970193),
    (9300, 1800, 10000, 1e-3): (2.3788238631391763, 9.178697874905454),
    (60, 10, 2000, 1e-9): (0.9175894552121195, 1.6722334100545422),
    (1990, 1200, 2000, 1e-5): (3.7194500126337537, 9.975778926488944),
    (300, 0, 300, 1e-9): (4.3923053013553295, 34.383030053325875),
}

# (canaries, guesses, right ones) -> binomial at delta 0 and 1e-5, f-DP at 1e-5
ONE_RUN = {
    (100, 100, 70): (0.47167184155533143, 0.47141908846630637, 1.060702923069973),
    (1000, 50, 45): (1.3936041145798497, 1.3854127304131487, 1.931183361911606),
    (4000, 200, 190): (2.397871374608686, 2.380490746727318, 3.3276003011939745),
    (300, 300, 300): (4.6015967274389915, 4.593515850478834, 10.245247973767247),
    (10000, 2000, 1500): (1.0127488981007422, 1.0112106139888426, 1.4451784562254564),
    (100000, 10000, 9900): (4.428022817434865, 4.3487949801509895, 6.00953792018),
}


def two_worlds(positives, alarms, n, delta):
    """Scores of 1 and 0. jax-privacy's GDP bound shares the error among the cuts 0, 1 and infinity."""
    members, nonmembers = (np.repeat([1.0, 0.0], [count, n - count]) for count in (positives, alarms))
    pearson = clopper_pearson_epsilon(members, nonmembers, delta=delta, threshold=0.5)
    gdp = gdp_epsilon(members, nonmembers, delta=delta, threshold=0.5, confidence=1 - 0.05 / 3)
    return pearson.epsilon, gdp.epsilon


def one_run(counts):
    guesses = CanaryGuesses(*counts)
    binomial = [one_run_epsilon(guesses, delta=delta).epsilon for delta in (0.0, 1e-5)]
    return (*binomial, one_run_gdp_epsilon(guesses, delta=1e-5).epsilon)


@pytest.mark.parametrize("counts", TWO_WORLDS)
def test_two_inputs_agree_to_four_digits_with_the_numbers_of_jax_privacy(counts):
    assert two_worlds(*counts) == pytest.approx(TWO_WORLDS[counts], rel=2e-5)


@pytest.mark.parametrize("counts", ONE_RUN)
def test_one_run_agrees_to_four_digits_with_the_numbers_of_jax_privacy(counts):
    assert one_run(counts) == pytest.approx(ONE_RUN[counts], rel=2e-5)


@pytest.fixture(scope="module")
def oracle():
    return pytest.importorskip("jax_privacy.auditing")


@pytest.mark.parametrize("counts", TWO_WORLDS)
def test_two_inputs_agree_with_jax_privacy_itself(oracle, counts):
    positives, alarms, n, delta = counts
    scores = [np.repeat([1.0, 0.0], [count, n - count]) for count in (positives, alarms)]
    auditor = oracle.CanaryScoreAuditor(*scores)
    cut = oracle.Explicit(0.5)
    expected = [auditor.epsilon_clopper_pearson(0.05, delta, one_sided=False, threshold_strategy=cut)]
    expected.append(auditor.epsilon_from_gdp(0.05, delta))
    assert two_worlds(*counts) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("seed", range(5))
def test_one_run_agrees_with_jax_privacy_itself(oracle, seed):
    rng = np.random.default_rng(seed)
    included = rng.random(2000) < 0.5
    scores = (1 + seed) * included + rng.normal(size=2000)
    guesses = count_guesses(scores, included, guess_in=200)
    cut = oracle.Explicit(float(np.sort(scores)[-200]))
    auditor = oracle.CanaryScoreAuditor(scores[included], scores[~included])
    expected = [
        auditor.epsilon_one_run(0.05, 1e-5, threshold_strategy=cut),
        auditor.epsilon_one_run_fdp(0.05, 1e-5, threshold_strategy=cut),
    ]
    found = [bound(guesses, delta=1e-5).epsilon for bound in (one_run_epsilon, one_run_gdp_epsilon)]
    assert found == pytest.approx(expected, rel=2e-5, abs=2e-6)
