"""Errors of predicted ratings against plain loops, the means beside them, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privfed.data import SplitSpec, build, load, split
from privfed.evaluation import EvaluationError, EvaluationResult, Evaluator, Protocol

RATING = Protocol(task="rating")


def rated(rows, n_items=12, **spec):
    user, item, rating = zip(*rows, strict=True)
    data = build("toy", user, item, rating=rating, catalogue=n_items)
    return split(data, SplitSpec(kind="ratio", **{"test_fraction": 0.4, "valid_fraction": 0.2} | spec))


def naive(errors_by_user):
    """The six metrics of a list of errors for each user."""
    every = [e for errors in errors_by_user for e in errors]
    means = {"mse": np.mean(np.square(every)), "mae": np.mean(np.abs(every))}
    means["rmse"] = math.sqrt(means["mse"])
    means["user_mse"] = np.mean([np.mean(np.square(errors)) for errors in errors_by_user])
    means["user_rmse"] = np.mean([math.sqrt(np.mean(np.square(errors))) for errors in errors_by_user])
    means["user_mae"] = np.mean([np.mean(np.abs(errors)) for errors in errors_by_user])
    return means


def known(parts):
    """(user, item) -> rating of each part."""
    return {
        part: {
            (u, i): r
            for u, i, r in zip(
                getattr(parts, part).owners.tolist(),
                getattr(parts, part).items.tolist(),
                getattr(parts.ratings, part).tolist(),
                strict=True,
            )
        }
        for part in ("train", "valid", "test")
    }


def grouped(pairs, predict):
    users = sorted({u for u, _ in pairs})
    return [[predict(u, i) - r for (v, i), r in pairs.items() if v == u] for u in users]


ROWS = st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 11)), st.integers(1, 10), min_size=12, max_size=60)


@pytest.mark.parametrize("catalogue", ["all", "trained"])
@settings(max_examples=50, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 3))
def test_errors_and_means_equal_a_loop(catalogue, rows, seed):
    parts = rated([(u, i, r / 2) for (u, i), r in rows.items()], seed=seed)
    pairs = known(parts)
    trained = {i for _, i in pairs["train"]}
    test = {p: r for p, r in pairs["test"].items() if catalogue == "all" or p[1] in trained}
    protocol = RATING.model_copy(update={"catalogue": catalogue})
    if not test:
        with pytest.raises(EvaluationError, match="No user has a held-out item"):
            Evaluator(parts, protocol)
        return
    table = np.random.default_rng(seed).normal(3, 1, size=(parts.train.n_users, 12)).astype(np.float32)
    evaluator = Evaluator(parts, protocol)
    for chunk in np.array_split(np.random.default_rng(seed).permutation(parts.train.n_users), 3):
        evaluator.add(chunk, table[chunk[:, None], evaluator.candidates(chunk)])
    result = evaluator.result(bootstrap=50)
    overall = np.mean(list(pairs["train"].values()))

    def mean(values):
        return np.mean(values) if values else overall

    predictors = {
        "global mean": lambda u, i: overall,
        "item mean": lambda u, i: mean([r for (_, j), r in pairs["train"].items() if j == i]),
        "user mean": lambda u, i: mean([r for (v, _), r in pairs["train"].items() if v == u]),
    }
    for name, value in naive(grouped(test, lambda u, i: table[u, i])).items():
        assert result.metric(name).value == pytest.approx(value, rel=1e-5)
    assert list(result.baselines) == list(predictors)
    for baseline, predict in predictors.items():
        expected = naive(grouped(test, predict))
        for metric in result.baselines[baseline]:
            assert metric.value == pytest.approx(expected[metric.name], rel=1e-5, abs=1e-12)
    assert result.n_users == len({u for u, _ in test})
    assert result.merit == -result.metric("rmse").value


def test_perfect_predictions_have_no_error_and_the_interval_holds_the_value():
    parts = split(load("synthetic-small"), SplitSpec(kind="ratio"))
    evaluator = Evaluator(parts, RATING)
    users = np.arange(parts.train.n_users)
    truth = np.zeros((len(users), parts.train.n_items), np.float32)
    truth[parts.test.owners, parts.test.items] = parts.ratings.test
    scores = truth[users[:, None], evaluator.candidates(users)]
    evaluator.add(users, scores)
    assert all(metric.value == metric.hi == 0 for metric in evaluator.result().metrics)
    assert evaluator.result().warning is None
    evaluator.reset()
    evaluator.add(users, scores + np.random.default_rng(0).normal(size=scores.shape).astype(np.float32))
    noisy = evaluator.result()
    for metric in noisy.metrics:
        assert metric.lo < metric.value < metric.hi
    assert noisy.metric("rmse").value == pytest.approx(1, abs=0.1)
    assert EvaluationResult.model_validate_json(noisy.model_dump_json()) == noisy


def test_scores_that_are_no_ratings_are_warned_of():
    parts = split(load("synthetic-small"), SplitSpec(kind="ratio"))
    evaluator = Evaluator(parts, RATING, "valid")
    users = evaluator.users
    evaluator.add(users, np.zeros(evaluator.candidates(users).shape, np.float32))
    result = evaluator.result()
    assert "above the" in result.warning
    assert (result.part, result.popularity, result.tie_fraction) == ("valid", None, 0)
    with pytest.raises(ValueError, match="hr@10 was not measured; choose one of mse, rmse"):
        result.metric("hr", 10)


def test_every_part_of_every_kind_of_split_carries_its_own_ratings():
    data = load("synthetic-small")
    rating = {(u, i): r for u, i, r in zip(data.user.tolist(), data.item.tolist(), data.rating.tolist(), strict=True)}
    for kind in ("leave_one_out", "user_time", "ratio"):
        parts = split(data, SplitSpec(kind=kind))
        pairs = known(parts)
        assert parts.ratings.train.dtype == np.float32
        assert {p: r for part in pairs.values() for p, r in part.items()} == rating


def test_bad_input_gets_one_sentence():
    parts = split(load("synthetic-small"), SplitSpec(kind="ratio"))
    unrated = replace(parts, ratings=None)
    with pytest.raises(EvaluationError, match="synthetic-small has no ratings to predict"):
        Evaluator(unrated, RATING)
    with pytest.raises(EvaluationError, match="popularity ranks items"):
        Evaluator(parts, RATING, popularity=parts.train.popularity())
    with pytest.raises(ValidationError, match="a rating is predicted, not ranked"):
        Protocol(task="rating", candidates="sampled")
    with pytest.raises(ValidationError, match="a rating is predicted, not ranked"):
        Protocol(task="rating", scores="probability")
