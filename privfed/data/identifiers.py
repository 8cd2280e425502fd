"""Ids as people store them, made comparable: 7, 7.0, nullable 7, a category of 7 and "7" are one id.

Of a column of numbers whatever is whole is a whole number. Text stays as it is ("007" and "7" are two ids), except
that a column of nothing but plain whole numbers is read as numbers. Where text has to be compared with numbers, "7.0"
is 7 if every id of the text column is a whole number.
"""

from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

_WHOLE_NUMBER = r"-?(?:0|[1-9]\d{0,18})"
_WHOLE_WITH_ZEROS = rf"({_WHOLE_NUMBER})(?:\.0*)?"


def canonical(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """The same ids as int64 where all are plain whole numbers that fit, else as text; no value may be missing."""
    series = plain(series)
    if pd.api.types.is_float_dtype(series):
        values = series.to_numpy(np.float64)
        if not ((values % 1 == 0) & (np.abs(values) < 2**63)).all():
            return series.map(_text).astype(str)
        return pd.Series(values.astype(np.int64))
    if pd.api.types.is_integer_dtype(series):
        fits = pd.api.types.is_signed_integer_dtype(series) or series.max() < 2**63
        return pd.Series(series.to_numpy(np.int64)) if fits else series.astype(str)
    if pd.api.types.is_object_dtype(series):
        series = series.map(_text)
    codes, distinct = pd.factorize(series.astype(str))
    if len(distinct) and pd.Series(distinct).str.fullmatch(_WHOLE_NUMBER).all():
        with suppress(OverflowError):
            return pd.Series(distinct.astype("int64").to_numpy()[codes])
    return pd.Series(distinct.take(codes))


def plain(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """The same values without the dictionary that a categorical or an Arrow column keeps them in."""
    dtype: Any = series.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_dictionary(dtype.pyarrow_dtype):
        return series.astype(pd.ArrowDtype(dtype.pyarrow_dtype.value_type))
    if not isinstance(dtype, pd.CategoricalDtype):
        return series
    codes = series.cat.codes.to_numpy()
    values = plain(pd.Series(dtype.categories))
    if pd.api.types.is_integer_dtype(values) and (codes < 0).any():
        # Whole numbers with gaps would become floats and lose digits.
        values = values.astype("Int64")
    return values.reindex(codes).reset_index(drop=True)


def without_trailing_zeros(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """Text that was written from numbers, "7.0", as whole numbers, where every id that is there is one."""
    text = series.astype(str)
    distinct = pd.Series(text.dropna().unique(), dtype=str)
    if not distinct.str.contains(".", regex=False).any():
        return series
    whole = distinct.str.extract(f"^{_WHOLE_WITH_ZEROS}$", expand=False)
    if (whole.isna() & (distinct != "")).any():
        return series
    return text.map(dict(zip(distinct, whole.fillna(""), strict=True))).astype(str)


def comparable(one: pd.Index, other: pd.Index) -> tuple[pd.Index, pd.Index]:
    """Two columns of canonical ids in one form: numbers if both are, else text."""
    return (one, other) if one.dtype == other.dtype else (_as_text(one), _as_text(other))


def _as_text(ids: pd.Index) -> pd.Index:
    whole = pd.api.types.is_integer_dtype(ids)
    return ids.astype(str) if whole else pd.Index(without_trailing_zeros(pd.Series(ids)).array)


def imprecise(series: "pd.Series[Any]") -> Any:
    """True for whole floating-point numbers too large to tell one from the next."""
    dtype: Any = series.dtype
    kind = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    return np.abs(series.to_numpy(np.float64, na_value=0.0)) > 2.0 ** (np.finfo(kind).nmant + 1)


def _text(value: object) -> str:
    """One id as text: bytes decoded, 7.0 and Decimal("7.00") as 7."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float | np.floating | Decimal) and value == value // 1:
        return str(int(value))
    return str(value)
