"""The folder that LensKit's `Dataset.save` writes: `schema.json` and a Parquet table for each class it names.

Format: https://lkpy.lenskit.org/stable/guide/data/. An entity's table holds its ids (`item_id`) and attributes; the
table of a relationship holds row numbers of entities (`user_num`, `item_num`) and attributes such as `rating` and
`timestamp`. Where there are several kinds of interactions and none is the default, each is a behaviour.
"""

import json
from typing import Any, Unpack

import numpy as np
import pandas as pd

from privfed.data import frames
from privfed.data.errors import DataError
from privfed.data.frames import Description
from privfed.data.interactions import Interactions
from privfed.data.options import BuildOptions
from privfed.data.reading import Reading
from privfed.data.sources import table_files
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import LENSKIT

_USABLE = ("scalar", "list")


def read(files: Files, **options: Unpack[BuildOptions]) -> Interactions:
    """Read the interactions between users and items, and the attributes of both.

    Raises:
        DataError: The schema is not LensKit's, has no interactions of users with items, or a table lacks what it says.
    """
    schema = _schema(files)
    kinds = _interactions(schema, files)
    entities = {role: _entity(files, schema, role) for role in ("user", "item")}
    tables = [_relationship(files, kind, schema, entities) for kind in kinds]
    rows: dict[str, Any] = {str(role): values for role, values in pd.concat(tables, ignore_index=True).items()}
    if len(kinds) == 1:
        del rows["behaviour"]
    described = {role: _described(frame, role) for role, frame in entities.items()}
    phrases = tuple(f"{kind}.parquet: {', '.join(table.columns)}" for kind, table in zip(kinds, tables, strict=True))
    return frames.join(rows, described["item"], described["user"], reading=Reading(recognised=phrases), **options)


def _schema(files: Files) -> dict[str, Any]:
    place = files.named(LENSKIT)
    try:
        schema = json.loads(files.read(LENSKIT))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not valid JSON ({error}): save the data set again") from error
    if not isinstance(schema, dict) or not all(
        isinstance(schema.get(key), dict) for key in ("entities", "relationships")
    ):
        raise DataError(f"{place} is not a schema of LensKit: it names no entities and relationships")
    return schema


def _interactions(schema: dict[str, Any], files: Files) -> list[str]:
    """The relationships to read."""
    both = [
        name
        for name, kind in schema["relationships"].items()
        if isinstance(kind, dict) and {"user", "item"} <= set(kind.get("entities") or ())
    ]
    meant = [name for name in both if schema["relationships"][name].get("interaction")] or both
    if not meant:
        raise DataError(
            f"{files.named(LENSKIT)} names no interactions of users with items: save a data set that has them"
        )
    default = schema.get("default_interaction")
    return [default] if isinstance(default, str) and default in meant else meant


def _entity(files: Files, schema: dict[str, Any], role: str) -> pd.DataFrame:
    declared = schema["entities"].get(role)
    attributes = declared.get("attributes") if isinstance(declared, dict) else None
    return _table(files, role, [f"{role}_id"], attributes)


def _relationship(files: Files, kind: str, schema: dict[str, Any], entities: dict[str, pd.DataFrame]) -> pd.DataFrame:
    table = _table(files, kind, ["user_num", "item_num"], schema["relationships"][kind].get("attributes"))
    rows = {role: _ids(table[f"{role}_num"], frame[f"{role}_id"], kind, files) for role, frame in entities.items()}
    known = {column: table[column] for column in ("timestamp", "rating") if column in table}
    return pd.DataFrame(rows | known | {"behaviour": kind})


def _ids(numbers: "pd.Series[Any]", ids: "pd.Series[Any]", kind: str, files: Files) -> Any:
    rows = numbers.to_numpy(np.int64, na_value=-1)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(ids):
        raise DataError(
            f"{files.named(kind)}.parquet has numbers of rows that are not in the table of ids: save it again"
        )
    return ids.array.take(rows)


def _table(files: Files, name: str, needed: list[str], attributes: Any) -> pd.DataFrame:
    usable = [
        column
        for column, spec in (attributes or {}).items()
        if isinstance(spec, dict) and spec.get("layout", "scalar") in _USABLE
    ]
    frame, _, _ = table_files.read(files, f"{name}.parquet")
    if missing := [column for column in needed if column not in frame]:
        raise DataError(f"{files.named(name)}.parquet has no column {missing[0]!r}: save the data set again")
    return frame[[*needed, *(column for column in usable if column in frame)]]


def _described(frame: pd.DataFrame, role: str) -> Description:
    return frames.describe(frame, role, f"{role}_id", f"{role}.parquet")
