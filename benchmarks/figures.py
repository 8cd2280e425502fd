"""Figures as pages of the documentation show them: shares without a leading zero, intervals, spreads over seeds."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def figure(value: float, digits: int = 4) -> str:
    """A number, without a zero before the point."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


def signed(value: float, digits: int = 4) -> str:
    """A difference with its sign."""
    return ("+" if value >= 0 else "") + figure(value, digits)


def difference(interval: Sequence[float], digits: int = 4) -> str:
    """A difference and its interval: `[value, low, high]`."""
    value, low, high = interval
    return f"{signed(value, digits)} [{figure(low, digits)}, {figure(high, digits)}]"


def named(rows: Iterable[Row], **key: Any) -> list[Row]:
    """Rows that say this."""
    return [row for row in rows if all(row.get(name) == value for name, value in key.items())]


def only(rows: Iterable[Row], **key: Any) -> Row:
    """The one row that says this."""
    (row,) = named(rows, **key)
    return row


def values(rows: Iterable[Row], name: str) -> list[float]:
    """One number of every row."""
    return [float(row[name]) for row in rows]


def mean(numbers: Sequence[float], digits: int = 4) -> str:
    """The mean."""
    return figure(statistics.fmean(numbers), digits)


def with_range(numbers: Sequence[float], digits: int = 4) -> str:
    """Mean, and in brackets the smallest and the largest where there are several."""
    ends = f" ({figure(min(numbers), digits)} to {figure(max(numbers), digits)})" if len(numbers) > 1 else ""
    return mean(numbers, digits) + ends


def with_each(numbers: Sequence[float], digits: int = 4) -> str:
    """Mean, and in brackets the number of every seed where there are several."""
    each = f" ({', '.join(figure(number, digits) for number in numbers)})" if len(numbers) > 1 else ""
    return mean(numbers, digits) + each


def with_deviation(numbers: Sequence[float], digits: int = 4) -> str:
    """Mean, and the standard deviation over seeds where there are several."""
    spread = f" +-{figure(statistics.stdev(numbers), digits)}" if len(numbers) > 1 else ""
    return mean(numbers, digits) + spread


def in_order(rows: Iterable[Row], key: str) -> list[str]:
    """Different values of a field, in the order in which they first come."""
    return list(dict.fromkeys(str(row[key]) for row in rows))


def grouped(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    """Rows by a field, in the order in which its values first come."""
    return {name: named(rows, **{key: name}) for name in in_order(rows, key)}
