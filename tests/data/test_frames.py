"""DataFrames in, columns by their usual names, and descriptions in one form."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privfed.data import DataError, DataWarning, from_frames
from privfed.data.descriptions import genres
from privfed.data.item_features import item_features


@pytest.mark.parametrize(
    ("user", "item", "time"),
    [
        ("userId", "movieId", "timestamp"),
        ("user_id", "item_id", "ts"),
        ("UserID", "MovieID", "Timestamp"),
        ("uid", "iid", "time"),
        ("visitorid", "itemid", "event_time"),
        ("customer_id", "sku", "bought_at"),
        ("User-ID", "ISBN", "date"),
        ("reviewerID", "asin", "unixReviewTime"),
    ],
)
def test_columns_are_recognised_by_their_usual_names(user, item, time):
    data = from_frames(pd.DataFrame({"note": ["a", "b"], item: [5, 6], user: [1, 2], time: [10, 20]}))
    assert (data.user_ids.tolist(), data.item_ids.tolist(), data.timestamp.tolist()) == ([1, 2], [5, 6], [10, 20])
    assert data.reading.recognised == (f"interactions: user = {user}, item = {item}, timestamp = {time}",)


def test_the_exact_name_wins_and_a_choice_wins_over_it():
    frame = pd.DataFrame({"user_id": [1, 2], "user": [3, 4], "item": [5, 6]})
    assert from_frames(frame).user_ids.tolist() == [3, 4]
    assert from_frames(frame, columns={"user": "user_id"}).user_ids.tolist() == [1, 2]


def test_an_unknown_column_is_answered_with_what_was_meant():
    frame = pd.DataFrame({"who": [1], "what": [2]})
    with pytest.raises(DataError, match=r"no column 'user' for the user \(it has who, what\): .*columns=") as caught:
        from_frames(frame)
    assert "--user-column who" in caught.value.command_line
    assert "columns=" not in caught.value.command_line
    with pytest.raises(DataError, match=r"did you mean 'what'\?") as caught:
        from_frames(frame, columns={"user": "who", "item": "whta"})
    assert "did you mean 'what'? say which one it is, for example --item-column what" in caught.value.command_line
    with pytest.raises(DataError, match="two columns called 'user'"):
        from_frames(pd.DataFrame([[1, 2, 3]], columns=["user", "item", "user"]))
    with pytest.raises(DataError, match="names are not text"):
        from_frames(pd.DataFrame([[1, 2]]))


def test_ids_of_descriptions_may_be_the_index_or_a_column_called_id():
    rows = pd.DataFrame({"user": [1, 2], "item": [5, 6]})
    by_index = from_frames(rows, pd.DataFrame({"title": ["a", "b"]}, index=[5, 6]))
    by_id = from_frames(rows, pd.DataFrame({"id": [5, 6], "name": ["a", "b"]}))
    assert by_index.item_info["title"].tolist() == by_id.item_info["title"].tolist() == ["a", "b"]
    with pytest.raises(DataError, match=r"the DataFrame of items has no column for the item \(it has title\)"):
        from_frames(rows, pd.DataFrame({"title": ["a", "b"]}))


def test_items_without_a_title_are_kept_and_enlarge_the_catalogue():
    data = from_frames(
        pd.DataFrame({"user": [1, 2], "item": [5, 6]}), pd.DataFrame({"item": [5, 6, 7], "genre": ["a;b", "b", "c"]})
    )
    assert data.item_info["genres"].tolist() == ["a|b", "b", "c"]
    assert (data.n_items, data.card.catalogue_derived) == (3, False)


def test_items_that_are_used_and_not_described_belong_to_the_catalogue():
    data = from_frames(pd.DataFrame({"user": [1, 2], "item": [5, 6]}), pd.DataFrame({"item": [5], "title": ["a"]}))
    assert data.item_ids.tolist() == [5, 6]
    assert data.item_info["title"].isna().tolist() == [False, True]
    assert data.card.catalogue_derived


def test_descriptions_of_other_items_change_nothing_but_say_so():
    rows = pd.DataFrame({"user": [1, 2], "item": [5, 6]})
    with pytest.warns(DataWarning, match="none of the 2 items in use is described in the DataFrame of items"):
        data = from_frames(rows, pd.DataFrame({"item": ["x", "y"], "title": ["a", "b"]}))
    assert (data.item_ids.tolist(), data.item_info) == ([5, 6], None)


@pytest.mark.parametrize(
    ("values", "joined"),
    [
        (["a|b", "b, c"], ["a|b", "b, c"]),
        (["a, b", "c"], ["a|b", "c"]),
        (["a; b, c", "d"], ["a|b, c", "d"]),
        (["Sci-Fi", "War Drama"], ["Sci-Fi", "War Drama"]),
        ([["a", "b"], []], ["a|b", None]),
        ([np.array(["a", "b"]), None], ["a|b", None]),
        (['["a", "b, c"]', "[]"], ["a|b, c", None]),
        (["['a', 'b']", "['c']"], ["a|b", "c"]),
        (['[{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]', "[]"], ["a|b", None]),
        ([[["a", "b"]], [["c"]]], ["a|b", "c"]),
        (["(no genres listed)", "a|a|"], [None, "a"]),
        (pd.Categorical(["a,b", "a,b"]), ["a|b", "a|b"]),
        (pd.array([["a", "b"], None], dtype=pd.ArrowDtype(pa.list_(pa.string()))), ["a|b", None]),
    ],
)
def test_genres_in_every_form(values, joined):
    found = genres(pd.Series(values))
    assert [None if pd.isna(value) else value for value in found] == joined


def test_genres_joined_by_commas_are_a_few_flags_and_years_are_read():
    rng = np.random.default_rng(0)
    names = [", ".join(rng.choice(list("abcdefgh"), 3, replace=False)) for _ in range(200)]
    years = [1990.0 + number % 20 for number in range(200)]
    rows = pd.DataFrame({"user": 1, "item": np.arange(200)})
    data = from_frames(rows, pd.DataFrame({"item": np.arange(200.0), "genres": names, "year": years}))
    features = item_features(data.item_info)
    assert features.genres.shape == (200, 8)
    assert features.years.tolist() == years


def test_nested_values_of_items_are_left_out_and_genres_are_not():
    items = pd.DataFrame(
        {"item": [5, 6], "category": [["a"], ["b"]], "images": [[{"u": 1}], None], "price": [1.0, 2.0]}
    )
    data = from_frames(pd.DataFrame({"user": [1, 2], "item": [5, 6]}), items)
    assert data.item_info.to_dict("list") == {"genres": ["a", "b"], "price": [1.0, 2.0]}


def test_what_users_are_comes_under_its_usual_names():
    people = pd.DataFrame({"userId": [1.0, 2.0], "Sex": ["F", "M"], "Age": ["17", "56"], "city": ["x", None]})
    data = from_frames(pd.DataFrame({"userId": [1, 2], "item": [5, 6]}), users=people)
    assert data.attributes["gender"].tolist() == ["F", "M"]
    assert data.attributes["age_group"].tolist() == ["Under 18", "56+"]
    assert data.attributes["city"][0] == "x"
