"""One-shot canaries: a Gaussian release of known epsilon, the two null laws by other means, placebos, confidence."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from attacks.empirical import (
    epsilon_from_mu,
    gaussian_pair_epsilon,
    mu_from_epsilon,
    one_shot_epsilon,
    one_shot_lower_bound,
    placebo_floor,
)
from attacks.empirical.gaussian_pair import MAX_EPSILON, gaussian_pair_delta
from attacks.empirical.one_shot import log_null_tail

DELTA = 1e-5
D = 20_000
PUBLISHED = {1: (0.96, 0.28), 3: (3.33, 1.36), 8: (7.61, 4.42)}
"""Epsilon -> estimate of a real release and median bound, of a prototype with 1,000 canaries in 20,000 dimensions."""


def pair(mean, sd, delta=DELTA):
    return float(gaussian_pair_epsilon(np.array([mean]), np.array([sd]), np.zeros(1), np.ones(1), delta)[0])


def cosines(rng, mu, k, runs=None, d=D):
    """What one Gaussian release leaves of k canaries whose sensitivity is mu standard deviations."""
    return rng.normal(mu, 1, k if runs is None else (runs, k)) / math.sqrt(d)


def null(rng, k, d):
    """Cosines of uniform directions with a fixed one, by the definition."""
    directions = rng.normal(size=(k, d))
    return directions[:, 0] / np.linalg.norm(directions, axis=1)


@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_a_real_release_is_estimated(epsilon):
    """Directions on the sphere, clipped to 1, summed with noise: as in the published check, at a fifth of its size."""
    rng, d, k = np.random.default_rng(epsilon), 4000, 200
    directions = rng.normal(size=(k, d)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sigma = 1 / mu_from_epsilon(epsilon, DELTA)
    released = directions.sum(axis=0) + sigma * rng.normal(size=d)
    inserted = directions @ released / np.linalg.norm(released)
    found = one_shot_epsilon(inserted, dimensions=d, delta=DELTA, noise_multiplier=sigma)
    assert bool(found.note) == (sigma**2 * d < 10 * k)
    assert found.lo < found.epsilon < found.hi
    assert found.lo - 0.5 < epsilon < found.hi + 0.5
    bound = one_shot_lower_bound(inserted, dimensions=d, delta=DELTA, noise_multiplier=sigma)
    assert 0 <= bound.epsilon < epsilon
    assert bound.note == found.note


@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_a_thousand_canaries_give_the_published_values(epsilon):
    """Within three standard deviations of one audit; estimates and bounds of 40 of them."""
    rng = np.random.default_rng(1)
    audits = cosines(rng, mu_from_epsilon(epsilon, DELTA), 1000, runs=40)
    sd, null_sd = audits.std(axis=1, ddof=1), np.full(40, D**-0.5)
    estimates = gaussian_pair_epsilon(audits.mean(axis=1), sd, np.zeros(40), null_sd, DELTA)
    bounds = np.array([one_shot_lower_bound(audit, dimensions=D, delta=DELTA).epsilon for audit in audits])
    for found, published in zip((estimates, bounds), PUBLISHED[epsilon], strict=True):
        assert abs(np.median(found) - published) <= 3 * found.std()
    assert np.median(estimates) == pytest.approx(epsilon, rel=0.15, abs=0.3)
    assert bounds.max() < epsilon


def test_the_estimate_of_equal_laws_is_the_gaussian_mechanism():
    for mu in (0.1, 1.0, 5.0, 20.0):
        assert pair(mu, 1.0) == pytest.approx(epsilon_from_mu(mu, DELTA), abs=1e-7)
        assert pair(-mu, 1.0) == pytest.approx(pair(mu, 1.0), abs=1e-9)
        assert pair(mu, 1.0 + 1e-9) == pytest.approx(pair(mu, 1.0), rel=1e-6)
    assert pair(0.0, 1.0) == 0


@given(st.floats(-8, 8), st.floats(0.2, 5), st.floats(0, 12))
@settings(max_examples=50, deadline=None)
def test_the_divergence_of_two_normal_laws_is_its_integral(shift, scale, epsilon):
    p, q = stats.norm(shift, scale), stats.norm()
    grid = np.linspace(min(-10, shift - 10 * scale), max(10, shift + 10 * scale), 60_001)
    expected = max(
        np.trapezoid(np.maximum(first.pdf(grid) - math.exp(epsilon) * second.pdf(grid), 0), grid)
        for first, second in ((p, q), (q, p))
    )
    found = gaussian_pair_delta(np.array([shift]), np.array([scale]), np.array([epsilon]))[0]
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_the_pairs_epsilon_gives_delta_and_is_the_same_in_both_orders(delta):
    rng, n = np.random.default_rng(10), 1000
    mean, sd = rng.normal(0, 5, n), np.exp(rng.normal(size=n))
    mean[:100], sd[100:300] = 0, 1 + rng.normal(size=200) * 10.0 ** rng.integers(-16, -1, 200)
    found = gaussian_pair_epsilon(mean, sd, np.zeros(n), np.ones(n), delta)
    swapped = gaussian_pair_epsilon(np.zeros(n), np.ones(n), mean, sd, delta)
    assert found == pytest.approx(swapped, rel=1e-6, abs=1e-6)
    at = gaussian_pair_delta(mean, sd, found)
    inner = (found > 0) & (found < MAX_EPSILON)
    assert inner.sum() > 500
    assert at[inner] == pytest.approx(delta, rel=1e-3)
    assert (at[found == 0] <= delta).all()
    assert (at[found == MAX_EPSILON] >= delta * (1 - 1e-3)).all()


def test_laws_that_anybody_tells_apart_give_the_largest_estimate_there_is():
    assert pair(0.0, 0.0) == pair(100.0, 0.0) == pair(1000.0, 1.0) == MAX_EPSILON
    found = one_shot_epsilon(np.full(20, 0.9), dimensions=50, delta=DELTA)
    assert found.epsilon == found.lo == found.hi == MAX_EPSILON


@pytest.mark.parametrize("d", [2, 3, 10, 200])
def test_the_exact_null_is_the_area_of_a_cap(d):
    at = np.array([-0.9, -0.3, 0.0, 0.1, 0.5, 0.9])
    # With t = cos(a) the density (1 - t^2)^((d - 3) / 2) dt is sin(a)^(d - 2) da, which has no pole.
    caps = [integrate.quad(lambda a: math.sin(a) ** (d - 2), 0, math.acos(t))[0] for t in at]
    whole = integrate.quad(lambda a: math.sin(a) ** (d - 2), 0, math.pi)[0]
    assert np.exp(log_null_tail(at, d)) == pytest.approx(np.array(caps) / whole, rel=1e-5, abs=1e-300)


def test_the_exact_null_is_near_normal_in_many_dimensions_and_lasts_into_the_tail():
    at = np.array([0.5, 2.0, 4.0])
    assert np.exp(log_null_tail(at / math.sqrt(D), D)) == pytest.approx(stats.norm.sf(at), rel=0.01)
    far = log_null_tail(np.array([0.25, 0.26, 0.5, 0.999, 1.0]), D)
    assert (np.diff(far) < 0).all()
    assert far[1] == pytest.approx(D / 2 * math.log(1 - 0.26**2), rel=0.02)
    assert far[-1] == -math.inf


@pytest.mark.parametrize("k", [50, 1000])
def test_the_floor_is_that_of_the_research(k):
    """Median and 95th percentile of 1,000 audits in which nothing was inserted, in units of 200 of a prototype."""
    published = {50: (1.6, 4.5), 1000: (0.29, 0.69)}[k]
    found = [placebo_floor(k, dimensions=D, delta=DELTA, quantile=q, draws=1000) for q in (0.5, 0.95)]
    assert found == pytest.approx(published, rel=0.15)


def test_the_floor_falls_with_canaries_and_rises_where_the_null_is_fitted():
    floors = [placebo_floor(k, dimensions=100, delta=DELTA, draws=200) for k in (50, 200, 1000)]
    assert floors == sorted(floors, reverse=True)
    fitted = placebo_floor(200, dimensions=100, delta=DELTA, unseen=200, draws=200)
    assert fitted > floors[1]
    assert placebo_floor(200, dimensions=100, delta=DELTA, draws=200, seed=1) != floors[1]


def test_the_floor_is_what_uninserted_canaries_give():
    """Directions by their definition, in few dimensions."""
    d, k = 30, 50
    rng, floor = np.random.default_rng(2), placebo_floor(k, dimensions=d, delta=DELTA)
    audits = null(rng, 2000 * k, d).reshape(2000, k)
    null_sd = np.full(2000, d**-0.5)
    found = gaussian_pair_epsilon(audits.mean(axis=1), audits.std(axis=1, ddof=1), np.zeros(2000), null_sd, DELTA)
    assert 0.02 < np.mean(found > floor) < 0.08
    one = one_shot_epsilon(audits[0], dimensions=d, delta=DELTA)
    assert (one.epsilon, one.placebo) == pytest.approx((found[0], floor), abs=1e-6)


def test_unseen_canaries_replace_the_null_for_statistics_that_are_no_cosine():
    """The largest of 50 cosines: every canary's is far from 0, which only unseen ones show to be chance."""
    rng = np.random.default_rng(3)
    inserted, unseen = (rng.normal(size=(50, 400)).max(axis=0) + shift for shift in (1.0, 0.0))
    found = one_shot_epsilon(inserted, dimensions=D, delta=DELTA, unseen=unseen)
    assert (found.evidence.inserted, found.evidence.unseen) == (400, 400)
    nothing = one_shot_epsilon(unseen[:200], dimensions=D, delta=DELTA, unseen=unseen[200:])
    assert nothing.epsilon < 2 * nothing.placebo < found.lo
    without = one_shot_epsilon(unseen / math.sqrt(D), dimensions=D, delta=DELTA)
    assert without.epsilon > 5 * nothing.epsilon


@pytest.mark.parametrize(("mu", "k"), [(0.5, 100), (1.0, 1000), (3.0, 100)])
def test_the_bound_is_above_the_truth_in_at_most_seven_of_a_hundred_runs(mu, k):
    truth = epsilon_from_mu(mu, DELTA)
    audits = cosines(np.random.default_rng(4), mu, k, runs=500)
    found = [one_shot_lower_bound(audit, dimensions=D, delta=DELTA).epsilon for audit in audits]
    assert np.mean(np.array(found) > truth) <= 0.07


def test_canaries_of_unequal_strength_keep_the_bound():
    """Nine in ten were never sampled: the estimate's normal law is wrong, the bound assumes none."""
    rng, k = np.random.default_rng(5), 500
    truth = epsilon_from_mu(3.0, DELTA)
    found = [
        one_shot_lower_bound(cosines(rng, 3.0 * (rng.random(k) < 0.1), k), dimensions=D, delta=DELTA).epsilon
        for _ in range(300)
    ]
    assert max(found) < truth


@pytest.mark.parametrize("d", [10, 200])
def test_placebo_canaries_give_a_bound_of_zero(d):
    rng, k = np.random.default_rng(6), 100
    found = [one_shot_lower_bound(null(rng, k, d), dimensions=d, delta=DELTA).epsilon for _ in range(500)]
    assert found[0] == np.median(found) == 0
    assert np.mean(np.array(found) > 0) <= 0.07


def test_placebos_at_little_confidence_seem_to_leak():
    """So the test of placebos can fail: 1 % left for all 20 cuts is about 5 % of error each."""
    rng = np.random.default_rng(7)
    audits = [null(rng, 100, 50) for _ in range(300)]
    shared = [one_shot_lower_bound(a, dimensions=50, delta=DELTA, confidence=0.8).epsilon > 0 for a in audits]
    assert np.mean(shared) <= 0.2 + 0.07
    each = [one_shot_lower_bound(a, dimensions=50, delta=DELTA, confidence=0.01).epsilon > 0 for a in audits]
    assert np.mean(each) > 0.2 + 0.07


def test_a_crowd_of_canaries_is_told():
    rng = np.random.default_rng(8)
    crowd = one_shot_epsilon(cosines(rng, 1.0, 1000), dimensions=2000, delta=DELTA, noise_multiplier=1.0)
    assert crowd.note.startswith("1000 canaries are too many for noise of 1 clips in 2000 dimensions")
    assert one_shot_epsilon(cosines(rng, 1.0, 200), dimensions=2000, delta=DELTA, noise_multiplier=1.0).note == ""


def test_an_estimate_says_what_it_is():
    audit = cosines(np.random.default_rng(9), 1.0, 100)
    estimate = one_shot_epsilon(audit, dimensions=D, delta=DELTA)
    bound = one_shot_lower_bound(audit, dimensions=D, delta=DELTA)
    assert (estimate.kind, bound.kind) == ("estimate", "lower bound")
    assert (estimate.estimator, bound.estimator) == ("one-shot canaries", "one-shot canaries, exact null")
    assert (estimate.trials, bound.trials, bound.evidence.cuts) == (100, 100, 20)
    assert "normally distributed" in estimate.assumes
    assert not hasattr(estimate, "denies")
    assert estimate == one_shot_epsilon(audit, dimensions=D, delta=DELTA)
    assert estimate.lo != one_shot_epsilon(audit, dimensions=D, delta=DELTA, seed=1).lo


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inserted": np.zeros(9)}, "inserted holds 9 cosines"),
        ({"inserted": np.zeros((10, 10))}, r"inserted has shape \(10, 10\)"),
        ({"inserted": np.full(10, math.nan)}, "inserted has shape"),
        ({"inserted": np.full(10, 1.1)}, "pass cosines, which lie between -1 and 1"),
        ({"dimensions": 1}, "dimensions is 1"),
        ({"delta": 1.0}, "delta is 1.0"),
    ],
)
@pytest.mark.parametrize("estimator", [one_shot_epsilon, one_shot_lower_bound])
def test_bad_input_is_refused_in_one_sentence(estimator, change, message):
    arguments = {"inserted": np.linspace(-0.1, 0.1, 20), "dimensions": 100, "delta": DELTA} | change
    with pytest.raises(ValueError, match=message):
        estimator(arguments.pop("inserted"), **arguments)


def test_bad_settings_are_refused():
    audit = np.linspace(-0.1, 0.1, 20)
    with pytest.raises(ValueError, match="unseen holds 3 cosines"):
        one_shot_epsilon(audit, dimensions=9, delta=DELTA, unseen=np.zeros(3))
    with pytest.raises(ValueError, match="cuts is 0"):
        one_shot_lower_bound(audit, dimensions=9, delta=DELTA, cuts=0)
    with pytest.raises(ValueError, match="confidence is 2"):
        one_shot_lower_bound(audit, dimensions=9, delta=DELTA, confidence=2)
    with pytest.raises(ValueError, match="pass laws that scatter"):
        gaussian_pair_epsilon(np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1), DELTA)
    for bad in ({"canaries": 5}, {"unseen": 5}, {"draws": 0}, {"quantile": 1.0}):
        with pytest.raises(ValueError, match="at least 10 canaries on a side"):
            placebo_floor(**({"canaries": 20, "dimensions": 9, "delta": DELTA} | bad))
