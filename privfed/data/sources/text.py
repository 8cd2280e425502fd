"""Delimited text, read at full speed by Arrow; only where that fails is the bad line looked for and named."""

import codecs
import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.sources.files import Files

Kind: TypeAlias = Literal["whole", "number", "text", "ignored"]

_ARROW_TYPES = {"whole": pa.int64(), "number": pa.float64(), "text": pa.string(), "ignored": pa.string()}
_FIELD_SEPARATOR = b"\x1f"
_SHOWN = 80
_CHUNK = 2**24


@dataclass(frozen=True)
class TextLayout:
    """Layout of the lines of a file.

    Attributes:
        columns: Name and kind of each field, in order.
        separator: What stands between two fields (one or more characters).
        encoding: Character encoding.
        header: Whether the first line is a header.
        quoted: Whether a field may be wrapped in double quotes.
    """

    columns: Sequence[tuple[str, Kind]]
    separator: str
    encoding: str = "utf-8"
    header: bool = False
    quoted: bool = False


UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Table:
    """A parsed file.

    Attributes:
        frame: Its columns, ignored ones left out.
        where: Names the line of a row, for messages.
    """

    frame: pd.DataFrame
    where: Where


def read(files: Files, name: str, layout: TextLayout) -> Table:
    """Parse a file.

    Raises:
        DataError: The file is missing or empty, or a line is malformed (its number and content are in the
            message).
    """
    place = files.named(name)
    content = decoded(files, name).rstrip(b"\r\n")
    if layout.header and b"\n" not in content:
        raise DataError(f"{place} has a header and no rows: fetch it again or correct the path")
    single = len(layout.separator) == 1
    try:
        table = pa_csv.read_csv(
            io.BytesIO(content if single else content.replace(layout.separator.encode(), _FIELD_SEPARATOR)),
            read_options=pa_csv.ReadOptions(
                column_names=[column for column, _ in layout.columns],
                skip_rows=int(layout.header),
                encoding=layout.encoding,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=layout.separator if single else _FIELD_SEPARATOR.decode(),
                quote_char='"' if layout.quoted else False,
                ignore_empty_lines=False,
                newlines_in_values=layout.quoted and b'"' in content,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={column: _ARROW_TYPES[kind] for column, kind in layout.columns},
                include_columns=[column for column, kind in layout.columns if kind != "ignored"],
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(_first_fault(content, place, layout) or f"{place} cannot be parsed ({error})") from error
    first, lines = 1 + int(layout.header), content.count(b"\n") + 1
    if layout.quoted and table.num_rows + first - 1 < lines and content.count(b'"') % 2:
        raise DataError(f"{place} has a double quote that is never closed, which joins lines: close or double it")
    # Where a field runs over several lines, the number of a line cannot be told from that of a row.
    unit = "line" if table.num_rows + first - 1 == lines else "row"
    return Table(table.to_pandas(), lambda row: f"{place}, {unit} {row + (first if unit == 'line' else 1)}")


def header_of(files: Files, name: str, separator: str) -> list[str]:
    """The fields of the first line.

    Raises:
        DataError: The file is missing or empty.
    """
    return fields_of(first_line(files, name), separator, f"{files.named(name)}, line 1")


def first_line(files: Files, name: str) -> str:
    """The first line, without its end.

    Raises:
        DataError: The file is missing or empty, or its lines end as no program of today ends them.
    """
    line = decoded(files, name).split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r")
    if "\r" in line:
        place = files.named(name)
        raise DataError(f"{place} ends its lines with carriage returns alone, as old Macs did: save it with line feeds")
    return line


def fields_of(line: str, separator: str, source: str) -> list[str]:
    """The fields of a line in which some may be wrapped in double quotes.

    Raises:
        DataError: It cannot be split, as where a field is far too long.
    """
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error as error:
        raise DataError(f"{source} cannot be split into fields ({error}): correct or remove the line") from error


def decoded(files: Files, name: str) -> bytes:
    """The content of a file without a byte-order mark, in UTF-8 where the mark says UTF-16.

    Raises:
        DataError: The file is missing or empty, or is not the UTF-16 that it claims to be.
    """
    content = files.read(name)
    if not content.startswith(UTF_16):
        if b"\0" in content[:_CHUNK]:
            raise DataError(f"{files.named(name)} is not text: give a file that its name fits")
        return content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-16").encode()
    except UnicodeError as error:
        raise DataError(f"{files.named(name)} begins as UTF-16 and is not ({error}): save it as UTF-8") from error


def is_utf8(content: bytes) -> bool:
    """Whether the content is UTF-8 throughout."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), _CHUNK):
            decoder.decode(content[start : start + _CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _first_fault(content: bytes, place: str, layout: TextLayout) -> str | None:
    """One sentence on the first malformed line, or None where every line looks right."""
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if number == 1 and layout.header:
            continue
        line = raw.decode(layout.encoding, "replace").rstrip("\r")
        if "\r" in line and '"' not in line:
            fault: str | None = "a carriage return ends no line and stands in none"
        else:
            where = f"{place}, line {number}"
            fields = fields_of(line, layout.separator, where) if layout.quoted else line.split(layout.separator)
            fault = _fault(fields, layout)
        if fault is None and "\ufffd" in line:
            fault = f"it is not {layout.encoding} text"
        if fault:
            shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
            return f"{place}, line {number} is malformed ({shown!r}): {fault}; correct or remove the line"
    return None


def _fault(fields: list[str], layout: TextLayout) -> str | None:
    if len(fields) != len(layout.columns):
        names = ", ".join(column for column, _ in layout.columns)
        expected = f"{len(layout.columns)} fields ({names}) between {layout.separator!r}"
        return f"expected {expected}, found {len(fields)}"
    for field, (column, kind) in zip(fields, layout.columns, strict=True):
        if kind in ("whole", "number") and not _is_number(field, whole=kind == "whole"):
            return f"the {column} must be a {'whole ' if kind == 'whole' else ''}number, found {field!r}"
    return None


def _is_number(field: str, *, whole: bool) -> bool:
    try:
        return -(2**63) <= int(field) < 2**63 if whole else math.isfinite(float(field))
    except ValueError:
        return False
