"""Ids of any type are one id where they mean one, and stay two where they do not."""

import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.data import DataError, DataWarning, build, from_frames

WHOLE = {
    "int": [7, 8, 9],
    "int8": np.array([7, 8, 9], dtype=np.int8),
    "uint64": np.array([7, 8, 9], dtype=np.uint64),
    "float": [7.0, 8.0, 9.0],
    "float32": np.array([7, 8, 9], dtype=np.float32),
    "nullable": pd.array([7, 8, 9], dtype="Int64"),
    "nullable float": pd.array([7.0, 8.0, 9.0], dtype="Float64"),
    "category": pd.Categorical([7, 8, 9]),
    "category of floats": pd.Categorical([7.0, 8.0, 9.0]),
    "category of text": pd.Categorical(["7", "8", "9"]),
    "text": ["7", "8", "9"],
    "bytes": [b"7", b"8", b"9"],
    "mixed": [7, 8.0, "9"],
    "decimal": [Decimal("7"), Decimal("8.00"), Decimal(9)],
    "arrow": pd.array([7, 8, 9], dtype="int64[pyarrow]"),
}


def rows(user):
    return pd.DataFrame({"user": user, "item": [1, 2, 3]})


@pytest.mark.parametrize("mine", WHOLE)
@pytest.mark.parametrize("theirs", WHOLE)
def test_whole_numbers_of_any_type_are_one_id(mine, theirs):
    people = pd.DataFrame({"user": WHOLE[theirs], "gender": ["F", "M", "F"]})
    data = from_frames(rows(WHOLE[mine]), users=people)
    assert data.user_ids.tolist() == [7, 8, 9]
    assert data.attributes["gender"].tolist() == ["F", "M", "F"]


def test_a_concat_makes_floats_and_loses_nothing():
    items = pd.concat([pd.DataFrame({"item": [1, 2], "title": ["a", "b"]}), pd.DataFrame({"note": ["x"]})])
    assert items["item"].dtype == np.float64
    data = from_frames(rows([7, 8, 9]), items)
    assert data.item_info["title"].tolist()[:2] == ["a", "b"]
    assert data.item_ids.tolist() == [1, 2, 3]


def test_text_on_both_sides_stays_itself():
    people = pd.DataFrame({"user": ["1.0", "01", "1"], "gender": ["F", "M", "X"]})
    data = from_frames(rows(["1", "01", "1.0"]), users=people)
    assert dict(zip(data.user_ids, data.attributes["gender"], strict=True)) == {"1.0": "F", "01": "M", "1": "X"}


def test_text_that_was_written_from_numbers_meets_numbers():
    people = pd.DataFrame({"user": ["7.0", "8.0", "9.0"], "gender": ["F", "M", "F"]})
    assert from_frames(rows([7, 8, 9]), users=people).attributes["gender"].tolist() == ["F", "M", "F"]
    versions = pd.DataFrame({"user": ["7.0", "8.5", "9.0"], "gender": ["F", "M", "F"]})
    with pytest.warns(DataWarning, match=r"none of the 3 users .* look like '7.0', '8.5', '9.0' .* like '7', '8', '9'"):
        assert from_frames(rows([7, 8, 9]), users=versions).attributes is None


@pytest.mark.parametrize(
    "ids",
    [
        ["ann lee", "bob", "carl"],
        [uuid.UUID(int=n) for n in range(3)],
        pd.Categorical(["x", "y", "z"]),
        [2**60 + 1, 2**60 + 2, 3],
        np.array([2**63 + 1, 2**63 + 2, 3], dtype=np.uint64),
    ],
    ids=["spaces", "uuid", "category", "large", "unsigned"],
)
def test_other_ids_are_kept_to_the_last_digit(ids):
    people = pd.DataFrame({"user": ids, "gender": ["F", "M", "F"]})
    data = from_frames(rows(ids), users=people)
    assert sorted(map(str, data.user_ids)) == sorted(map(str, ids))
    assert sorted(data.attributes["gender"]) == ["F", "F", "M"]


def test_large_ids_are_numbers_whether_text_or_not():
    large = [10**18, 10**18 - 1, 2**63 - 1]
    assert from_frames(rows(list(map(str, large)))).user_ids.tolist() == from_frames(rows(large)).user_ids.tolist()


def test_an_arrow_dictionary_is_read_as_its_values(tmp_path):
    frame = rows(pd.Categorical(["x", "y", "z"]))
    frame.to_parquet(tmp_path / "t.parquet")
    back = pd.read_parquet(tmp_path / "t.parquet", dtype_backend="pyarrow")
    assert from_frames(back).user_ids.tolist() == ["x", "y", "z"]


def test_floats_that_have_lost_digits_are_refused():
    with pytest.raises(DataError, match="row 1: the user id is a floating-point number so large"):
        build("toy", [2.0**60, 1.0], [1, 2])
    with pytest.raises(DataError, match="row 2: the item id is a floating-point number so large"):
        build("toy", [1, 2], np.array([1, 2**25], dtype=np.float32))


@pytest.mark.parametrize("bad", [np.nan, None, pd.NA])
def test_a_missing_id_is_refused_and_a_missing_description_is_not(bad):
    with pytest.raises(DataError, match="row 2: the user id is missing"):
        from_frames(rows([7, bad, 9]))
    people = pd.DataFrame({"user": [7, bad, 9], "gender": ["F", "M", "F"]})
    assert from_frames(rows([7, 8, 9]), users=people).attributes["gender"].isna().tolist() == [False, True, False]


def test_less_than_half_is_said_and_half_is_not():
    items = pd.DataFrame({"item": [1, 11, 12, 13], "title": list("abcd")})
    with pytest.warns(DataWarning, match=r"only 1 of the 3 items in use is described .* '1', '11', '12' .* '2', '3'"):
        from_frames(rows([7, 8, 9]), items)
    assert from_frames(rows([7, 8, 9]), items.assign(item=[1, 2, 12, 13])).n_items == 5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**53), min_size=1, max_size=20, unique=True), st.data())
def test_a_description_finds_its_user_whatever_the_types(ids, data):
    forms = {
        "int": lambda values: values,
        "float": lambda values: [float(value) for value in values],
        "text": lambda values: [str(value) for value in values],
        "object": lambda values: pd.Series(values, dtype=object),
    }
    mine, theirs = (data.draw(st.sampled_from(sorted(forms))) for _ in range(2))
    order = data.draw(st.permutations(ids))
    people = pd.DataFrame({"user": forms[theirs](order), "mark": [str(value) for value in order]})
    built = from_frames(pd.DataFrame({"user": forms[mine](ids), "item": 1}), users=people)
    assert built.attributes["mark"].tolist() == [str(value) for value in built.user_ids]
