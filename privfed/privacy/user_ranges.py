"""User numbers as ranges in a text, `0-941,943`: exact, short for everybody and readable for a few."""

import re

import numpy as np
from jaxtyping import Bool, Int64

from privfed.privacy.errors import LedgerError

_USER = "(?:0|[1-9][0-9]{0,17})"
_RANGES = re.compile(f"{_USER}(?:-{_USER})?(?:,{_USER}(?:-{_USER})?)*")


def to_ranges(members: Int64[np.ndarray, " members"]) -> str:
    """Ascending distinct numbers as ranges: [0, 1, 2, 7] -> "0-2,7"."""
    if len(members) == 0:
        return ""
    breaks = np.flatnonzero(np.diff(members) != 1)
    starts = members[np.concatenate(([0], breaks + 1))].tolist()
    ends = members[np.concatenate((breaks, [len(members) - 1]))].tolist()
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def from_ranges(text: str, *, limit: int) -> Int64[np.ndarray, " members"]:
    """The numbers of `to_ranges`; nothing is made of a text before it is known to name fewer than `limit` numbers.

    Args:
        text: ascending disjoint ranges of numbers without signs, spaces and leading zeros.
        limit: number that every number is below: the population.

    Raises:
        LedgerError: anything else.
    """
    if len(text) > limit * (len(str(limit)) + 1):
        raise LedgerError(f"ranges of {len(text)} characters are longer than any of {limit} users can be; drop it")
    ranges = _ends(text)
    if ranges.size and ranges[-1, 1] >= limit:
        raise LedgerError(f"a list of ranges names user {ranges[-1, 1]} of {limit} users, numbered from 0; drop it")
    return _expanded(ranges)


def all_of(text: str) -> Int64[np.ndarray, " members"]:
    """The numbers of ranges that are known to be bounded."""
    return _expanded(_ends(text))


def among(text: str, users: Int64[np.ndarray, " users"]) -> Bool[np.ndarray, " users"]:
    """Which of some users ranges name, however many more they name.

    Raises:
        LedgerError: they are not ranges.
    """
    ranges = _ends(text)
    if not ranges.size:
        return np.zeros(len(users), dtype=np.bool_)
    at = np.searchsorted(ranges[:, 0], users, side="right") - 1
    named: Bool[np.ndarray, " users"] = (at >= 0) & (users <= ranges[at, 1])
    return named


def last_of(text: str) -> int:
    """The largest number that ranges name; -1 where they name none.

    Raises:
        LedgerError: they are not ranges.
    """
    ranges = _ends(text)
    return int(ranges[-1, 1]) if ranges.size else -1


def _ends(text: str) -> Int64[np.ndarray, "ranges 2"]:
    """First and last number of every range."""
    if not text:
        return np.empty((0, 2), dtype=np.int64)
    if _RANGES.fullmatch(text) is None:
        raise LedgerError(f"participants {text[:40]!r} are not ranges such as '0-2,7'")
    pairs = [part.partition("-") for part in text.split(",")]
    ranges = np.array([(int(first), int(last or first)) for first, _, last in pairs], dtype=np.int64)
    if (ranges[:, 1] < ranges[:, 0]).any() or (ranges[1:, 0] <= ranges[:-1, 1]).any():
        raise LedgerError(f"participants {text[:40]!r} are not ascending ranges")
    return ranges


def _expanded(ranges: Int64[np.ndarray, "ranges 2"]) -> Int64[np.ndarray, " members"]:
    lengths = ranges[:, 1] - ranges[:, 0] + 1
    before = np.cumsum(lengths) - lengths  # numbers of all earlier ranges
    return np.repeat(ranges[:, 0] - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)
