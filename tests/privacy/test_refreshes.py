"""A year of refreshes against the ledger, pooling against simulation, and correlated noise against its closed form."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy import Ledger, PlanError, PrivacyPlan, SchemaSummary
from privfed.privacy.refreshes import (
    correlated_noise,
    pooled_mu,
    pooling_weights,
    running_total_factor,
    square_root,
    year,
)

N = 6040
DELTA = N**-1.1


@pytest.mark.parametrize(("epsilon", "refreshes"), [(1.0, 4), (8.0, 12)])
def test_the_year_is_what_the_ledger_of_all_its_releases_says(epsilon, refreshes):
    plan_of_year = year(epsilon, DELTA, refreshes)
    plan = PrivacyPlan.named(
        "central-gaussian", clip_norm=1.0, noise_multiplier=plan_of_year[0].noise_multiplier, delta=DELTA
    )
    ledger = Ledger(plan, N)
    for refresh in plan_of_year:
        for index, share in enumerate((0.1, 0.9)):
            ledger.record(
                cohort_id=refresh.number, round=refresh.number, step="refresh", index=index,
                schema=SchemaSummary(("block",), (), 1, share), participants=np.arange(N),
            )  # fmt: skip
        if refresh.number in (1, refreshes):
            assert ledger.guarantee().epsilon == pytest.approx(refresh.epsilon, rel=1e-3)
    assert plan_of_year[-1].epsilon <= epsilon
    assert plan_of_year[-1].epsilon == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_k_refreshes_have_root_k_times_the_noise_of_one(epsilon):
    once = year(epsilon, DELTA, 1)[0]
    for refreshes in (4, 52):
        each = year(epsilon, DELTA, refreshes)
        assert each[0].noise_multiplier == pytest.approx(once.noise_multiplier * math.sqrt(refreshes), rel=1e-3)
        assert [refresh.epsilon for refresh in each] == sorted(refresh.epsilon for refresh in each)
        assert each[-1].pooled_mu == pytest.approx(once.mu, rel=1e-3)


def test_what_has_all_changed_gives_nothing_to_the_pool():
    assert [refresh.pooled_mu for refresh in year(8.0, DELTA, 3, kept=0)] == [
        pytest.approx(refresh.mu) for refresh in year(8.0, DELTA, 3, kept=0)
    ]
    half = year(8.0, DELTA, 12, kept=0.5)
    assert half[-1].pooled_mu == pytest.approx(half[0].mu * math.sqrt((1 - 0.25**12) / 0.75))


@given(held=st.lists(st.floats(0, 1), min_size=1, max_size=6), seed=st.integers(0, 100))
@settings(max_examples=25, deadline=None)
def test_the_pool_is_unbiased_and_no_other_has_less_noise(held, seed):
    held = [*held, 1.0]
    weights = pooling_weights(held)
    parts = np.array(held)
    assert weights @ parts == pytest.approx(1)
    assert 1 / np.linalg.norm(weights) == pytest.approx(pooled_mu(1.0, held))
    other = np.random.default_rng(seed).normal(size=len(held))
    if abs(other @ parts) > 1e-6:
        other /= other @ parts
        assert np.linalg.norm(other) >= np.linalg.norm(weights) - 1e-12


def test_pooled_releases_are_as_noisy_as_promised():
    rng, held = np.random.default_rng(0), [0.4, 0.8, 1.0]
    truth = rng.normal(size=200_000)
    releases = np.array([part * truth + rng.normal(size=len(truth)) / 0.7 for part in held])
    left = pooling_weights(held) @ releases - truth
    assert left.std() == pytest.approx(1 / pooled_mu(0.7, held), rel=0.01)


@given(refreshes=st.integers(1, 30))
@settings(max_examples=20, deadline=None)
def test_the_square_root_of_the_prefix_matrix_squares_to_it(refreshes):
    column = square_root(refreshes)
    root = np.array([[column[i - j] if i >= j else 0.0 for j in range(refreshes)] for i in range(refreshes)])
    np.testing.assert_allclose(root @ root, np.tril(np.ones((refreshes, refreshes))), atol=1e-12)
    spread = np.linalg.norm(root, axis=1).max() * np.linalg.norm(root, axis=0).max()
    assert running_total_factor(refreshes, "square_root") == pytest.approx(spread)


@given(refreshes=st.integers(1, 200))
@settings(max_examples=20, deadline=None)
def test_a_tree_has_as_many_nodes_as_its_factor_says(refreshes):
    """A naive tree: every node that covers a leaf counts in the sensitivity, those of a prefix in its noise."""
    nodes = [(first, 2**level) for level in range(refreshes.bit_length()) for first in range(0, refreshes, 2**level)]
    sensitivity = max(sum(first <= leaf < first + width for first, width in nodes) for leaf in range(refreshes))
    worst = 0
    for prefix in range(1, refreshes + 1):
        at, used = 0, 0
        while at < prefix:
            width = 2 ** ((prefix - at).bit_length() - 1)
            assert (at, width) in nodes
            at, used = at + width, used + 1
        worst = max(worst, used)
    assert running_total_factor(refreshes, "tree") == pytest.approx(math.sqrt(sensitivity * worst))


@pytest.mark.parametrize("refreshes", [2, 4, 12, 52])
def test_correlated_noise_beats_fresh_noise_for_running_totals(refreshes):
    """Mixed by its square root it is never worse; a tree is no better than fresh noise until there are many."""
    best, fresh = (running_total_factor(refreshes, noise) for noise in ("square_root", "increments"))
    assert best < fresh
    assert running_total_factor(1, "square_root") == running_total_factor(1, "tree") == 1
    assert running_total_factor(refreshes, "tree") >= best


def test_correlated_noise_has_the_deviation_of_its_closed_form_and_hides_a_norm_spent_in_any_way():
    k, z = 12, 1.3
    drawn = correlated_noise(k, 40_000, z, np.random.default_rng(1))
    wanted = z * running_total_factor(k, "square_root")
    assert drawn.std(1).max() == pytest.approx(wanted, rel=0.02)
    # What was added before mixing: increments plus white noise through the inverse of the matrix that mixes noise.
    column = square_root(k)
    root = np.array([[column[i - j] if i >= j else 0.0 for j in range(k)] for i in range(k)])
    rng = np.random.default_rng(2)
    for parts in ([1, *[0] * (k - 1)], [0.25] * 4 + [0] * (k - 4), rng.dirichlet(np.ones(k))):
        spent = np.linalg.norm(root @ np.asarray(parts)) / (z * np.linalg.norm(column))
        assert spent <= 1 / z + 1e-12


@given(k=st.integers(2, 6), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_no_mixing_beats_fresh_noise_where_histories_may_change_in_any_way(k, seed):
    """The lower bound of the module: random mixings of k releases of norm 1, orthogonal uploads."""
    mixing = np.random.default_rng(seed).normal(size=(k, k)) + 2 * np.eye(k)
    gram = mixing.T @ mixing
    if np.linalg.cond(gram) > 1e8:
        return
    variance = np.diag(np.linalg.inv(gram)).max() * np.trace(gram)
    assert variance >= k - 1e-6


@pytest.mark.parametrize(
    "call",
    [
        lambda: year(8.0, DELTA, 0),
        lambda: year(8.0, DELTA, 2, kept=1.5),
        lambda: year(-1.0, DELTA, 2),
        lambda: running_total_factor(0, "tree"),
        lambda: pooling_weights([0.0, 0.0]),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call):
    with pytest.raises(PlanError):
        call()
