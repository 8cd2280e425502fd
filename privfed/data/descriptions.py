"""What people write about items and users, in one form for every layout.

Of items: `title`, `genres` (names joined by bars) and `release_date` under their usual names; of users `gender`, `age`
and `occupation`. Any other column stays as it is, unless its values are lists, records or bytes.
"""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from privfed.data import identifiers
from privfed.data.people import demographics
from privfed.data.roles import alias

_ITEM_COLUMNS = {
    "title": (
        "title", "movietitle", "itemname", "name", "producttitle", "productname", "booktitle", "artistname",
        "trackname", "songname", "itemtitle",
    ),
    "genres": ("genres", "genre", "categories", "category", "class", "maincategory"),
    "release_date": ("releasedate", "releaseyear", "year", "publicationyear", "yearofpublication"),
}  # fmt: skip
_USER_COLUMNS = {"gender": ("gender", "sex"), "age": ("age",), "occupation": ("occupation", "job", "profession")}
_NESTED = (list, tuple, set, dict, bytes, np.ndarray)
_SEPARATORS = ("|", ";", ",")
_NO_GENRE = {"", "(no genres listed)", "nan", "None", "\\N"}


def described(frame: pd.DataFrame, key: str) -> pd.DataFrame:
    """The rows that have an id, indexed by it; columns without any value are left out."""
    ids = identifiers.plain(frame[key])
    kept = frame[(ids.notna() & (ids.astype(str) != "")).to_numpy()]
    indexed = kept.set_axis(pd.Index(identifiers.plain(kept[key]).array), axis=0).drop(columns=key)
    return indexed.dropna(axis=1, how="all")


def items(frame: pd.DataFrame, separator: str | None = None) -> pd.DataFrame:
    """Descriptions of items with title, genres and release date under these names.

    Args:
        frame: One row per item.
        separator: What stands between two genres, where the format says it.
    """
    frame = _renamed(frame, _ITEM_COLUMNS)
    if "genres" in frame:
        frame["genres"] = genres(frame["genres"], separator)
    if "release_date" in frame and pd.api.types.is_float_dtype(frame["release_date"]):
        frame["release_date"] = frame["release_date"].astype("Int64").astype("string")
    return _flat(frame)


def users(frame: pd.DataFrame) -> pd.DataFrame:
    """Descriptions of users with gender, age, age group and occupation under these names."""
    return _flat(demographics(_renamed(frame, _USER_COLUMNS)))


def genres(values: "pd.Series[Any]", separator: str | None = None) -> "pd.Series[Any]":
    """Names joined by bars, from lists, texts of JSON lists, or names between bars, semicolons or commas.

    Of the three separators the first that occurs anywhere in the column counts; where none does, a value is one name.
    """
    values = identifiers.plain(values)
    listed = [_listed(value) for value in values]
    texts = [value for value in listed if isinstance(value, str)]
    used = separator or next((mark for mark in _SEPARATORS if any(mark in text for text in texts)), None)
    joined = [_joined(_split(value, used) if isinstance(value, str) else value) for value in listed]
    return pd.Series(joined, index=values.index, dtype="string")


def _renamed(frame: pd.DataFrame, names: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    present = [str(column) for column in frame.columns]
    found = {usual: alias(present, aliases) for usual, aliases in names.items() if usual not in present}
    return frame.rename(columns={column: usual for usual, column in found.items() if column is not None}).copy()


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns whose values are numbers, texts, dates or truths."""
    able = [column for column in frame if isinstance(frame[column].dtype, pd.ArrowDtype | np.dtype)]
    nested = {column for column in able if any(isinstance(value, _NESTED) for value in frame[column])}
    return frame[[column for column in frame if column not in nested]]


def _listed(value: Any) -> Any:
    """A list of names, a text that still has to be split, or nothing."""
    if isinstance(value, list | tuple | set | np.ndarray):
        return [inner for one in value for inner in _names(one)]
    if value is None or value is pd.NA or value != value:  # noqa: PLR0124 (a missing number is not itself)
        return []
    text = str(value).strip()
    if not (text.startswith("[") and text.endswith("]")):
        return text
    for parse in (json.loads, ast.literal_eval):
        try:
            return _listed(parse(text))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text[1:-1]


def _names(one: Any) -> Iterable[str]:
    if isinstance(one, Mapping):
        return [str(one.get("name", ""))]
    return _listed(one) if isinstance(one, list | tuple | np.ndarray) else [str(one)]


def _split(text: str, separator: str | None) -> list[str]:
    return [text] if separator is None else text.split(separator)


def _joined(names: Iterable[str]) -> str | None:
    kept = [name.strip().replace("|", "/") for name in names]
    return "|".join(dict.fromkeys(name for name in kept if name not in _NO_GENRE)) or None
