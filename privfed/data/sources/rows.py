"""Rows of interactions from one file, and from several, one for each part of a published split."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from privfed.data.columns import Where


class FileRows(NamedTuple):
    """What one file says.

    Attributes:
        values: Role -> values.
        where: Names a row, for messages.
    """

    values: dict[str, Any]
    where: Where


def united(files: Sequence[FileRows], parts: Sequence[str]) -> FileRows:
    """The rows of all files, with the roles that all of them have, each with its part of the split."""
    shared = [role for role in files[0].values if all(role in file.values for file in files)]
    values: dict[str, Any] = {
        role: pd.concat([pd.Series(file.values[role]) for file in files], ignore_index=True) for role in shared
    }
    lengths = [len(file.values["user"]) for file in files]
    ends = np.cumsum(lengths)
    values["split"] = np.repeat(parts, lengths)

    def where(row: int) -> str:
        number = int(np.searchsorted(ends, row, side="right"))
        return files[number].where(row - int(ends[number] - lengths[number]))

    return FileRows(values, where)
