"""Binary codes: d signs a row, one bit each at rest and on the wire, compared by counting the bits that differ.

In training a code is a row of int8 in {-1, +1}. Packed, it is ceil(d / 8) bytes: sign f is bit f % 8, counted from the
lowest, of byte f // 8; a set bit is +1, and the bits past d are zero. Two codes a and b of d signs score

    a . b = d - 2 popcount(a xor b),

an integer between -d and d (Zhang et al., Discrete collaborative filtering, SIGIR 2016). Only d + 1 scores exist, so
a bucket per score ranks items without a sort, and without ties that chance would have to break.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int8, Int16, Int32, Int64, UInt8, UInt32
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from privfed.compute.compiled import compiled
from privfed.data import Histories

WIDEST = 2**15 - 2
"""Most signs of a code: its scores are 16-bit integers."""

_STRIDE = 64
_FORMAT = "privfed item codes 1"


class CodesError(ValueError):
    """Codes do not fit what is done with them, or a file holds none."""


def pack(codes: Int8[np.ndarray, "rows d"]) -> UInt8[np.ndarray, "rows bytes"]:
    """One bit per sign, ceil(d / 8) bytes a row.

    Raises:
        CodesError: a code holds anything but -1 and +1, or no or too many signs.
    """
    _check_width(codes.shape[1])
    if (np.abs(codes) != 1).any():
        raise CodesError("codes hold other values than -1 and +1: take signs, and choose one for zeros, before packing")
    return np.packbits(codes > 0, axis=1, bitorder="little")


def unpack(packed: UInt8[np.ndarray, "rows bytes"], d: int) -> Int8[np.ndarray, "rows d"]:
    """The signs of packed codes.

    Raises:
        CodesError: `d` signs do not take that many bytes.
    """
    _check_packed(packed, d)
    bits = np.unpackbits(packed, axis=1, count=d, bitorder="little").view(np.int8)
    return 2 * bits - np.int8(1)


def scores(
    users: UInt8[np.ndarray, "users bytes"], items: UInt8[np.ndarray, "items bytes"], d: int
) -> Int16[np.ndarray, "users items"]:
    """Inner product of every user's code with every item's.

    Raises:
        CodesError: `d` signs do not take that many bytes.
    """
    _check_packed(users, d)
    _check_packed(items, d)
    out = np.empty((len(users), len(items)), dtype=np.int16)
    _score(_words(users), _words(items).T.copy(), d, out)
    return out


def top(
    users: UInt8[np.ndarray, "users bytes"],
    items: UInt8[np.ndarray, "items bytes"],
    d: int,
    k: int,
    exclude: Histories | Bool[np.ndarray, "users items"] | None = None,
) -> tuple[Int64[np.ndarray, "users k"], Int32[np.ndarray, "users k"]]:
    """The k best items of every user and their scores, best first; of equal scores the smaller item comes first.

    Args:
        users: packed codes.
        items: packed codes.
        d: signs of a code.
        k: items per user.
        exclude: items that a user is not shown; row u of it belongs to row u of `users`.

    Returns:
        Items and scores. A user with fewer than k items left has item -1 and score -d - 1 in the last places.

    Raises:
        CodesError: `d` signs do not take that many bytes, `k` is below 1, or `exclude` is of other rows.
    """
    if k < 1:
        raise CodesError(f"the {k} best items were asked for: ask for at least 1")
    _check_packed(users, d)
    _check_packed(items, d)
    hidden = _hidden(exclude, len(users), len(items))
    found = np.full((len(users), k), -1, dtype=np.int64)
    best = np.full((len(users), k), -d - 1, dtype=np.int32)
    _nearest(_words(users), _words(items).T.copy(), d, hidden.indptr, hidden.items, found, best)
    return found, best


@dataclass(frozen=True, eq=False)
class ItemCodes:
    """A catalogue as codes: everything that a device downloads to recommend with.

    Attributes:
        packed: codes of the items.
        d: signs of a code.
        ids: original item ids, in the order of `packed`; None where codes stand for themselves.
    """

    packed: UInt8[np.ndarray, "items bytes"]
    d: int
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_packed(self.packed, self.d)
        if self.d % 8 and len(self.packed) and int(self.packed[:, -1].max()) >> self.d % 8:
            raise CodesError(f"bits past the {self.d} signs of a code are set: pack codes with codes.pack")
        if self.ids is not None and len(self.ids) != len(self.packed):
            raise CodesError(
                f"{len(self.ids)} ids were given for {len(self.packed)} items: give one for each, in order"
            )

    @classmethod
    def from_signs(cls, codes: Int8[np.ndarray, "items d"], ids: Sequence[str] | None = None) -> "ItemCodes":
        """Pack codes of -1 and +1.

        Raises:
            CodesError: they hold other values, or the ids are not one for each item.
        """
        return cls(pack(codes), codes.shape[1], None if ids is None else tuple(ids))

    @property
    def nbytes(self) -> int:
        """Bytes of the packed codes."""
        return self.packed.nbytes

    def __len__(self) -> int:
        return len(self.packed)

    def recommend(
        self,
        users: UInt8[np.ndarray, "users bytes"],
        k: int,
        exclude: Histories | Bool[np.ndarray, "users items"] | None = None,
    ) -> tuple[Int64[np.ndarray, "users k"], Int32[np.ndarray, "users k"]]:
        """The k best items of packed user codes, as `top` finds them."""
        return top(users, self.packed, self.d, k, exclude)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file, whole or not at all.

        Raises:
            CodesError: it cannot be written.
        """
        place = Path(path)
        partial = place.with_name(place.name + ".partial")
        about = {"format": _FORMAT, "d": str(self.d)} | ({} if self.ids is None else {"ids": json.dumps(self.ids)})
        try:
            save_file({"codes": np.ascontiguousarray(self.packed)}, partial, about)
        except SafetensorError as error:
            raise CodesError(f"the item codes cannot be written to {place} ({error}): make room there") from error
        partial.replace(place)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "ItemCodes":
        """Read what `save` wrote.

        Raises:
            CodesError: the file cannot be read, or holds something else.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                if about.get("format") != _FORMAT:
                    raise CodesError(f"it is not of the format {_FORMAT!r}")
                packed, ids = file.get_tensor("codes"), about.get("ids")
            if packed.ndim != 2 or packed.dtype != np.uint8:
                raise CodesError(f"its codes are {packed.dtype} of shape {packed.shape}")
            return cls(packed, int(about["d"]), None if ids is None else tuple(map(str, json.loads(ids))))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CodesError(
                f"the item codes in {path} cannot be read ({error}): give a file that ItemCodes.save wrote"
            ) from error


def _hidden(exclude: Histories | Bool[np.ndarray, "users items"] | None, n_users: int, n_items: int) -> Histories:
    """Excluded items, as lists."""
    if exclude is None:
        return Histories(np.zeros(n_users + 1, dtype=np.int64), np.empty(0, dtype=np.int64), n_items)
    if isinstance(exclude, np.ndarray):
        user, item = exclude.nonzero()
        exclude = Histories.from_pairs(user, item, exclude.shape[0], exclude.shape[1])
    if (exclude.n_users, exclude.n_items) != (n_users, n_items):
        raise CodesError(
            f"exclude covers {exclude.n_users} users x {exclude.n_items} items, but there are codes of {n_users} x "
            f"{n_items}: pass one row per user code and one column per item code"
        )
    return exclude


def _words(packed: UInt8[np.ndarray, "rows bytes"]) -> UInt32[np.ndarray, "rows words"]:
    """The same bits as 32-bit words, the last one filled up with zeros."""
    words = -(-packed.shape[1] // 4)
    padded = np.zeros((len(packed), 4 * words), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint32)


@compiled
def _popcount(word: np.uint32) -> np.uint32:
    """Bits that are set: counted in pairs, nibbles and bytes, then added up by one product."""
    word -= (word >> np.uint32(1)) & np.uint32(0x55555555)
    word = (word & np.uint32(0x33333333)) + ((word >> np.uint32(2)) & np.uint32(0x33333333))
    word = (word + (word >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
    return np.uint32(word * np.uint32(0x01010101)) >> np.uint32(24)


@compiled
def _apart(
    user: UInt32[np.ndarray, "words"], items: UInt32[np.ndarray, "words items"], out: Int16[np.ndarray, "items"]
) -> None:
    """Number of bits in which each item's code differs from the user's."""
    out[:] = 0
    for w in range(len(user)):
        word, row = user[w], items[w]
        for item in range(len(out)):
            out[item] += np.int16(_popcount(word ^ row[item]))


@compiled
def _score(
    users: UInt32[np.ndarray, "users words"],
    items: UInt32[np.ndarray, "words items"],
    d: int,
    out: Int16[np.ndarray, "users items"],
) -> None:
    """Fill `out` with inner products."""
    for user in range(len(users)):
        row = out[user]
        _apart(users[user], items, row)
        for item in range(len(row)):
            row[item] = np.int16(d) - np.int16(2) * row[item]


@compiled
def _nearest(
    users: UInt32[np.ndarray, "users words"],
    items: UInt32[np.ndarray, "words items"],
    d: int,
    indptr: Int64[np.ndarray, "users_and_one"],
    hidden: Int64[np.ndarray, "entries"],
    found: Int64[np.ndarray, "users k"],
    best: Int32[np.ndarray, "users k"],
) -> None:
    """Fill `found` and `best`.

    Items come by in ascending order. Bucket b keeps the first k items at distance b; `limit` is the largest distance
    that still matters, and `inside` counts the items up to it. An item at the limit matters while fewer than k are in.
    Most strides of items hold none that matters, which their smallest distance tells.
    """
    k = found.shape[1]
    apart = np.empty(items.shape[1], dtype=np.int16)
    bucket = np.empty((d + 1, k), dtype=np.int64)
    size = np.empty(d + 1, dtype=np.int64)
    for user in range(len(users)):
        _apart(users[user], items, apart)
        for entry in range(indptr[user], indptr[user + 1]):
            apart[hidden[entry]] = d + 1
        size[:] = 0
        limit, inside = d, 0
        for first in range(0, len(apart), _STRIDE):
            last = min(first + _STRIDE, len(apart))
            nearest = apart[first]
            for item in range(first, last):
                nearest = min(nearest, apart[item])
            if nearest > limit:
                continue
            for item in range(first, last):
                distance = apart[item]
                if distance < limit or (distance == limit and inside < k):
                    if size[distance] < k:
                        bucket[distance, size[distance]] = item
                    size[distance] += 1
                    inside += 1
                    while inside - size[limit] >= k:
                        inside -= size[limit]
                        limit -= 1
        place = 0
        for distance in range(limit + 1):
            for j in range(min(size[distance], k - place)):
                found[user, place] = bucket[distance, j]
                best[user, place] = d - 2 * distance
                place += 1


def _check_width(d: int) -> None:
    if not 1 <= d <= WIDEST:
        raise CodesError(f"codes of {d} signs were given: use 1 to {WIDEST}")


def _check_packed(packed: UInt8[np.ndarray, "rows bytes"], d: int) -> None:
    _check_width(d)
    if packed.shape[1] != -(-d // 8):
        raise CodesError(
            f"packed codes have {packed.shape[1]} bytes a row, but {d} signs take {-(-d // 8)}: pass the d they were "
            f"packed with"
        )
