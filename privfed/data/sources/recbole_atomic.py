"""RecBole atomic files: `NAME.inter`, `NAME.user`, `NAME.item`, under a typed header (`user_id:token`).

Format: https://recbole.io/docs/user_guide/data/atomic_files.html. The `.item` file, where there is one, adds
    items that
nobody touched to the catalogue.
"""

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import pandas as pd

from privfed.data.errors import DataError
from privfed.data.interactions import Interactions, build
from privfed.data.options import BuildOptions
from privfed.data.people import demographics
from privfed.data.roles import resolve
from privfed.data.sources import text
from privfed.data.sources.files import Files

SUFFIX = ".inter"

_KINDS: dict[str, text.Kind] = {"token": "text", "token_seq": "text", "float": "number", "float_seq": "text"}
_TITLES = ("title", "movie_title", "item_name", "name")


def read(
    files: Files, main: str, columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]
) -> Interactions:
    """Read the files of one data set.

    Args:
        files: Where they lie.
        main: Name of the `.inter` file.
        columns: Role (user, item, timestamp, ...) -> field, where they are not RecBole's usual names.
        options: For `build`.

    Raises:
        DataError: A file is missing or empty, a header has no types, a field is unknown, or a line is
            malformed.
    """
    stem = main.removesuffix(SUFFIX)
    table = _atomic(files, main)
    roles = resolve(list(table.frame.columns), columns, files.named(main))
    rows: dict[str, Any] = {role: table.frame[column] for role, column in roles.items()}
    user_file, item_file = f"{stem}.user", f"{stem}.item"
    people = _atomic(files, user_file).frame if user_file in files.names else None
    info = _atomic(files, item_file).frame if item_file in files.names else None
    if people is not None:
        people = demographics(_by(people, roles["user"], files.named(user_file)))
    if info is not None:
        info = _by(info, roles["item"], files.named(item_file))
        titles = [column for column in _TITLES if column in info.columns]
        info = info.rename(columns={titles[0]: "title"} if titles else {})
    return build(
        **options,
        **rows,
        catalogue=None if info is None else np.concatenate([info.index.astype(str), rows["item"].astype(str)]),
        catalogue_derived=info is None or not rows["item"].astype(str).isin(info.index.astype(str)).all(),
        attributes=people,
        item_info=info if info is not None and "title" in info.columns else None,
        where=table.where,
    )


def _atomic(files: Files, name: str) -> text.Table:
    columns: list[tuple[str, text.Kind]] = []
    for field in text.header_of(files, name, "\t"):
        column, _, kind = field.partition(":")
        if kind not in _KINDS:
            raise DataError(
                f"{files.named(name)} has a header field {field!r} without a RecBole type: write it as "
                f"name:type with one of {', '.join(_KINDS)}"
            )
        columns.append((column, _KINDS[kind]))
    return text.read(files, name, text.TextLayout(columns, "\t", header=True))


def _by(frame: pd.DataFrame, column: str, place: str) -> pd.DataFrame:
    if column not in frame.columns:
        raise DataError(f"{place} has no field {column!r} (it has {', '.join(frame.columns)}): add it to the header")
    return frame.set_index(column)
