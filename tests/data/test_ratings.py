"""Ratings read as behaviours."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, behaviours_from_ratings, build


def naive(rows, threshold, least_user, least_item):
    """rows: (user, item, rating); drop rare items and users, one pass after the other, until nothing changes."""
    while True:
        high = [(u, i) for u, i, r in rows if r >= threshold]
        users, items = Counter(u for u, _ in high), Counter(i for _, i in high)
        kept = [row for row in rows if users[row[0]] >= least_user and items[row[1]] >= least_item]
        if kept == rows:
            return rows
        rows = kept


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 5)),
        min_size=1,
        max_size=60,
        unique_by=lambda row: row[:2],
    ),
    least_user=st.integers(1, 3),
    least_item=st.integers(1, 3),
)
def test_the_filter_agrees_with_a_plain_loop(rows, least_user, least_item):
    user, item, rating = zip(*rows, strict=True)
    data = build("toy", user, item, rating=rating, timestamp=range(len(rows)), catalogue=12)
    expected = naive(rows, 4, least_user, least_item)
    if not expected:
        with pytest.raises(DataError, match="lower min_per_item"):
            behaviours_from_ratings(data, min_per_user=least_user, min_per_item=least_item)
        return
    made = behaviours_from_ratings(data, min_per_user=least_user, min_per_item=least_item)
    found = zip(made.user_ids[made.user], made.item_ids[made.item], made.behaviour, made.rating, strict=True)
    assert list(found) == [(u, i, "buy" if r >= 4 else "view", r) for u, i, r in expected]
    assert made.user_ids.tolist() == sorted({u for u, _, _ in expected})
    assert made.item_ids.tolist() == sorted({i for _, i, _ in expected})
    assert made.timestamp.tolist() == [rows.index(row) for row in expected]
    assert made.name == made.card.name == "toy-behaviours"
    assert made.card.rows_read == len(rows)
    assert made.card.users_below_minimum == data.n_users - made.n_users


def test_attributes_and_titles_follow_and_names_can_be_chosen():
    people = pd.DataFrame({"gender": ["F", "M", "F"]}, index=[1, 5, 9])
    titles = pd.DataFrame({"title": ["a", "b", "c"]}, index=[10, 20, 30])
    data = build("toy", [1, 5, 9, 9], [10, 20, 20, 30], rating=[1, 5, 4, 2], attributes=people, item_info=titles)
    made = behaviours_from_ratings(data, threshold=3, at_least="love", below="meh", min_per_user=1, min_per_item=1)
    assert made.user_ids.tolist() == [5, 9]
    assert made.attributes["gender"].tolist() == ["M", "F"]
    assert made.item_info["title"].tolist() == ["b"]
    assert made.behaviour_counts == {"love": 2}


def test_kept_duplicates_stay():
    data = build("toy", [1, 1], [1, 1], rating=[5, 2], duplicates="keep")
    made = behaviours_from_ratings(data, min_per_user=1, min_per_item=1)
    assert made.behaviour.tolist() == ["buy", "view"]


@pytest.mark.parametrize(
    ("columns", "names", "message"),
    [
        ({}, {}, "has no ratings"),
        ({"rating": [5], "behaviour": ["buy"]}, {}, "already"),
        ({"rating": [5]}, {"below": "buy"}, "both behaviours are called 'buy'"),
        ({"rating": [3]}, {}, "lower min_per_item, min_per_user or threshold"),
    ],
)
def test_unfit_data_are_refused_in_one_sentence(columns, names, message):
    with pytest.raises(DataError, match=message) as caught:
        behaviours_from_ratings(build("toy", [1], [1], **columns), **names)
    assert "\n" not in str(caught.value)


def test_a_rating_at_the_threshold_counts():
    made = behaviours_from_ratings(build("t", [1, 1], [1, 2], rating=[4, 3.5]), min_per_user=1, min_per_item=0)
    assert made.behaviour.tolist() == ["buy", "view"]
    assert np.array_equal(made.rating, np.array([4, 3.5], dtype=np.float32))
