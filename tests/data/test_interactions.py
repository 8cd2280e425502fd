import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, build


def test_codes_are_ranks_of_sorted_ids_and_rows_keep_file_order():
    data = build("toy", [7, 3, 7, 10], [20, 5, 5, 20], catalogue=[5, 9, 20])
    assert data.user_ids.tolist() == [3, 7, 10]
    assert data.item_ids.tolist() == [5, 9, 20]
    assert data.user.tolist() == [1, 0, 1, 2]
    assert data.item.tolist() == [2, 0, 0, 2]
    assert data.user.dtype == data.item.dtype == np.int64
    card = data.card
    assert (card.users, card.items, card.distinct_items, card.interactions) == (3, 3, 2, 4)
    assert card.density == pytest.approx(4 / 9)
    assert (card.has_timestamps, card.synthetic) == (False, False)


def test_numeric_strings_are_numbers_only_where_nothing_is_lost():
    assert build("toy", ["2", "10"], ["1", "1"]).user_ids.tolist() == [2, 10]
    assert build("toy", ["007", "7"], ["1", "1"]).user_ids.tolist() == ["007", "7"]
    assert build("toy", [1, 1], ["10", "b"], catalogue=["9", "10", "b"]).item_ids.tolist() == ["10", "9", "b"]
    assert build("toy", [1, 1], [10, 9], catalogue=["9", "10", "b"]).item.tolist() == [0, 1]


def test_a_catalogue_size_stands_for_the_ids_below_it():
    data = build("toy", [0, 1], [4, 2], catalogue=10)
    assert (data.n_items, data.card.distinct_items, data.item.tolist()) == (10, 2, [4, 2])
    with pytest.raises(DataError, match=r"row 2: item 10 is not among the 10 items"):
        build("toy", [0, 1], [4, 10], catalogue=10)


def test_the_earliest_duplicate_stays_in_its_own_place():
    data = build("toy", [1, 1, 1, 1], [8, 9, 8, 8], timestamp=[30, 20, 10, 10], rating=[1, 2, 3, 4])
    assert data.rating.tolist() == [2, 3]
    assert data.item_ids[data.item].tolist() == [9, 8]
    assert (data.card.rows_read, data.card.duplicates_dropped, data.card.duplicates_kept) == (4, 2, 0)


def test_without_time_the_first_duplicate_stays():
    data = build("toy", [1, 1, 1], [8, 9, 8], rating=[1, 2, 3])
    assert data.rating.tolist() == [1, 2]


@pytest.mark.parametrize("times", [[20201018, 20201399], [20201018, 20201018.5], [20201018, 1], [1602979200] * 2])
def test_numbers_that_are_not_all_days_are_seconds(times):
    assert build("toy", [1, 2], [1, 2], timestamp=times).timestamp.tolist() == times


def test_order_decides_before_the_timestamp():
    data = build("toy", [1, 1], [8, 8], timestamp=[1, 2], order=[5, 4], rating=[1, 2])
    assert data.rating.tolist() == [2]


def test_duplicates_can_be_kept_and_are_counted():
    data = build("toy", [1, 1, 1], [8, 9, 8], duplicates="keep")
    assert len(data) == 3
    assert (data.card.duplicates_dropped, data.card.duplicates_kept) == (0, 1)


def test_the_same_pair_under_another_behaviour_is_no_duplicate():
    data = build("toy", [1, 1, 2], [8, 8, 9], behaviour=["view", "buy", "view"])
    assert data.card.duplicates_dropped == 0
    bought = data.only("buy")
    assert (len(bought), bought.n_users, bought.n_items) == (1, 2, 2)
    assert (bought.card.interactions, bought.card.distinct_items) == (1, 1)
    assert bought.card.sha256 != data.card.sha256
    with pytest.raises(DataError, match=r"no behaviour 'cart'.*buy, view"):
        data.only("cart")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
def test_dropping_duplicates_agrees_with_a_plain_loop(rows):
    user, item, time = zip(*rows, strict=True)
    best: dict[tuple[int, int], int] = {}
    for position, (u, i, t) in enumerate(rows):
        if (u, i) not in best or t < rows[best[u, i]][2]:
            best[u, i] = position
    data = build("toy", user, item, timestamp=time, rating=range(len(rows)))
    assert data.rating.tolist() == sorted(best.values())


def test_rare_users_can_be_left_out_before_duplicates_are_dropped():
    data = build("toy", [1, 1, 2, 3, 3], [5, 5, 6, 5, 7], min_per_user=2)
    assert data.user_ids.tolist() == [1, 3]
    assert data.item_ids.tolist() == [5, 6, 7]
    assert (data.card.users_below_minimum, data.card.distinct_items, data.card.rows_read) == (1, 2, 5)
    with pytest.raises(DataError, match="lower min_per_user"):
        build("toy", [1], [1], min_per_user=2)


def test_histories_are_in_time_order():
    data = build("toy", [1, 1, 2, 1], [8, 9, 9, 7], timestamp=[30, 20, 5, 30])
    assert [data.item_ids[data.histories().items_of(user)].tolist() for user in (0, 1)] == [[9, 8, 7], [9]]


def test_attributes_and_titles_follow_the_codes():
    people = pd.DataFrame({"gender": ["F", "M"]}, index=[9, 2])
    titles = pd.DataFrame({"title": ["b", "a"]}, index=["20", "10"])
    data = build("toy", [2, 9, 5], [10, 20, 30], attributes=people, item_info=titles)
    assert data.attributes["gender"].tolist()[::2] == ["M", "F"]
    assert data.attributes["gender"].isna().tolist() == [False, True, False]
    assert data.item_info["title"].tolist()[:2] == ["a", "b"]
    with pytest.raises(DataError, match="user 9 is described twice"):
        build("toy", [9], [1], attributes=pd.DataFrame({"gender": ["F", "M"]}, index=[9, 9]))


@pytest.mark.parametrize(
    "times",
    [
        ["1970-01-01T00:00:10", "1970-01-01T01:00:00+01:00"],
        pd.to_datetime(["1970-01-01T00:00:10", "1970-01-01T00:00:00"]),
        pd.to_datetime(["1970-01-01T00:00:10", "1970-01-01T00:00:00"]).tz_localize("UTC").tz_convert("Asia/Tokyo"),
        [10.0, 0.0],
        ["10", "0"],
    ],
)
def test_times_become_unix_seconds(times):
    data = build("toy", [1, 1], [1, 2], timestamp=times)
    assert data.timestamp.dtype == np.int64
    assert data.timestamp.tolist() == [10, 0]


def test_fractions_of_a_second_are_kept():
    data = build("toy", [1, 1], [1, 2], timestamp=pd.to_datetime([0.25, 0.5], unit="s"))
    assert data.timestamp.tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [], "item": []}, "no interactions"),
        ({"user": [1, -2]}, r"row 2: the user id is negative \(-2\)"),
        ({"item": [-1, -2]}, r"row 1: the item id is negative \(-1\), and so it is in 1 more row"),
        ({"item": ["a", ""]}, "row 2: the item id is empty"),
        ({"user": [1, None]}, "row 2: the user id is missing"),
        ({"user": [1.5, 2]}, "row 1: the user id is not a whole number"),
        ({"rating": [1, float("nan")]}, "row 2: the rating is not a finite number"),
        ({"rating": [float("inf"), 1]}, "row 1: the rating is not a finite number"),
        ({"timestamp": [1, float("inf")]}, "row 2: the timestamp is not a finite number"),
        ({"timestamp": ["yesterday", "1"]}, r"row 1: the timestamp is neither .* \(yesterday\)"),
        ({"timestamp": ["1", "yesterday"]}, r"row 2: the timestamp is neither .* \(yesterday\)"),
        ({"timestamp": ["1", ""]}, "row 2: the timestamp is missing; correct"),
        ({"timestamp": ["2020-01-01", None]}, "row 2: the timestamp is missing; correct"),
        ({"timestamp": ["1", "2020-01-01"]}, r"row 1: the timestamp is a number among dates \(1\)"),
        ({"timestamp": pd.to_datetime(["2020-01-01", None])}, "row 2: the timestamp is missing"),
        ({"timestamp": [20201018, 20240229]}, r"row 1: the timestamp is a date without dashes.* \(20201018\).*; write"),
        ({"timestamp": ["20201018", "20201019"]}, "read as seconds since 1970"),
        ({"user": [-1, 2]}, r"row 1: the user id is negative \(-1\); number from 0, or use ids that are text"),
        ({"timestamp": [1, 2**63]}, "row 2: the timestamp is beyond 64 bits"),
        ({"timestamp": [-1e300, 0.5]}, "row 1: the timestamp is beyond 64 bits"),
        ({"timestamp": ["1", "99999999999999999999"]}, r"row 2: the timestamp is beyond 64 bits \(9{20}\)"),
        ({"rating": [1, 1e39]}, r"row 2: the rating is too large \(1e\+39\)"),
        ({"order": [1, 1.5]}, "row 2: the order is not a whole number"),
        ({"order": [1e19, 1]}, "row 1: the order is beyond 64 bits"),
        ({"order": np.array([1, 2**64 - 1], dtype=np.uint64)}, "row 2: the order is beyond 64 bits"),
        ({"behaviour": ["buy", None]}, "row 2: the behaviour is missing"),
        ({"behaviour": ["buy", ""]}, "row 2: the behaviour is missing"),
        ({"split": ["train", "dev"]}, r"row 2: the split must be one of train, valid, test \(dev\)"),
        ({"rating": [1, 2, 3]}, "differ in length"),
    ],
)
def test_bad_values_are_refused_in_one_sentence(columns, message):
    with pytest.raises(DataError, match=message) as caught:
        build("toy", **{"user": [1, 2], "item": [1, 2]} | columns)
    assert "\n" not in str(caught.value)


def test_the_digest_depends_on_content_only():
    def digest(**changes):
        return build("toy", **{"user": [1, 2], "item": [3, 4], "timestamp": [5, 6]} | changes).card.sha256

    assert digest() == digest(user=["1", "2"], timestamp=[5.0, 6.0])
    changes = [
        {"user": [1, 3]},
        {"item": [4, 3]},
        {"timestamp": [6, 5]},
        {"catalogue": [3, 4, 5]},
        {"rating": [1, 1]},
    ]
    assert len({digest(), *(digest(**change) for change in changes)}) == len(changes) + 1


def test_an_unknown_rule_for_duplicates_is_refused():
    with pytest.raises((DataError, TypeError), match="merge"):
        build("toy", [1], [1], duplicates="merge")


def test_large_integer_times_keep_every_digit():
    nanoseconds = 1_600_000_000_000_000_000
    data = build("toy", [1, 1], [1, 2], timestamp=[nanoseconds + 1, nanoseconds], order=[2**53 + 1, 2**53])
    assert data.timestamp.tolist() == [nanoseconds + 1, nanoseconds]
    assert data.order.tolist() == [2**53 + 1, 2**53]
