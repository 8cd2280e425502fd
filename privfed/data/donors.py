"""Donors: people who open their history to the server, and so take no part in any private sum.

Who they are is public: a list of user ids, or a share drawn from a seed and the number of users alone. They are taken
out of train, validation and test: nobody scores them, no query is sent to them, and no guarantee speaks of them. What
stays of them is `Donors`: their training items, as open as a published file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int64

from privfed.data.errors import DataError
from privfed.data.histories import Histories

_STREAM = 0xD0_40_25


@dataclass(frozen=True, slots=True, eq=False)
class Donors:
    """People who opened their history.

    Attributes:
        users: their user codes in the data set, ascending.
        histories: their training items, one row for each.
    """

    users: Int64[np.ndarray, " donors"]
    histories: Histories

    def rows_of(self, codes: Int64[np.ndarray, " n"], ids: pd.Index) -> Int64[np.ndarray, " n"]:
        """Rows of these users in the parts, which hold everybody else in the order of codes.

        Args:
            codes: user codes in the data set.
            ids: original id of every code, for the message.

        Raises:
            DataError: one of them is a donor.
        """
        below = np.searchsorted(self.users, codes)
        if (opened := np.isin(codes, self.users)).any():
            raise DataError(
                f"user {ids[int(codes[opened][0])]!s} is a donor, who takes no part in the run: recommend from the "
                "history instead, or leave the user out"
            )
        rows: np.ndarray = codes - below
        return rows


def chosen_donors(
    donors: float | Sequence[str] | None, ids: pd.Index, seed: int, source: str
) -> Int64[np.ndarray, " donors"]:
    """User codes of the donors, ascending.

    Args:
        donors: share of all users, drawn from the seed and their number alone; or their ids; None for nobody.
        ids: original id of every user code.
        seed: of the draw.
        source: what messages call the data set.

    Raises:
        DataError: an id is not known or given twice, a share is no share, or somebody or everybody else is missing.
    """
    if donors is None:
        return np.empty(0, np.int64)
    users = len(ids)
    codes = _drawn(donors, users, seed) if isinstance(donors, float) else _named(donors, ids, source)
    if not 0 < len(codes) < users:
        raise DataError(
            f"donors = {donors!r} makes {len(codes):,} of {users:,} users of {source} donors: at least one has to open "
            "a history and at least one has to keep it"
        )
    return np.sort(codes)


def _drawn(share: float, users: int, seed: int) -> Int64[np.ndarray, " donors"]:
    drawn: np.ndarray = np.random.default_rng([seed, _STREAM]).permutation(users)[: round(share * users)]
    return drawn


def _named(names: Sequence[str], ids: pd.Index, source: str) -> Int64[np.ndarray, " donors"]:
    codes: np.ndarray = ids.astype(str).get_indexer(pd.Index(list(names), dtype=str)).astype(np.int64)
    if (codes < 0).any():
        raise DataError(
            f"{source} has no user {names[int((codes < 0).argmax())]!r}, whom donors name: give ids from {ids[0]!s} to "
            f"{ids[-1]!s}"
        )
    if len(np.unique(codes)) < len(codes):
        raise DataError(f"donors name a user of {source} twice: name each once")
    return codes
