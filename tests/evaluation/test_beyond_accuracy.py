"""What lists show beyond their accuracy, against loops that anyone can read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.metrics import interval, user_weights
from privfed.data import Histories, Split, SplitSpec
from privfed.evaluation import Evaluator, Protocol
from privfed.evaluation.beyond_accuracy import NOBODY, TENTHS, beyond_accuracy, exposure, recommended, tenths_of


def histories(rows, n_items):
    items = np.array([item for row in rows for item in row], dtype=np.int64)
    return Histories(np.cumsum([0, *map(len, rows)]), items, n_items)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 70), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_lists_are_the_best_ranked_items_and_equals_at_the_end_go_by_number(seed, n_items, k, levels):
    rng = np.random.default_rng(seed)
    scores = rng.integers(levels, size=(3, n_items)).astype(np.float32)
    ranked = rng.random(scores.shape) < 0.7
    found = recommended(scores, ranked, k)
    assert found.shape == (min(k, n_items), 3)
    for row in range(3):
        best = sorted(np.flatnonzero(ranked[row]), key=lambda item: (-scores[row, item], item))[:k]
        missing = [NOBODY] * (min(k, n_items) - len(best))
        assert sorted(found[:, row]) == sorted([*missing, *best])


def test_tenths_are_of_items_and_go_by_popularity_then_by_number():
    popularity = np.array([1, 5, 1, 9, 1, 0, 0, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    assert tenths_of(popularity)[[3, 1, 7, 8, 0, 2, 4, 5, 19]].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 9]


def test_exposure_is_a_share_of_what_is_shown():
    tenths = np.arange(TENTHS)
    shares = exposure(np.array([[0, NOBODY, 9], [0, NOBODY, NOBODY], [3, NOBODY, NOBODY], [4, NOBODY, NOBODY]]), tenths)
    assert shares[:, 0].tolist() == [0.5, 0, 0, 0.25, 0.25, 0, 0, 0, 0, 0]
    assert not shares[:, 1].any()
    assert shares[:, 2].tolist() == [0] * 9 + [1]


@pytest.fixture
def people():
    """12 users of 30 items, of whom the evaluator saw 11."""
    rng = np.random.default_rng(4)
    train = [rng.choice(30, size, replace=False) for size in rng.permutation(np.arange(2, 14))]
    test = [rng.choice(np.setdiff1d(np.arange(30), own), 2, replace=False) for own in train]
    users = np.delete(np.arange(12), 3)
    lists = recommended(rng.random((11, 30)).astype(np.float32), np.ones((11, 30), bool), 4)
    lists[2:, 5] = NOBODY
    return histories(train, 30), histories(test, 30), users, lists, rng.random(11)


def test_coverage_lift_and_activity_equal_a_loop(people):
    train, test, users, lists, main = people
    weights = user_weights(11, 400, 0)
    found = beyond_accuracy(lists, main, users, train, test, weights, 4)
    counts = np.bincount(train.items, minlength=30)
    shown = [[item for item in column if item != NOBODY] for column in lists.T]
    assert found.coverage == len({item for items in shown for item in items}) / 30
    lift = [np.mean(counts[items]) for items in shown], [np.mean(counts[test.items_of(user)]) for user in users]
    assert found.popularity_lift.value == pytest.approx(sum(lift[0]) / sum(lift[1]))
    assert found.popularity_lift.lo < found.popularity_lift.value < found.popularity_lift.hi
    resampled = (weights @ lift[0]) / (weights @ lift[1])
    low, high = interval(found.popularity_lift.value, resampled, 11)
    assert (found.popularity_lift.lo, found.popularity_lift.hi) == pytest.approx((float(low), float(high)))
    tenths = tenths_of(counts)
    assert found.exposure == pytest.approx(
        [np.mean([np.mean(tenths[items] == tenth) for items in shown]) for tenth in range(TENTHS)]
    )
    # The least active first: 11 users make ten tenths, of which one holds two.
    by_activity = np.argsort([len(train.items_of(user)) for user in users], kind="stable")
    tenth_of = {user: place * TENTHS // 11 for place, user in enumerate(by_activity)}
    for number, metric in enumerate(found.by_activity):
        members = [user for user, tenth in tenth_of.items() if tenth == number]
        assert (metric.name, metric.k, metric.n_users) == ("ndcg", 4, len(members))
        assert metric.value == pytest.approx(np.mean(main[members]))


def test_fewer_users_than_tenths_have_no_activity_and_untrained_items_no_lift(people):
    train, test, users, lists, main = people
    few = beyond_accuracy(lists[:, :9], main[:9], users[:9], train, test, user_weights(9, 20, 0), 4)
    assert few.by_activity == ()
    nobody = histories([[]] * 12, 30)
    assert beyond_accuracy(lists, main, users, nobody, test, user_weights(11, 20, 0), 4).popularity_lift is None


def test_an_evaluator_shows_what_is_left_of_the_catalogue():
    split = Split(SplitSpec(), histories([[0, 1], [2]], 6), histories([[2], [0]], 6), histories([[3], [1]], 6), 0)
    evaluator = Evaluator(split, Protocol(k=(3, 5)))
    evaluator.add(np.array([1, 0]), np.zeros((2, 6), np.float32))
    assert np.sort(evaluator.lists(np.array([0, 1])), axis=0).T.tolist() == [[3, 4, 5], [1, 3, 4]]
    assert evaluator.result().beyond.coverage == 4 / 6
    assert Evaluator(split, Protocol(k=(3,)), "valid").lists(np.array([0])).size == 0
