"""Sampling rules: who can take part how often, and what may be claimed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.errors import PlanError
from privfed.privacy.sampling import All, Epoch, Fixed, Poisson

RULES = [All(), Poisson(rate=0.1), Poisson(rate=1.0), Fixed(size=7), Epoch(size=7)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("trust", ["none", "local", "distributed", "central"])
def test_only_a_secret_sample_under_central_trust_amplifies(rule, trust):
    expected = isinstance(rule, Poisson) and rule.rate < 1 and trust == "central"
    assert rule.amplifies(trust) is expected
    assert ("amplification by sampling is claimed;" in rule.claim(trust)) is expected


def test_numbers_of_participants():
    assert [rule.expected(20) for rule in RULES] == [20.0, 2.0, 20.0, 7.0, 20 / 3]
    assert [rule.max_cohort(20) for rule in RULES] == [20, 20, 20, 7, 7]
    assert [rule.worst(100, 20) for rule in RULES] == [100, 100, 100, 100, 34]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
def test_epoch_bound_is_what_epochs_really_do(population, size, rounds):
    if size > population:
        return
    rule = Epoch(size=size)
    taken = np.zeros(population, dtype=int)
    rng = np.random.default_rng(0)
    order: list[int] = []
    for _ in range(rounds):
        order = order or rng.permutation(population).tolist()
        members, order = order[:size], order[size:]
        taken[members] += 1
    assert taken.max() == rule.worst(rounds, population)
    assert rule.likely_worst(rounds, population) == rule.worst(rounds, population)


@pytest.mark.parametrize("rule", [Poisson(rate=0.1), Fixed(size=94)])
def test_likely_worst_is_a_bound_that_holds_almost_always(rule):
    population, rounds, runs = 940, 100, 300
    rng = np.random.default_rng(1)
    bound = rule.likely_worst(rounds, population)
    worst = rng.binomial(rounds, 0.1, size=(runs, population)).max(1)
    assert (worst > bound).mean() <= 0.03
    assert np.median(worst) <= bound <= np.median(worst) + 5


@pytest.mark.parametrize("rule", [Fixed(size=11), Epoch(size=11)])
def test_a_cohort_larger_than_the_population_is_refused(rule):
    with pytest.raises(PlanError, match=r"sampling.size = 11 is larger than the population of 10"):
        rule.worst(3, 10)


def test_an_empty_population_is_refused():
    with pytest.raises(PlanError, match="population = 0"):
        All().worst(3, 0)
