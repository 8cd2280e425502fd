"""The estimator behind `private-gram` is its formulas written out, and finds what was planted under noise."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data.item_features import ItemFeatures, item_features
from privfed.methods.private_gram.model.choosing import ThinnedCopies, choose, predicted_risk
from privfed.methods.private_gram.model.content import Content
from privfed.methods.private_gram.model.estimate import EstimatorSettings, NoisyGram
from privfed.methods.private_gram.model.spiked import Prior, Spikes

quick = settings(max_examples=50, deadline=None)
USERS = 500


def wigner(side, deviation, rng):
    noise = np.triu(rng.normal(size=(side, side)) * deviation, 1)
    return noise + noise.T + np.diag(rng.normal(size=side) * deviation * math.sqrt(2))


def problem(seed, side=30, deviation=1.5, diagonal=True):
    """A noisy Gram matrix of unit vectors, popularity, and features of its items."""
    rng = np.random.default_rng(seed)
    units = rng.normal(size=(USERS, 3)) @ rng.normal(size=(3, side)) + rng.normal(size=(USERS, side))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    gram = units.T @ units + wigner(side, deviation / math.sqrt(2), rng)
    if not diagonal:
        np.fill_diagonal(gram, 0)
    flags = (rng.random((side, 4)) < 0.5).astype(np.float64)
    features = ItemFeatures(flags, rng.integers(1950, 2000, side).astype(np.float64))
    return gram, np.sort(rng.random(side))[::-1] + 0.01, features


def naive_kernels(features, scale):
    side = len(features.years)
    genres, years = np.zeros((side, side)), np.zeros((side, side))
    for i in range(side):
        for j in range(side):
            a, b = features.genres[i], features.genres[j]
            lengths = math.sqrt(a @ a) * math.sqrt(b @ b)
            genres[i, j] = a @ b / lengths if lengths else 0
            years[i, j] = math.exp(-((features.years[i] - features.years[j]) ** 2) / (2 * scale**2))
    return genres, years


def naive_weights(gram, popularity, features, *, n, sigma, diagonal, rho, rank, threshold, scale=6.0):
    """The design note's steps 3 to 5, one after the other, in plain numpy."""
    side, tau = len(gram), sigma / math.sqrt(2)
    explained, prior = np.zeros((side, side)), np.eye(side)
    if features is not None:
        genres, years = naive_kernels(features, scale)
        trend = np.log(popularity)
        trend = (trend - trend.mean()) / trend.std()
        basis = [genres * years, genres, years, np.ones((side, side)), np.outer(trend, trend)]
        pairs = [(i, j) for i in range(side) for j in range(i + 1, side)]
        table = np.array([[b[i, j] for b in basis] for i, j in pairs])
        found = np.linalg.lstsq(table, np.array([gram[i, j] / n for i, j in pairs]), rcond=None)[0]
        explained = sum(max(c, 0) * b for c, b in zip(found[:3], basis, strict=False))
        prior = (1 - rho) * np.eye(side) + rho * (2 * genres * years + genres + years) / 4
    left = gram - n * explained
    if not diagonal:
        np.fill_diagonal(left, 0)
    values, vectors = np.linalg.eigh(left)
    bulk = max(0, np.trace(left) / side) if diagonal else 0
    covariance = explained.copy()
    for d in np.argsort(-values)[:rank]:
        if values[d] <= 2 * tau * math.sqrt(side):
            continue
        theta = (values[d] + math.sqrt(values[d] ** 2 - 4 * tau**2 * side)) / 2
        s = 1 - tau**2 * side / theta**2
        v = s * prior @ np.linalg.inv(s * prior + (1 - s) * np.eye(side)) @ vectors[:, d] / math.sqrt(s)
        covariance += max(theta - bulk, 0) / n * np.outer(v, v)
    weights = covariance @ np.linalg.inv(covariance + np.eye(side) / side)
    if threshold is not None:
        rest = gram - n * covariance
        least = threshold * tau * math.sqrt(2 * math.log(side**2 / 2))
        for i in range(side):
            for j in range(side):
                r = max(rest[i, j] - least, 0) if i != j else 0
                weights[i, j] += r / (r + n / side)
    if not diagonal:
        np.fill_diagonal(weights, 0)
    return weights


@pytest.mark.parametrize("sigma", [0.0, 1.5])
@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("rank", [0, 2, 64])
def test_weights_are_the_formulas(sigma, content, diagonal, rank):
    gram, popularity, features = problem(1, deviation=sigma, diagonal=diagonal)
    rho, threshold = (0.6 if content else 0.0), (None if diagonal else 0.6)
    kernels = Content.from_features(features, np.arange(30), 6.0) if content else None
    evidence = NoisyGram(gram, popularity, USERS, sigma, kernels, diagonal)
    wanted = naive_weights(
        gram, popularity, features if content else None,
        n=USERS, sigma=sigma, diagonal=diagonal, rho=rho, rank=rank, threshold=threshold,
    )  # fmt: skip
    np.testing.assert_allclose(
        evidence.weights(EstimatorSettings(content, rho, rank, threshold=threshold)), wanted, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("content", [True, False])
def test_what_lies_below_the_noise_adds_in_proportion_to_its_eigenvalues(content, diagonal):
    gram, popularity, features = problem(2, diagonal=diagonal)
    kernels = Content.from_features(features, np.arange(30), 6.0) if content else None
    evidence, without = NoisyGram(gram, popularity, USERS, 1.5, kernels, diagonal), EstimatorSettings(content)
    values, vectors = np.linalg.eigh(evidence._seen(without).matrix)
    edge, wanted = 2 * 1.5 / math.sqrt(2) * math.sqrt(30), evidence.weights(without)
    assert 0 < (values > edge).sum() < 30
    for value, vector in zip(values, vectors.T, strict=True):
        wanted += 0.2 * value / edge * np.outer(vector, vector) * (value <= edge)
    found, others = evidence.weights(replace(without, below=0.2)), ~np.eye(30, dtype=bool)
    np.testing.assert_allclose(found[others], wanted[others], atol=1e-9)
    np.testing.assert_array_equal(np.diag(found), np.diag(evidence.weights(without)))


def test_nothing_lies_below_where_there_is_no_noise():
    gram, popularity, _ = problem(2, deviation=0.0)
    evidence = NoisyGram(gram, popularity, USERS, 0.0)
    both = (evidence.weights(EstimatorSettings(content=False, below=below)) for below in (0.0, 0.2))
    np.testing.assert_array_equal(*both)


def test_what_lies_below_the_noise_is_used_where_there_are_many_weak_directions_and_not_where_there_are_none():
    rng, side = np.random.default_rng(14), 150
    basis = np.linalg.qr(rng.normal(size=(side, side)))[0]
    one = np.zeros(side)
    one[0] = 100.0
    # Thirty directions, none as strong as would stand out, or none beside a strong one.
    for strengths, used in ((one + 11.0 * (np.arange(side) < 30), True), (one, False)):
        gram = (basis * (strengths + 10)) @ basis.T
        evidence = NoisyGram(gram + wigner(side, 1.0, rng), np.ones(side), 3000.0, math.sqrt(2))
        found = choose(
            ThinnedCopies.from_evidence(evidence, wigner(side, 1.0, rng)), EstimatorSettings(content=False), pairs=None
        )
        assert (found.settings.below > 0) == used


@quick
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_weights_are_symmetric_and_predict_no_more_than_was_seen(seed, sigma):
    gram, popularity, features = problem(seed, side=12, deviation=sigma)
    kernels = Content.from_features(features, np.arange(12), 6.0)
    weights = NoisyGram(gram, popularity, USERS, sigma, kernels).weights(EstimatorSettings(smoothing=0.6))
    np.testing.assert_allclose(weights, weights.T, atol=1e-9)
    values = np.linalg.eigvalsh(weights)
    assert values.min() > -1e-9
    assert values.max() < 1


def test_spikes_recover_strength_and_angle_of_what_was_planted():
    rng, side, deviation, strength = np.random.default_rng(3), 1000, 0.7, 60.0
    true = rng.normal(size=side)
    true /= np.linalg.norm(true)
    seen = strength * np.outer(true, true) + wigner(side, deviation, rng)
    spikes = Spikes.from_matrix(seen, deviation, 64)
    assert len(spikes.strengths) <= 3
    assert spikes.strengths[0] == pytest.approx(strength, rel=0.06)
    assert (spikes.directions[:, 0] @ true) ** 2 == pytest.approx(spikes.trust[0], abs=0.02)


def test_noise_alone_has_hardly_a_spike():
    rng = np.random.default_rng(4)
    assert sum(len(Spikes.from_matrix(wigner(400, 1.0, rng), 1.0, 64).strengths) for _ in range(5)) <= 3


def test_smoothing_brings_a_direction_nearer_to_a_smooth_one():
    rng, side = np.random.default_rng(5), 400
    years = rng.uniform(1950, 2000, side)
    kernel = 0.4 * np.eye(side) + 0.6 * Content.from_features(ItemFeatures(None, years), np.arange(side), 6.0).mean
    true = np.sin(years / 5)
    true /= np.linalg.norm(true)
    spikes = Spikes.from_matrix(30 * np.outer(true, true) + wigner(side, 1.0, rng), 1.0, 1)

    def cosine(directions):
        return abs(directions[:, 0] @ true) / np.linalg.norm(directions[:, 0])

    assert cosine(spikes.smoothed(Prior.from_kernel(kernel))) > cosine(spikes.smoothed(None)) + 0.02


def test_without_noise_there_is_nothing_to_smooth():
    rng = np.random.default_rng(6)
    root = rng.normal(size=(9, 3))
    spikes = Spikes.from_matrix(root @ root.T, 0.0, 3)
    assert spikes.trust.tolist() == [1, 1, 1]
    kernel = np.exp(-np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))))
    np.testing.assert_allclose(spikes.smoothed(Prior.from_kernel(kernel)), spikes.directions, atol=1e-9)


@pytest.mark.parametrize("content", [True, False])
def test_what_is_kept_of_the_head_is_the_estimate_of_that_part_alone(content):
    gram, popularity, features = problem(2)
    kernels = Content.from_features(features, np.arange(30), 6.0) if content else None
    recipe = EstimatorSettings(content, 0.6 if content else 0.0)
    weights = NoisyGram(gram, popularity, USERS, 1.5, kernels).weights(replace(recipe, kept=0.5))
    assert not weights[15:].any()
    assert not weights[:, 15:].any()
    part = NoisyGram(gram[:15, :15], popularity[:15], USERS, 1.5, None if kernels is None else kernels.first(15))
    covariance = np.linalg.inv(np.eye(15) - part.weights(recipe)) / 15 - np.eye(15) / 15
    wanted = covariance @ np.linalg.inv(covariance + np.eye(15) / 30)
    np.testing.assert_allclose(weights[:15, :15], wanted, atol=1e-8)


def test_items_on_the_head_get_by_content_what_they_get_as_if_outside():
    """An item outside that is described like one inside is predicted as that one is, but for what noise left of it."""
    gram, popularity, features = problem(3, deviation=0.0)
    kernels = Content.from_features(features, np.arange(30), 6.0)
    evidence, recipe = NoisyGram(gram, popularity, USERS, 0.0, kernels), EstimatorSettings(smoothing=0.6, rank=0)
    np.testing.assert_allclose(evidence.reaching(recipe, kernels), evidence.weights(recipe), atol=1e-9)
    assert not evidence.reaching(replace(recipe, content=False), kernels).any()


def test_directions_are_carried_on_to_items_outside():
    rng, side = np.random.default_rng(5), 400
    years = np.sort(rng.uniform(1950, 2000, side))
    inside, outside = np.arange(0, side, 2), np.arange(1, side, 2)
    features = ItemFeatures(None, years)
    true = np.sin(years / 5)
    seen = 30 * np.outer(true[inside], true[inside]) / np.sum(true[inside] ** 2) + wigner(200, 1.0, rng)
    prior = Prior.from_kernel(Content.from_features(features, inside, 6.0).mean).mixed(0.6)
    across = 0.6 * Content.between(features, outside, inside, 6.0).mean
    carried = Spikes.from_matrix(seen, 1.0, 1).carried(across, prior)[:, 0]
    assert abs(carried @ true[outside]) / np.linalg.norm(carried) / np.linalg.norm(true[outside]) > 0.95


def test_the_predicted_risk_is_that_of_predicting_every_entry_from_the_others():
    rng = np.random.default_rng(8)
    vectors, weights = rng.normal(size=(50, 6)), rng.normal(size=(6, 6))
    off = weights - np.diag(np.diag(weights))
    wanted = sum(np.sum((u - off @ u) ** 2) - np.sum(u**2) for u in vectors)
    assert predicted_risk(weights, vectors.T @ vectors) == pytest.approx(wanted)


def test_two_halves_of_a_release_are_independent_and_the_judge_is_unbiased():
    """Over draws of both noises, the halves' noises do not go together, and the judged risk is the true one."""
    rng = np.random.default_rng(9)
    gram, popularity, _ = problem(4, deviation=0.0)
    judged, true, products = [], [], []
    for _ in range(400):
        release, fresh = wigner(30, 1.0, rng), wigner(30, 1.0, rng)
        weights = NoisyGram(gram + release + fresh, popularity, USERS, 2.0).weights(EstimatorSettings(content=False))
        judged.append(predicted_risk(weights, gram + release - fresh))
        true.append(predicted_risk(weights, gram))
        products.append(np.vdot(np.triu(release + fresh, 1), np.triu(release - fresh, 1)) / 435)
    differences = np.subtract(judged, true)
    assert abs(differences.mean()) < 4 * differences.std() / math.sqrt(400)
    assert abs(np.mean(products)) < 4 * np.std(products) / math.sqrt(400)


def planted(described, side=120, deviation=0.7):
    """A Gram matrix that content explains wholly, or not at all."""
    rng = np.random.default_rng(11)
    features = ItemFeatures((rng.random((side, 4)) < 0.4).astype(np.float64), rng.integers(1950, 2000, side) * 1.0)
    kernels = Content.from_features(features, np.arange(side), 6.0)
    root = np.linalg.cholesky(kernels.mean + 1e-9 * np.eye(side)) if described else rng.normal(size=(side, 3))
    units = rng.normal(size=(2000, root.shape[1])) @ root.T + rng.normal(size=(2000, side)) * 0.5
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    gram = units.T @ units + wigner(side, deviation, rng)
    return NoisyGram(gram, np.sort(rng.random(side))[::-1] + 0.1, 2000, deviation * math.sqrt(2), kernels)


def test_content_is_chosen_where_it_explains_and_left_where_it_does_not():
    rng = np.random.default_rng(12)
    for described in (True, False):
        evidence = planted(described)
        found = choose(
            ThinnedCopies.from_evidence(evidence, wigner(120, evidence.noise, rng)),
            EstimatorSettings(smoothing=0.6), pairs=None,
        )  # fmt: skip
        assert found.gain > 0
        assert found.settings.smoothing > 0.5 if described else found.settings.smoothing < 0.5
        assert found.settings.kept == 1
        assert found.tried >= 7


def test_single_pairs_are_chosen_where_pairs_are_all_there_is():
    rng, side = np.random.default_rng(13), 100
    gram = np.zeros((side, side))
    for i in range(0, side, 2):
        gram[i, i + 1] = gram[i + 1, i] = 30.0
    popularity = np.linspace(2, 1, side)
    for seen, wanted in ((gram, 0.6), (np.outer(popularity, popularity), None)):
        evidence = NoisyGram(seen + wigner(side, 1.0, rng), popularity, 1000, math.sqrt(2), None, diagonal=False)
        found = choose(
            ThinnedCopies.from_evidence(evidence, wigner(side, 1.0, rng)),
            EstimatorSettings(content=False, rank=1), pairs=0.6,
        )  # fmt: skip
        assert found.settings.threshold == wanted


def test_the_form_of_ease_is_the_best_predictor_of_every_entry_from_the_others():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(400, 12)) @ rng.normal(size=(12, 12))
    gram = rows.T @ rows
    found = NoisyGram(gram, np.ones(12), 400.0, 0.0).weights(EstimatorSettings(content=False, ridge=0.6))
    for item in range(12):
        others = np.arange(12) != item
        # Ridge regression of one column on the others, by its normal equations.
        wanted = np.linalg.solve(gram[np.ix_(others, others)] / 400 + 0.6 / 12 * np.eye(11), gram[others, item] / 400)
        np.testing.assert_allclose(found[item, others], wanted, atol=1e-9)
        assert found[item, item] == 0


def test_the_form_of_ease_is_chosen_where_there_is_more_than_a_few_directions():
    rng = np.random.default_rng(6)
    side, people = 60, 100_000
    chain = 0.6 ** np.abs(np.subtract.outer(np.arange(side), np.arange(side))) / side
    for covariance, wanted in ((chain, 1.0), (np.ones((side, side)) / side / 50 + np.eye(side) / side, None)):
        evidence = NoisyGram(people * covariance + wigner(side, 1.0, rng), np.ones(side), people, math.sqrt(2))
        copies = ThinnedCopies.from_evidence(evidence, wigner(side, 1.0, rng))
        assert choose(copies, EstimatorSettings(content=False, rank=4), pairs=None, ridge=1.0).settings.ridge == wanted


@pytest.mark.parametrize("known", [("genres",), ("years",), ("genres", "years")])
def test_kernels_are_positive_semidefinite(known):
    features = problem(7)[2]
    content = Content.from_features(
        ItemFeatures(**{name: getattr(features, name) if name in known else None for name in ("genres", "years")}),
        np.array([4, 9, 2, 17]), 6.0,
    )  # fmt: skip
    assert len(content.kernels) == (3 if len(known) == 2 else 1)
    assert sum(content.shares) == 1
    for kernel in (*content.kernels, content.mean):
        assert kernel.shape == (4, 4)
        assert np.linalg.eigvalsh(kernel).min() > -1e-12


def test_features_are_read_from_public_columns():
    info = pd.DataFrame(
        {
            "title": ["Alien (1979)", "2001 (A Space Odyssey) (1968)", "No year", "Later (again)", None],
            "release_date": ["01-Jan-1980", None, "01-Jan-1990", "", None],
            "genres": ["Horror|Sci-Fi", "Sci-Fi", "", None, "Drama"],
        }
    )
    found = item_features(info)
    assert found.years.tolist() == [1979, 1968, 1990, 1979, 1979]
    assert found.genres.tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert item_features(None) is None
    assert item_features(info[["title"]].assign(title="nothing")) is None
    assert item_features(info[["title"]]).genres is None
    assert item_features(pd.DataFrame({"genres": ["", None]})) is None
