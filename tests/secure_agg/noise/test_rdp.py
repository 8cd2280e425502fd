"""The accounting formulas against divergences computed from the probabilities themselves.

Nothing here comes from the package but the formulas: Skellam from scipy's Bessel functions, the discrete Gaussian from
its definition, sums by convolution. Renyi divergences are summed in logarithms over all of the support that counts.
"""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, stats
from scipy.special import ive, logsumexp

from secure_agg.errors import ConfigurationError
from secure_agg.noise.rdp import (
    ORDERS,
    discrete_gaussian_sum_gap,
    discrete_gaussian_sum_rdp,
    epsilon_from_rdp,
    skellam_rdp,
)

WHOLE = np.array([2.0, 3.0, 4.0, 8.0, 16.0])
BROKEN = np.array([1.01, 1.3, 1.9, 2.5, 3.99, 7.2, 11.7])


def skellam_logs(variance, reach):
    return np.log(ive(np.abs(np.arange(-reach, reach + 1)), variance))


def gaussian_sum_logs(share, summands, reach):
    k = np.arange(-reach, reach + 1, dtype=float)
    single = np.exp(-(k**2) / (2 * share))
    single /= single.sum()
    total = np.ones(1)
    for _ in range(summands):
        total = np.convolve(total, single)
    keep = total > 1e-290
    return np.log(total[keep])


def renyi(logs, shift, order):
    """D_order of the law against itself moved by `shift`, largest of both directions."""
    here, there = logs[shift:], logs[: len(logs) - shift]
    both = [
        logsumexp(order * first + (1 - order) * second) / (order - 1)
        for first, second in ((here, there), (there, here))
    ]
    return max(both)


def hockey_stick(logs, shift, epsilon):
    """delta(epsilon) of one release of the law against itself moved; what the other cannot reach counts in full."""
    here, there = np.exp(logs), np.exp(np.concatenate([logs[shift:], np.full(shift, -np.inf)]))
    return np.maximum(here - math.exp(epsilon) * there, 0).sum()


@pytest.mark.parametrize(("variance", "reach"), [(0.5, 60), (2.0, 80), (10.0, 120), (60.0, 220), (400.0, 420)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_skellam_curve_bounds_the_exact_divergence(variance, reach, shift):
    logs = skellam_logs(variance, reach)
    for orders in (WHOLE, BROKEN):
        bounds = skellam_rdp(orders, variance, shift, shift)
        for order, bound in zip(orders, bounds, strict=True):
            if order * shift > reach / 6:
                continue
            exact = renyi(logs, shift, order)
            assert exact <= bound
            if orders is WHOLE and variance >= 10 * shift * order:
                assert bound < 1.15 * exact


def test_skellam_curve_is_the_written_formula():
    a, v, l2, l1 = 3.0, 20.0, 4.0, 10.0
    by_hand = a * l2**2 / (2 * v) + min(((2 * a - 1) * l2**2 + 6 * l1) / (4 * v**2), 3 * l1 / (2 * v))
    assert skellam_rdp([a], v, l2, l1)[0] == pytest.approx(by_hand, rel=1e-14)
    assert skellam_rdp([300.0], v, l2, l1)[0] == pytest.approx(300 * l2**2 / (2 * v) + 3 * l1 / (2 * v), rel=1e-14)


def test_between_integer_orders_the_bound_is_the_chord_of_a_convex_function():
    orders = np.linspace(1.001, 6, 400)
    scaled = (orders - 1) * skellam_rdp(orders, 3.0, 2.0, 3.0)
    knots = np.arange(1.0, 7.0)
    values = np.concatenate([[0.0], (knots[1:] - 1) * skellam_rdp(knots[1:], 3.0, 2.0, 3.0)])
    np.testing.assert_allclose(scaled, np.interp(orders, knots, values), rtol=1e-12)
    assert (np.diff(values, 2) > 0).all()


@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
def test_a_shift_in_several_coordinates_is_bounded_too(law):
    """A product law: the exact divergence adds up over coordinates."""
    shifts, variance = (3, -1, 1, 0), 36.0
    l2, l1 = math.sqrt(sum(s * s for s in shifts)), sum(abs(s) for s in shifts)
    orders = np.array([2.0, 3.0, 6.0])
    if law == "skellam":
        logs, bounds = skellam_logs(variance, 200), skellam_rdp(orders, variance, l2, l1)
    else:
        logs, bounds = (
            gaussian_sum_logs(variance / 4, 4, 120),
            discrete_gaussian_sum_rdp(orders, variance, 4, 4, l2, l1),
        )
    for order, bound in zip(orders, bounds, strict=True):
        exact = sum(renyi(logs, abs(shift), order) for shift in shifts if shift)
        assert exact <= bound * (1 + 1e-9)
        assert bound < 1.3 * exact


@pytest.mark.parametrize("share", [0.25, 0.3, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("summands", [1, 2, 3, 10])
@pytest.mark.parametrize("shift", [1, 3])
def test_gaussian_sum_curve_bounds_the_exact_divergence(share, summands, shift):
    logs = gaussian_sum_logs(share, summands, 12 + int(12 * math.sqrt(share)))
    variance = share * summands
    bounds = discrete_gaussian_sum_rdp(np.array([1.05, 1.5, 2.0, 3.0, 5.0]), variance, summands, 1, shift, shift)
    for order, bound in zip((1.05, 1.5, 2.0, 3.0, 5.0), bounds, strict=True):
        if order * shift > len(logs) / 8:
            continue
        exact = renyi(logs, shift, order)
        assert exact <= bound * (1 + 1e-9)
        if share >= 1:
            assert bound < 1.05 * exact


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("summands", [2, 5, 12])
def test_tau_bounds_how_far_a_sum_is_from_one_discrete_gaussian(share, summands):
    """Twice over in the range of the log ratio, which the hand proof uses, and in total variation."""
    half_support = 14 * summands
    k = np.arange(-half_support, half_support + 1, dtype=float)
    single = np.exp(-(k**2) / (2 * share))
    total = np.ones(1)
    for _ in range(summands):
        total = np.convolve(total, single / single.sum())
    total = total[len(total) // 2 - half_support : len(total) // 2 + half_support + 1]
    true = np.exp(-(k**2) / (2 * share * summands))
    true /= true.sum()
    near = true > 1e-11
    ratio = np.log(total[near] / true[near])
    tau = discrete_gaussian_sum_gap(share, summands)
    assert ratio.max() - ratio.min() <= tau / 2
    assert np.abs(total - true).sum() / 2 <= tau / 2
    if share < 1:
        assert ratio.max() - ratio.min() > tau / 400


def test_summands_too_narrow_for_the_theorem_give_no_bound():
    assert np.isinf(discrete_gaussian_sum_rdp([2.0, 3.0], 0.24 * 5, 5, 3, 1.0, 1.0)).all()
    assert np.isfinite(discrete_gaussian_sum_rdp([2.0, 3.0], 0.24, 1, 3, 1.0, 1.0)).all()
    assert discrete_gaussian_sum_gap(5.0, 1) == 0.0


def test_gaussian_sum_curve_is_the_smallest_of_the_three_written_forms():
    a, v, n, d = 4.0, 6.0, 3, 50
    for l2, l1 in ((0.1, 0.1), (0.5, 3.0), (3.0, 9.0), (40.0, 80.0)):
        tau = 10 * sum(math.exp(-2 * math.pi**2 * (v / n) * k / (k + 1)) for k in range(1, n))
        s = math.sqrt(v)
        forms = (
            a / 2 * (l2 / s) ** 2 + tau * d,
            a / 2 * ((l2 / s) ** 2 + 2 * l1 / s * tau + tau**2 * d),
            a / 2 * (l2 / s + math.sqrt(d) * tau) ** 2,
        )
        assert discrete_gaussian_sum_rdp([a], v, n, d, l2, l1)[0] == pytest.approx(min(forms), rel=1e-12)


@pytest.mark.parametrize("shift", [1, 4])
@pytest.mark.parametrize("deviation", [2.0, 6.0])
@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
def test_epsilon_covers_the_exact_hockey_stick_and_is_not_far_above(law, deviation, shift):
    variance = deviation**2
    if law == "skellam":
        logs, curve = skellam_logs(variance, 160), skellam_rdp(ORDERS, variance, shift, shift)
    else:
        logs = gaussian_sum_logs(variance / 4, 4, 60)
        curve = discrete_gaussian_sum_rdp(ORDERS, variance, 4, 1, shift, shift)
    for delta in (1e-3, 1e-6, 1e-9):
        epsilon = epsilon_from_rdp(ORDERS, curve, delta)
        assert hockey_stick(logs, shift, epsilon) <= delta
        exact = optimize.brentq(lambda e, d=delta: hockey_stick(logs, shift, e) - d, 1e-9, 60)
        assert exact <= epsilon
        if law == "discrete_gaussian" or deviation == 6.0:
            assert epsilon < 1.35 * exact + 0.05


@pytest.mark.parametrize("law", ["skellam", "discrete_gaussian"])
def test_epsilon_of_several_releases_covers_the_composed_distribution(law):
    """Against dp-accounting's numerical composition of the very probabilities."""
    variance, releases, delta = 25.0, 10, 1e-6
    reach = 60
    if law == "skellam":
        logs, curve = skellam_logs(variance, reach), skellam_rdp(ORDERS, variance, 1, 1)
    else:
        logs, curve = gaussian_sum_logs(variance / 5, 5, 30), discrete_gaussian_sum_rdp(ORDERS, variance, 5, 1, 1, 1)
    middle = len(logs) // 2
    log_pmf = {k: float(logs[middle + k]) for k in range(-reach, reach + 1)}
    moved = {k + 1: value for k, value in log_pmf.items()}
    composed = pld.from_two_probability_mass_functions(log_pmf, moved, log_mass_truncation_bound=-60)
    exact = composed.self_compose(releases).get_epsilon_for_delta(delta)
    claimed = epsilon_from_rdp(ORDERS, releases * curve, delta)
    assert exact <= claimed + 1e-3
    assert claimed < 1.25 * exact


def gaussian_epsilon(multiplier, delta):
    def excess(epsilon):
        far = 1 / multiplier
        inside = stats.norm.cdf(far / 2 - epsilon / far)
        return inside - math.exp(epsilon) * stats.norm.cdf(-far / 2 - epsilon / far) - delta

    return optimize.brentq(excess, 0, 200)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_fine_grids_approach_the_continuous_gaussian(multiplier):
    delta, l2, d = 1e-6, 1e5, 10_000
    variance, l1 = (multiplier * l2) ** 2, l2 * 100
    continuous = epsilon_from_rdp(ORDERS, ORDERS / (2 * multiplier**2), delta)
    exact = gaussian_epsilon(multiplier, delta)
    for curve in (skellam_rdp(ORDERS, variance, l2, l1), discrete_gaussian_sum_rdp(ORDERS, variance, 50, d, l2, l1)):
        epsilon = epsilon_from_rdp(ORDERS, curve, delta)
        assert exact < epsilon
        assert epsilon == pytest.approx(continuous, rel=1.5e-2 if multiplier < 1 else 3e-3)
        assert epsilon < 1.12 * exact


def test_the_conversion_is_the_published_one():
    orders = np.array([1.5, 4.0, 32.0])
    curve = np.array([0.1, 0.3, 2.0])
    delta = 1e-5
    by_hand = [
        rho + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)
        for a, rho in zip(orders, curve, strict=True)
    ]
    assert epsilon_from_rdp(orders, curve, delta) == pytest.approx(min(by_hand), rel=1e-13)
    assert epsilon_from_rdp(orders, np.zeros(3), 0.9) == 0.0
    assert epsilon_from_rdp(orders, np.full(3, np.inf), 0.1) == math.inf


@pytest.mark.parametrize("orders", [[1.0], [0.5, 2.0], [math.inf], [math.nan]])
def test_orders_that_are_none_are_refused(orders):
    with pytest.raises(ConfigurationError, match="orders"):
        skellam_rdp(orders, 1.0, 1.0, 1.0)
    with pytest.raises(ConfigurationError, match="orders"):
        discrete_gaussian_sum_rdp(orders, 1.0, 2, 1, 1.0, 1.0)
