"""Skellam noise against rounded Gaussian noise of its variance, both laws summed up exactly."""

import math

import numpy as np
import pytest
from scipy.special import ive, ndtr

from privfed.privacy.closed_forms import gaussian_epsilon
from secure_agg.noise import NoiseEvent
from secure_agg.noise.gaussian_limit import distance_from_gaussian, epsilon_near_gaussian, gaussian_delta


def skellam(variance: float, deviations: float = 13.0) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from 0 on, and their masses."""
    k = np.arange(0, int(deviations * math.sqrt(variance)))
    return k, ive(k, variance)


def rounded_gaussian(k: np.ndarray, variance: float) -> np.ndarray:
    deviation = math.sqrt(variance)
    return np.asarray(ndtr(-(k - 0.5) / deviation) - ndtr(-(k + 0.5) / deviation))


@pytest.mark.parametrize("variance", [1e6, 3.3e7, 1e9])
def test_the_laws_are_within_the_bound_and_the_bound_is_not_idle(variance: float) -> None:
    k, p = skellam(variance)
    g = rounded_gaussian(k, variance)
    both = np.where(k == 0, 1.0, 2.0)
    hellinger = math.sqrt(0.5 * float((both * (np.sqrt(p) - np.sqrt(g)) ** 2).sum()))
    bound = distance_from_gaussian(variance, 1)
    assert bound / 12 < math.sqrt(2) * hellinger <= bound
    assert 0.5 * float((both * np.abs(p - g)).sum()) <= bound


@pytest.mark.parametrize("variance", [1e6, 1e8])
def test_the_logarithms_differ_by_no_more_than_the_proof_says(variance: float) -> None:
    k, p = skellam(variance, deviations=12.0)
    z = k / math.sqrt(variance)
    inside = z <= 8.0  # further out the masses themselves have too few digits
    difference = np.abs(np.log(p[inside]) - np.log(rounded_gaussian(k, variance)[inside]))
    assert (difference <= (z[inside] ** 4 / 24 + 0.376 * z[inside] ** 2 + 1.33) / variance + 1e-9).all()


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
def test_delta_of_one_coordinate_is_at_least_what_the_law_itself_gives(epsilon: float) -> None:
    variance, shift = 1e6, 1000
    k = np.arange(-14_000, 14_001)
    here, moved = ive(np.abs(k), variance), ive(np.abs(k - shift), variance)
    exact = float(np.maximum(here - math.exp(epsilon) * moved, 0.0).sum())
    assert epsilon_near_gaussian(shift / 1e3, distance_from_gaussian(variance, 1), exact) >= epsilon
    assert epsilon_near_gaussian(shift / 1e3, distance_from_gaussian(variance, 1), 1.001 * exact + 3e-5) < epsilon


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_without_a_distance_it_is_the_gaussian_mechanism(mu: float, delta: float) -> None:
    exact = gaussian_epsilon(mu, delta)
    assert epsilon_near_gaussian(mu, 0.0, delta) == pytest.approx(exact, abs=2e-6)
    assert gaussian_delta(mu, exact) == pytest.approx(delta, rel=1e-5)


def test_a_distance_costs_delta() -> None:
    exact = epsilon_near_gaussian(1.0, 0.0, 1e-5)
    epsilons = [epsilon_near_gaussian(1.0, distance, 1e-5) for distance in (1e-12, 1e-9, 1e-8, 1e-7, 1e-6)]
    assert exact < epsilons[0] < exact + 1e-3
    assert epsilons == sorted(epsilons)
    assert gaussian_delta(1.0, epsilons[-1]) + 2e-6 < 1e-5
    assert epsilon_near_gaussian(1.0, 2e-6, 1e-5) == math.inf
    assert epsilon_near_gaussian(8.0, 1e-9, 1e-5) == math.inf
    assert epsilon_near_gaussian(0.0, 1.0, 1e-5) == 0.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_any_law_within_the_distance_keeps_the_bound(epsilon: float) -> None:
    k = np.arange(-60.0, 61.0)
    g, moved = (np.exp(-((k - at) ** 2) / 200.0) for at in (0.0, 8.0))
    g, moved = g / g.sum(), moved / moved.sum()
    worse = [mass * np.exp(sign * 0.02 * (g > math.exp(epsilon) * moved)) for mass, sign in ((g, 1), (moved, -1))]
    worse = [mass / mass.sum() for mass in worse]
    t = max(math.sqrt(((np.sqrt(a) - np.sqrt(b)) ** 2).sum()) for a, b in zip(worse, (g, moved), strict=True))
    delta = float(np.maximum(worse[0] - math.exp(epsilon) * worse[1], 0.0).sum())
    for gamma in (0.01, 0.1):
        of_gaussian = float(np.maximum(g - math.exp(epsilon - gamma) * moved, 0.0).sum())
        assert delta <= of_gaussian + 2 * t + t**2 * (1 + math.exp(epsilon) / -math.expm1(-gamma))


def test_coarse_noise_is_near_nothing() -> None:
    assert distance_from_gaussian(9.9e5, 1) == 1.0
    assert distance_from_gaussian(1e6, 10**13) == 1.0


def event(**changes: object) -> NoiseEvent:
    fields = {"law": "skellam", "total_variance": 1e12, "min_honest": 100, "coordinates": 10**4, "l2": 3e5, "l1": 1e7}
    return NoiseEvent(**{**fields, "beta": 0.0, **changes})  # type: ignore[arg-type]


def test_an_event_reports_the_smaller_of_both_bounds() -> None:
    fine = event()
    assert fine.epsilon(1e-5) == pytest.approx(gaussian_epsilon(0.3, 1e-5), rel=1e-3)
    assert fine.epsilon(1e-5, compositions=25) == pytest.approx(gaussian_epsilon(1.5, 1e-5), rel=1e-2)
    for other in (event(law="discrete_gaussian"), event(distance=1e-30), event(min_honest=0)):
        assert other.near_gaussian() == (math.inf, 1.0)
    coarse = event(total_variance=1e5, l2=90.0, l1=900.0)
    assert gaussian_epsilon(90 / 1e5**0.5, 1e-5) * 1.05 < coarse.epsilon(1e-5) < math.inf
