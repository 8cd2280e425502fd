"""Who takes part: each rule keeps its promise, and the same seed repeats it."""

import numpy as np
import pytest
from scipy import stats

POPULATION = 45


def members(toy, plan, rounds, seed=0, population=POPULATION):
    simulation = toy(plan, seed=seed, population=population).simulation
    return [simulation.members(t).tolist() for t in range(rounds)]


RULES = {
    "all": "none",
    "poisson": "none:sampling.kind=poisson,sampling.rate=0.3",
    "fixed": "none:sampling.kind=fixed,sampling.size=13",
    "epoch": "none:sampling.kind=epoch,sampling.size=13",
}


@pytest.mark.parametrize("rule", RULES)
def test_members_are_distinct_ascending_users_and_repeat_with_the_seed(toy, rule):
    drawn = members(toy, RULES[rule], 12)
    for round in drawn:
        assert round == sorted(set(round))
        assert set(round) <= set(range(POPULATION))
    assert drawn == members(toy, RULES[rule], 12)
    if rule != "all":
        assert drawn != members(toy, RULES[rule], 12, seed=1)
        assert len({tuple(round) for round in drawn}) == 12


def test_all_is_everybody_in_every_round(toy):
    assert members(toy, RULES["all"], 3) == [list(range(POPULATION))] * 3


def test_poisson_samples_are_independent_with_the_promised_rate(toy):
    rounds, rate = 400, 0.3
    drawn = members(toy, RULES["poisson"], rounds)
    joined = np.zeros((rounds, POPULATION), bool)
    for t, who in enumerate(drawn):
        joined[t, who] = True
    per_user = stats.binom.cdf(joined.sum(0), rounds, rate)
    assert stats.binomtest(int(joined.sum()), joined.size, rate).pvalue > 1e-3
    assert per_user.min() > 1e-5
    assert per_user.max() < 1 - 1e-5
    # Sizes vary as for independent bits, and one user's bit says nothing about another's or the next round's.
    assert joined.sum(1).var() == pytest.approx(POPULATION * rate * (1 - rate), rel=0.25)
    r = np.corrcoef(joined.T.astype(float))[np.triu_indices(POPULATION, 1)]
    assert np.abs(r).max() < 5 / np.sqrt(rounds)
    assert abs(np.corrcoef(joined[:-1].ravel(), joined[1:].ravel())[0, 1]) < 5 / np.sqrt(joined.size)


def test_a_users_inclusion_does_not_depend_on_the_population(toy):
    small, large = (members(toy, RULES["poisson"], 5, population=n) for n in (30, POPULATION))
    assert small == [[u for u in round if u < 30] for round in large]


def test_fixed_draws_as_many_as_promised_and_everybody_alike(toy):
    drawn = members(toy, RULES["fixed"], 300)
    assert {len(round) for round in drawn} == {13}
    counts = np.bincount(np.concatenate(drawn), minlength=POPULATION)
    spread = ((counts - counts.mean()) ** 2 / (300 * 13 / 45 * (1 - 13 / 45))).sum()
    assert stats.chi2.sf(spread, POPULATION - 1) > 1e-3


@pytest.mark.parametrize(("size", "rounds"), [(13, 4), (15, 3), (45, 1), (1, 45), (44, 2)])
def test_an_epoch_takes_everybody_exactly_once(toy, size, rounds):
    drawn = members(toy, f"none:sampling.kind=epoch,sampling.size={size}", 3 * rounds)
    orders = []
    for epoch in range(3):
        turns = drawn[epoch * rounds : (epoch + 1) * rounds]
        assert [len(turn) for turn in turns[:-1]] == [size] * (rounds - 1)
        assert sorted(user for turn in turns for user in turn) == list(range(POPULATION))
        orders.append(tuple(map(tuple, turns)))
    if rounds > 1:
        assert len(set(orders)) == 3


@pytest.mark.parametrize("rule", RULES)
def test_the_ledger_names_exactly_who_took_part(toy, rule):
    t = toy(RULES[rule])
    for round in range(4):
        t.simulation.run(t.server, round)
    counted = np.zeros(POPULATION, int)
    for round, entry in enumerate(t.ledger.entries):
        who = t.simulation.members(round).tolist()
        assert entry.members().tolist() == who
        counted[who] += 1
    assert t.ledger.participations.tolist() == counted.tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_cohort_tells_the_server_a_rule_and_an_expected_size(toy, rule):
    t = toy(RULES[rule])
    t.simulation.run(t.server, 0)
    (cohort,) = t.server.cohorts
    wanted = {"all": 45, "poisson": 13.5, "fixed": 13, "epoch": 45 / 4}[rule]
    assert (cohort.round, cohort.id, cohort.rule) == (0, 0, rule)
    assert cohort.expected == pytest.approx(wanted)
