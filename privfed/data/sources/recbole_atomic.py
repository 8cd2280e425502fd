"""RecBole atomic files: `NAME.inter`, `NAME.user`, `NAME.item`, under a typed header (`user_id:token`).

Format: https://recbole.io/docs/user_guide/data/atomic_files.html. The `.item` file, where there is one, adds items that
nobody touched to the catalogue. A published split is one file for each part: `NAME.train.inter`, `NAME.valid.inter`,
`NAME.test.inter`.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from privfed.data import frames, roles
from privfed.data.errors import DataError
from privfed.data.frames import Description
from privfed.data.interactions import Interactions
from privfed.data.options import BuildOptions
from privfed.data.reading import Reading
from privfed.data.sources import text
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import ATOMIC
from privfed.data.sources.rows import FileRows, united
from privfed.data.split_spec import PARTS

_KINDS: dict[str, text.Kind] = {"token": "text", "token_seq": "text", "float": "number", "float_seq": "text"}


def parts(names: Sequence[str]) -> list[str]:
    """The `.inter` file of a data set or those of its published split; nothing where it is neither."""
    found = [name for name in names if name.endswith(ATOMIC)]
    split = [name for name in found if _part(name) in PARTS]
    if len(split) == len(found) > 1 and len({_stem(name) for name in split}) == 1:
        return sorted(split, key=lambda name: PARTS.index(_part(name)))
    return found if len(found) == len(names) == 1 else []


def read(
    files: Files, names: Sequence[str], columns: Mapping[str, str] | None = None, **options: Unpack[BuildOptions]
) -> Interactions:
    """Read the files of one data set.

    Args:
        files: Where they lie.
        names: The `.inter` file, or one for each part of a split.
        columns: Role (user, item, timestamp, ...) -> field, where they are not RecBole's usual names.
        options: For `build`.

    Raises:
        DataError: A file is missing or empty, a header has no types, a field is unknown, or a line is
            malformed.
    """
    stem = _stem(names[0])
    read = [_atomic(files, name) for name in names]
    named = [
        roles.resolve(list(table.frame.columns), columns, files.named(name))
        for name, table in zip(names, read, strict=True)
    ]
    kept = [
        FileRows({role: table.frame[column] for role, column in columns_of.items()}, table.where)
        for table, columns_of in zip(read, named, strict=True)
    ]
    rows, where = kept[0] if len(kept) == 1 else united(kept, [_part(name) for name in names])
    phrases = tuple(roles.phrase(name, columns_of) for name, columns_of in zip(names, named, strict=True))
    described = {role: _described(files, f"{stem}.{role}", role, named[0][role]) for role in ("user", "item")}
    return frames.join(
        rows, described["item"], described["user"], where=where, reading=Reading(recognised=phrases), **options
    )


def _part(name: str) -> str:
    return name.removesuffix(ATOMIC).rpartition(".")[2]


def _stem(name: str) -> str:
    stem = name.removesuffix(ATOMIC)
    return stem.rpartition(".")[0] if "." in stem and _part(name) in PARTS else stem


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


def _described(files: Files, name: str, role: str, column: str) -> Description | None:
    if name not in files.names:
        return None
    table = _atomic(files, name)
    if column not in table.frame.columns:
        has = ", ".join(table.frame.columns)
        raise DataError(f"{files.named(name)} has no field {column!r} (it has {has}): add it to the header")
    # What RecBole calls a token_seq has spaces between its tokens.
    return frames.describe(table.frame, role, column, name, genre_separator=" ")
