"""`privfed.load`: names, paths and DataFrames."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privfed
from privfed.api.data import as_data
from privfed.data import DataError

SHOP = pd.DataFrame(
    {"user": ["ann", "ann", "bob", "bob", "cid"], "item": ["x", "y", "x", "z", "z"], "time": [3, 1, 2, 5, 4]}
)


def test_a_name_and_a_path_remember_where_they_are_from(tmp_path: Path) -> None:
    assert privfed.load("synthetic-small").source == "synthetic-small"
    SHOP.to_csv(tmp_path / "shop.csv", index=False)
    read = privfed.load(tmp_path / "shop.csv", columns={"time": "time"})
    assert read.source == str((tmp_path / "shop.csv").resolve())
    assert read.columns == {"timestamp": "time"}
    assert repr(read).startswith("shop: 3 users, 3 items, 5 interactions")


def test_a_frame_is_the_same_as_its_file(tmp_path: Path) -> None:
    SHOP.rename(columns={"time": "timestamp"}).to_csv(tmp_path / "shop.csv", index=False)
    read, given = privfed.load(tmp_path / "shop.csv"), privfed.load(SHOP)
    assert given.card.sha256 == read.card.sha256
    assert given.source == ""
    assert given.timestamp is not None


def test_ids_of_every_kind() -> None:
    texts = privfed.load(SHOP)
    assert list(texts.item_ids) == ["x", "y", "z"]
    whole = privfed.load(pd.DataFrame({"user": [1.0, 2.0], "item": [10.0, 7.0]}))
    assert whole.user_ids.tolist() == [1, 2]
    assert whole.item_ids.tolist() == [7, 10]
    assert whole.item_ids.dtype == np.int64


@pytest.mark.parametrize("ids", [[7.0, 10.0, 11.0], [7, 10, 11], ["7", "10", "11"]])
def test_descriptions_reach_items_whatever_their_ids_are(ids: list[Any]) -> None:
    items = pd.DataFrame({"item": ids, "title": ["seven", "ten", "eleven"], "genres": ["a|b", "b", None]})
    data = privfed.load(pd.DataFrame({"user": [1, 2], "item": [10.0, 7.0]}), items=items)
    assert data.item_info is not None
    assert data.item_info["title"].tolist() == ["seven", "ten", "eleven"]
    assert not data.card.catalogue_derived
    assert privfed.load(pd.DataFrame({"user": [1], "item": [7]}), items=items.set_index("item")).n_items == 3


def test_descriptions_without_titles_and_of_people() -> None:
    items = pd.DataFrame({"item": [7, 10], "genres": ["a", "b"]})
    users = pd.DataFrame({"user": [1.0, 2.0], "gender": ["F", "M"]})
    data = privfed.load(pd.DataFrame({"user": [1, 2], "item": [10, 7]}), items=items, users=users)
    assert data.item_info is not None
    assert data.attributes is not None
    assert data.item_info["title"].isna().all()
    assert data.attributes["gender"].tolist() == ["F", "M"]


def test_repeated_rows_are_dropped_and_counted() -> None:
    data = privfed.load(pd.concat([SHOP, SHOP[:2]]))
    assert (len(data), data.card.duplicates_dropped) == (5, 2)


def test_columns_of_other_names_and_columns_of_no_use() -> None:
    frame = SHOP.rename(columns={"user": "customer", "time": "bought"}).assign(price=1.0, timestamp=9)
    data = privfed.load(frame, columns={"user": "customer", "time": "bought"})
    assert data.card.sha256 == privfed.load(SHOP).card.sha256


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (SHOP.rename(columns={"user": "who"}), {}, r"no column 'user' for the user \(it has who, item, time\): rename"),
        (SHOP, {"columns": {"user": "who"}}, "no column 'who' for the user"),
        (SHOP, {"columns": {"wer": "user"}}, "columns names 'wer', which is no role"),
        (SHOP.assign(item=[1.5, 2, 3, 4, 5]), {}, "row 1 of DataFrame: the item id is not a whole number"),
        (SHOP.assign(user=["a", None, "b", "c", "d"]), {}, "row 2 of DataFrame: the user id is missing"),
        (SHOP[:0], {}, "DataFrame has no interactions"),
        (SHOP, {"items": pd.DataFrame({"item": ["x"]})}, "is not among the 1 items"),
        (SHOP, {"items": pd.DataFrame({"id": ["x"]})}, "items has no column 'item'"),
        ("synthetic-small", {"items": SHOP}, "items and users describe a DataFrame"),
        ("no/such.csv", {}, "there is no file or folder no/such.csv"),
        ("no-such-set", {}, "the data set 'no-such-set' is not known"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(frame: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        privfed.load(frame, **options)
    assert "--" not in str(caught.value)


def test_anything_else_is_no_data() -> None:
    with pytest.raises(DataError, match="data is a list: give the name"):
        as_data([1, 2])
