"""Interaction histories: which items each user touched, in compressed sparse row (CSR) form.

User `u` owns `items[indptr[u]:indptr[u + 1]]`, oldest first where time is known. Every set operation here is
vectorised over users; nothing loops over them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64

from privfed.data.errors import DataError


@dataclass(frozen=True, eq=False)
class Histories:
    """The items of every user.

    Attributes:
        indptr: Row offsets, one more than there are users; row `u` is `indptr[u]` to `indptr[u + 1]`.
        items: Item codes (0-based), grouped by user and, within a user, oldest first where time is known.
        n_items: Size of the catalogue, which may be larger than the number of distinct items seen.
    """

    indptr: Int64[np.ndarray, "users_and_one"]
    items: Int64[np.ndarray, "interactions"]
    n_items: int

    def __post_init__(self) -> None:
        if (
            not len(self.indptr)
            or self.indptr[0] != 0
            or self.indptr[-1] != len(self.items)
            or np.any(np.diff(self.indptr) < 0)
        ):
            raise DataError(
                f"indptr must rise from 0 to the number of entries ({len(self.items)}) without ever falling, "
                "so build histories with Histories.from_pairs unless you have such offsets"
            )
        if len(self.items) and not (self.items.min() >= 0 and self.items.max() < self.n_items):
            raise DataError(
                f"item codes run from {self.items.min()} to {self.items.max()} but the catalogue has codes "
                f"0 to {self.n_items - 1}: give the catalogue size as n_items"
            )

    @classmethod
    def from_pairs(
        cls,
        user: Int64[np.ndarray, "interactions"],
        item: Int64[np.ndarray, "interactions"],
        n_users: int,
        n_items: int,
    ) -> "Histories":
        """Group (user, item) pairs by user, keeping the order in which the pairs come within each user.

        Raises:
            DataError: A user code lies outside 0 to `n_users - 1`, or an item code outside the catalogue.
        """
        _check_users(user, n_users)
        counts = np.bincount(user, minlength=n_users)
        # Numpy sorts numbers of 16 bits by counting.
        order = np.argsort(user.astype(np.min_scalar_type(n_users)), kind="stable")
        return cls(_offsets(counts), item[order], n_items)

    @property
    def n_users(self) -> int:
        """Number of users, those with no items included."""
        return len(self.indptr) - 1

    @cached_property
    def counts(self) -> Int64[np.ndarray, "users"]:
        """Number of entries of each user."""
        return np.diff(self.indptr)

    @cached_property
    def owners(self) -> Int64[np.ndarray, "interactions"]:
        """The user of each entry of `items`."""
        return np.repeat(np.arange(self.n_users), self.counts)

    def __len__(self) -> int:
        return len(self.items)

    def items_of(self, user: int) -> Int64[np.ndarray, "k"]:
        """The items of one user, oldest first where time is known (a view, not a copy).

        Raises:
            DataError: There is no such user.
        """
        _check_users(np.array([user]), self.n_users)
        return self.items[self.indptr[user] : self.indptr[user + 1]]

    def pairs(self, stride: int) -> Int64[np.ndarray, "distinct"]:
        """Every distinct pair as `user * stride + item`, ascending.

        By sorting, where items are not ascending anyway: `np.unique` hashes, which takes far longer for many millions.

        Args:
            stride: more than any item code.
        """
        keys = np.repeat(np.arange(self.n_users) * stride, self.counts)
        keys += self.items
        if not (keys[1:] > keys[:-1]).all():
            keys.sort()
            keys = keys[np.append(True, keys[1:] != keys[:-1])]
        return keys

    def mask(self, users: Int64[np.ndarray, "n"]) -> Bool[np.ndarray, "n items"]:
        """One row per given user: True where that user has the item.

        Raises:
            DataError: A user code is out of range.
        """
        rows = self.subset(users)
        mask = np.zeros((rows.n_users, self.n_items), dtype=bool)
        mask[rows.owners, rows.items] = True
        return mask

    def subset(self, users: Int64[np.ndarray, "n"]) -> "Histories":
        """The rows of the given users, renumbered 0 to n - 1 in the order given (repeats allowed).

        Raises:
            DataError: A user code is out of range.
        """
        _check_users(users, self.n_users)
        counts = self.counts[users]
        indptr = _offsets(counts)
        positions = np.arange(indptr[-1]) + np.repeat(self.indptr[users] - indptr[:-1], counts)
        return Histories(indptr, self.items[positions], self.n_items)

    def first(self, counts: Int64[np.ndarray, "users"]) -> "Histories":
        """The first entries of every user, so many of each."""
        place = np.arange(len(self)) - self.indptr[self.owners]
        return Histories(_offsets(counts), self.items[place < counts[self.owners]], self.n_items)

    def union(self, other: "Histories") -> "Histories":
        """Items that a user has in either, each once: this one's entries first, then the new ones of `other`.

        Raises:
            DataError: The two differ in users or in catalogue.
        """
        self._check_like(other)
        user = np.concatenate([self.owners, other.owners])
        item = np.concatenate([self.items, other.items])
        _, first = np.unique(user * self.n_items + item, return_index=True)
        first.sort()
        return Histories.from_pairs(user[first], item[first], self.n_users, self.n_items)

    def find(self, other: "Histories") -> Int64[np.ndarray, "others"]:
        """Position of each entry of `other` among the entries of this one (the first of equal pairs).

        Raises:
            DataError: The two differ in users or in catalogue, or a user has not the item here.
        """
        self._check_like(other)
        own = self.owners * self.n_items + self.items
        order = np.argsort(own, kind="stable")
        wanted = other.owners * self.n_items + other.items
        at = np.searchsorted(own[order], wanted)
        if not np.isin(wanted, own).all():
            raise DataError("a pair looked for is not among the histories: look for entries of the same histories only")
        position: np.ndarray = order[at]
        return position

    def complement(self) -> "Histories":
        """Items that each user does not have, ascending: of the size of users times catalogue."""
        everybody = np.arange(self.n_users)
        user, item = np.nonzero(~self.mask(everybody))
        return Histories.from_pairs(user, item, self.n_users, self.n_items)

    def popularity(self) -> Int64[np.ndarray, "items"]:
        """Number of entries of each item of the catalogue."""
        return np.bincount(self.items, minlength=self.n_items)

    def _check_like(self, other: "Histories") -> None:
        if (self.n_users, self.n_items) != (other.n_users, other.n_items):
            raise DataError(
                f"histories of {self.n_users} users x {self.n_items} items cannot be joined with histories "
                f"of {other.n_users} x {other.n_items}: both must come from the same data set"
            )


def _offsets(counts: Int64[np.ndarray, "rows"]) -> Int64[np.ndarray, "rows_and_one"]:
    return np.concatenate([[0], np.cumsum(counts)])


def _check_users(users: Int64[np.ndarray, "n"], n_users: int) -> None:
    if len(users) and not (users.min() >= 0 and users.max() < n_users):
        raise DataError(
            f"user codes run from {users.min()} to {users.max()} but there are {n_users} users, "
            f"numbered 0 to {n_users - 1}"
        )
