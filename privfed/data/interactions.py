"""A data set in memory: one row per interaction, coded ids, and a card that says what was read.

`build` is the only way in: every loader hands it raw columns with the original ids. It checks them, gives
users and items 0-based codes (the rank of the sorted original ids), removes repeated (user, item) rows unless
duplicates are to be kept, and counts what it did. It never invents a time: where a source has none, the data set has
none.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float32, Int64
from pydantic import BaseModel, ConfigDict

from privfed.data import columns, identifiers
from privfed.data.columns import Column, Time, Where
from privfed.data.errors import DataError
from privfed.data.histories import Histories
from privfed.data.reading import Reading

Duplicates: TypeAlias = Literal["drop", "keep"]


class DatasetCard(BaseModel):
    """Numbers of a data set as it was read.

    Attributes:
        name: Name of the data set.
        users: Number of users.
        items: Size of the catalogue, items that nobody touched included.
        distinct_items: Items with at least one interaction.
        interactions: FileRows kept.
        rows_read: FileRows in the source.
        duplicates_dropped: FileRows left out because another row has the same user, item and behaviour.
        duplicates_kept: Such rows that stayed because of `duplicates="keep"`.
        users_below_minimum: Users left out because they have fewer rows than `min_per_user`.
        density: `interactions / (users * items)`.
        synthetic: True when the data was generated: no number from it may pass for a measurement on people.
        has_timestamps: Whether each row carries a time.
        catalogue_derived: Whether the catalogue was read off the interactions, for want of an item list of its own:
            then an item that one person alone has changes the catalogue that everybody sees.
        sha256: Digest of what was loaded (ids, codes, times, ratings, labels), equal for any layout of the
            same data.
        terms: Terms of use of the source, or None where unknown.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    users: int
    items: int
    distinct_items: int
    interactions: int
    rows_read: int
    duplicates_dropped: int
    duplicates_kept: int = 0
    users_below_minimum: int = 0
    density: float
    synthetic: bool
    has_timestamps: bool
    catalogue_derived: bool = False
    sha256: str | None
    terms: str | None


@dataclass(frozen=True, eq=False)
class Interactions:
    """One data set; rows are interactions in the order of the source file.

    Attributes:
        user: 0-based user code of each row.
        item: 0-based item code of each row.
        user_ids: Original user id of each code.
        item_ids: Original item id of each code of the catalogue.
        card: What was read.
        timestamp: Unix seconds of each row (int64, or float64 where the source has fractions), or None.
        order: Rank in time of each row (larger is newer within a user), or None.
        rating: Rating or count of each row, or None.
        behaviour: Kind of each row (view, cart, buy, ...), or None.
        split: Published part of each row (train, valid, test), or None.
        attributes: One row per user code (gender, age, age_group, occupation where known), or None.
        item_info: One row per item code (title, genres, release_date and whatever else the source says), or None.
        reading: What was taken for what in the source, and what was left aside.
    """

    user: Int64[np.ndarray, "interactions"]
    item: Int64[np.ndarray, "interactions"]
    user_ids: pd.Index
    item_ids: pd.Index
    card: DatasetCard
    timestamp: Time | None = None
    order: Int64[np.ndarray, "interactions"] | None = None
    rating: Float32[np.ndarray, "interactions"] | None = None
    behaviour: pd.Categorical | None = None
    split: pd.Categorical | None = None
    attributes: pd.DataFrame | None = None
    item_info: pd.DataFrame | None = None
    reading: Reading = field(default_factory=Reading)

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.card.name

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Size of the catalogue."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.user)

    @property
    def time(self) -> Time | None:
        """Order of a user's rows: `order` where given, else `timestamp`, else None."""
        return self.timestamp if self.order is None else self.order

    def histories(self) -> Histories:
        """Everything each user touched, oldest first where time is known, else in file order."""
        rows = np.arange(len(self)) if self.time is None else np.argsort(self.time, kind="stable")
        return Histories.from_pairs(self.user[rows], self.item[rows], self.n_users, self.n_items)

    @property
    def behaviour_counts(self) -> dict[str, int]:
        """Behaviour -> how many rows it has, in the order of the names; empty where rows do not say."""
        if self.behaviour is None:
            return {}
        counts = np.bincount(self.behaviour.codes, minlength=len(self.behaviour.categories))
        return dict(zip(self.behaviour.categories, counts.tolist(), strict=True))

    def rows_of(self, behaviour: str) -> Bool[np.ndarray, "interactions"]:
        """True for the rows of one behaviour.

        Raises:
            DataError: No row has this behaviour.
        """
        if self.behaviour is None:
            raise DataError(f"{self.name} does not say view, cart or buy, so leave the behaviour {behaviour!r} out")
        if behaviour not in self.behaviour.categories:
            has = ", ".join(self.behaviour.categories)
            raise DataError(f"{self.name} has no behaviour {behaviour!r}: choose among those it has ({has})")
        return np.asarray(self.behaviour == behaviour)

    def only(self, behaviour: str) -> "Interactions":
        """The rows of one behaviour, with the same users and the same catalogue.

        Raises:
            DataError: No row has this behaviour.
        """
        rows = self.rows_of(behaviour)
        kept = _take({column: getattr(self, column) for column in _ROW_COLUMNS}, rows)
        kept["behaviour"] = kept["behaviour"].remove_unused_categories()
        counted = _counts(kept, self.user_ids, self.item_ids)
        return replace(self, **kept, card=self.card.model_copy(update=counted))


_ROW_COLUMNS = ("user", "item", "timestamp", "order", "rating", "behaviour", "split")


def build(
    name: str,
    user: Column,
    item: Column,
    *,
    timestamp: Column | None = None,
    order: Column | None = None,
    rating: Column | None = None,
    behaviour: Column | None = None,
    split: Column | None = None,
    catalogue: Column | int | None = None,
    catalogue_derived: bool | None = None,
    attributes: pd.DataFrame | None = None,
    item_info: pd.DataFrame | None = None,
    duplicates: Duplicates = "drop",
    min_per_user: int = 1,
    synthetic: bool = False,
    terms: str | None = None,
    where: Where = lambda row: f"row {row + 1}",
) -> Interactions:
    """Interactions from raw columns of equal length, ids as they are in the source.

    Args:
        name: Name of the data set.
        user: User id of each row, whole numbers or strings.
        item: Item id of each row, whole numbers or strings.
        timestamp: Unix seconds or dates.
        order: Rank of each row in time (larger is newer within a user).
        rating: Any finite number.
        behaviour: Kind of each row.
        split: Published part of each row: train, valid or test.
        catalogue: Every item id there is, or a number n for the ids 0 to n - 1; default: the items that
            occur.
        catalogue_derived: Whether `catalogue` was made from the interactions; default: where none is given.
        attributes: User attributes, indexed by original user id.
        item_info: Item descriptions, indexed by original item id.
        duplicates: "drop" keeps, of the rows with equal user, item and behaviour, the earliest in time (the
            first of the file where times are equal or unknown); "keep" keeps them all. Either way the card
            counts them.
        min_per_user: Users with fewer rows in the source are left out, as papers do (5 or 10); the catalogue
            stays.
        synthetic: Whether the rows were generated.
        terms: Terms of use of the source.
        where: Names a row (counted from 0) in error messages.

    Raises:
        DataError: There are no rows, or a value is missing, negative (ids), not finite or of an unknown kind.
    """
    if duplicates not in ("drop", "keep"):
        raise DataError(f'duplicates={duplicates!r} is not known: choose "drop" or "keep"')
    users, items = columns.ids(user, "user", where), columns.ids(item, "item", where)
    if not len(users):
        raise DataError(f"{name} has no interactions: at least one row is needed")
    raw: dict[str, Any] = {
        "user": users,
        "item": items,
        "timestamp": None if timestamp is None else columns.times(timestamp, where),
        "order": None if order is None else columns.whole_numbers(order, "order", where),
        "rating": None if rating is None else columns.ratings(rating, where),
        "behaviour": None if behaviour is None else columns.labels(behaviour, "behaviour", where),
        "split": None if split is None else columns.parts(split, where),
    }
    lengths = {column: len(values) for column, values in raw.items() if values is not None}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns of {name} differ in length ({lengths}): give one value per interaction")

    item_ids, raw["item"] = _item_codes(name, items, catalogue, where)
    raw["user"], user_ids = _codes(users)
    enough = np.bincount(raw["user"], minlength=len(user_ids)) >= min_per_user
    if not enough.all():
        if not enough.any():
            raise DataError(f"no user of {name} has {min_per_user} rows or more: lower min_per_user")
        kept_rows = enough[raw["user"]]
        raw = _take(raw, kept_rows)
        raw["user"], user_ids = _codes(users[kept_rows])

    first = _first_of_each(raw)
    repeated = int((~first).sum())
    if repeated and duplicates == "drop":
        raw = _take(raw, first)
    return Interactions(
        **raw,
        user_ids=user_ids,
        item_ids=item_ids,
        attributes=_aligned(attributes, user_ids, "user"),
        item_info=_aligned(item_info, item_ids, "item"),
        card=DatasetCard(
            name=name,
            **_counts(raw, user_ids, item_ids),
            rows_read=len(users),
            duplicates_dropped=repeated if duplicates == "drop" else 0,
            duplicates_kept=repeated if duplicates == "keep" else 0,
            users_below_minimum=int((~enough).sum()),
            synthetic=synthetic,
            has_timestamps=timestamp is not None,
            catalogue_derived=catalogue is None if catalogue_derived is None else catalogue_derived,
            terms=terms,
        ),
    )


def _codes(ids: pd.Index) -> tuple[Int64[np.ndarray, "interactions"], pd.Index]:
    codes, distinct = pd.factorize(ids, sort=True)
    return codes.astype(np.int64), pd.Index(distinct)


def _item_codes(
    name: str, items: pd.Index, catalogue: Column | int | None, where: Where
) -> tuple[pd.Index, Int64[np.ndarray, "interactions"]]:
    """The catalogue, sorted, and the code of each row's item in it."""
    if catalogue is None:
        codes, known = _codes(items)
        return known, codes
    known = columns.ids(
        np.arange(catalogue) if isinstance(catalogue, int) else catalogue,
        "item",
        lambda entry: f"entry {entry + 1} of the catalogue of {name}",
    )
    known, items = identifiers.comparable(known, items)
    known = known.unique().sort_values()
    codes = known.get_indexer(items).astype(np.int64)
    if (unknown := np.flatnonzero(codes < 0)).size:
        row = int(unknown[0])
        raise DataError(
            f"{where(row)}: item {items[row]} is not among the {len(known)} items of the catalogue of "
            f"{name}; complete the item list or correct the id"
        )
    return known, codes


def _first_of_each(raw: dict[str, Any]) -> Bool[np.ndarray, "interactions"]:
    """True for the earliest row of each (user, item, behaviour)."""
    key = raw["user"] * (raw["item"].max() + 1) + raw["item"]
    if raw["behaviour"] is not None:
        key = key * len(raw["behaviour"].categories) + raw["behaviour"].codes
    again = pd.Series(key).duplicated().to_numpy()
    time = raw["timestamp"] if raw["order"] is None else raw["order"]
    if time is None or not again.any():
        return ~again
    rows = np.lexsort((time, key))
    first = np.empty(len(key), dtype=bool)
    first[rows] = np.diff(key[rows], prepend=-1) != 0
    return first


def _take(raw: dict[str, Any], rows: Bool[np.ndarray, "interactions"]) -> dict[str, Any]:
    return {column: None if values is None else values[rows] for column, values in raw.items()}


def _aligned(frame: pd.DataFrame | None, known: pd.Index, what: str) -> pd.DataFrame | None:
    """The rows of `frame`, indexed by original id, in the order of the codes; missing where absent."""
    if frame is None:
        return None
    described = pd.Index(identifiers.canonical(pd.Series(frame.index.array)).array)
    if described.has_duplicates:
        raise DataError(
            f"{what} {described[described.duplicated()][0]} is described twice: keep one row for each {what}"
        )
    described, known = identifiers.comparable(described, known)
    return frame.set_axis(described, axis=0).reindex(known).reset_index(drop=True)


def _counts(raw: dict[str, Any], user_ids: pd.Index, item_ids: pd.Index) -> dict[str, Any]:
    """The part of a card that depends on the rows kept."""
    return {
        "users": len(user_ids),
        "items": len(item_ids),
        "distinct_items": len(np.unique(raw["item"])),
        "interactions": len(raw["user"]),
        "density": len(raw["user"]) / (len(user_ids) * len(item_ids)),
        "sha256": _digest(raw, user_ids, item_ids),
    }


def _digest(raw: dict[str, Any], user_ids: pd.Index, item_ids: pd.Index) -> str:
    digest = hashlib.sha256()
    for ids in (user_ids, item_ids):
        digest.update("\n".join(ids.astype(str)).encode() + b"\n\n")
    for column in _ROW_COLUMNS:
        values = raw[column]
        if isinstance(values, pd.Categorical):
            digest.update("\n".join(values.categories.astype(str)).encode())
            values = values.codes
        if values is not None:
            digest.update(f"\n{column} {values.dtype.str}\n".encode())
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
