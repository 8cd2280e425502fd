"""A table of interactions: csv, tsv or parquet with named columns, or a folder of parquet tables.

A folder holds `interactions.parquet` and, optionally, `users.parquet` or `ids_users.parquet`, `items.parquet`
or `ids_items.parquet`, and `meta.json` (`terms`, and `catalog: {"items": n}` for the size of the catalogue).
Where a side table has both a code (`user`, `item`) and an original id (`user_id`, `item_id`), the codes of
the interactions are translated to original ids through it.
"""

import io
from collections.abc import Mapping
from typing import Any, Unpack

import pandas as pd
import pyarrow as pa

from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.people import demographics
from privfed.data.roles import resolve
from privfed.data.sources import meta, text
from privfed.data.sources.files import Files

MARKER = "interactions.parquet"
SEPARATORS = {".csv": ",", ".tsv": "\t"}

_KINDS: dict[str, text.Kind] = {"order": "whole", "rating": "number"}


def read(
    files: Files, main: str, columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]
) -> Interactions:
    """Read one csv, tsv or parquet file.

    Args:
        files: Where it lies.
        main: Its name.
        columns: Role (user, item, timestamp, order, rating, behaviour, split) -> column; roles not named here
            are played by the column of that very name, where there is one.
        options: For `build`.

    Raises:
        DataError: The file is missing or empty, a column is unknown, or a line is malformed.
    """
    rows, where = _interactions(files, main, columns)
    return build(**options, **rows, where=where)


def read_folder(
    files: Files, columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]
) -> Interactions:
    """Read a folder of parquet tables.

    Raises:
        DataError: As for `read`, or a code of the interactions is not in the side table.
    """
    rows, where = _interactions(files, MARKER, columns)
    described = meta.read(files)
    users = _side(files, ("users.parquet", "ids_users.parquet"))
    items = _side(files, ("items.parquet", "ids_items.parquet"))
    people: pd.DataFrame | None = None
    info: pd.DataFrame | None = None
    catalogue: pd.Index | int | None = described.n_items
    if users is not None:
        rows["user"], people = _translate(rows["user"], users, "user", where)
        people = demographics(people)
    if items is not None:
        rows["item"], info = _translate(rows["item"], items, "item", where)
        catalogue = info.index
    options.setdefault("terms", described.terms)
    return build(
        **options,
        **rows,
        catalogue=catalogue,
        attributes=people if people is not None and len(people.columns) else None,
        item_info=info if info is not None and "title" in info.columns else None,
        where=where,
    )


def _interactions(files: Files, main: str, columns: Mapping[str, str] | None) -> tuple[dict[str, Any], Where]:
    """Role -> column values, and what names a row."""
    place = files.named(main)
    suffix = main[main.rfind(".") :].lower()
    if suffix == ".parquet":
        frame = _parquet(files, main)
        roles = resolve(list(frame.columns), columns, place)
        return {role: frame[column] for role, column in roles.items()}, lambda row: f"{place}, row {row + 1}"
    present = text.header_of(files, main, SEPARATORS[suffix])
    roles = resolve(present, columns, place)
    role_of = {column: role for role, column in roles.items()}
    kinds: list[tuple[str, text.Kind]] = [
        (column, _KINDS.get(role_of[column], "text") if column in role_of else "ignored") for column in present
    ]
    table = text.read(files, main, text.TextLayout(kinds, SEPARATORS[suffix], header=True, quoted=True))
    return {role: table.frame[column] for role, column in roles.items()}, table.where


def _parquet(files: Files, name: str) -> pd.DataFrame:
    try:
        return pd.read_parquet(io.BytesIO(files.read(name)))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{files.named(name)} is not a readable parquet file ({error}): write it again") from error


def _side(files: Files, names: tuple[str, ...]) -> pd.DataFrame | None:
    return next((_parquet(files, name) for name in names if name in files.names), None)


def _translate(codes: "pd.Series[Any]", side: pd.DataFrame, what: str, where: Where) -> tuple[Any, pd.DataFrame]:
    """Original ids of the codes, and the side table by original id."""
    original = f"{what}_id" if f"{what}_id" in side.columns else what
    described = side.set_index(original).drop(columns=what, errors="ignore")
    if original == what or what not in side.columns:
        return codes, described
    known = side.dropna(subset=[what])
    position = pd.Index(known[what].astype("int64")).get_indexer(pd.Index(codes))
    if (position < 0).any():
        row = int((position < 0).argmax())
        raise DataError(f"{where(row)}: {what} {codes.iloc[row]} is not in the table of {what}s; add it there")
    return known[original].array.take(position), described
