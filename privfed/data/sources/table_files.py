"""One table, whatever it is written in: delimited text with a header, Parquet, Arrow (Feather) or JSON records."""

import io
from collections.abc import Mapping
from functools import partial
from pathlib import PurePosixPath

import pandas as pd
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pa_parquet

from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.sources import records, text
from privfed.data.sources.files import Files
from privfed.data.sources.layouts import PARQUET, RECORDS, TEXT

_SEPARATORS = (",", "\t", ";", "|")


def suffix(name: str) -> str:
    """How the name ends, in small letters."""
    return PurePosixPath(name).suffix.lower()


def stem(name: str) -> str:
    """The name without its end, in small letters."""
    return PurePosixPath(name).stem.lower()


def columns(files: Files, name: str) -> list[str]:
    """Names of the columns.

    Raises:
        DataError: The file is empty or unreadable.
    """
    if suffix(name) in TEXT:
        return text.header_of(files, name, _separator(files, name))
    if suffix(name) in RECORDS:
        return records.fields(files, name)
    names = _parquet_names(files, name) if suffix(name) == PARQUET else _arrow(files, name).column_names
    return [column for column in names if not column.startswith("__index_level_")]


def read(
    files: Files, name: str, wanted: Mapping[str, text.Kind] | None = None
) -> tuple[pd.DataFrame, Where, tuple[str, ...]]:
    """The table, what names a row, and what a person should know about it.

    Args:
        files: Where it lies.
        name: Its name.
        wanted: Column -> kind of the columns to read of delimited text; None for all, as text.

    Raises:
        DataError: The file is missing, empty or unreadable, a line is malformed, or a column's name stands twice.
    """
    if suffix(name) in RECORDS:
        return *records.read(files, name), ()
    place = files.named(name)
    if suffix(name) not in TEXT:
        table = _arrow(files, name)
        return _pandas(table, place), lambda row: f"{place}, row {row + 1}", ()
    separator = _separator(files, name)
    present = text.header_of(files, name, separator)
    if twice := [column for column in present if present.count(column) > 1]:
        raise DataError(f"{place} has two columns called {twice[0]!r}: rename one of them")
    kinds: list[tuple[str, text.Kind]] = [
        (column, "text" if wanted is None else wanted.get(column, "ignored")) for column in present
    ]
    utf8 = text.is_utf8(text.decoded(files, name))
    encoding = "utf-8" if utf8 else "cp1252"
    read = text.read(files, name, text.TextLayout(kinds, separator, encoding, header=True, quoted=True))
    note = f"{place} is not UTF-8 and was read as Windows-1252: save it as UTF-8 if names look wrong"
    return read.frame, read.where, () if utf8 else (note,)


def _separator(files: Files, name: str) -> str:
    if suffix(name) == ".tsv":
        return "\t"
    header = text.first_line(files, name)
    if "::" in header:
        raise DataError(
            f"{files.named(name)} has '::' between its fields, as MovieLens-1M does: call it ratings.dat (users.dat "
            "and movies.dat beside it), or put commas between its fields and a header above"
        )
    return max(_SEPARATORS, key=partial(_width, header))


def _width(header: str, separator: str) -> int:
    """Fields of a header between such separators; none where it cannot be split by them."""
    try:
        return len(text.fields_of(header, separator, ""))
    except DataError:
        return 0


def _parquet_names(files: Files, name: str) -> list[str]:
    try:
        names: list[str] = pa_parquet.read_schema(io.BytesIO(files.read(name))).names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(files, name, error) from error
    return names


def _unreadable(files: Files, name: str, error: Exception) -> DataError:
    kind = "parquet" if suffix(name) == PARQUET else "Arrow"
    return DataError(f"{files.named(name)} is not a readable {kind} file ({error}): write it again")


def _arrow(files: Files, name: str) -> pa.Table:
    content = io.BytesIO(files.read(name))
    parquet = suffix(name) == PARQUET
    try:
        return pa_parquet.read_table(content) if parquet else pa_feather.read_table(content)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(files, name, error) from error


def _pandas(table: pa.Table, place: str) -> pd.DataFrame:
    names = table.column_names
    if twice := [column for column in names if names.count(column) > 1]:
        raise DataError(f"{place} has two columns called {twice[0]!r}: rename one of them")
    try:
        # Whole numbers with gaps stay whole numbers, so that large ids keep their digits.
        frame: pd.DataFrame = table.to_pandas(integer_object_nulls=True)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{place} has a column that cannot be used ({error}): write it as plain values") from error
    return frame.reset_index() if frame.index.name in names else frame
