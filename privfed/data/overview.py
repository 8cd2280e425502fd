"""What a person wants to see of a data set before using it: who and what is described, examples, and times."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from privfed.data.interactions import Interactions

_EXAMPLES = 3
_PLAUSIBLE = (0, 4_102_444_800)
"""Unix seconds of 1970 to 2100."""
_LEAST_MILLISECONDS = 10**11


@dataclass(frozen=True)
class Described:
    """How many users or items are described.

    Attributes:
        total: How many there are.
        any: How many have any description.
        fields: Field -> how many have it.
    """

    total: int
    any: int
    fields: dict[str, int]

    def __str__(self) -> str:
        if not self.fields:
            return f"none of {self.total:,}"
        known = ", ".join(f"{name} {count:,}" for name, count in self.fields.items())
        return f"{self.any:,} of {self.total:,} ({known})"


@dataclass(frozen=True)
class Overview:
    """An overview of a data set.

    Attributes:
        users: Users with descriptions.
        items: Items with descriptions.
        example_users: Ids of some users, with what is known of them.
        example_items: Ids of some items, with what is known of them.
        times: First and last time as text; None where rows have none.
        recognised: What was taken for what.
        ignored: What was left aside, and why.
        notes: What a person should know.
    """

    users: Described
    items: Described
    example_users: tuple[str, ...]
    example_items: tuple[str, ...]
    times: tuple[str, str] | None
    recognised: tuple[str, ...]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def overview(data: Interactions) -> Overview:
    """What there is to see of a data set."""
    touched = np.argsort(-np.bincount(data.item, minlength=data.n_items), kind="stable")[:_EXAMPLES]
    return Overview(
        users=_described(data.attributes, data.n_users),
        items=_described(data.item_info, data.n_items),
        example_users=_examples(data.user_ids, data.attributes, np.arange(min(_EXAMPLES, data.n_users))),
        example_items=_examples(data.item_ids, data.item_info, touched),
        times=None if data.timestamp is None else (_moment(data.timestamp.min()), _moment(data.timestamp.max())),
        recognised=data.reading.recognised,
        ignored=data.reading.ignored,
        notes=data.reading.notes,
    )


def _described(frame: pd.DataFrame | None, total: int) -> Described:
    if frame is None:
        return Described(total, 0, {})
    known = frame.notna()
    fields = {str(name): int(count) for name, count in known.sum().items()}
    return Described(total, int(known.any(axis=1).sum()), fields)


def _examples(ids: pd.Index, frame: pd.DataFrame | None, codes: Any) -> tuple[str, ...]:
    """Ids and what is known of them, for example `50 (Star Wars (1977), Action|Sci-Fi)`."""

    def told(code: int) -> str:
        values = (
            [] if frame is None else [str(value) for value in frame.iloc[code] if np.ndim(value) or pd.notna(value)]
        )
        return f"{ids[code]} ({', '.join(values[:3])})" if values else str(ids[code])

    return tuple(told(int(code)) for code in codes)


def _moment(seconds: float) -> str:
    """A date where the number can be unix seconds or milliseconds, else the number."""
    seconds = seconds / 1000 if seconds > _LEAST_MILLISECONDS else seconds
    if _PLAUSIBLE[0] < seconds < _PLAUSIBLE[1]:
        return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d")
    return f"{seconds:g}"
