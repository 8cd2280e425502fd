"""What public descriptions say about items in numbers: genres as flags, and the year in which they appeared."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float64

_YEAR_IN_TITLE, _YEAR_IN_DATE = r"\((\d{4})\)[^()]*$", r"(\d{4})\s*$"


@dataclass(frozen=True, slots=True, eq=False)
class ItemFeatures:
    """Public features of a catalogue, as far as its descriptions have them.

    Attributes:
        genres: 1 where an item has a genre; None where no item has any.
        years: of appearance, the median of the known ones where an item's is missing; None where none is known.
    """

    genres: Float64[np.ndarray, "items genres"] | None
    years: Float64[np.ndarray, " items"] | None


def item_features(info: pd.DataFrame | None) -> ItemFeatures | None:
    """Features from the columns `genres` (names joined by bars), `title` (which may end in a year) and `release_date`.

    Args:
        info: one row per item.

    Returns:
        None where there are neither genres nor years.
    """
    if info is None:
        return None
    genres = None if "genres" not in info else _flags(info["genres"])
    years = _years(info)
    return None if genres is None and years is None else ItemFeatures(genres, years)


def _flags(names: "pd.Series[str]") -> Float64[np.ndarray, "items genres"] | None:
    named = names.fillna("").str.get_dummies("|").drop(columns="", errors="ignore")
    flags: np.ndarray = named.to_numpy(np.float64)
    return flags if flags.any() else None


def _years(info: pd.DataFrame) -> Float64[np.ndarray, " items"] | None:
    years = pd.Series(np.nan, index=info.index)
    for column, pattern in (("title", _YEAR_IN_TITLE), ("release_date", _YEAR_IN_DATE)):
        if column in info:
            found = info[column].astype("string").str.extract(pattern, expand=False)
            years = years.fillna(pd.to_numeric(found).astype(np.float64))
    return None if years.isna().all() else years.fillna(years.median()).to_numpy(np.float64)
