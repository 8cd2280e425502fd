"""The representations a part of an update can have: `Dense` (stacked) and `Rows` (ragged ids and values).

`LowRank` (outer products) and `CodeProducts` (weighted products of binary codes) have files of their own.

A part names its block and the clients (positions in the cohort) that own its values. Owners may be a subset
of the cohort, so clients of unequal size need no other code.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from privfed.compute.compiled import compiled
from privfed.compute.devices import HOST, here
from privfed.contracts.schema import Block, UpdateError

_DOUBLES_AT_ONCE, _ACCELERATED_AT_ONCE = 2**16, 2**25
_HALVES = (torch.float16, torch.bfloat16)


class Part(Protocol):
    """One block's values for some clients, in one representation."""

    @property
    def block(self) -> str:
        """Name of the declared block."""

    @property
    def owner(self) -> Tensor:
        """Position in the cohort of the client behind every entry, int64."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values (and row ids) of all owners."""

    def finite(self) -> bool:
        """Whether no value is NaN or infinite, nor any sum that the operations below take."""

    def check(self, block: Block, clients: int) -> None:
        """Refuse values that do not fit `block` or owners outside `0..clients-1`."""

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order of every client (zero where a client owns nothing)."""

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply every client's values by its factor, in place."""

    def add_to(self, total: Tensor) -> None:
        """Add the sum over clients into `total`, shaped like the block."""

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """Whether `write` to `rows` rows leaves no coordinate as it was."""

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Put the values of clients with slots[c] >= 0 into out[slots[c]]; out is [rows, *shape].

        Parts of one block belong to different clients or different rows, so writing is not adding.
        """

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k width"]:
        """Row `ids[j]` of client `owner[j]`, zero where the client did not touch it; neither side is empty."""

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Set out[slots[c], coordinate] where client c sends a value; out is bool [rows, *shape]."""


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Stacked values: `values[j]` is the whole block of client `owner[j]`."""

    block: str
    owner: Int64[Tensor, " h"]
    values: Num[Tensor, "h ..."]

    @property
    def nbytes(self) -> int:
        """Bytes of the stacked values."""
        return self.values.nbytes

    def finite(self) -> bool:
        """Whether one sum over all values is finite; a sum beyond the range of its dtype is refused too."""
        return math.isfinite(self.values.sum())

    def check(self, block: Block, clients: int) -> None:
        """Refuse values that do not fit `block` or owners outside the cohort."""
        check_owner(self.block, self.owner, self.values, block, clients)
        check_unique(self.block, self.owner)
        if tuple(self.values.shape[1:]) != block.shape:
            raise UpdateError(
                f"block {self.block!r} was declared with shape {block.shape} but the update holds "
                f"{tuple(self.values.shape[1:])} per client"
            )

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order per client, in float64."""
        flat = self.values.flatten(1) if self.values.dim() > 1 else self.values.unsqueeze(1)
        own = _powers(flat, order)
        return torch.zeros(clients, dtype=torch.float64).index_add_(0, self.owner, own)

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply in place."""
        self.values.mul_(factors[self.owner].view(-1, *[1] * (self.values.dim() - 1)).to(self.values.dtype))

    def add_to(self, total: Tensor) -> None:
        """Add one client after the other, in the dtype of `total`."""
        if total.is_cpu:
            _add_each(total.view(-1).numpy(), as_array(self.values, total).reshape(len(self.values), total.numel()))
        else:
            total.add_(self.values.sum(0, dtype=total.dtype))

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """True where every row has an owner."""
        return int((slots[self.owner] >= 0).sum()) == rows

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Copy whole blocks."""
        slot = slots[self.owner]
        # All clients in order is the usual case, and one copy.
        if len(slot) == len(out) and torch.equal(slot, torch.arange(len(out))):
            out.copy_(self.values)
        else:
            keep = slot >= 0
            out.index_copy_(0, slot[keep], self.values[keep].to(out.dtype))

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k width"]:
        """Gather rows of stacked tables."""
        place = places(self.owner, owner)
        rows = self.values.shape[1]
        found = self.values.flatten(0, 1).index_select(0, place.clamp(min=0) * rows + ids)
        return found if bool((place >= 0).all()) else found * (place >= 0).unsqueeze(1)

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Every coordinate of an owner is sent."""
        slot = slots[self.owner]
        out[slot[slot >= 0]] = True


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RowPattern:
    """Which rows of a table some clients send, for cohorts that send the same rows again and again: checked once.

    Attributes:
        clients: how many clients there are.
        rows: rows of the table.
        owner: position of the client behind every entry.
        ids: its row.

    Raises:
        UpdateError: pairs (owner, row) that are out of range, repeated or not in ascending order.
    """

    clients: int
    rows: int
    owner: Int64[Tensor, " k"]
    ids: Int64[Tensor, " k"]

    def __post_init__(self) -> None:
        if len(self.owner) == 0:
            return
        on_processor = self.owner.is_cpu and self.ids.is_cpu
        if on_processor and _ordered(self.owner.numpy(), self.ids.numpy(), self.clients, self.rows):
            return
        if not (int(self.owner.min()) >= 0 and int(self.owner.max()) < self.clients):
            raise UpdateError(f"owners must be positions 0..{self.clients - 1} in the cohort")
        if not (int(self.ids.min()) >= 0 and int(self.ids.max()) < self.rows):
            raise UpdateError(f"row ids must lie in 0..{self.rows - 1}")
        # One ascending number per (client, row): order and repeats show in a single comparison.
        key = self.owner * self.rows + self.ids
        if bool((key[1:] <= key[:-1]).any()):
            raise UpdateError("(owner, row) pairs must be distinct and ascending")

    def with_values(self, block: str, values: Num[Tensor, "k width"]) -> "Rows":
        """The rows with these values, which need no check of their own."""
        return Rows(block, self.owner, self.ids, values, self)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Ragged rows of a table: client `owner[j]` sends `values[j]` for row `ids[j]`.

    Pairs (owner, id) are distinct and in ascending order, so a row is found by bisection. Those of a `pattern` have
    been checked already.
    """

    block: str
    owner: Int64[Tensor, " k"]
    ids: Int64[Tensor, " k"]
    values: Num[Tensor, "k width"]
    pattern: RowPattern | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of values plus a 32-bit id per row."""
        return self.values.nbytes + 4 * len(self.ids)

    def finite(self) -> bool:
        """Whether one sum over all values is finite; a sum beyond the range of its dtype is refused too."""
        return math.isfinite(self.values.sum())

    def check(self, block: Block, clients: int) -> None:
        """Refuse ids outside the table, repeated or unordered pairs, owners outside the cohort."""
        # By identity, not by value: comparing values would cost what the pattern saves.
        checked = self.pattern is not None and self.pattern.owner is self.owner and self.pattern.ids is self.ids
        if not checked:
            check_owner(self.block, self.owner, self.values, block, clients)
        check_kind(self.block, self.values, block)
        if len(block.shape) != 2 or self.values.shape[1] != block.shape[1]:
            raise UpdateError(
                f"block {self.block!r} was declared with shape {block.shape} but the update holds rows of "
                f"width {self.values.shape[1]}"
            )
        if len(self.ids) != len(self.values):
            raise UpdateError(
                f"block {self.block!r}: {len(self.ids)} row ids for {len(self.values)} rows; give one each"
            )
        if self.pattern is not None and (self.pattern.clients, self.pattern.rows) != (clients, block.shape[0]):
            raise UpdateError(
                f"block {self.block!r}: the pattern is of {self.pattern.clients} clients and {self.pattern.rows} rows, "
                f"the query of {clients} and {block.shape[0]}; build it for the query"
            )
        if not checked:
            if self.pattern is not None:
                raise UpdateError(
                    f"block {self.block!r}: the rows are not those of their pattern; make them with its with_values"
                )
            try:
                RowPattern(clients, block.shape[0], self.owner, self.ids)
            except UpdateError as error:
                raise UpdateError(f"block {self.block!r}: {error}") from error

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order per client, in float64."""
        own = _powers(self.values, order)
        return torch.zeros(clients, dtype=torch.float64).index_add_(0, self.owner, own)

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply in place."""
        self.values.mul_(factors[self.owner].unsqueeze(1).to(self.values.dtype))

    def add_to(self, total: Tensor) -> None:
        """Add rows of equal id one after the other, in the dtype of `total`; whole numbers exactly."""
        # Compiled, values turn into the dtype of `total` one by one; `add_rows_` would convert a whole copy first.
        if total.is_cpu:
            _add_rows(total.numpy(), self.ids.numpy(), as_array(self.values, total))
        else:
            add_rows_(total.view(-1, self.values.shape[1]), self.ids, self.values)

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:  # noqa: ARG002
        """Rows are sparse: never assumed."""
        return False

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Copy rows of the chosen clients; out is contiguous."""
        slot = slots[self.owner]
        flat, rows = out.view(-1, out.shape[-1]), out.shape[1]
        keep = slot >= 0
        flat.index_copy_(0, slot[keep] * rows + self.ids[keep], self.values[keep].to(out.dtype))

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k width"]:
        """Find rows by bisection on (owner, id)."""
        # (client, row) as one number, ascending because pairs are.
        stride = int(torch.maximum(self.ids.max(), ids.max())) + 1
        keys, wanted = self.owner * stride + self.ids, owner * stride + ids
        place = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        hit = keys[place] == wanted
        return self.values.index_select(0, place) * hit.unsqueeze(1)

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Only the rows a client names."""
        slot = slots[self.owner]
        keep = slot >= 0
        out[slot[keep], self.ids[keep]] = True


def add_rows_(table: Num[Tensor, "rows width"], ids: Int64[Tensor, " k"], values: Num[Tensor, "k width"]) -> None:
    """table[ids[j]] += values[j], repeated ids included; several times faster here than `index_add_`."""
    table.scatter_add_(0, ids.unsqueeze(1).expand_as(values), values.to(table.dtype))


@compiled
def _ordered(owner: Int64[np.ndarray, " k"], ids: Int64[np.ndarray, " k"], clients: int, rows: int) -> bool:
    """Whether pairs are in range, distinct and ascending: what `RowPattern` asks, in one pass."""
    fine, before = True, -1
    for j in range(len(owner)):
        key = owner[j] * rows + ids[j]
        fine &= 0 <= owner[j] < clients and 0 <= ids[j] < rows and key > before
        before = key
    return fine


def as_array(values: Num[Tensor, "..."], total: Num[Tensor, "..."]) -> np.ndarray:
    """Values as compiled code takes them: numbers of half precision, which it does not know, in the total's dtype."""
    array: np.ndarray = (values.to(total.dtype) if values.dtype in _HALVES else values).numpy()
    return array


@compiled
def _add_each(total: Num[np.ndarray, " d"], values: Num[np.ndarray, "h d"]) -> None:
    """Add values[j] to the total for every j: converted one by one, where torch converts a whole copy first."""
    for j in range(len(values)):
        for column in range(len(total)):
            total[column] += values[j, column]


@compiled
def _add_rows(
    total: Num[np.ndarray, "rows width"], ids: Int64[np.ndarray, " k"], values: Num[np.ndarray, "k width"]
) -> None:
    """total[ids[j]] += values[j], in order."""
    for j in range(len(ids)):
        row = total[ids[j]]
        for column in range(len(row)):
            row[column] += values[j, column]


def cached(rows: int, width: int) -> list[slice]:
    """Slices of `rows` rows of `width` values each, so short that their float64 copy stays in a processor's cache."""
    step = max(1, (_DOUBLES_AT_ONCE if here() == HOST else _ACCELERATED_AT_ONCE) // max(width, 1))
    return [slice(first, first + step) for first in range(0, rows, step)]


def largest(values: Tensor) -> float:
    """The largest magnitude, NaN where a value is; 0 of nothing."""
    if not values.numel():
        return 0.0
    low, high = values.aminmax()
    # `maximum` keeps a NaN, which `max` of two numbers may lose.
    return float(torch.maximum(-low, high))


def _powers(flat: Float[Tensor, "h d"], order: int) -> Float[Tensor, " h"]:
    """Sum of |value|^order of every row, in float64."""
    norms = torch.empty(len(flat), dtype=torch.float64)
    for some in cached(*flat.shape):
        # float64, a few rows at a time: the copy that the conversion makes then stays in the cache.
        torch.linalg.vector_norm(flat[some], order, dim=1, dtype=torch.float64, out=norms[some])
    return norms.pow_(order)


def places(owners: Int64[Tensor, " h"], wanted: Int64[Tensor, " k"]) -> Int64[Tensor, " k"]:
    """Position of each wanted client among distinct `owners`, -1 where absent; neither side is empty."""
    # A table over positions in the cohort: one look-up per wanted client, and no sort.
    table = torch.full((int(torch.cat([owners, wanted]).max()) + 1,), -1)
    return table.index_copy_(0, owners, torch.arange(len(owners)))[wanted]


def check_unique(name: str, owner: Int64[Tensor, " h"]) -> None:
    """Refuse a client that owns two entries of a part that holds whole blocks."""
    if len(owner) and int(torch.bincount(owner).max()) > 1:
        raise UpdateError(f"block {name!r}: a client comes twice in one part; send each block once")


def check_owner(name: str, owner: Int64[Tensor, " k"], values: Tensor, block: Block, clients: int) -> None:
    """Refuse owners that do not match the values one to one, or lie outside the cohort; reals in an integer block."""
    if len(owner) != len(values):
        raise UpdateError(f"block {name!r}: {len(owner)} owners for {len(values)} values; give one owner per value")
    if len(owner) and (int(owner.min()) < 0 or int(owner.max()) >= clients):
        raise UpdateError(f"block {name!r}: owners must be positions 0..{clients - 1} in the cohort")
    check_kind(name, values, block)


def check_kind(name: str, values: Tensor, block: Block) -> None:
    """Refuse reals in an integer block."""
    if block.kind == "integer" and values.is_floating_point():
        raise UpdateError(f"block {name!r} was declared as integer but the update holds {values.dtype} values")
