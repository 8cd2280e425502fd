"""Tables with named columns: one of interactions, or one for each part of a split, and those of items and users.

Any of them may be delimited text (csv, tsv, dat), Parquet, Arrow or JSON records; `meta.json` beside them may give
`terms`, and `catalog: {"items": n}` for the size of the catalogue. Where a table of items or users has both a code
(`item`, `user`) and an original id (`item_id`, `user_id`), the codes of the interactions are translated through it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import pandas as pd

from privfed.data import columns as raw
from privfed.data import frames, identifiers, roles
from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.frames import Description
from privfed.data.interactions import Interactions
from privfed.data.options import BuildOptions
from privfed.data.reading import Reading
from privfed.data.sources import layouts, meta, table_files, text
from privfed.data.sources.files import SPLIT_NAMES, Files
from privfed.data.sources.rows import FileRows, united
from privfed.data.split_spec import PARTS

_MAIN = (
    "interactions", "ratings", "events", "reviews", "purchases", "transactions", "clicks", "views", "plays", "checkins",
)  # fmt: skip
_DESCRIBING = {
    "user": ("users", "user", "customers", "people", "members", "visitors", "profiles"),
    "item": (
        "items", "item", "movies", "movie", "books", "products", "product", "artists", "songs", "tracks", "articles",
        "businesses", "games", "recipes", "venues", "anime", "metadata", "meta",
    ),
}  # fmt: skip
_KINDS: dict[str, text.Kind] = {"order": "whole", "rating": "number"}
_CHECKS: dict[str, Callable[[Any, Where], Any]] = {
    "timestamp": raw.times,
    "rating": raw.ratings,
    "behaviour": lambda values, where: raw.labels(values, "behaviour", where),
}


def mains(files: Files) -> list[str]:
    """The tables that hold interactions: one, the parts of a split, or several among which a person has to choose."""
    tables = [name for name in files.names if "/" not in name and layouts.is_table(name)]
    parts = [name for name in tables if table_files.stem(name) in SPLIT_NAMES]
    if {"train", "test"} <= {SPLIT_NAMES[table_files.stem(name)] for name in parts}:
        return sorted(parts, key=lambda name: PARTS.index(SPLIT_NAMES[table_files.stem(name)]))
    for word in _MAIN:
        if found := [name for name in tables if _is_called(name, (word,))]:
            return found
    fit = [name for name in tables if _plays_both(files, name)]
    return fit or [name for name in tables if not any(_is_called(name, words) for words in _DESCRIBING.values())]


def is_split(names: Sequence[str]) -> bool:
    """Whether each of these tables is a part of a split."""
    return len(names) > 1 and all(table_files.stem(name) in SPLIT_NAMES for name in names)


def read(
    files: Files, names: Sequence[str], columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]
) -> Interactions:
    """Read tables of interactions, and those of items and users beside them.

    Args:
        files: Where they lie.
        names: The table of interactions, or one for each part of a split.
        columns: Role (user, item, timestamp, order, rating, behaviour, split) -> column, where names are unusual.
        options: For `build`.

    Raises:
        DataError: A file is missing or empty, a column is unknown, a line is malformed, or a code is in no side table.
    """
    parts = [_part(files, name, columns) for name in names]
    rows, where = (
        parts[0].rows
        if len(parts) == 1
        else united([part.rows for part in parts], [SPLIT_NAMES[table_files.stem(name)] for name in names])
    )
    reading = sum((part.reading for part in parts), Reading())
    known = meta.read(files)
    described: dict[str, Description | None] = {}
    for role in ("user", "item"):
        side, reading_of_side = _side(files, role, parts[0].named[role], names)
        reading += reading_of_side
        described[role] = None
        if side is not None:
            rows[role], described[role] = _described(rows[role], side, role, parts[0].named[role], where)
    options.setdefault("terms", known.terms)
    return frames.join(
        rows, described["item"], described["user"], catalogue=known.n_items, where=where, reading=reading, **options
    )


@dataclass(frozen=True)
class _Part:
    """One table of interactions.

    Attributes:
        rows: Its values, and what names a row.
        named: Role -> column.
        reading: What was taken for what.
    """

    rows: FileRows
    named: dict[str, str]
    reading: Reading


@dataclass(frozen=True)
class _Side:
    """A table of users or items.

    Attributes:
        source: Its file, for messages.
        frame: Its rows.
    """

    source: str
    frame: pd.DataFrame


def _part(files: Files, name: str, columns: Mapping[str, str] | None) -> _Part:
    place = files.named(name)
    named = roles.resolve(table_files.columns(files, name), columns, place)
    certain = {role for role, column in named.items() if column == role or role in (columns or {})}
    kinds: dict[str, text.Kind] = {
        column: _KINDS.get(role, "text") if role in certain else "text" for role, column in named.items()
    }
    frame, where, notes = table_files.read(files, name, kinds)
    rows: dict[str, Any] = {role: frame[column] for role, column in named.items()}
    if table_files.suffix(name) in layouts.TEXT:
        rows |= {role: identifiers.without_trailing_zeros(rows[role]) for role in ("user", "item")}
    for role in [role for role in named if role in _CHECKS and role not in certain]:
        # A column that was guessed by its name must not stop the rest from being read.
        try:
            rows[role] = _CHECKS[role](rows[role], where)
        except DataError as problem:
            del rows[role]
            notes += (f"the column {named.pop(role)!r} was taken for the {role} and is left out: {problem}",)
    return _Part(FileRows(rows, where), named, Reading(recognised=(roles.phrase(name, named),), notes=notes))


def _side(files: Files, role: str, column: str, taken: Sequence[str]) -> tuple[_Side | None, Reading]:
    """The table that describes users or items, where there is one that has their ids."""
    called = [name for name in files.names if "/" not in name and layouts.is_table(name) and name not in taken]
    called = [name for name in called if _is_called(name, _DESCRIBING[role]) and not _plays_both(files, name)]
    if not called:
        return None, Reading()
    name = min(called, key=lambda name: _rank(name, _DESCRIBING[role]))
    frame, _, notes = table_files.read(files, name)
    if table_files.suffix(name) in layouts.TEXT:
        frame = frame.mask(frame == "")
        frame = frame.assign(
            **{key: identifiers.without_trailing_zeros(frame[key]) for key in _keys(frame, role, column)}
        )
    if not _keys(frame, role, column):
        has = ", ".join(frame.columns)
        return None, Reading(ignored=(f"{name}: it has no column {column!r} or {role!r} (it has {has})",))
    return _Side(name, frame), Reading(notes=notes)


def _keys(frame: pd.DataFrame, role: str, column: str) -> list[str]:
    """The column of a side table that holds ids, if any."""
    key = roles.key_column(list(frame.columns), role, column)
    return [] if key is None else [key]


def _described(codes: Any, side: _Side, role: str, column: str, where: Where) -> tuple[Any, Description]:
    """Original ids of the rows, and the side table by original id."""
    frame, original = side.frame, f"{role}_id"
    if column != role or not {role, original} <= set(frame.columns):
        key = roles.key_column(list(frame.columns), role, original if column == role else column)
        return codes, frames.describe(frame, role, key, side.source)
    known = frame.dropna(subset=[role])
    numbers = pd.Index(identifiers.canonical(known[role]).array)
    if numbers.has_duplicates:
        raise DataError(f"{side.source} has two rows for the {role} {numbers[numbers.duplicated()][0]}: keep one")
    codes = pd.Series(codes)
    wanted, numbers = identifiers.comparable(pd.Index(identifiers.canonical(codes).array), numbers)
    position = numbers.get_indexer(wanted)
    if (position < 0).any():
        row = int((position < 0).argmax())
        raise DataError(f"{where(row)}: {role} {codes.iloc[row]} is not in the table of {role}s; add it there")
    ids = known[original].array.take(position)
    return ids, frames.describe(frame.drop(columns=role), role, original, side.source)


def _is_called(name: str, words: Sequence[str]) -> bool:
    """Whether the first or the last word of the file's name is one of `words`."""
    return _rank(name, words) < len(words)


def _rank(name: str, words: Sequence[str]) -> int:
    told = re.split(r"[^a-z0-9]+", table_files.stem(name))
    return min((words.index(word) for word in (told[0], told[-1]) if word in words), default=len(words))


def _plays_both(files: Files, name: str) -> bool:
    """Whether the table has both users and items."""
    try:
        return roles.plays_both(table_files.columns(files, name))
    except DataError:
        return False
