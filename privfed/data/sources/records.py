"""JSON records, one on each line or all in one list, as a table."""

import io
import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.json as pa_json

from privfed.data.columns import Where
from privfed.data.errors import DataError
from privfed.data.sources import text
from privfed.data.sources.files import Files

_SHOWN = 80
_BLOCK = 2**24


def read(files: Files, name: str) -> tuple[pd.DataFrame, Where]:
    """Every record as a row.

    Raises:
        DataError: The file is missing or empty, or something in it is not a JSON object.
    """
    place, content = files.named(name), text.decoded(files, name)
    if _is_list(content):
        return _frame(_parsed(content, place), place), lambda row: f"{place}, record {row + 1}"
    try:
        # Arrow reads what has the same fields and types on every line; the rest is left to Python.
        table = pa_json.read_json(io.BytesIO(content), read_options=pa_json.ReadOptions(block_size=_BLOCK))
        frame = table.to_pandas()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        frame = _frame(_lines(content, place), place)
    return frame, lambda row: f"{place}, line {row + 1}"


def fields(files: Files, name: str) -> list[str]:
    """Names of the first record's fields, or nothing where there is no record."""
    content = text.decoded(files, name)
    try:
        end = len(content) if _is_list(content) else content.find(b"\n") % (len(content) + 1)
        first = json.loads(content[:end])
    except (ValueError, RecursionError):
        return []
    first = first[0] if isinstance(first, list) and first else first
    return list(first) if isinstance(first, dict) else []


def _is_list(content: bytes) -> bool:
    return content[:_SHOWN].lstrip().startswith(b"[")


def _parsed(content: bytes, place: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place} is not valid JSON ({error}): correct it") from error


def _lines(content: bytes, place: str) -> list[Any]:
    records = []
    for number, line in enumerate(content.rstrip().split(b"\n"), start=1):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            shown = line[:_SHOWN].decode("utf-8", "replace") + ("..." if len(line) > _SHOWN else "")
            raise DataError(
                f"{place}, line {number} is not valid JSON ({shown!r}): write one object on each line, names and texts "
                "in double quotes"
            ) from error
    return records


def _frame(records: Any, place: str) -> pd.DataFrame:
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{place} holds something other than JSON objects: write one object for each row")
    return pd.DataFrame.from_records(records)
