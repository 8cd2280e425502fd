"""However large the numbers, an accountant answers with a sound bound or refuses, after work of a bounded size."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as reference

from privfed.privacy.accounting import PLD, RDP, account, dp_accounting, pld_epsilon
from privfed.privacy.budget import laplace_budget, solve_laplace
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.errors import PlanError
from privfed.privacy.gaussian_budget import gaussian_budget, solve_gaussian
from privfed.privacy.loss_distributions import MANY_RELEASES, MOST_RELEASES, composed, gaussian_losses
from privfed.privacy.refreshes import MOST_REFRESHES, year


@pytest.fixture
def transformed(monkeypatch):
    """Lengths of the Fourier transforms of compositions, and a refusal of powers of whole numbers that take long."""
    lengths = []
    common, sparse = dp_accounting().pld.common, dp_accounting().pld.pld_pmf.SparsePLDPmf
    convolve, compose = common.self_convolve, sparse.self_compose

    def counted(values, count, tail=0):
        lower, found = convolve(values, count, tail)
        lengths.append(len(found))
        return lower, found

    def bounded(self, count, tail=1e-15):
        assert count * math.log2(max(self.size, 2)) < 1e6, "points^count is a number of millions of digits"
        return compose(self, count, tail)

    monkeypatch.setattr(common, "self_convolve", counted)
    monkeypatch.setattr(sparse, "self_compose", bounded)
    return lengths


@pytest.mark.parametrize(("noise", "rate", "grid"), [(1.0, 0.1, 1e-3), (0.8, 1e-2, 1e-3), (3.0, 0.9, 1e-3)])
def test_losses_at_all_points_at_once_are_those_point_by_point(noise, rate, grid):
    ours = gaussian_losses(noise, rate, grid)
    theirs = reference.from_gaussian_mechanism(noise, value_discretization_interval=grid, sampling_prob=rate)
    for epsilon in (0.0, 1e-3, 0.1, 1.0, 3.0):
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), abs=1e-12)


@pytest.mark.parametrize(("noise", "rate", "count"), [(20.0, 0.5, 20_011), (40.0, 0.1, 100_003)])
def test_two_stages_compose_what_one_does(noise, rate, count):
    spread = rate / noise
    losses = gaussian_losses(noise, rate, spread * math.sqrt(count) / 2e4)
    single = losses.self_compose(count).get_epsilon_for_delta(1e-5)
    assert composed(losses, count, 1).get_epsilon_for_delta(1e-5) == pytest.approx(single, rel=1e-6)


@pytest.mark.parametrize("count", [MANY_RELEASES + 1, 10**6, MOST_RELEASES])
def test_coarser_grids_of_many_releases_stay_above_the_truth_and_near_it(count):
    """At almost certain participation epsilon is almost that of the closed form, and never more than it."""
    noise = 2.0 * math.sqrt(count)
    exact = gaussian_epsilon(math.sqrt(count) / noise, 1e-6)
    sampled = gaussian_budget(noise, count, 1 - 1e-9, 1e-6, thorough=False)
    assert sampled.accountant == PLD
    assert exact * (1 - 1e-6) <= sampled.epsilon <= exact * 1.005


@pytest.mark.parametrize("count", [10**6, 10**7])
def test_many_laplace_uploads_are_above_their_limit_of_one_gaussian(count):
    """Many small Laplace losses are together a Gaussian mechanism of mu = sqrt(count) epsilon0."""
    epsilon0 = 1.0 / math.sqrt(count)
    budget = laplace_budget(epsilon0, count, 1e-6)
    limit = gaussian_epsilon(1.0, 1e-6)
    assert budget.accountant == PLD
    assert limit * (1 - 1e-3) <= budget.epsilon <= limit * 1.005


def test_a_million_rounds_and_tiny_rates_are_accounted_in_a_few_million_points(transformed):
    assert gaussian_budget(100.0, 10**6, 0.1, 1e-5, thorough=False).accountant == PLD
    assert gaussian_budget(0.3, 100, 1e-6, 1e-9, thorough=False).epsilon > 0
    assert laplace_budget(0.001, 10**6, 1e-5).accountant == PLD
    assert account(dp_accounting().SelfComposedDpEvent(dp_accounting().GaussianDpEvent(1e3), 10**6), 1e-5).epsilon > 0
    assert transformed
    assert max(transformed) < 4e6


def test_searches_take_few_points_in_all(transformed):
    solve_gaussian(2.0, 10**6, 0.1, 1e-5, thorough=False)
    solve_laplace(8.0, 10**6, 1e-5)
    assert transformed
    assert sum(transformed) < 4e7


def test_more_releases_than_any_grid_fits_are_accounted_by_the_looser_bound():
    count = 10 * MOST_RELEASES
    budget = gaussian_budget(1e5, count, 0.5, 1e-5, thorough=False)
    assert budget.accountant == RDP
    # Sampling never costs more, and everybody's half is about half the distance.
    assert gaussian_epsilon(0.5 * math.sqrt(count) / 1e5, 1e-5) <= budget.epsilon
    assert budget.epsilon <= 1.2 * gaussian_epsilon(math.sqrt(count) / 1e5, 1e-5)
    assert solve_laplace(8.0, 10**12, 1e-5).budget.accountant == RDP


def test_distributions_that_would_fill_the_memory_are_not_built():
    dp = dp_accounting()
    release = dp.PoissonSampledDpEvent(1e-3, dp.GaussianDpEvent(1e-4))
    assert pld_epsilon(((release, 1),), 1e-5, 1e-4) == math.inf


def test_noise_is_not_searched_where_delta_needs_none():
    with pytest.raises(PlanError, match=r"a user takes part .* at all with probability 0.0001, which delta excuses"):
        solve_gaussian(8.0, 100, 1e-6, 5e-4, thorough=False)
    assert gaussian_budget(0.5, 100, 1e-6, 5e-4, thorough=False).epsilon == 0.0


def test_a_year_is_listed_up_to_a_bound():
    whole = year(8.0, 1e-5, MOST_REFRESHES, 0.5)
    assert len(whole) == MOST_REFRESHES
    assert whole[-1].epsilon <= 8.0
    assert np.isclose(whole[-1].pooled_mu, whole[0].mu * math.sqrt(4 / 3))
    with pytest.raises(PlanError, match=r"refreshes = 10,001 is not allowed: .* at most 10,000"):
        year(8.0, 1e-5, MOST_REFRESHES + 1)
