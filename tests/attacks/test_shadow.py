"""RMIA and LiRA on scores whose distribution is known, so that the best possible attack is known too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm

from attacks import Knowledge, Targets, ViewError, measure
from attacks.metrics import user_auc
from attacks.shadow import MANY_SHADOW_ATTACKS, SHADOW_ATTACKS, Lira, Rmia, observe_shadows
from attacks.shadow.attack import shadow_moments
from attacks.shadow.rmia import A_GRID, A_ONE_SHADOW, count_at_most, fit_offline_a
from attacks.views import ShadowView

GAP, SPREAD = 1.0, 0.7


def planted(worlds, seed=0, users=60, items=400, put=80, gap=GAP, output="sigmoid"):
    """phi = what the pair scores anyway + gap if trained on + noise; an inclusion bit per interaction and world."""
    rng = np.random.default_rng(seed)
    taste = 2 * rng.normal(size=(users, items))
    asked = rng.permuted(np.broadcast_to(np.arange(items) < put, (users, items)), axis=1)

    def one():
        trained = asked & (rng.random((users, items)) < 0.5)
        return (taste + gap * trained + SPREAD * rng.normal(size=taste.shape)).astype(np.float32), trained

    target, kept = one()
    shadows, trained = (np.stack(part) for part in zip(*(one() for _ in range(worlds)), strict=True))
    return ShadowView(target, shadows, trained, output), Targets.randomised_inclusion(kept, asked & ~kept)


def auc(attack, view, targets):
    return user_auc(attack.score(view), targets.members, targets.candidates).mean()


def best(worlds=np.inf):
    """AUC of the likelihood ratio where the mean without is known from half of so many worlds."""
    return norm.cdf(GAP / SPREAD / np.sqrt(2 * (1 + 2 / worlds)))


def test_lira_comes_to_what_the_normal_laws_allow():
    view, targets = planted(32)
    for mode in ("offline", "online"):
        assert auc(Lira(mode), view, targets) == pytest.approx(best(32), abs=0.015)
    assert auc(Lira("online"), view, targets) < best() + 0.015


def test_rmia_makes_do_with_four_shadows_and_a_threshold_with_none():
    view, targets = planted(4)
    knowledge = Knowledge(np.zeros(view.n_items))
    rows = {row.attack: row for row in measure(observe_shadows(view, knowledge, SHADOW_ATTACKS), knowledge, targets)}
    assert list(rows) == ["popularity", "score threshold", "RMIA"]
    assert rows["RMIA"].membership == "randomised"
    assert rows["score threshold"].auc.value == pytest.approx(norm.cdf(GAP / np.sqrt(2 * (4 + SPREAD**2))), abs=0.03)
    assert rows["RMIA"].auc.lo > rows["score threshold"].auc.hi
    assert auc(Rmia("online"), view, targets) > 0.75


def test_a_is_found_on_the_shadows_and_not_on_the_target():
    """1 or nearly where training moves log-odds a little; 0 where it brings all probabilities to 1."""
    view, targets = planted(6)
    worlds = shadow_moments(view, probabilities=True)
    assert fit_offline_a(view, worlds) >= 0.8
    tried = {a: auc(Rmia(a=a), view, targets) for a in A_GRID}
    assert auc(Rmia(), view, targets) > max(tried.values()) - 0.02
    assert tried[0.0] + 0.03 < max(tried.values()) < best(6) + 0.015
    blind = ShadowView(np.zeros_like(view.target), view.shadows, view.trained, view.output)
    assert fit_offline_a(blind, worlds) == fit_offline_a(view, worlds)
    far, asked = planted(6, gap=30.0)
    saturated = ShadowView(far.target, far.shadows, far.trained, "sigmoid")
    assert auc(Rmia(), saturated, asked) > 0.98
    alone, _ = planted(1)
    assert fit_offline_a(alone, shadow_moments(alone, probabilities=True)) == A_ONE_SHADOW


def test_nothing_planted_gives_chance():
    view, targets = planted(8, gap=0.0)
    for attack in SHADOW_ATTACKS + MANY_SHADOW_ATTACKS:
        assert auc(attack, view, targets) == pytest.approx(0.5, abs=0.03)


def test_lira_by_hand():
    view, _ = planted(8, users=5, items=30, put=20)
    phi, trained = view.shadows.astype(float), view.trained

    def spread(side):
        squares = freedom = 0.0
        for u in range(5):
            for i in range(30):
                if trained[:, u, i].all() or not trained[:, u, i].any():
                    continue
                values = phi[side[:, u, i], u, i]
                squares += ((values - values.mean()) ** 2).sum()
                freedom += len(values) - 1
        return squares / freedom

    v_in, v_out = spread(trained), spread(~trained)
    gaps = [
        phi[trained[:, u, i], u, i].mean() - phi[~trained[:, u, i], u, i].mean()
        for u in range(5)
        for i in range(30)
        if trained[:, u, i].any() and not trained[:, u, i].all()
    ]
    online, offline = Lira("online").score(view), Lira("offline").score(view)
    for u in range(5):
        for i in range(30):
            inside, outside = phi[trained[:, u, i], u, i], phi[~trained[:, u, i], u, i]
            mu_out = outside.mean() if len(outside) else inside.mean() - np.mean(gaps)
            mu_in = inside.mean() if len(inside) else mu_out + np.mean(gaps)
            x = float(view.target[u, i])
            assert offline[u, i] == pytest.approx((x - mu_out) / np.sqrt(v_out), abs=1e-4)
            ratio = norm.logpdf(x, mu_in, np.sqrt(v_in)) - norm.logpdf(x, mu_out, np.sqrt(v_out))
            assert online[u, i] == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize("gamma", [1.0, 1.5])
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_rmia_by_hand(mode, gamma):
    view, _ = planted(4, users=3, items=25, put=15, output="softmax")
    wide = view.shadows.astype(float)
    odds = np.exp(wide) / np.exp(wide).mean(axis=2, keepdims=True)
    p, trained = odds / (1 + odds), view.trained
    own = np.exp(view.target.astype(float))
    own = own / own.mean(axis=1, keepdims=True)
    target = own / (1 + own)
    both = trained.any(axis=0) & ~trained.all(axis=0)
    means = [np.ma.masked_array(p, ~side).mean(axis=0) for side in (trained, ~trained)]
    gap = (logit(means[0]) - logit(means[1]))[both].mean()
    scores = Rmia(mode, 0.3, gamma).score(view)
    for u in range(3):
        ratio = np.empty(25)
        for i in range(25):
            p_out = means[1][u, i] if not trained[:, u, i].all() else expit(logit(means[0][u, i]) - gap)
            p_in = means[0][u, i] if trained[:, u, i].any() else expit(logit(means[1][u, i]) + gap)
            ratio[i] = target[u, i] / ((1.3 * p_out + 0.7) / 2 if mode == "offline" else (p_in + p_out) / 2)
        for i in range(25):
            others = np.delete(ratio, i)
            assert scores[u, i] == pytest.approx((ratio[i] / others >= gamma).mean(), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_counting_is_counting(width, seed):
    rng = np.random.default_rng(seed)
    values, limits = rng.integers(0, 4, (2, 3, width)).astype(float)
    expected = [[(v <= limit).sum() for limit in row] for v, row in zip(values, limits, strict=True)]
    assert (count_at_most(values, limits) == expected).all()


def test_what_must_not_matter_does_not():
    """A constant of the user's own under softmax; the scale under LiRA; the order of worlds, users and items."""
    view, _ = planted(6, users=12, items=60, put=30, output="softmax")
    rng = np.random.default_rng(1)
    for attack in SHADOW_ATTACKS + MANY_SHADOW_ATTACKS:
        base = attack.score(view)
        shift = rng.normal(size=(7, 12, 1)).astype(np.float32)
        shifted = ShadowView(view.target + shift[0], view.shadows + shift[1:], view.trained, "softmax")
        assert attack.score(shifted) == pytest.approx(base, abs=0.06)
        worlds, users, items = (rng.permutation(n) for n in (6, 12, 60))
        moved = ShadowView(
            view.target[users][:, items],
            view.shadows[worlds][:, users][:, :, items],
            view.trained[worlds][:, users][:, :, items],
            "softmax",
        )
        assert attack.score(moved) == pytest.approx(base[users][:, items], abs=1e-3)
    logits = ShadowView(view.target, view.shadows, view.trained, "sigmoid")
    scaled = ShadowView(3 * view.target, 3 * view.shadows, view.trained, "sigmoid")
    for attack in (Lira("offline"), Lira("online")):
        assert attack.score(scaled) == pytest.approx(attack.score(logits), rel=1e-3, abs=1e-3)


def test_one_shadow_is_enough_to_run():
    view, targets = planted(1)
    for attack in SHADOW_ATTACKS + MANY_SHADOW_ATTACKS:
        scores = attack.score(view)
        assert np.isfinite(scores).all()
        if attack != Lira("online"):
            assert auc(attack, view, targets) > 0.55


def test_scores_of_any_size_stay_finite():
    view, _ = planted(3, users=4, items=20, put=10)
    for factor in (0.0, 1e3, 1e6):
        for output in ("softmax", "sigmoid"):
            large = ShadowView(
                (factor * view.target).astype(np.float32),
                (factor * view.shadows).astype(np.float32),
                view.trained,
                output,
            )
            for attack in SHADOW_ATTACKS + MANY_SHADOW_ATTACKS:
                assert np.isfinite(attack.score(large)).all()


def test_declarations_and_refusals():
    for attack in SHADOW_ATTACKS + MANY_SHADOW_ATTACKS:
        assert all((attack.name, attack.observable, attack.adversary, attack.knowledge, attack.unit, attack.cost))
        assert attack.explains.count(". ") == 0
    view, _ = planted(2, users=3, items=9, put=4)
    for target, shadows, trained in (
        (view.target[:2], view.shadows, view.trained),
        (view.target.astype(float), view.shadows, view.trained),
        (view.target, view.shadows[:0], view.trained[:0]),
    ):
        with pytest.raises(ViewError, match="ShadowView got target"):
            ShadowView(target, shadows, trained)
    with pytest.raises(ViewError, match="'rank'"):
        ShadowView(view.target, view.shadows, view.trained, "rank")
    with pytest.raises(ViewError, match="NaN or infinity"):
        ShadowView(np.full_like(view.target, np.nan), view.shadows, view.trained)
    for wrong in (lambda: Lira("both"), lambda: Rmia("both"), lambda: Rmia(a=2.0), lambda: Rmia(gamma=0.5)):
        with pytest.raises(ValueError, match="got"):
            wrong()
