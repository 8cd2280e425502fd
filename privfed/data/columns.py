"""Raw columns made safe: ids, times, numbers and labels checked value by value, the first bad row named."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
from jaxtyping import Float32, Float64, Int64

from privfed.data import identifiers
from privfed.data.errors import DataError
from privfed.data.split_spec import PARTS

Column: TypeAlias = Iterable[Any]
Where: TypeAlias = Callable[[int], str]
Time: TypeAlias = Int64[np.ndarray, "interactions"] | Float64[np.ndarray, "interactions"]

_BEYOND_INT64 = 2.0**63
_DAYS = 19000101, 21001231


def ids(values: Column, what: str, where: Where) -> pd.Index:
    """Ids as int64 where every one is a plain whole number ("7", 7.0, not "007"), else as strings.

    Raises:
        DataError: An id is missing, negative, not a whole number, or a floating-point number that has lost digits.
    """
    series = identifiers.plain(_series(values))
    _refuse(series.isna(), f"the {what} id is missing", where)
    if pd.api.types.is_float_dtype(series):
        _refuse(series.mod(1) != 0, f"the {what} id is not a whole number", where)
        lost = f"the {what} id is a floating-point number so large that its last digits are lost, use integers or text"
        _refuse(identifiers.imprecise(series), lost, where, series)
    series = identifiers.canonical(series)
    if pd.api.types.is_integer_dtype(series):
        way_out = "number from 0, or use ids that are text, such as n1 for -1; if it marks nobody, remove the row"
        _refuse(series < 0, f"the {what} id is negative", where, series, way_out)
    else:
        _refuse(series == "", f"the {what} id is empty", where)
        _refuse(series.str.contains("\n", regex=False), f"the {what} id has a line break in it", where)
    checked: pd.Index = pd.Index(series.array)
    return checked


def times(values: Column, where: Where) -> Time:
    """Unix seconds, from numbers or from dates (ISO 8601; without a zone they are read as UTC).

    Whole seconds come back as int64, fractions as float64.

    Raises:
        DataError: A time is missing, not finite, not readable, or beyond 64 bits, or all of them are dates such as
            20240501, which as seconds would lie in 1970.
    """
    series = _series(values)
    if not pd.api.types.is_datetime64_any_dtype(series):
        numeric = pd.to_numeric(series, errors="coerce")
        if pd.api.types.is_numeric_dtype(series) or numeric.notna().all():
            _refuse_days(numeric, where)
            if _is_exact(numeric):
                return numeric.to_numpy(np.int64)
            seconds = numbers(numeric, "timestamp", where)
            _refuse(np.abs(seconds) >= _BEYOND_INT64, "the timestamp is beyond 64 bits", where, series)
            return _whole_if_possible(seconds)
        dates = pd.to_datetime(series, format="ISO8601", utc=True, errors="coerce")
        _refuse(series.isna() | (series == ""), "the timestamp is missing", where)
        message = "the timestamp is neither unix seconds nor a date such as 2024-05-01T12:00:00"
        _refuse(dates.isna() & numeric.isna(), message, where, series)
        _refuse(dates.isna(), "the timestamp is a number among dates", where, series)
        series = dates
    _refuse(series.isna(), "the timestamp is missing", where)
    moments = pd.DatetimeIndex(series)
    moments = moments if moments.tz is None else moments.tz_convert("UTC").tz_localize(None)
    return _whole_if_possible(moments.to_numpy("datetime64[us]").astype(np.int64) / 1e6)


def _refuse_days(seconds: "pd.Series[Any]", where: Where) -> None:
    """Refuse numbers that are all days of the calendar, written without dashes."""
    if not len(seconds) or not seconds.between(*_DAYS).all() or (seconds % 1 != 0).any():
        return
    days = pd.to_datetime(seconds.astype("int64").astype(str), format="%Y%m%d", errors="coerce")
    message = "the timestamp is a date without dashes, which would be read as seconds since 1970"
    _refuse(np.full(len(seconds), bool(days.notna().all())), message, where, seconds, "write dates as 2024-05-01")


def numbers(values: Column, what: str, where: Where) -> Float64[np.ndarray, "interactions"]:
    """Finite numbers.

    Raises:
        DataError: A value is missing, not a number or not finite.
    """
    series = _series(values)
    numeric = pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    _refuse(~np.isfinite(numeric), f"the {what} is not a finite number", where, series)
    return numeric


def ratings(values: Column, where: Where) -> Float32[np.ndarray, "interactions"]:
    """Finite numbers of 32 bits.

    Raises:
        DataError: A value is missing, not a number, not finite or too large.
    """
    numeric = numbers(values, "rating", where)
    _refuse(np.abs(numeric) > np.finfo(np.float32).max, "the rating is too large", where, numeric)
    return numeric.astype(np.float32)


def whole_numbers(values: Column, what: str, where: Where) -> Int64[np.ndarray, "interactions"]:
    """Whole numbers, negative ones included.

    Raises:
        DataError: A value is missing, not a number, has a fraction, or is beyond 64 bits.
    """
    series = _series(values)
    if _is_exact(series):
        return series.to_numpy(np.int64)
    numeric = numbers(series, what, where)
    _refuse(numeric != np.rint(numeric), f"the {what} is not a whole number", where, numeric)
    _refuse(np.abs(numeric) >= _BEYOND_INT64, f"the {what} is beyond 64 bits", where, numeric)
    return numeric.astype(np.int64)


def labels(values: Column, what: str, where: Where) -> pd.Categorical:
    """Labels such as behaviours.

    Raises:
        DataError: A label is missing or empty.
    """
    series = _series(values)
    _refuse(series.isna() | (series == ""), f"the {what} is missing", where)
    return _categorical(series, None)


def parts(values: Column, where: Where) -> pd.Categorical:
    """Published parts of a split.

    Raises:
        DataError: A value is none of train, valid and test.
    """
    series = _series(values)
    _refuse(~series.isin(PARTS), f"the split must be one of {', '.join(PARTS)}", where, series)
    return _categorical(series, PARTS)


def _categorical(series: "pd.Series[Any]", categories: Any) -> pd.Categorical:
    coded: Any = pd.Categorical(series.astype(str), categories=categories)
    return cast(pd.Categorical, coded)


def _series(values: Column) -> "pd.Series[Any]":
    if isinstance(values, pd.Series | pd.Index):
        return pd.Series(values.array)
    return pd.Series(values if hasattr(values, "dtype") else list(values))


def _is_exact(series: "pd.Series[Any]") -> bool:
    """Whether the values are integers of 64 bits already, which a detour through floats would round."""
    if not pd.api.types.is_integer_dtype(series) or series.isna().any():
        return False
    return pd.api.types.is_signed_integer_dtype(series) or not len(series) or bool(series.max() < _BEYOND_INT64)


def _whole_if_possible(seconds: Float64[np.ndarray, "interactions"]) -> Time:
    return seconds.astype(np.int64) if np.array_equal(seconds, np.rint(seconds)) else seconds


def _refuse(bad: Any, message: str, where: Where, values: Any = None, way_out: str = "correct or remove it") -> None:
    rows = np.flatnonzero(np.asarray(bad, dtype=bool))
    if rows.size:
        row = int(rows[0])
        shown = "" if values is None else f" ({np.asarray(values)[row]})"
        more = f", and so it is in {rows.size - 1} more rows" if rows.size > 1 else ""
        raise DataError(f"{where(row)}: {message}{shown}{more}; {way_out}")
