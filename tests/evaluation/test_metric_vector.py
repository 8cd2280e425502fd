"""A device's vector of metrics is never longer than 1, and noisy sums of such vectors tell the mean without bias."""

import math

import numpy as np
import pytest

from privfed.evaluation import ChoiceVector, MetricVector, Protocol, difference
from privfed.evaluation.beyond_accuracy import TENTHS

LAYOUTS = [MetricVector(Protocol(k=k), compared) for k in ((10,), (10, 20)) for compared in (False, True)]
PEOPLE = 400


def people(vector: MetricVector, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Metrics and exposure of made-up people; every fifth holds nothing out."""
    rng = np.random.default_rng(seed)
    metrics = rng.random((vector.metrics, PEOPLE)) * rng.integers(0, 2, PEOPLE)
    metrics[:, ::5] = np.nan
    return metrics, rng.dirichlet(np.ones(TENTHS), PEOPLE).T


@pytest.mark.parametrize("vector", LAYOUTS)
def test_no_vector_is_longer_than_1_whatever_was_measured(vector: MetricVector) -> None:
    corners = np.random.default_rng(1).choice([-7.0, 0.0, 1.0, 1e9], (vector.metrics, PEOPLE))
    whole = np.zeros((TENTHS, PEOPLE))
    whole[0] = 1
    norms = np.linalg.norm(vector.vectors(corners, whole), axis=1)
    assert norms.max() <= 1
    assert norms.min() > 1 - 1e-5, "the bound is used up, so that no noise is wasted"


@pytest.mark.parametrize("candidates", [2, 3, 64])
def test_no_vector_of_a_choice_is_longer_than_1_and_sums_without_noise_give_the_means(candidates: int) -> None:
    vector, rng = ChoiceVector(candidates, 10), np.random.default_rng(1)
    norms = np.linalg.norm(vector.vectors(rng.choice([-7.0, 0.0, 1.0, 1e9], (candidates, PEOPLE))), axis=1)
    assert norms.max() <= 1
    assert norms.min() > 1 - 1e-5
    metrics = rng.random((candidates, PEOPLE))
    metrics[:, ::5] = np.nan
    found = vector.values(vector.vectors(metrics).sum(0), 0.0)
    assert [one.value for one in found] == pytest.approx(np.nanmean(metrics, axis=1).tolist())
    assert {(one.name, one.k, one.n_users) for one in found} == {("ndcg", 10, PEOPLE * 4 // 5)}


def test_intervals_hold_the_noise_of_both_sums_and_how_people_may_vary() -> None:
    vector, people = MetricVector(Protocol(k=(10,)), compared=False), 400
    sums = vector.vectors(np.tile([[0.9], [0.2]], people), np.empty((0, people))).sum(0)
    result = vector.result(sums, 5.0, mu=0.2, population=people)
    for metric, weight, mean in zip(result.metrics, vector.weights[1:], (0.9, 0.2), strict=True):
        noise = 5 / people * math.hypot(1 / weight, (mean - 0.5) / vector.weights[0])
        margin = 1.959964 * math.hypot(noise, math.sqrt(mean * (1 - mean) / people))
        assert (metric.value, metric.noise) == pytest.approx((mean, noise))
        assert (metric.lo, metric.hi) == pytest.approx((mean - margin, mean + margin))
    assert result.n_users == people
    assert vector.result(1.1 * sums, 5.0, mu=0.2, population=people).n_users == people


@pytest.mark.parametrize("vector", LAYOUTS)
def test_somebody_without_a_held_out_item_sends_nothing(vector: MetricVector) -> None:
    metrics, exposure = people(vector)
    vectors = vector.vectors(metrics, exposure)
    assert not vectors[::5].any()
    assert vectors[1].any()


@pytest.mark.parametrize("vector", LAYOUTS)
def test_sums_without_noise_give_the_means(vector: MetricVector) -> None:
    metrics, exposure = people(vector)
    result = vector.result(vector.vectors(metrics, exposure).sum(0), 0.0, mu=1.0, population=PEOPLE)
    there = np.isfinite(metrics[0])
    named = [metric.value for metric in (*result.metrics, *(result.popularity or ()))]
    assert named == pytest.approx(metrics[:, there].mean(1).tolist(), abs=1e-9)
    assert result.n_users == there.sum()
    if vector.compared:
        assert result.beyond is not None
        assert result.beyond.exposure == pytest.approx(exposure[:, there].mean(1).tolist(), abs=1e-9)


@pytest.mark.parametrize("vector", LAYOUTS)
def test_noisy_sums_are_unbiased_and_as_noisy_as_they_say(vector: MetricVector) -> None:
    metrics, exposure = people(vector)
    clean, rng, draws = vector.vectors(metrics, exposure).sum(0), np.random.default_rng(2), 2000
    values, noise = [], 0.0
    for _ in range(draws):
        result = vector.result(clean + rng.normal(0, 4, vector.size), 4.0, mu=0.25, population=PEOPLE)
        values.append([metric.value for metric in result.metrics])
        noise = result.metrics[0].noise or 0.0
    exact = metrics[: len(vector.keys), np.isfinite(metrics[0])].mean(1)
    spread = np.std(values, axis=0)
    assert np.abs(np.mean(values, axis=0) - exact).max() < 4.5 * spread.max() / math.sqrt(draws)
    assert spread[0] == pytest.approx(noise, rel=0.08)


def test_intervals_cover_the_truth_of_the_population() -> None:
    vector, rng, covered = MetricVector(Protocol(k=(10,)), compared=True), np.random.default_rng(3), 0
    for _ in range(300):
        hits = rng.random((2, 1, PEOPLE)) < np.array([0.3, 0.2])[:, None, None]
        metrics = np.repeat(hits.astype(float), 2, axis=1).reshape(4, PEOPLE)
        sums = vector.vectors(metrics, np.full((TENTHS, PEOPLE), 0.1)).sum(0) + rng.normal(0, 5, vector.size)
        gap = difference(vector.result(sums, 5.0, mu=0.2, population=PEOPLE))
        assert gap is not None
        covered += gap.lo <= 0.1 <= gap.hi
    assert covered >= 300 * 0.93


def test_a_value_that_noise_puts_outside_its_range_lies_in_its_interval() -> None:
    vector, people = MetricVector(Protocol(k=(10,)), compared=False), 400
    for mean, moved in ((0.01, -30.0), (0.99, 30.0)):
        sums = vector.vectors(np.full((2, people), mean), np.empty((0, people))).sum(0)
        sums[1:] += moved
        for metric in vector.result(sums, 20.0, mu=0.05, population=people).metrics:
            assert not 0 <= metric.value <= 1
            assert metric.lo < mean < metric.hi
            assert metric.value == pytest.approx((metric.lo + metric.hi) / 2)


def test_a_number_of_people_lost_in_noise_is_reported() -> None:
    vector = MetricVector(Protocol(), compared=False)
    assert "raise evaluation.mu" in (vector.result(np.zeros(vector.size), 20.0, mu=0.05, population=50).warning or "")


def test_6040_people_are_measured_to_about_three_thousandths() -> None:
    vector = MetricVector(Protocol(), compared=True)
    metrics = np.full((vector.metrics, 6040), 0.3)
    sums = vector.vectors(metrics, np.full((TENTHS, 6040), 0.1)).sum(0)
    assert vector.result(sums, 20.0, mu=0.05, population=6040).metrics[0].noise == pytest.approx(0.003, abs=5e-4)


def test_ratios_are_unbiased_where_everybody_holds_something_out() -> None:
    """A count that is cut at the number of people would err to one side, and every metric with it."""
    vector, rng = MetricVector(Protocol(k=(10,)), compared=False), np.random.default_rng(4)
    clean = vector.vectors(np.full((vector.metrics, PEOPLE), 0.05), np.empty((0, PEOPLE))).sum(0)
    found = [
        vector.result(clean + rng.normal(0, 6, vector.size), 6.0, mu=0.1, population=PEOPLE).metrics[0].value
        for _ in range(2000)
    ]
    assert abs(np.mean(found) - 0.05) < 4.5 * np.std(found) / math.sqrt(len(found))
