"""A list of ids: one on each line of a text file, or a column of a table."""

from pathlib import Path
from typing import Literal

import pandas as pd

from privfed.data import columns, identifiers, roles
from privfed.data.errors import DataError
from privfed.data.sources import layouts, table_files, text
from privfed.data.sources.files import folder


def read_ids(path: Path, role: Literal["user", "item"]) -> pd.Index:
    """The ids of a file, as they stand in it.

    Args:
        path: A table with a column of such ids, or a text with one id on each line; a first line that is the name of
            such a column is a header.
        role: Whether they are of users or of items.

    Raises:
        DataError: The file is missing or empty, or has no such column.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}: correct the path")
    files, name = folder(path.parent), path.name.removesuffix(".gz")
    if layouts.is_table(name) and len(present := table_files.columns(files, name)) > 1:
        if (key := roles.key_column(present, role)) is None:
            raise DataError(
                f"{path} has no column {role!r} (it has {', '.join(present)}): call the column of ids {role}"
            )
        frame, where, _ = table_files.read(files, name, {key: "text"})
        return columns.ids(identifiers.without_trailing_zeros(frame[key]), role, where)
    if table_files.suffix(name) not in ("", ".txt", *layouts.TEXT):
        frame, where, _ = table_files.read(files, name)
        return columns.ids(frame.iloc[:, 0], role, where)
    lines = [line.strip() for line in text.decoded(files, name).decode("utf-8", "replace").splitlines()]
    lines = lines[1:] if roles.key_column(lines[:1], role) else lines
    return columns.ids([line for line in lines if line], role, lambda row: f"{path}, id {row + 1}")
