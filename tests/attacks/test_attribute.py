"""Attribute inference: planted attributes are found, unplanted ones are not, and nothing leaks between folds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from attacks import Knowledge, ServerView, ViewError, _logistic
from attacks._logistic import fit_path
from attacks.attributes import (
    EvidenceError,
    Gram,
    activity,
    infer_attribute,
    inference,
    item_rows,
    popularity_blind,
    recovered_items,
    unit_rows,
    upload_gram,
)
from attacks.attributes.inference import cross_predict
from attacks.membership import RankOneSign

ONE = (0.1,)


def planted(rng, users=120, columns=30, classes=2, strength=1.0, share=None):
    labels = rng.choice(classes, users, p=share)
    centres = strength * rng.normal(size=(classes, columns))
    return rng.normal(size=(users, columns)) + centres[labels], labels


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("columns", [30, 300])
def test_a_planted_attribute_is_found(classes, columns):
    rows, labels = planted(np.random.default_rng(0), columns=columns, classes=classes)
    found = infer_attribute(rows, labels)
    assert found.auc.value > 0.95
    assert found.auc.lo <= found.auc.value <= found.auc.hi
    assert found.balanced_accuracy.value > 0.85
    assert (found.n_users, found.n_labelled, found.n_classes) == (120, 90, classes)
    assert found.majority == np.bincount(labels).max() / 120
    assert len(found.strengths) == 4


@pytest.mark.parametrize("columns", [2, 200])
def test_permuted_labels_are_chance_within_the_interval(columns):
    rng = np.random.default_rng(1)
    said = []
    for seed in range(30):
        rows, labels = planted(rng, users=80, columns=columns, share=[0.7, 0.3])
        said.append(infer_attribute(rows, rng.permutation(labels), strengths=ONE, seed=seed))
    assert np.mean([s.auc.value for s in said]) == pytest.approx(0.5, abs=0.05)
    assert np.mean([s.balanced_accuracy.value for s in said]) == pytest.approx(0.5, abs=0.05)
    assert sum(s.auc.lo <= 0.5 <= s.auc.hi for s in said) >= 27


def test_equal_seeds_give_equal_numbers():
    rows, labels = planted(np.random.default_rng(16), users=60, columns=5, strength=0.3)
    one, again, other = (infer_attribute(rows, labels, strengths=ONE, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one.auc.value != other.auc.value


def test_no_evidence_is_exactly_chance():
    labels = np.arange(40) % 2
    found = infer_attribute(np.zeros((40, 3)), labels)
    assert (found.auc.value, found.auc.lo, found.auc.hi) == (0.5, 0.5, 0.5)
    assert found.balanced_accuracy.value == 0.5


def test_products_and_columns_give_the_same_guesses():
    rows, labels = planted(np.random.default_rng(2), users=60, columns=20, classes=3)
    by_columns = cross_predict(rows, labels, strengths=ONE)
    by_products = cross_predict(Gram.from_columns([rows[:, :7], rows[:, 7:]]), labels, strengths=ONE)
    np.testing.assert_allclose(by_products.log_odds, by_columns.log_odds, atol=2e-3)
    np.testing.assert_array_equal(by_products.guesses, by_columns.guesses)
    wide = np.concatenate([rows, np.zeros((60, 500))], axis=1)
    np.testing.assert_allclose(cross_predict(wide, labels, strengths=ONE).log_odds, by_columns.log_odds, atol=2e-3)


def test_two_classes_are_plain_logistic_regression_with_half_the_penalty():
    rows, labels = planted(np.random.default_rng(3), users=50, columns=4)
    fitted = fit_path(rows, labels, [0.3])[0]
    x = (rows - rows.mean(0)) / np.sqrt(np.square(rows - rows.mean(0)).sum(1).mean())
    sign = 2.0 * labels - 1

    def loss(p):
        return np.logaddexp(0, -sign * (x @ p[:-1] + p[-1])).mean() + 0.3 / 4 * np.square(p[:-1]).sum()

    naive = minimize(loss, np.zeros(5), tol=1e-10).x
    np.testing.assert_allclose(fitted.log_odds(rows)[:, 1], x @ naive[:-1] + naive[-1], atol=1e-3)
    np.testing.assert_allclose(fitted.log_odds(rows)[:, 0], -fitted.log_odds(rows)[:, 1])


def test_log_odds_and_guesses_follow_from_probabilities():
    rows, labels = planted(np.random.default_rng(4), users=60, columns=5, classes=3, share=[0.6, 0.3, 0.1])
    fitted = fit_path(rows, labels, [1.0, 0.01])[-1]
    p = np.exp(fitted.log_probabilities(rows))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(fitted.log_odds(rows), np.log(p / (1 - p)), rtol=1e-6)
    np.testing.assert_array_equal(fitted.guesses(rows), (p / (np.bincount(labels) / 60)).argmax(axis=1))


def test_the_path_ends_where_a_single_fit_ends():
    rows, labels = planted(np.random.default_rng(5), users=60, columns=5)
    one, many = fit_path(rows, labels, [0.01])[0], fit_path(rows, labels, [1.0, 0.1, 0.01])[-1]
    np.testing.assert_allclose(many.log_odds(rows), one.log_odds(rows), atol=5e-3)


def test_a_scale_common_to_all_changes_nothing():
    rows, labels = planted(np.random.default_rng(6))
    one, other = infer_attribute(rows, labels), infer_attribute(1e4 * rows + 3, labels)
    assert (one.auc.value, one.strengths) == (pytest.approx(other.auc.value, abs=1e-3), other.strengths)


def test_classifiers_see_no_user_of_the_fold_they_guess(monkeypatch):
    rows, labels = planted(np.random.default_rng(7), users=60)
    rows[:, 0] = np.arange(60)
    seen = []

    def watched(fitted_rows, *args):
        seen.append(set(fitted_rows[:, 0].astype(int)))
        return _logistic.fit_path(fitted_rows, *args)

    monkeypatch.setattr(inference, "fit_path", watched)
    guessed = cross_predict(rows, labels)
    fits = inference.INNER_FOLDS + 1
    assert len(seen) == 4 * fits
    for number in range(4):
        of_fold = set(np.flatnonzero(guessed.fold == number))
        assert of_fold
        for fitted in seen[number * fits : (number + 1) * fits]:
            assert fitted
            assert not fitted & of_fold
        assert seen[number * fits + fits - 1] == set(range(60)) - of_fold


def test_one_user_changes_no_guess_about_others_of_its_fold():
    rows, labels = planted(np.random.default_rng(8), users=60)
    before = cross_predict(rows, labels)
    changed = rows.copy()
    changed[0] = 1e6
    after = cross_predict(changed, labels)
    beside = (before.fold == before.fold[0]) & (np.arange(60) > 0)
    np.testing.assert_array_equal(after.fold, before.fold)
    np.testing.assert_array_equal(after.log_odds[beside], before.log_odds[beside])
    assert not np.array_equal(after.log_odds[~beside], before.log_odds[~beside])


def test_folds_hold_every_class_alike():
    rng = np.random.default_rng(9)
    labels = rng.choice(3, 101, p=[0.7, 0.2, 0.1])
    fold = cross_predict(rng.normal(size=(101, 2)), labels, strengths=ONE).fold
    sizes = np.array([[np.sum((fold == f) & (labels == k)) for k in range(3)] for f in range(4)])
    assert (np.ptp(sizes, axis=0) <= 1).all()
    assert np.ptp(sizes.sum(axis=1)) <= 1


def test_a_rare_class_is_found_and_the_majority_earns_nothing():
    rng = np.random.default_rng(10)
    rows, labels = planted(rng, users=300, columns=10, share=[0.94, 0.06], strength=1.5)
    found = infer_attribute(rows, labels)
    assert found.majority > 0.9
    assert found.balanced_accuracy.value > 0.85
    blind = infer_attribute(rng.normal(size=(300, 10)), labels)
    assert blind.balanced_accuracy.value < 0.7


def test_fewer_labelled_users_learn_less():
    rows, labels = planted(np.random.default_rng(11), users=400, columns=40, strength=0.15)
    few, many = (infer_attribute(rows, labels, labelled=share) for share in (0.05, None))
    assert few.n_labelled == pytest.approx(20, abs=2)
    assert many.n_labelled == 300
    assert few.auc.value < many.auc.value - 0.03
    assert infer_attribute(rows, labels, labelled=1.0).auc == many.auc


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 25))
def test_auc_counts_pairs_of_one_fold(seed, users):
    rng = np.random.default_rng(seed)
    score, fold = rng.integers(0, 4, users) / 2, rng.integers(0, 3, users)
    member, weights = rng.random(users) < 0.4, rng.integers(0, 3, (2, users)).astype(float)
    wins, pairs = np.zeros(2), np.zeros(2)
    for u in range(users):
        for v in range(users):
            if member[u] and not member[v] and fold[u] == fold[v]:
                both = weights[:, u] * weights[:, v]
                pairs += both
                wins += both * ((score[u] > score[v]) + 0.5 * (score[u] == score[v]))
    expected = [w / p if p else np.nan for w, p in zip(wins, pairs, strict=True)]
    np.testing.assert_allclose(inference._auc_of(score, member, fold, weights), expected)


@pytest.mark.parametrize(
    ("rows", "labels", "options", "message"),
    [
        (np.ones((12, 2)), np.zeros(12, int), {}, "same label"),
        (np.ones((12, 2)), np.arange(12) // 10, {}, "smallest of 2 classes has 2 users, and 4 are needed"),
        (np.ones((12, 2)), np.arange(11) % 2, {}, "11 labels for 12 users"),
        (np.ones((12, 2)), np.arange(12) % 2 - 1, {}, "0 or more"),
        (np.ones((12, 2)), np.arange(12) % 2 / 1, {}, "whole number"),
        (np.full((12, 2), np.nan), np.arange(12) % 2, {}, "finite"),
        (np.ones(12), np.arange(12) % 2, {}, "columns"),
        (np.ones((12, 0)), np.arange(12) % 2, {}, "empty"),
        (np.ones((12, 2)), np.arange(12) % 2, {"folds": 1}, "2 folds or more"),
        (np.ones((12, 2)), np.arange(12) % 2, {"labelled": 0.0}, "above 0"),
        (np.ones((12, 2)), np.arange(12) % 2, {"labelled": 0.2}, "15 are needed"),
    ],
)
def test_what_cannot_be_learnt_or_tested_is_refused_in_one_sentence(rows, labels, options, message):
    with pytest.raises(EvidenceError, match=message) as caught:
        infer_attribute(rows, labels, **options)
    assert str(caught.value).count(". ") == 0


def test_the_smallest_classes_that_are_allowed_work():
    for folds, least in ((2, 6), (4, 4), (5, 5)):
        labels = np.repeat([0, 1], [least, 20])
        rows = np.random.default_rng(0).normal(size=(len(labels), 3))
        assert infer_attribute(rows, labels, folds=folds).n_users == len(labels)


def naive_gram(view, share):
    rows = view.uploads if view.proximal is None else view.uploads - share * view.proximal
    flat = [rows.reshape(view.n_users, -1)]
    flat += [block.reshape(view.n_users, -1) for block in (view.inputs, view.bias) if block is not None]
    whole = np.concatenate(flat, axis=1).astype(np.float64)
    return whole @ whole.T


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_products_of_uploads_are_those_of_their_columns(chunk, monkeypatch):
    monkeypatch.setattr("attacks.attributes.gram.COLUMNS_PER_CHUNK", chunk)
    rng = np.random.default_rng(12)
    shapes = {"uploads": (5, 30, 4), "inputs": (5, 30, 3), "bias": (5, 30)}
    blocks = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    np.testing.assert_allclose(
        upload_gram(ServerView(0, **blocks)).products, naive_gram(ServerView(0, **blocks), 0), rtol=1e-4, atol=1e-4
    )
    proximal = rng.normal(size=shapes["uploads"]).astype(np.float32)
    sparse = blocks["uploads"] * (np.arange(30) < 10)[:, None]
    view = ServerView(0, sparse + np.float32(0.3) * proximal, proximal=proximal)
    np.testing.assert_allclose(upload_gram(view).products, naive_gram(view, 0.3), rtol=1e-3, atol=1e-3)


def test_gram_refuses_what_it_cannot_use():
    with pytest.raises(ViewError, match="same users"):
        Gram.from_columns([np.ones((3, 2)), np.ones((4, 2))])
    with pytest.raises(ViewError, match="no columns"):
        Gram.from_columns([])
    with pytest.raises(ViewError, match="finite"):
        Gram.from_columns([np.full((3, 2), np.inf)])
    with pytest.raises(ViewError, match="users, users"):
        Gram(np.ones((3, 2)))


def test_unit_rows_and_unit_products_are_the_same():
    rows = np.random.default_rng(13).normal(size=(6, 9))
    rows[2] = 0
    unit = Gram.from_columns([rows]).unit()
    np.testing.assert_allclose(unit.products, Gram.from_columns([unit_rows(rows)]).products, atol=1e-12)
    coordinates = unit.coordinates()
    np.testing.assert_allclose(coordinates @ coordinates.T, unit.products, atol=1e-12)
    assert np.diag(unit.products)[2] == 0


def test_what_a_sign_attack_recovers_tells_as_much_as_the_items_do(sim):
    rng = np.random.default_rng(14)
    users, items = 160, 300
    labels = np.arange(users) % 2
    taste = np.where((np.arange(items) % 5 == 0)[None, :] & (labels == 1)[:, None], 3.0, 1.0)
    appeal = np.log(sim.popularity_weights(items)) + np.log(taste) + rng.gumbel(size=(users, items))
    members = appeal >= np.sort(appeal, axis=1)[:, -30][:, None]
    view = ServerView(0, sim.uploads(rng, members, shared_head=False))
    scores = RankOneSign().score(view, Knowledge(members.sum(0).astype(np.float64)))
    true = infer_attribute(item_rows(members), labels).auc.value
    assert true > 0.8
    assert infer_attribute(recovered_items(scores), labels).auc.value == pytest.approx(true, abs=0.02)
    assert infer_attribute(activity(members.sum(1)), labels).auc.value < 0.65
    assert infer_attribute(upload_gram(view).unit(), labels).auc.value < true


def test_recovered_items_grade_above_zero_or_take_the_top():
    scores = np.array([[-3.0, -1, 0, 0, 0, 1, 9], [0, 0, 0, 0, 0, 0, 0]])
    graded = recovered_items(scores)
    assert (graded[0, :5] == 0).all()
    assert 0 < graded[0, 5] < graded[0, 6]
    assert np.linalg.norm(graded[0]) == pytest.approx(1)
    assert (graded[1] == 0).all()
    np.testing.assert_allclose(recovered_items(scores[:1], top=2)[0], [0, 0, 0, 0, 0, 2**-0.5, 2**-0.5])
    with pytest.raises(ViewError, match="top is 8"):
        recovered_items(scores, top=8)


def test_popularity_blind_rows_know_neither_activity_nor_popularity():
    rng = np.random.default_rng(15)
    popularity = rng.integers(0, 50, 40)
    members = rng.random((6, 40)) < 0.3
    left = popularity_blind(item_rows(members), popularity)
    np.testing.assert_allclose(left.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(left @ np.log1p(popularity), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), 1)
    with pytest.raises(ViewError, match="one count or share per item"):
        popularity_blind(item_rows(members), popularity[:-1])


def test_activity_is_one_column():
    np.testing.assert_allclose(activity(np.array([0, 1, 9])), np.log([[1], [2], [10]]))
