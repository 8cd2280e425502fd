"""Each formula against supports that were really drawn."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attacks import SupportView, Targets, ViewError
from attacks.metrics import user_auc, user_mean
from attacks.supports import (
    InSupport,
    count_recovery,
    debiased_count,
    intersect_supports,
    intersection_posterior,
    padding_probability,
    realised_posterior,
    recover_examined_count,
    rr_epsilon_add_remove,
    rr_epsilon_swap,
    support_auc,
    support_epsilon_bound,
    support_posterior,
    uniform_padding_posterior,
)


def seen(sent, public):
    return SupportView(sent, public, (sent & ~public).sum(axis=0), public.sum(axis=0).astype(np.float64))


def sizes(public, examined):
    return public.sum(axis=1), examined.sum(axis=1)


@pytest.fixture(scope="module")
def shop(sim):
    """400 users, 500 items: purchases and examinations."""
    public, examined, _ = sim.shopping(np.random.default_rng(0), 400, 500)
    return public, examined


@pytest.mark.parametrize("rho", [0, 1, 3])
@pytest.mark.parametrize("matched", [False, True])
def test_posterior_is_what_a_support_shows_whatever_kind_of_padding(sim, shop, rho, matched):
    public, examined = shop
    weight = 1.0 + public.sum(axis=0) if matched else None
    sent = sim.padded(np.random.default_rng(1), public, examined, rho, weight)
    bought, looked = sizes(public, examined)
    expected = uniform_padding_posterior(bought, looked, float(rho))
    assert realised_posterior(seen(sent, public), examined) == pytest.approx(expected)
    assert expected == pytest.approx(1 / (1 + rho * (1 + bought / looked)))
    assert (expected == 1).all() == (rho == 0)


def test_posterior_of_a_capped_padding_needs_the_catalogue(sim, shop):
    public, examined = shop
    bought, looked = sizes(public, examined)
    sent = sim.padded(np.random.default_rng(2), public, examined, 40)
    phi = padding_probability(bought, looked, 500, 40.0)
    assert (phi <= 1).all()
    assert (phi == 1).any()
    real = realised_posterior(seen(sent, public), examined)
    assert real == pytest.approx(support_posterior(bought, looked, 500, q=1.0, p=phi))
    assert (real >= uniform_padding_posterior(bought, looked, 40.0) - 1e-12).all()
    assert user_mean(real).value > uniform_padding_posterior(bought, looked, 40.0).mean()


def test_users_with_no_row_at_stake_have_no_posterior():
    none, some = np.array([0, 0]), np.array([4, 0])
    assert uniform_padding_posterior(some, none, 1.0) == pytest.approx([0, np.nan], nan_ok=True)
    assert uniform_padding_posterior(some, none, 0.0) == pytest.approx([np.nan, np.nan], nan_ok=True)
    assert padding_probability(some, np.array([1, 0]), 5, 1.0).tolist() == [0, 0]
    public = np.array([[True, False], [True, False]])
    shares = realised_posterior(seen(np.array([[True, False], [True, True]]), public), np.zeros((2, 2), bool))
    assert shares == pytest.approx([np.nan, 0], nan_ok=True)
    assert user_mean(shares).value == 0


@pytest.mark.parametrize(("q", "p"), [(0.9, 0.0448), (0.5, 0.1839), (1.0, 1.0)])
def test_posterior_and_auc_of_randomised_response(sim, shop, q, p):
    public, examined = shop
    sent = sim.randomised(np.random.default_rng(3), public, examined, q, p)
    rows = sent & ~public
    bought, looked = sizes(public, examined)
    one = user_mean(support_posterior(bought, looked, 500, q=q, p=p)).value
    assert user_mean(realised_posterior(seen(sent, public), examined)).value == pytest.approx(one, rel=0.03)
    assert (rows & examined).sum() / rows.sum() == pytest.approx(
        q * looked.sum() / (q * looked + p * (500 - bought - looked)).sum(), rel=0.03
    )
    targets = Targets.examined_vs_rest(examined, public)
    auc = np.nanmean(user_auc(InSupport().score(seen(sent, public)), targets.members, targets.candidates))
    assert auc == pytest.approx(support_auc(q, p), abs=0.01)


@pytest.mark.parametrize("rho", [1, 3, 6])
def test_in_support_auc_is_one_minus_half_phi(sim, shop, rho):
    public, examined = shop
    sent = sim.padded(np.random.default_rng(4), public, examined, rho)
    targets = Targets.examined_vs_rest(examined, public)
    auc = user_auc(InSupport().score(seen(sent, public)), targets.members, targets.candidates)
    phi = padding_probability(*sizes(public, examined), 500, float(rho))
    assert auc == pytest.approx(1 - phi / 2)
    assert auc[0] == pytest.approx(support_auc(1.0, phi[0]))


@given(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
@settings(max_examples=50, deadline=None)
def test_counts_come_back_exactly_for_a_whole_rho(rho, users):
    bought, looked = np.array(users).T
    found = recover_examined_count(looked + rho * (bought + looked), bought, float(rho))
    assert found == pytest.approx(looked)
    measured = count_recovery(found, looked, resamples=5)
    assert measured.exact.value == 1
    assert measured.absolute_error.value == pytest.approx(0)
    assert measured.n_users == len(users)


@given(st.floats(0.05, 6), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
@settings(max_examples=50, deadline=None)
def test_counts_come_back_after_rounding_for_a_fractional_rho(rho, users):
    bought, looked = np.array(users).T
    cover = np.rint(rho * (bought + looked)).astype(np.int64)
    found = recover_examined_count(looked + cover, bought, rho)
    assert (np.abs(found - looked) <= 0.5 / (1 + rho) + 1e-9).all()
    assert (np.rint(found) == looked).all()


def test_counts_come_back_from_drawn_supports_and_capping_hides_them(sim, shop):
    public, examined = shop
    bought, looked = sizes(public, examined)
    for rho, exact in ((2, 1.0), (40, 0.0)):
        sent = sim.padded(np.random.default_rng(5), public, examined, rho)
        found = recover_examined_count((sent & ~public).sum(axis=1), bought, float(rho))
        capped = padding_probability(bought, looked, 500, float(rho)) == 1
        assert (np.rint(found) == looked)[~capped].all()
        assert (found < looked)[capped].all()
        assert capped.any() == (exact == 0)


def test_debiased_counts_are_unbiased_by_user_and_by_item(sim, shop):
    public, examined = shop
    q, p = 0.9, 0.05
    rng = np.random.default_rng(6)
    draws = np.stack([sim.randomised(rng, public, examined, q, p) & ~public for _ in range(100)])
    for axis in (0, 1):
        truth, unbought = examined.sum(axis), (~public).sum(axis)
        found = debiased_count(draws.mean(0).sum(axis), unbought, q=q, p=p)
        spread = np.sqrt((q * (1 - q) * truth + p * (1 - p) * (unbought - truth)) / 100) / (q - p)
        assert (np.abs(found - truth) < 5 * spread).all()
    one = debiased_count(draws[0].sum(1), (~public).sum(1), q=q, p=p)
    error = count_recovery(one, examined.sum(1)).absolute_error
    assert 0 < error.lo < error.value < error.hi < 10
    with pytest.raises(ValueError, match="only where q exceeds p"):
        debiased_count(draws[0].sum(1), (~public).sum(1), q=0.5, p=0.5)


@pytest.mark.parametrize(
    ("epsilon", "q", "p"), [(1, 0.5, 0.184), (2, 0.5, 0.0677), (3, 0.9, 0.0448), (4, 0.9, 0.0165), (6, 0.9, 0.0022)]
)
def test_epsilons_of_randomised_response(epsilon, q, p):
    assert rr_epsilon_add_remove(q, p) == pytest.approx(epsilon, abs=0.02)
    assert rr_epsilon_swap(q, p) == pytest.approx(math.log(q * (1 - p) / (p * (1 - q))))
    assert rr_epsilon_add_remove(q, p) <= rr_epsilon_swap(q, p) <= 2 * rr_epsilon_add_remove(q, p)


def test_epsilon_is_infinite_for_fake_items_and_zero_for_dense():
    assert rr_epsilon_add_remove(1.0, 0.3) == rr_epsilon_swap(1.0, 0.3) == math.inf
    assert rr_epsilon_add_remove(0.3, 0.0) == math.inf
    for same in (0.0, 0.4, 1.0):
        assert rr_epsilon_add_remove(same, same) == rr_epsilon_swap(same, same) == 0


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
@settings(max_examples=50, deadline=None)
def test_epsilons_equal_the_worst_ratio_of_all_outcomes(q, p):
    assume(p <= q)
    one_more = {1: q, 0: 1 - q}
    without = {1: p, 0: 1 - p}
    worst = max(abs(math.log(one_more[bit] / without[bit])) for bit in (0, 1))
    assert rr_epsilon_add_remove(q, p) == pytest.approx(worst, abs=1e-9)
    pairs = [(a, b) for a in (0, 1) for b in (0, 1)]
    worst = max(abs(math.log(one_more[a] * without[b] / (without[a] * one_more[b]))) for a, b in pairs)
    assert rr_epsilon_swap(q, p) == pytest.approx(worst, abs=1e-9)


def test_empirical_epsilon_stays_below_randomised_response_and_near_it():
    rng = np.random.default_rng(7)
    q, p, n = 0.9, 0.0448, 20_000
    examined, other = rng.random((2, n)) < q, rng.random((2, n)) < p
    claim = rr_epsilon_add_remove(q, p)
    bound = support_epsilon_bound(examined[0], other[0])
    assert 0.93 * claim < bound.epsilon < claim
    swap = support_epsilon_bound(examined[0] & ~other[0], other[1] & ~examined[1])
    assert claim < swap.epsilon < rr_epsilon_swap(q, p)
    assert swap.epsilon > 0.93 * rr_epsilon_swap(q, p)
    rare = support_epsilon_bound(rng.random(n) < 0.5, rng.random(n) < 0.01)
    common = support_epsilon_bound(rng.random(n) < 0.99, rng.random(n) < 0.5)
    assert rare.epsilon == pytest.approx(common.epsilon, rel=0.1)


def test_empirical_epsilon_of_fake_items_grows_with_the_draws(sim):
    rng = np.random.default_rng(8)
    bounds = []
    for n in (200, 2_000, 20_000):
        public, examined = np.zeros((2, n, 30), bool)
        public[:, :3] = examined[:, 3:7] = True
        without = sim.padded(rng, public, examined, 1)[:, 9]
        examined[:, 9] = True
        bounds.append(support_epsilon_bound(sim.padded(rng, public, examined, 1)[:, 9], without).epsilon)
    assert np.diff(bounds) == pytest.approx(math.log(10), abs=0.1)


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_redrawn_padding_falls_to_an_intersection_and_kept_padding_does_not(sim, shop, rounds):
    public, examined = shop
    rng = np.random.default_rng(9)
    bought, looked = sizes(public, examined)
    phi = padding_probability(bought, looked, 500, 3.0)
    redrawn = [sim.padded(rng, public, examined, 3) for _ in range(rounds)]
    left = intersect_supports(iter(redrawn))
    assert (left & examined == examined).all()
    survivors = (left & ~public & ~examined).sum()
    expected = (3 * (bought + looked) * phi ** (rounds - 1)).sum()
    assert abs(survivors - expected) <= 4 * math.sqrt(expected)
    found = user_mean(realised_posterior(seen(left, public), examined)).value
    formula = intersection_posterior(bought, looked, 500, 3.0, rounds)
    assert found == pytest.approx(formula.mean(), abs=0.015)
    assert formula == pytest.approx(1 / (1 + 3 * (1 + bought / looked) * phi ** (rounds - 1)))
    kept = intersect_supports([redrawn[0]] * rounds)
    assert (kept == redrawn[0]).all()
    assert kept is not redrawn[0]


def test_bad_input_gets_one_sentence(shop):
    public, examined = shop
    bought, looked = sizes(public, examined)
    for rho in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="rho is"):
            uniform_padding_posterior(bought, looked, rho)
        with pytest.raises(ValueError, match="rho is"):
            recover_examined_count(looked, bought, rho)
    with pytest.raises(ValueError, match=r"items of a catalogue of 20"):
        padding_probability(bought, looked, 20, 1.0)
    for q, p in ((1.2, 0.1), (0.5, -0.1), (0.5, math.nan)):
        with pytest.raises(ValueError, match="probabilities between 0 and 1"):
            support_posterior(bought, looked, 500, q=q, p=p)
        with pytest.raises(ValueError, match="probabilities between 0 and 1"):
            support_auc(q, p)
    for q, p in ((0.1, 0.2), (1.1, 0.2), (math.nan, 0.2)):
        with pytest.raises(ValueError, match="at least as often"):
            rr_epsilon_add_remove(q, p)
        with pytest.raises(ValueError, match="at least as often"):
            rr_epsilon_swap(q, p)
    with pytest.raises(ValueError, match="0 rounds"):
        intersection_posterior(bought, looked, 500, 1.0, 0)
    with pytest.raises(ViewError, match="no support to intersect"):
        intersect_supports([])
    with pytest.raises(ViewError, match="same audited users"):
        intersect_supports([public, public[:5]])
    with pytest.raises(ViewError, match="same order"):
        realised_posterior(seen(public, public), examined[:5])
    with pytest.raises(ValueError, match="at least one finite score"):
        support_epsilon_bound(np.zeros(0, bool), np.ones(3, bool))
