"""Lower bounds on epsilon: known mechanisms, confidence over many runs, placebos, the Gaussian curve by integration."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from attacks.empirical import clopper_pearson_epsilon, delta_from_mu, epsilon_from_mu, gdp_epsilon, mu_from_epsilon
from attacks.empirical.bounds import clopper_pearson_upper, default_fprs

DELTA = 1e-5


def laplace(rng, epsilon, n):
    """A sum that is 1 or 0, with Laplace noise: the two worlds."""
    return rng.laplace(1, 1 / epsilon, n), rng.laplace(0, 1 / epsilon, n)


def gaussian(rng, mu, n):
    return rng.normal(mu, 1, n), rng.normal(0, 1, n)


@pytest.mark.parametrize(("epsilon", "fixed", "tried"), [(1, 0.97, 0.93), (2, 1.88, 1.87), (4, 3.76, 3.65)])
def test_laplace_is_recovered_from_ten_thousand_draws(epsilon, fixed, tried):
    """Means of ten runs, against one run of a prototype; a single run scatters by about 0.03 to 0.07."""
    rng = np.random.default_rng(0)
    runs = [laplace(rng, epsilon, 10_000) for _ in range(10)]
    at_one = [clopper_pearson_epsilon(*run, threshold=1.0).epsilon for run in runs]
    at_rates = [clopper_pearson_epsilon(*run).epsilon for run in runs]
    assert np.mean(at_one) == pytest.approx(fixed, abs=0.12)
    assert np.mean(at_rates) == pytest.approx(tried, abs=0.12)
    assert np.mean(at_rates) < np.mean(at_one) < epsilon


@pytest.mark.parametrize(("epsilon", "expected"), [(1, 0.82), (2, 1.93), (4, 3.68), (8, 7.77)])
def test_gaussian_is_recovered_through_mu_where_the_two_lines_see_little(epsilon, expected):
    rng = np.random.default_rng(1)
    mu = mu_from_epsilon(epsilon, DELTA)
    runs = [gaussian(rng, mu, 10_000) for _ in range(10)]
    bounds = [gdp_epsilon(*run, delta=DELTA, threshold=mu / 2) for run in runs]
    found = np.mean([bound.epsilon for bound in bounds])
    assert found == pytest.approx(expected, abs=0.2)
    assert 0.75 * epsilon < found <= epsilon
    lines = np.mean([clopper_pearson_epsilon(*run, delta=DELTA).epsilon for run in runs])
    assert lines < 0.6 * epsilon


def coverage(bound, draw, truth, runs=500):
    """Share of runs in which a bound lies above the truth."""
    rng = np.random.default_rng(2)
    return np.mean([bound(*draw(rng)) > truth for _ in range(runs)])


ALLOWED = 0.07
"""5 % of the runs, and two standard deviations of that count."""


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_clopper_pearson_is_above_the_truth_in_at_most_five_runs_of_a_hundred(epsilon):
    def draw(rng):
        return laplace(rng, epsilon, 400)

    assert coverage(lambda i, o: clopper_pearson_epsilon(i, o).epsilon, draw, epsilon) <= ALLOWED
    assert coverage(lambda i, o: clopper_pearson_epsilon(i, o, threshold=1.0).epsilon, draw, epsilon) <= ALLOWED


def test_the_best_of_many_cuts_at_full_confidence_each_would_deny_true_claims():
    """So the test of coverage can fail: a 20 % error becomes a third; with shared error it stays below a fifth."""

    def best(i, o):
        cuts = np.quantile(np.concatenate([i, o]), np.linspace(0.005, 0.995, 100))
        return max(clopper_pearson_epsilon(i, o, threshold=float(t), confidence=0.8).epsilon for t in cuts)

    def draw(rng):
        return laplace(rng, 3.0, 400)

    assert coverage(best, draw, 3.0, runs=300) > 0.2 + 3 * math.sqrt(0.2 * 0.8 / 300)
    assert coverage(lambda i, o: clopper_pearson_epsilon(i, o, confidence=0.8).epsilon, draw, 3.0) < 0.2


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("kind", ["fixed", "tried"])
def test_gdp_is_above_the_truth_in_at_most_five_runs_of_a_hundred(mu, kind):
    options = {"threshold": mu / 2} if kind == "fixed" else {}
    rate = coverage(
        lambda i, o: gdp_epsilon(i, o, delta=DELTA, **options).epsilon,
        lambda rng: gaussian(rng, mu, 400),
        epsilon_from_mu(mu, DELTA),
    )
    assert rate <= ALLOWED


def test_ties_keep_the_confidence():
    """Randomised response has two scores only: every cut meets a tie."""
    keep = math.exp(1) / (1 + math.exp(1))

    def draw(rng):
        return (rng.random(400) < keep).astype(float), (rng.random(400) >= keep).astype(float)

    assert coverage(lambda i, o: clopper_pearson_epsilon(i, o).epsilon, draw, 1.0) <= ALLOWED


def test_a_placebo_gives_nothing():
    """Both worlds alike: no run of 300 may deny more than chance allows, and a typical bound is exactly 0."""
    rng = np.random.default_rng(3)
    runs = [(rng.normal(size=500), rng.normal(size=500)) for _ in range(300)]
    for bound in (clopper_pearson_epsilon, gdp_epsilon):
        found = [bound(*run, delta=DELTA).epsilon for run in runs]
        assert np.mean(np.array(found) > 0) <= ALLOWED
        assert np.median(found) == 0
    backwards = gdp_epsilon(runs[0][0] - 5, runs[0][1], delta=DELTA, threshold=0.0)
    assert (backwards.epsilon, backwards.mu) == (0, 0)


def test_a_result_says_what_it_is_and_goes_into_json():
    rng = np.random.default_rng(4)
    members, nonmembers = laplace(rng, 2, 1000)
    fixed = clopper_pearson_epsilon(members, nonmembers, threshold=1.0)
    assert (fixed.estimator, fixed.kind, fixed.confidence, fixed.trials) == (
        "Clopper-Pearson",
        "lower bound",
        0.95,
        2000,
    )
    counts = fixed.evidence
    assert (counts.n_members, counts.n_nonmembers, counts.cuts) == (1000, 1000, 1)
    assert counts.true_positives == (members >= 1).sum()
    assert counts.false_positives == (nonmembers >= 1).sum()
    assert fixed.assumes == fixed.note == ""
    assert fixed.mu is None
    tried = clopper_pearson_epsilon(members, nonmembers, fprs=(0.5, 0.1))
    assert tried.evidence.cuts == 2
    assert tried.evidence.false_positives in (500, 100)
    gdp = gdp_epsilon(members, nonmembers, delta=DELTA)
    assert gdp.assumes.startswith("the claim is mu-GDP")
    assert gdp.epsilon == pytest.approx(epsilon_from_mu(gdp.mu, DELTA))
    for bound in (fixed, tried, gdp):
        assert json.loads(json.dumps(dataclasses.asdict(bound)))["kind"] == "lower bound"
        with pytest.raises(dataclasses.FrozenInstanceError):
            bound.epsilon = 0.0


def test_more_confidence_and_more_delta_never_raise_a_bound():
    run = laplace(np.random.default_rng(5), 2, 2000)
    found = [clopper_pearson_epsilon(*run, confidence=c).epsilon for c in (0.5, 0.9, 0.99, 0.9999)]
    assert found == sorted(found, reverse=True)
    found = [clopper_pearson_epsilon(*run, delta=d).epsilon for d in (0.0, 1e-3, 0.1, 0.9)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


def test_nobody_wrong_still_leaves_a_finite_bound():
    """300 of 300 right on both sides: the rule of three (here 3.7 / n each) caps what can be shown."""
    bound = clopper_pearson_epsilon(np.ones(300), np.zeros(300), threshold=0.5)
    error = 1 - 0.025 ** (1 / 300)
    assert bound.epsilon == pytest.approx(math.log((1 - error) / error))
    assert gdp_epsilon(np.ones(300), np.zeros(300), delta=DELTA, threshold=0.5).mu == pytest.approx(
        2 * stats.norm.isf(error)
    )


@given(st.integers(1, 500), st.floats(0, 1), st.floats(1e-4, 0.5))
@settings(max_examples=50, deadline=None)
def test_the_upper_end_is_where_so_few_errors_become_improbable(trials, share, alpha):
    errors = int(share * trials)
    upper = float(clopper_pearson_upper(np.array([errors]), trials, alpha)[0])
    assert stats.binom.cdf(errors, trials, upper) == pytest.approx(1 if errors == trials else alpha, rel=1e-6)


@given(st.floats(0.01, 10), st.floats(0, 8))
@settings(max_examples=50, deadline=None)
def test_delta_is_the_mass_that_epsilon_does_not_cover(mu, epsilon):
    """The definition, integrated: where one density exceeds e^epsilon times the other."""
    edge = epsilon / mu + mu / 2
    covered, _ = integrate.quad(
        lambda x: max(0.0, stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x)), edge, edge + 12, limit=200
    )
    assert delta_from_mu(mu, epsilon) == pytest.approx(covered, abs=1e-7)


@given(st.floats(1e-3, 40), st.floats(1e-9, 0.5))
@settings(max_examples=50, deadline=None)
def test_mu_and_epsilon_are_each_others_inverse(mu, delta):
    epsilon = epsilon_from_mu(mu, delta)
    if epsilon == 0:
        assert delta_from_mu(mu, 0) <= delta
        return
    assert delta_from_mu(mu, epsilon) == pytest.approx(delta, rel=1e-6)
    assert mu_from_epsilon(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_known_pairs_of_mu_and_epsilon():
    found = [mu_from_epsilon(epsilon, DELTA) for epsilon in (1, 2, 4, 8)]
    assert found == pytest.approx([0.268, 0.502, 0.925, 1.666], abs=6e-4)
    assert epsilon_from_mu(0.0, DELTA) == delta_from_mu(0.0, 1.0) == 0
    assert epsilon_from_mu(0.4 * math.sqrt(100 / 4), DELTA) == pytest.approx(epsilon_from_mu(2.0, DELTA))
    assert math.isfinite(epsilon_from_mu(200.0, 1e-10))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": np.zeros(0)}, r"members has shape \(0,\)"),
        ({"nonmembers": np.array([0.0, math.nan])}, "nonmembers has shape"),
        ({"members": np.zeros((2, 2))}, r"members has shape \(2, 2\)"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": math.nan}, "delta is nan"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"fprs": ()}, r"fprs is \(\)"),
        ({"fprs": (0.5, 1.0)}, "between 0 and 1"),
        ({"threshold": 0.0, "fprs": (0.5,)}, "pass one finite threshold, or rates alone"),
        ({"threshold": math.inf}, "one finite threshold"),
    ],
)
@pytest.mark.parametrize("bound", [clopper_pearson_epsilon, gdp_epsilon])
def test_bad_input_is_refused_in_one_sentence(bound, change, message):
    arguments = {"members": np.arange(3.0), "nonmembers": np.arange(3.0), "delta": DELTA} | change
    with pytest.raises(ValueError, match=message):
        bound(arguments.pop("members"), arguments.pop("nonmembers"), **arguments)


def test_a_gaussian_needs_a_delta():
    with pytest.raises(ValueError, match="no finite epsilon at 0"):
        gdp_epsilon(np.arange(3.0), np.arange(3.0), delta=0.0)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite and at least 0"):
            delta_from_mu(bad, 1.0)
    for function in (epsilon_from_mu, mu_from_epsilon):
        with pytest.raises(ValueError, match="between 0 and 1"):
            function(1.0, 0.0)


def test_default_rates_are_fixed_by_the_number_of_trials_alone():
    assert len(default_fprs(1000)) == 12
    assert default_fprs(1000)[0] == 0.5
    assert default_fprs(1000)[-1] == pytest.approx(0.005)
    assert default_fprs(10**7)[-1] == pytest.approx(1e-4)
    assert set(default_fprs(3)) == {0.5}
