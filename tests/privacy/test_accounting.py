"""From events to epsilon: the published table, independent oracles, and accountants that disagree."""

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from privfed.privacy import accounting
from privfed.privacy.accounting import BASIC, CLOSED_FORM, CLOSED_FORMS, PLD, PRV, RDP, account
from privfed.privacy.closed_forms import gaussian_delta, gaussian_epsilon
from privfed.privacy.errors import AccountingError
from secure_agg.noise import NoiseEvent


@pytest.fixture(autouse=True)
def _fresh_cache():
    accounting._account.cache_clear()
    yield
    accounting._account.cache_clear()


def times(count, event):
    return dp.SelfComposedDpEvent(event, count)


def laplace(epsilon0, count):
    return times(count, dp.LaplaceDpEvent(1 / epsilon0))


def sampled(sigma, rate, count):
    return times(count, dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)))


GAUSSIAN_TABLE = [  # sigma, q, T, delta, RDP, PRV, PLD of research/privacy_audit.md
    (1.0, 0.01, 1000, 1e-5, 2.101, 1.838, 1.828),
    (1.0, 0.1, 100, 1e-4, 6.822, 5.976, 5.966),
    (2.0, 0.1, 200, 1e-4, 3.197, 2.876, 2.866),
    (4.0, 0.1, 100, 1e-5, 1.082, 0.993, 0.983),
    (5.0, 1.0, 100, 1e-5, 10.726, 10.008, 9.997),
    (20.0, 1.0, 400, 1e-5, 4.729, 4.387, 4.377),
]


@pytest.mark.parametrize(("sigma", "rate", "count", "delta", "rdp", "prv", "pld"), GAUSSIAN_TABLE)
def test_gaussian_table(sigma, rate, count, delta, rdp, prv, pld):
    result = account(sampled(sigma, rate, count), delta)
    checks = dict(result.cross_check)
    assert result.accountant == PLD
    assert result.epsilon == pytest.approx(pld, abs=6e-4)
    if rate < 1:
        assert checks[PRV] == pytest.approx(prv, abs=6e-4)
    else:
        assert checks[CLOSED_FORM] == pytest.approx(pld, abs=6e-4)
    assert checks[RDP] == pytest.approx(rdp, abs=6e-4)
    assert result.basic_epsilon is None


LAPLACE_TABLE = [  # epsilon0, T, basic, RDP, PLD at delta 1e-5
    (0.1, 100, 10, 4.53, 4.22),
    (0.5, 100, 50, 30.0, 28.5),
    (1.0, 100, 100, 70.8, 68.3),
    (1.0, 20, 20, 19.3, 19.1),
    (5.0, 20, 100, 99.3, 99.1),
]


@pytest.mark.parametrize(("epsilon0", "count", "basic", "rdp", "pld"), LAPLACE_TABLE)
def test_laplace_table(epsilon0, count, basic, rdp, pld):
    result = account(laplace(epsilon0, count), 1e-5)
    digits = 0.006 if pld < 10 else 0.06
    assert result.epsilon == pytest.approx(pld, abs=digits)
    assert dict(result.cross_check)[RDP] == pytest.approx(rdp, abs=digits)
    assert result.basic_epsilon == pytest.approx(basic)
    assert result.accountant_version == f"dp-accounting {accounting.version('dp-accounting')}"


def laplace_loss(epsilon0, grid, rounding):
    """Losses of Lap(0, b) against Lap(1, b) on a grid, with their probabilities under the first.

    The loss is epsilon0 left of 0, -epsilon0 right of 1, and epsilon0 (1 - 2x) in between. Rounded up it
    gives an upper bound, rounded down a lower bound.
    """
    half = math.ceil(epsilon0 / grid) + 1
    edges = np.linspace(0.0, 1.0, 20 * half + 1)
    ends = epsilon0 * (1 - 2 * (edges[:-1] if rounding is np.ceil else edges[1:]))
    losses = np.concatenate(([epsilon0, -epsilon0], ends))
    weights = np.concatenate(([0.5, math.exp(-epsilon0) / 2], -np.diff(np.exp(-epsilon0 * edges)) / 2))
    bins = rounding(np.round(losses / grid, 9)).astype(int) + half
    return np.bincount(bins, weights=weights, minlength=2 * half + 1), half


def laplace_oracle(parts, count, delta, grid, rounding):
    """Epsilon of `count` releases from scratch, each with its distance split over coordinates as `parts`."""
    spread = [laplace_loss(part, grid, rounding) for part in parts]
    half = count * sum(h for _, h in spread)
    size = 2 ** math.ceil(math.log2(2 * half + 1))
    transform = np.prod([np.fft.rfft(pmf, size) for pmf, _ in spread], axis=0)
    total = np.maximum(np.fft.irfft(transform**count, size), 0)
    values = (np.arange(size) - half) * grid
    above = values > 0

    def excess(epsilon):
        return (total[above] * np.maximum(-np.expm1(epsilon - values[above]), 0)).sum() - delta

    return brentq(excess, 0.0, sum(parts) * count + 1) if excess(0.0) > 0 else 0.0


@pytest.mark.parametrize(
    ("epsilon0", "count", "delta"), [(0.1, 30, 1e-5), (1.0, 20, 1e-5), (1.0, 60, 1e-6), (3.0, 7, 1e-3)]
)
def test_laplace_lies_between_independent_bounds(epsilon0, count, delta):
    grid = 3e-4
    lower = laplace_oracle([epsilon0], count, delta, grid, np.floor)
    upper = laplace_oracle([epsilon0], count, delta, grid, np.ceil)
    assert upper - lower < 3 * count * grid
    assert lower - 1e-6 <= account(laplace(epsilon0, count), delta).epsilon <= upper + 1e-6


@pytest.mark.parametrize("parts", [[0.5, 0.5], [0.9, 0.1], [0.25] * 4, [0.1] * 10])
@pytest.mark.parametrize(("count", "delta"), [(1, 1e-5), (1, 0.1), (12, 1e-5), (12, 1e-2)])
def test_one_coordinate_is_the_worst_split_of_the_distance(parts, count, delta):
    split = laplace_oracle(parts, count, delta, 3e-4, np.ceil)
    assert split <= account(laplace(1.0, count), delta).epsilon + 3e-4 * count * len(parts)


def gaussian_oracle(sigma, delta):
    """Epsilon of one Gaussian release, from its exact delta(epsilon)."""

    def excess(e):
        return norm.cdf(0.5 / sigma - e * sigma) - math.exp(e) * norm.cdf(-0.5 / sigma - e * sigma) - delta

    return brentq(excess, 0.0, 600.0) if excess(0.0) > 0 else 0.0


@settings(max_examples=6, deadline=None)
@given(st.floats(0.8, 30.0), st.integers(1, 50), st.sampled_from([1e-7, 1e-5, 1e-3]))
def test_gaussians_meet_their_closed_form(sigma, count, delta):
    exact = gaussian_oracle(sigma / math.sqrt(count), delta)
    assert account(times(count, dp.GaussianDpEvent(sigma)), delta).epsilon == pytest.approx(exact, abs=2e-3, rel=1e-3)


@settings(max_examples=6, deadline=None)
@given(st.floats(1e-6, 20.0), st.integers(1, 30), st.integers(1, 30), st.sampled_from([1e-8, 1e-5, 1e-2]))
@example(epsilon0=18.0, fewer=10, more=30, delta=1e-8)
def test_laplace_grows_with_uploads_and_stays_below_basic(epsilon0, fewer, more, delta):
    one = account(laplace(epsilon0, fewer), delta)
    two = account(laplace(epsilon0, fewer + more), delta)
    assert 0.0 <= one.epsilon <= two.epsilon + 1e-4
    assert two.epsilon <= two.basic_epsilon
    assert one.epsilon >= epsilon0 + 2 * math.log1p(-delta) - 1e-4


def test_a_release_of_no_noise_is_infinite_and_no_release_is_zero():
    for event in (
        dp.NonPrivateDpEvent(),
        dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.NonPrivateDpEvent()]),
        dp.LaplaceDpEvent(0.0),
        dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(0.0)),
        times(3, dp.ComposedDpEvent([dp.NonPrivateDpEvent(), dp.NoOpDpEvent()])),
    ):
        assert account(event, 1e-5).epsilon == math.inf
    assert account(dp.NoOpDpEvent(), 1e-5).epsilon == 0.0
    assert account(times(0, dp.NonPrivateDpEvent()), 1e-5).epsilon == 0.0


def test_the_shape_of_the_tree_does_not_matter():
    flat = account(laplace(0.3, 12), 1e-5)
    nested = dp.ComposedDpEvent([times(5, laplace(0.3, 2)), dp.NoOpDpEvent(), dp.ComposedDpEvent([laplace(0.3, 2)])])
    assert account(nested, 1e-5) == flat
    certain = dp.PoissonSampledDpEvent(1.0, dp.GaussianDpEvent(5.0))
    assert account(certain, 1e-5) == account(dp.GaussianDpEvent(5.0), 1e-5)


@pytest.mark.parametrize("gaussian", [times(3, dp.GaussianDpEvent(5.0)), sampled(2.0, 0.1, 30)])
def test_mixed_noise_is_accounted_above_each_part(gaussian):
    other = laplace(0.2, 5)
    mixed = account(dp.ComposedDpEvent([gaussian, other]), 1e-5)
    assert mixed.epsilon > max(account(gaussian, 1e-5).epsilon, account(other, 1e-5).epsilon)
    assert set(dict(mixed.cross_check)) == {RDP}


@pytest.mark.parametrize(("variance", "l2", "count"), [(4e4, 60.0, 10), (1e8, 3000.0, 10), (1e8, 1500.0, 40)])
def test_sums_with_shares_of_noise_cost_what_their_own_formula_says(variance, l2, count):
    noise = NoiseEvent("skellam", variance, 100, coordinates=1000, l2=l2, l1=l2 * 1000**0.5, beta=0.6)
    release, wanted = accounting.shares_event()(noise), noise.epsilon(1e-5, count)
    assert account(times(count, release), 1e-5).epsilon == pytest.approx(wanted, rel=1e-12)
    # As many releases of two kinds that differ in nothing which decides.
    other = accounting.shares_event()(replace(noise, min_honest=101))
    mixed = dp.ComposedDpEvent([times(count - 3, release), times(3, other)])
    assert account(mixed, 1e-5).epsilon == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "event",
    [
        dp.SampledWithoutReplacementDpEvent(943, 94, dp.GaussianDpEvent(1.0)),
        dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.GaussianDpEvent(1.0)])),
        dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)),
        dp.ZCDpEvent(0.1),
        dp.UnsupportedDpEvent(),
        dp.RandomizedResponseDpEvent(0.5, 2),
        dp.ComposedDpEvent([dp.LaplaceDpEvent(1e-3), dp.GaussianDpEvent(1.0)]),
    ],
)
def test_what_cannot_be_checked_is_refused(event):
    with pytest.raises(AccountingError):
        account(event, 1e-5)


def test_vacuous_laplace_is_added_up():
    result = account(laplace(1e4, 100), 1e-5)
    assert (result.epsilon, result.accountant) == (pytest.approx(1e6), BASIC)


@pytest.mark.parametrize("delta", [0.0, 1e-12, 1.0, -1.0, math.nan])
def test_bad_delta_is_refused(delta):
    with pytest.raises(AccountingError, match="delta"):
        account(laplace(1.0, 1), delta)


@pytest.mark.parametrize(
    ("name", "answer", "event"),
    [
        ("pld_epsilon", 71.0, laplace(1.0, 100)),  # above RDP
        ("pld_epsilon", 0.9, laplace(1.0, 100)),  # below one release
        ("pld_epsilon", 1.2, laplace(1.0, 1)),  # above basic composition
        ("rdp_epsilon", 60.0, laplace(1.0, 100)),
        ("pld_epsilon", 0.95, sampled(4.0, 0.1, 100)),  # PRV is 0.993: too far above
        ("pld_epsilon", 1.01, sampled(4.0, 0.1, 100)),  # PRV is below
        ("_prv", 0.942, sampled(4.0, 0.1, 100)),  # what the central limit approximation says
        ("rdp_epsilon", math.nan, laplace(1.0, 100)),
        ("pld_epsilon", 9.9, sampled(5.0, 1.0, 100)),  # the closed form is 9.997
        ("pld_epsilon", 10.1, sampled(5.0, 1.0, 100)),
        ("pld_epsilon", 9.999, sampled(5.0, 1.0, 100)),  # the closed form is 9.9973
    ],
)
def test_accountants_that_disagree_stop_the_report(monkeypatch, name, answer, event):
    monkeypatch.setattr(accounting, name, lambda *_, **__: answer)
    with pytest.raises(AccountingError, match="disagree"):
        account(event, 1e-5)


@pytest.mark.parametrize(
    "releases",
    [
        [(0.4979, 1)],
        [(0.02, 1)],
        [(60.0, 1)],
        [(5.0, 100)],
        [(0.5, 1), (1.5, 1)],
        [(0.177, 1), (183.0, 257), (368.0, 344)],
        [(1.256, 16), (3.3, 1), (210.0, 300)],
    ],
)
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-9])
def test_the_coarser_grid_of_unsampled_gaussians_costs_a_millionth(releases, delta):
    """In units of what concentrated differential privacy bounds: epsilon itself may be next to nothing."""
    found = account(mixed(*(times(n, dp.GaussianDpEvent(z)) for z, n in releases)), delta)
    mu = math.hypot(*(math.sqrt(n) / z for z, n in releases))
    unit = mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))
    if found.accountant == PLD and CLOSED_FORM in dict(found.cross_check):
        assert -1e-8 * unit <= found.epsilon - gaussian_epsilon(mu, delta) <= 1e-5 * unit
    else:
        assert mu > 20


def test_replace_one_is_twice_the_distance_not_the_same_number():
    """Gaussian sigma 5 per add-or-remove distance is 2.5 per replace-one distance: 0.726 against 1.555."""
    assert account(dp.GaussianDpEvent(5.0), 1e-5).epsilon == pytest.approx(0.726, abs=6e-4)
    assert account(dp.GaussianDpEvent(2.5), 1e-5).epsilon == pytest.approx(1.555, abs=6e-4)


def mixed(*events):
    return dp.ComposedDpEvent(list(events))


GIVING_OUT = [  # what made an accountant give out, and the report that is sound all the same
    (laplace(18.0, 40), 1e-8, RDP, 717.903),  # PLD is infinite
    (laplace(45.0, 16), 1e-8, RDP, 719.9994),
    (mixed(laplace(39.958, 29), laplace(0.32, 3)), 5e-9, RDP, 1159.16),  # PLD is a loose quantile
    (times(1, dp.GaussianDpEvent(0.02)), 1e-5, PLD, 1463.24),  # PRV raises
    (sampled(0.8514, 0.005228, 656), 0.2757, PLD, 0.0),  # PRV is below 0
    (mixed(laplace(20.0, 36), dp.GaussianDpEvent(3.0)), 1e-8, RDP, 718.896),
    (laplace(50.0, 300), 1e-10, RDP, 14_866.77),  # no grid is that long
]


@pytest.mark.parametrize(("event", "delta", "accountant", "epsilon"), GIVING_OUT)
def test_what_gives_out_neither_stops_nor_checks_the_report(event, delta, accountant, epsilon):
    result = account(event, delta)
    assert (result.accountant, result.epsilon) == (accountant, pytest.approx(epsilon, rel=1e-5))
    assert all(math.isfinite(bound) for _, bound in result.cross_check)
    if result.basic_epsilon is not None:
        assert result.epsilon <= result.basic_epsilon


ANY_NOISE = {
    "laplace": laplace(1.0, 100),
    "gaussian": times(4, dp.GaussianDpEvent(2.0)),
    "sampled": sampled(2.0, 0.1, 30),
    "laplace and gaussian": mixed(laplace(0.5, 4), dp.GaussianDpEvent(2.0)),
    "laplace and sampled": mixed(laplace(0.5, 4), sampled(2.0, 0.1, 30)),
    "both gaussians": mixed(dp.GaussianDpEvent(4.0), sampled(2.0, 0.1, 30)),
}
BROKEN = [math.inf, math.nan, -1.0, OverflowError("e^x"), ValueError("grid"), MemoryError("grid"), RuntimeError("mean")]


def broken(answer):
    def get_epsilon(*_, **__):
        if isinstance(answer, Exception):
            raise answer
        return answer

    return get_epsilon


@pytest.mark.parametrize("answer", BROKEN, ids=repr)
@pytest.mark.parametrize("noise", ANY_NOISE)
def test_each_accountant_may_give_out(monkeypatch, noise, answer):
    """PLD: the next bound is reported. RDP too: the closed forms. PRV: it is no check, or reads as 0 and disagrees."""
    event, tight = ANY_NOISE[noise], account(ANY_NOISE[noise], 1e-5).epsilon
    accounting._account.cache_clear()
    monkeypatch.setattr(accounting._Losses, "get_epsilon", broken(answer))
    without_pld = account(event, 1e-5)
    assert without_pld.accountant == RDP
    assert tight <= without_pld.epsilon
    assert PLD not in dict(without_pld.cross_check)
    accounting._account.cache_clear()
    monkeypatch.setattr(dp.rdp.RdpAccountant, "get_epsilon", broken(answer))
    without_both = account(event, 1e-5)
    assert without_both.accountant == (BASIC if noise == "laplace" else CLOSED_FORMS)
    # Of unsampled Gaussians the closed form is exact, and PLD is above it by what its grid costs.
    assert tight <= without_both.epsilon * (1 + 1e-6) < math.inf


@pytest.mark.parametrize("noise", ANY_NOISE)
def test_without_rdp_pld_is_checked_by_the_closed_forms(monkeypatch, noise):
    tight = account(ANY_NOISE[noise], 1e-5)
    accounting._account.cache_clear()
    monkeypatch.setattr(dp.rdp.RdpAccountant, "get_epsilon", broken(math.nan))
    result = account(ANY_NOISE[noise], 1e-5)
    assert result.accountant == PLD
    assert result.epsilon == pytest.approx(tight.epsilon, abs=5e-3)
    assert (BASIC if noise == "laplace" else CLOSED_FORMS) in dict(result.cross_check)


def test_prv_that_gives_out_is_no_check(monkeypatch):
    accountant = accounting.import_module("opacus.accountants").PRVAccountant
    monkeypatch.setattr(accountant, "get_epsilon", broken(RuntimeError("Discrete mean differs")))
    assert set(dict(account(sampled(4.0, 0.1, 100), 1e-5).cross_check)) == {RDP}


def test_where_every_bound_gives_out_nothing_is_reported():
    with pytest.raises(AccountingError, match="gave out"):
        account(dp.GaussianDpEvent(1e-170), 1e-5)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 7.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.3])
def test_the_closed_form_of_gaussians_is_rounded_up_and_tight(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta * (1 + 1e-12)
    if epsilon > 0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta
    if 0 < epsilon < 500:
        assert epsilon == pytest.approx(gaussian_oracle(1 / mu, delta), rel=1e-4)
