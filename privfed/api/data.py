"""`privfed.load`: a data set by name, from a path, or from DataFrames."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import pandas as pd

from privfed.data import DataError, Interactions, build, catalogue, columns
from privfed.data import load as load_source

_ROLES = ("user", "item", "time", "timestamp", "order", "rating", "behaviour", "split")
_CALLED = {"time": "timestamp"}
"""Role of a column -> what the data layer calls it."""


@dataclass(frozen=True, eq=False, repr=False)
class Data(Interactions):
    """A data set, and where it can be found again.

    Attributes:
        source: name or absolute path; "" of DataFrames, which a saved run does not keep.
        columns: role -> column of a table of one's own; None where the data set names them itself.
    """

    source: str = ""
    columns: dict[str, str] | None = None

    @classmethod
    def from_interactions(
        cls, interactions: Interactions, source: str = "", columns: Mapping[str, str] | None = None
    ) -> Self:
        """The same interactions with their source."""
        values = {field.name: getattr(interactions, field.name) for field in fields(Interactions)}
        return cls(**values, source=source, columns=None if columns is None else dict(columns))

    def __repr__(self) -> str:
        card = self.card
        mark = " (synthetic)" if card.synthetic else ""
        return (
            f"{card.name}{mark}: {card.users:,} users, {card.items:,} items, {card.interactions:,} interactions "
            f"({card.density:.2%} of all pairs)"
        )


def load(
    source: str | os.PathLike[str] | pd.DataFrame,
    *,
    items: pd.DataFrame | None = None,
    users: pd.DataFrame | None = None,
    columns: Mapping[str, str] | None = None,
    name: str = "DataFrame",
) -> Data:
    """Load a data set.

    Args:
        source: a name (`ml-100k`, `synthetic`, ...), the path of a file or folder, or a DataFrame with the columns
            `user` and `item` and, where there are such, `time`, `rating` and `behaviour`. Other columns are ignored,
            and repeated rows are dropped and counted.
        items: with a DataFrame, a description of every item there is: a column `item` (or an index of item ids) and,
            where known, `title`, `genres` (joined by bars), `release_date`.
        users: with a DataFrame, a description of people: a column `user` (or an index of user ids) and, where known,
            `gender`, `age`, `occupation`. Only an audit's attacks read it.
        columns: role -> column, where columns have other names: `columns={"user": "customer", "time": "bought_at"}`.
        name: of the DataFrame, for what is printed.

    Returns:
        The data set; `print` shows its size.

    Raises:
        ValueError: it is not to be had, or something in it is unfit; one sentence says what and where.

    Example:
        >>> import pandas as pd, privfed
        >>> bought = pd.DataFrame({"user": ["ann", "ann", "bob"], "item": [3, 4, 3]})
        >>> privfed.load(bought, name="shop")
        shop: 2 users, 2 items, 3 interactions (75.00% of all pairs)
    """
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, items, users, columns or {}, name)
    if items is not None or users is not None:
        raise DataError("items and users describe a DataFrame: load the interactions as a DataFrame, too")
    given = os.fspath(source)
    if os.sep in given and not Path(given).expanduser().exists():
        raise DataError(f"there is no file or folder {given}: correct the path")
    path = Path(given).expanduser()
    known = {dataset.name for dataset in catalogue.list()}
    place = str(path.resolve()) if given not in known and path.exists() else given
    named = None if columns is None else {_CALLED.get(role, role): column for role, column in columns.items()}
    return Data.from_interactions(load_source(place, columns=named), place, named)


def as_data(given: Any) -> Data:
    """What `privfed.load` gives, from anything that names or holds a data set."""
    if isinstance(given, Data):
        return given
    if isinstance(given, Interactions):
        known = {dataset.name for dataset in catalogue.list()}
        return Data.from_interactions(given, given.name if given.name in known else "")
    if isinstance(given, str | os.PathLike | pd.DataFrame):
        return load(given)
    raise DataError(
        f"data is a {type(given).__name__}: give the name of a data set, a path, a DataFrame, or what privfed.load gave"
    )


def _from_frame(
    frame: pd.DataFrame,
    items: pd.DataFrame | None,
    users: pd.DataFrame | None,
    chosen: Mapping[str, str],
    name: str,
) -> Data:
    roles = sorted(_roles(frame, chosen).items(), key=lambda one: one[0] in chosen)
    values: dict[str, Any] = {_CALLED.get(role, role): frame[column] for role, column in roles}
    info, people = _described(items, "item"), _described(users, "user")
    if info is not None and "title" not in info:
        info = info.assign(title=None)
    return Data.from_interactions(
        build(
            name,
            **values,
            catalogue=None if info is None else info.index,
            item_info=info,
            attributes=people,
            where=lambda row: f"row {row + 1} of {name}",
        )
    )


def _roles(frame: pd.DataFrame, chosen: Mapping[str, str]) -> dict[str, str]:
    """Role -> column of the frame.

    Raises:
        DataError: a role or a column is unknown, or no column plays user or item.
    """
    if unknown := [role for role in chosen if role not in _ROLES]:
        raise DataError(f"columns names {unknown[0]!r}, which is no role: choose among {', '.join(_ROLES)}")
    present = [str(column) for column in frame.columns]
    wanted = {role: chosen.get(role, role) for role in _ROLES}
    for role, column in wanted.items():
        if column not in present and (role in chosen or role in ("user", "item")):
            raise DataError(
                f"the DataFrame has no column {column!r} for the {role} (it has {', '.join(present) or 'none'}): "
                f"rename a column, or say which one it is, as in columns={{'{role}': {(present or [role])[0]!r}}}"
            )
    return {role: column for role, column in wanted.items() if column in present}


def _described(frame: pd.DataFrame | None, what: str) -> pd.DataFrame | None:
    """Descriptions by original id, in the form that ids of interactions have: 1.0 is 1."""
    if frame is None:
        return None
    ids: Any = frame[what] if what in frame.columns else frame.index
    if what not in frame.columns and frame.index.name not in (what, f"{what}_id"):
        raise DataError(
            f"{what}s has no column {what!r} (it has {', '.join(map(str, frame.columns))}): rename the column of ids"
        )
    index = columns.ids(ids, what, lambda row: f"row {row + 1} of {what}s")
    return frame.drop(columns=what, errors="ignore").set_axis(index, axis=0)
