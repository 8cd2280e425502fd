"""Metrics against naive loops; intervals against what bootstrapping must give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import ViewError
from attacks.metrics import SHARES, auc_gain, interval, pooled_auc, separation, user_auc, user_mean, user_weights


def naive_auc(scores, members):
    wins = [(a > b) + (a == b) / 2 for a in scores[members] for b in scores[~members]]
    return np.mean(wins) if wins else np.nan


@st.composite
def trials(draw):
    n_users, n_items = draw(st.integers(1, 5)), draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    scores = rng.integers(draw(st.integers(1, 6)), size=(n_users, n_items)).astype(np.float64)
    return scores, rng.random((n_users, n_items)) < 0.4, rng.random((n_users, n_items)) < 0.8


@given(trials())
@settings(max_examples=50, deadline=None)
def test_aucs_equal_naive_loops(trial):
    scores, members, candidates = trial
    expected = [naive_auc(s[c], m[c]) for s, m, c in zip(scores, members, candidates, strict=True)]
    found = user_auc(scores, members, candidates)
    assert found == pytest.approx(np.array(expected), nan_ok=True)
    usable = np.isfinite(expected)
    if usable.any():
        kept = candidates & usable[:, None]
        assert pooled_auc(scores, members, candidates) == pytest.approx(naive_auc(scores[kept], members[kept]))
        measured = separation(scores, members, candidates, resamples=5)
        assert measured.auc.value == pytest.approx(np.nanmean(expected))
        assert measured.n_users == usable.sum()
    else:
        with pytest.raises(ViewError, match="No user has both"):
            separation(scores, members, candidates)


def naive_rate(scores, members, target):
    best = 0.0
    for threshold in [*np.unique(scores), np.inf]:
        if (scores[~members] >= threshold).mean() <= target:
            best = max(best, (scores[members] >= threshold).mean())
    return best


def test_rates_and_advantage_equal_a_threshold_sweep():
    rng = np.random.default_rng(1)
    members = rng.random((12, 300)) < 0.2
    scores = np.round(rng.normal(size=members.shape) + 1.2 * members, 1)
    everything = np.ones_like(members)
    found = separation(scores, members, everything, resamples=20)
    for rate in found.tpr_at_fpr:
        if rate.tpr is None:
            assert found.n_nonmembers * rate.fpr < 10
            continue
        assert rate.tpr.value == pytest.approx(naive_rate(scores.ravel(), members.ravel(), rate.fpr))
        assert rate.false_positives <= rate.fpr * found.n_nonmembers
    assert [r.tpr is None for r in found.tpr_at_fpr] == [False, False, True]
    gaps = [(scores[members] >= t).mean() - (scores[~members] >= t).mean() for t in np.unique(scores)]
    assert found.advantage.value == pytest.approx(max(gaps))


def test_roc_is_short_monotone_and_spans_the_square():
    rng = np.random.default_rng(2)
    members = rng.random((20, 2000)) < 0.1
    found = separation(rng.normal(size=members.shape) + members, members, np.ones_like(members), resamples=2)
    assert len(found.roc.fpr) <= 200
    assert (np.diff(found.roc.fpr) > 0).all()
    assert (np.diff(found.roc.tpr) >= 0).all()
    assert (found.roc.fpr[0], found.roc.fpr[-1], found.roc.tpr[-1]) == (0, 1, 1)


def test_binned_bootstrap_agrees_with_resorting_every_resample():
    rng = np.random.default_rng(3)
    members = rng.random((25, 200)) < 0.2
    scores = rng.normal(size=members.shape) + members * rng.normal(1, 1, size=(25, 1))
    everything = np.ones_like(members)
    found = separation(scores, members, everything, resamples=100, seed=5)
    weights = user_weights(25, 100, 5).astype(int)
    pooled, gaps = [], []
    for weight in weights:
        chosen = np.repeat(np.arange(25), weight)
        again = separation(scores[chosen], members[chosen], everything[chosen], resamples=1)
        pooled.append(again.auc_pooled.value)
        gaps.append(again.advantage.value)
    for estimate, samples in ((found.auc_pooled, pooled), (found.advantage, gaps)):
        low, high = interval(estimate.value, np.array(samples), 25, SHARES)
        assert (estimate.lo, estimate.hi) == pytest.approx((float(low), float(high)), abs=2e-3)


def test_intervals_are_by_user_not_by_pair():
    rng = np.random.default_rng(4)
    members = rng.random((40, 500)) < 0.3
    strength = rng.normal(1, 1, size=(40, 1))
    scores = rng.normal(size=members.shape) + members * strength
    found = separation(scores, members, np.ones_like(members), resamples=500)
    per_user = user_auc(scores, members, np.ones_like(members))
    half_width = (found.auc.hi - found.auc.lo) / 2
    assert half_width == pytest.approx(1.96 * per_user.std() / np.sqrt(40), rel=0.15)


@pytest.mark.parametrize("users", [10, 20, 40, 200])
def test_an_interval_holds_the_truth_as_often_as_it_says(users):
    """Mean AUCs of users for whom an attack is no better than chance, or better by unequal amounts."""
    rng, runs = np.random.default_rng(users), 4000
    for truth, found in ((0.5, rng.normal(0.5, 0.1, (runs, users))), (0.8, rng.beta(8, 2, (runs, users)))):
        # Other resamples for some of the runs, as other seeds would have.
        means = np.concatenate(
            [user_weights(users, 200, seed) @ some.T / users for seed, some in enumerate(np.split(found, 40))], axis=1
        )
        low, high = interval(found.mean(1), means, users, SHARES)
        covered = np.mean((low <= truth) & (truth <= high))
        assert 0.94 < covered < 0.965, (users, truth, covered)


def test_of_a_single_user_nothing_is_known_but_the_bounds():
    low, high = interval(np.array([0.7]), np.full((200, 1), 0.7), 1, SHARES)
    assert (low[0], high[0]) == SHARES
    assert user_mean(np.array([0.7])).lo == 0.7


def test_seed_decides_the_interval():
    rng = np.random.default_rng(6)
    members = rng.random((10, 100)) < 0.3
    scores = rng.normal(size=members.shape)
    everything = np.ones_like(members)
    one, same, other = (separation(scores, members, everything, seed=s) for s in (1, 1, 2))
    assert one == same
    assert one.auc.value == other.auc.value
    assert one.auc.lo != other.auc.lo


@given(trials(), st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=50, deadline=None)
def test_aucs_are_invariant_to_increasing_maps_and_flip_with_the_sign(trial, slope, shift):
    scores, members, candidates = trial
    straight = user_auc(scores, members, candidates)
    assert user_auc(slope * scores + shift, members, candidates) == pytest.approx(straight, nan_ok=True)
    assert user_auc(-scores, members, candidates) == pytest.approx(1 - straight, nan_ok=True)


def test_gain_is_paired():
    rng = np.random.default_rng(7)
    baseline = rng.random(50)
    gain = auc_gain(baseline + 0.1, baseline)
    assert (gain.value, gain.lo, gain.hi) == pytest.approx((0.1, 0.1, 0.1))


def test_bad_scores_are_refused():
    members = np.array([[True, False]])
    with pytest.raises(ViewError, match="NaN or infinity"):
        separation(np.array([[np.nan, 1.0]]), members, np.ones_like(members))
    with pytest.raises(ViewError, match="Scores have shape"):
        separation(np.zeros((1, 3)), members, np.ones_like(members))
    with pytest.raises(ValueError, match="at least 1"):
        user_weights(0, 10, 0)


def test_the_band_of_a_curve_is_the_bootstrap_of_its_rates() -> None:
    rng = np.random.default_rng(5)
    members = rng.random((60, 80)) < 0.2
    scores = rng.normal(size=members.shape) + 0.8 * members * rng.random((60, 1))
    found = separation(scores, members, np.ones_like(members))
    fpr, tpr, low, high = (np.array(axis) for axis in (found.roc.fpr, found.roc.tpr, found.roc.lo, found.roc.hi))
    assert (low <= tpr + 1e-5).all()
    assert (tpr <= high + 1e-5).all()
    at = found.tpr_at_fpr[0]
    assert at.tpr is not None
    point = int(np.searchsorted(fpr, at.fpr * (1 + 1e-12), "right")) - 1
    assert (low[point], high[point]) == pytest.approx((at.tpr.lo, at.tpr.hi), abs=0.02)
    assert (high - low)[point] > 0.01
