"""Tables in memory, and what describes their users and items, joined to one data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import pandas as pd

from privfed.data import descriptions, identifiers, roles
from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.interactions import Duplicates, Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.reading import Reading

_ENOUGH = 0.5


@dataclass(frozen=True)
class Description:
    """A table of users or items.

    Attributes:
        source: What messages call it.
        frame: One row for each, indexed by original id.
    """

    source: str
    frame: pd.DataFrame


def from_frames(
    interactions: pd.DataFrame,
    items: pd.DataFrame | None = None,
    users: pd.DataFrame | None = None,
    *,
    name: str = "frame",
    columns: Mapping[str, str] | None = None,
    duplicates: Duplicates = "drop",
    min_per_user: int = 1,
    terms: str | None = None,
) -> Interactions:
    """A data set from DataFrames.

    Columns are recognised by their usual names (user, user_id, userId, customer_id, ...; item, movieId, asin, ...;
    timestamp, rating, behaviour, order, split). What `items` and `users` describe is matched by id: 7, 7.0 and "7" are
    one id. Items that nobody touched belong to the catalogue.

    Args:
        interactions: One row for each interaction.
        items: One row for each item: its id and, where known, title, genres, release_date, ...
        users: One row for each user: the id and, where known, gender, age, occupation, ...
        name: What to call the data set.
        columns: Role (user, item, timestamp, order, rating, behaviour, split) -> column, where names are unusual.
        duplicates: "drop" keeps the earliest of the rows with equal user and item; "keep" keeps them all.
        min_per_user: Leave out users with fewer rows than this.
        terms: Terms of use.

    Raises:
        DataError: A column is missing or a value is unfit; the sentence says what to do.
    """
    named = resolved(interactions, columns, "the DataFrame")
    data = join(
        {role: interactions[column] for role, column in named.items()},
        None if items is None else describe(items, "item", named["item"], "the DataFrame of items"),
        None if users is None else describe(users, "user", named["user"], "the DataFrame of users"),
        reading=Reading(recognised=(roles.phrase("interactions", named),)),
        name=name,
        duplicates=duplicates,
        min_per_user=min_per_user,
        terms=terms,
    )
    data.reading.announce()
    return data


def resolved(frame: pd.DataFrame, columns: Mapping[str, str] | None, source: str) -> dict[str, str]:
    """Role -> column of a table of interactions.

    Raises:
        DataError: No column plays user or item, or one that was chosen is not there.
    """
    if not all(isinstance(column, str) for column in frame.columns):
        raise DataError(f"{source} has columns whose names are not text: give each column a name such as user or item")
    return roles.resolve(list(frame.columns), columns, source)


def describe(
    frame: pd.DataFrame, role: str, column: str | None, source: str, *, genre_separator: str | None = None
) -> Description:
    """A table of users or items by original id, its columns under their usual names.

    Args:
        frame: The table; where no column holds the ids, its index does.
        role: "user" or "item".
        column: What the ids are called among the interactions.
        source: What messages call the table.
        genre_separator: What stands between two genres, where the format says it.

    Raises:
        DataError: Nothing in it is an id.
    """
    key = roles.key_column([str(name) for name in frame.columns], role, column)
    if key is None:
        if isinstance(frame.index, pd.RangeIndex):
            has = ", ".join(str(name) for name in frame.columns)
            raise DataError(f"{source} has no column for the {role} (it has {has}): call the column of ids {role!r}")
        frame, key = frame.rename_axis(role).reset_index(), role
    indexed = descriptions.described(frame, key)
    return Description(
        source, descriptions.items(indexed, genre_separator) if role == "item" else descriptions.users(indexed)
    )


def join(
    rows: Mapping[str, Any],
    items: Description | None,
    users: Description | None,
    *,
    catalogue: int | None = None,
    where: Where = lambda row: f"row {row + 1}",
    reading: Reading,
    **options: Unpack[BuildOptions],
) -> Interactions:
    """Interactions and what is known of their items and users.

    Raises:
        DataError: A value is unfit, or a user or an item is described twice.
    """
    used = pd.Index(identifiers.canonical(pd.Series(rows["item"]).dropna()).unique())
    item_match = _matched(items, "item", used)
    listed = None if items is None or not item_match.found else _united(used, items)
    info, people = (None if table is None or not len(table.frame.columns) else table.frame for table in (items, users))
    data = build(
        **options,
        **rows,
        catalogue=catalogue if listed is None else listed,
        catalogue_derived=catalogue is None and item_match.found < len(used),
        item_info=info if item_match.found else None,
        attributes=people,
        where=where,
    )
    user_match = _matched(users, "user", data.user_ids)
    if not user_match.found:
        data = replace(data, attributes=None)
    return replace(data, reading=reading + item_match.reading + user_match.reading)


@dataclass(frozen=True)
class _Match:
    """How many ids in use are described, and what there is to say about it."""

    found: int = 0
    reading: Reading = field(default_factory=Reading)


def _united(used: pd.Index, items: Description) -> pd.Index:
    """Every item that is described or used."""
    used, described = identifiers.comparable(used, pd.Index(identifiers.canonical(pd.Series(items.frame.index.array))))
    return described.append(used).unique()


def _matched(table: Description | None, what: str, known: pd.Index) -> _Match:
    """How many of the ids in use are described; a note where none or less than half are."""
    if table is None:
        return _Match()
    known, described = identifiers.comparable(
        known, pd.Index(identifiers.canonical(pd.Series(table.frame.index)).array)
    )
    found = int(known.isin(described).sum())
    fields = ", ".join(map(str, table.frame.columns)) or "nothing but ids"
    reading = Reading(recognised=(f"{table.source}: {what}s, {fields}; {found:,} of {len(known):,} {what}s described",))
    if found >= _ENOUGH * len(known):
        return _Match(found, reading)
    only = "none" if not found else f"only {found:,}"
    mine, theirs = (", ".join(map(repr, map(str, some[:3]))) for some in (known[~known.isin(described)], described))
    note = (
        f"{only} of the {len(known):,} {what}s in use {'are' if found > 1 else 'is'} described in {table.source}: ids "
        f"there look like {theirs or 'nothing'} and those of the interactions like {mine}, so write both alike"
    )
    return _Match(found, reading + Reading(notes=(note,)))
