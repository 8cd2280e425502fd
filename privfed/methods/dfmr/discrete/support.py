"""Supports: the items whose rows a client sends, and what each is to the client (purchased, examined or fake)."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int8, Int64, UInt8, UInt64

from privfed.data import Histories
from privfed.methods.dfmr.discrete.errors import DiscreteError

PADDING, PURCHASED, EXAMINED = 0, 1, 2
"""Kinds of an entry: a fake item contributes nothing."""


class SupportArrays(NamedTuple):
    """A `ItemSupport` as compiled loops take it.

    Attributes:
        indptr, items, kind: as in `ItemSupport`, unsigned.
        n_purchased, n_examined, n_rest: items of each kind per user.
    """

    indptr: UInt64[np.ndarray, "users_and_one"]
    items: UInt64[np.ndarray, "entries"]
    kind: UInt8[np.ndarray, "entries"]
    n_purchased: Int64[np.ndarray, "users"]
    n_examined: Int64[np.ndarray, "users"]
    n_rest: Int64[np.ndarray, "users"]


@dataclass(frozen=True, eq=False)
class ItemSupport:
    """Supports of all hosted users in compressed sparse rows: user `u` owns entries `indptr[u]:indptr[u + 1]`.

    Items ascend within a user, whatever their kind, so that their order tells nothing.

    Attributes:
        indptr: row offsets.
        items: item code of every entry.
        kind: `PADDING`, `PURCHASED` or `EXAMINED`, of every entry.
        n_items: size of the catalogue.
        n_purchased: N^P, purchased items per user.
        n_examined: N^E, examined items per user.
    """

    indptr: Int64[np.ndarray, "users_and_one"]
    items: Int64[np.ndarray, "entries"]
    kind: Int8[np.ndarray, "entries"]
    n_items: int
    n_purchased: Int64[np.ndarray, "users"]
    n_examined: Int64[np.ndarray, "users"]

    @classmethod
    def from_histories(
        cls, purchased: Histories, examined: Histories, padding: Histories | None = None
    ) -> "ItemSupport":
        """Merge histories into supports: purchased wins over examined, both over padding; duplicates count once.

        Raises:
            DiscreteError: The histories differ in users or in catalogue.
        """
        parts = [purchased, examined, *([] if padding is None else [padding])]
        n_users, n_items = purchased.n_users, purchased.n_items
        for part in parts[1:]:
            if (part.n_users, part.n_items) != (n_users, n_items):
                raise DiscreteError(
                    f"purchases are of {n_users} users x {n_items} items but another behaviour or the padding is of "
                    f"{part.n_users} x {part.n_items}: all must come from the same data set"
                )
        keys = np.concatenate([part.owners * n_items + part.items for part in parts])
        kinds = np.repeat(
            np.array([PURCHASED, EXAMINED, PADDING][: len(parts)], dtype=np.int8), [len(p) for p in parts]
        )
        keys, first = np.unique(keys, return_index=True)
        owner, item = np.divmod(keys, n_items)
        kind = kinds[first]
        counts = np.stack([np.bincount(owner[kind == k], minlength=n_users) for k in (PADDING, PURCHASED, EXAMINED)])
        indptr = np.concatenate([[0], np.cumsum(counts.sum(0))])
        return cls(indptr, item, kind, n_items, counts[PURCHASED], counts[EXAMINED])

    @property
    def n_users(self) -> int:
        """Number of users, those with an empty support included."""
        return len(self.indptr) - 1

    @cached_property
    def counts(self) -> Int64[np.ndarray, "users"]:
        """Number of entries of each user."""
        return np.diff(self.indptr)

    @cached_property
    def n_rest(self) -> Int64[np.ndarray, "users"]:
        """N^O, items neither purchased nor examined, per user."""
        return np.asarray(self.n_items - self.n_purchased - self.n_examined)

    @cached_property
    def arrays(self) -> SupportArrays:
        """The support as compiled loops take it."""
        # Loops test signed indices for being negative, so they get unsigned views of the same memory.
        indptr, items, kind = self.indptr.view(np.uint64), self.items.view(np.uint64), self.kind.view(np.uint8)
        return SupportArrays(indptr, items, kind, self.n_purchased, self.n_examined, self.n_rest)

    def of_users(self, users: Int64[np.ndarray, "n"]) -> tuple[Int64[np.ndarray, "rows"], Int64[np.ndarray, "rows"]]:
        """The entries of the given users, stacked: each one's position in `users`, and its index into `items`.

        The arrays are shared between calls when `users` is everybody in order: do not write into them.

        Raises:
            DiscreteError: There is no such user.
        """
        self.check(users)
        if np.array_equal(users, self._everybody):
            return self._whole
        counts = self.counts[users]
        ends = np.cumsum(counts)
        owner = np.repeat(np.arange(len(users)), counts)
        return owner, np.arange(len(owner)) + (self.indptr[users] - ends + counts)[owner]

    def check(self, users: Int64[np.ndarray, "n"]) -> None:
        """Refuse codes of users who are not here.

        Raises:
            DiscreteError: There is no such user.
        """
        if len(users) and not (users.min() >= 0 and users.max() < self.n_users):
            raise DiscreteError(
                f"user codes run from {users.min()} to {users.max()} but the support is of {self.n_users} users, "
                f"numbered 0 to {self.n_users - 1}: give codes of hosted users"
            )

    @cached_property
    def _everybody(self) -> Int64[np.ndarray, "users"]:
        return np.arange(self.n_users)

    @cached_property
    def _whole(self) -> tuple[Int64[np.ndarray, "rows"], Int64[np.ndarray, "rows"]]:
        return np.repeat(self._everybody, self.counts), np.arange(len(self.items))
