"""`TablePart`: what clients of several tiers changed in one table, kept as small as it was trained.

A device sends the dense block that its changes recover to, because a list of the slots it touched would name its items.
The simulation keeps slots and values, adds them up within a tier and recovers each tier's sum once: recovery is linear.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from privfed.contracts.schema import Block, UpdateError
from privfed.methods.fair.kernel import add_entries
from privfed.methods.fair.spaces import Basis
from privfed.updates import add_rows_
from privfed.updates.parts import check_unique

_ENTRIES_AT_ONCE = 2**18

_AT_ONCE = 4
"""Blocks of clients that are made dense together."""


class Group(Protocol):
    """Changes of one tier's clients."""

    @property
    def owner(self) -> Int64[Tensor, " h"]:
        """Position in the cohort of every client."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block."""

    def finite(self) -> bool:
        """Whether nothing is NaN or infinite."""

    def norm_power(self, order: int) -> Float[Tensor, " h"]:
        """Sum of |value|^order over every client's dense block, in float64."""

    def scale_(self, factors: Float[Tensor, " h"]) -> None:
        """Multiply every client's block by its factor, in place."""

    def add_to(self, total: Tensor) -> None:
        """Add the sum of all blocks."""

    def dense(self, which: Int64[Tensor, " n"]) -> Float[Tensor, "n ..."]:
        """The blocks of some of its clients."""


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Changes of stored values.

    Attributes:
        owner: position in the cohort of every client.
        counts: entries of every client.
        slots: of the entries, client after client; distinct within a client.
        values: of the entries.
        basis: what block they make.
    """

    owner: Int64[Tensor, " h"]
    counts: Int64[Tensor, " h"]
    slots: Int32[Tensor, " entries"]
    values: Float[Tensor, " entries"]
    basis: Basis

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block."""
        return self.basis.shape

    def finite(self) -> bool:
        """Whether one sum over all values is finite; a sum beyond the range of its dtype is refused too."""
        return math.isfinite(self.values.sum())

    def norm_power(self, order: int) -> Float[Tensor, " h"]:
        """Every value counts as often as it shows in the block."""
        powers = self.values.double().abs().pow_(order).mul_(self.basis.counts()[self.slots])
        return torch.zeros(len(self.owner), dtype=torch.float64).index_add_(0, self.client(), powers)

    def scale_(self, factors: Float[Tensor, " h"]) -> None:
        """Multiply in place."""
        self.values.mul_(factors.to(self.values.dtype).repeat_interleave(self.counts))

    def add_to(self, total: Tensor) -> None:
        """Sum the slots, then recover once."""
        total.add_(self.basis.recover(self.summed(total.dtype)))

    def summed(self, dtype: torch.dtype) -> Float[Tensor, " size"]:
        """Sum of every slot over clients."""
        if dtype.is_floating_point and self.values.is_cpu:
            total = torch.zeros(self.basis.size, dtype=dtype)
            add_entries(total.numpy(), self.slots.numpy(), self.values.numpy())
            return total
        return torch.zeros(self.basis.size, dtype=dtype).index_add_(0, self.slots.long(), self.values.to(dtype))

    def dense(self, which: Int64[Tensor, " n"]) -> Float[Tensor, "n ..."]:
        """Recovered one by one."""
        return self.basis.recover(self.stored(which))

    def stored(self, which: Int64[Tensor, " n"]) -> Float[Tensor, "n size"]:
        """All slots of some clients, zero where a client has no entry."""
        place = torch.full((len(self.owner),), -1).index_copy_(0, which, torch.arange(len(which)))[self.client()]
        out = torch.zeros(len(which), self.basis.size, dtype=self.values.dtype)
        mine = place >= 0
        out.view(-1)[place[mine] * self.basis.size + self.slots[mine]] = self.values[mine]
        return out

    def client(self) -> Int64[Tensor, " entries"]:
        """Position in `owner` of every entry's client."""
        return torch.arange(len(self.owner)).repeat_interleave(self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Changes of products B C (FedHM): B's are sparse, and a change of C moves every row of the product.

    With B = B0 + dB and C = C0 + dC, B C - B0 C0 = dB C + B0 dC.

    Attributes:
        entries: dB, in the basis of B.
        start: B0, what all of the tier received.
        factors: C of every client, when training ended.
        moved: dC.
    """

    entries: Slots
    start: Float[Tensor, "items k"]
    factors: Float[Tensor, "h k dim"]
    moved: Float[Tensor, "h k dim"]

    @property
    def owner(self) -> Int64[Tensor, " h"]:
        """Position in the cohort of every client."""
        return self.entries.owner

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the product."""
        return len(self.start), self.factors.shape[2]

    def finite(self) -> bool:
        """Whether nothing that enters a product is NaN or infinite."""
        return self.entries.finite() and math.isfinite(self.factors.sum()) and math.isfinite(self.moved.sum())

    def norm_power(self, order: int) -> Float[Tensor, " h"]:
        """From dense blocks in float64, as they are summed, a few clients at a time."""
        blocks = torch.split(torch.arange(len(self.owner)), _AT_ONCE)
        exact = self._in_double()
        found = [exact.dense(some).abs().pow_(order).sum((1, 2)) for some in blocks]
        return torch.cat([torch.empty(0, dtype=torch.float64), *found])

    def _in_double(self) -> "Products":
        """The same products of float64 factors, whose two terms may cancel without a trace of rounding."""
        entries = replace(self.entries, values=self.entries.values.double())
        return Products(entries, self.start.double(), self.factors.double(), self.moved.double())

    def scale_(self, factors: Float[Tensor, " h"]) -> None:
        """Both terms are linear in what moved."""
        self.entries.scale_(factors)
        self.moved.mul_(factors.to(self.moved.dtype).view(-1, 1, 1))

    def add_to(self, total: Tensor) -> None:
        """Rows of every dB times its client's C, and B0 times the sum of dC."""
        entries, k = self.entries, self.factors.shape[1]
        client, slots = entries.client(), entries.slots.long()
        for some in torch.split(torch.arange(len(slots)), _ENTRIES_AT_ONCE):
            rows = self.factors[client[some], slots[some] % k].to(total.dtype)
            add_rows_(total, slots[some] // k, rows * entries.values[some].unsqueeze(1))
        total.add_(self.start.to(total.dtype) @ self.moved.sum(0, dtype=total.dtype))

    def dense(self, which: Int64[Tensor, " n"]) -> Float[Tensor, "n items dim"]:
        """The changed products."""
        return self.entries.dense(which) @ self.factors[which] + self.start @ self.moved[which]


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """One block's changes by clients of any tiers; every client is in one group."""

    block: str
    groups: Sequence[Group]

    @property
    def owner(self) -> Int64[Tensor, " h"]:
        """Position in the cohort of every client, group after group."""
        return torch.cat([torch.empty(0, dtype=torch.int64), *(group.owner for group in self.groups)])

    @property
    def nbytes(self) -> int:
        """Bytes of all owners' blocks, which travel dense."""
        return sum(4 * len(group.owner) * math.prod(group.shape) for group in self.groups)

    def finite(self) -> bool:
        """Whether nothing is NaN or infinite."""
        return all(group.finite() for group in self.groups)

    def check(self, block: Block, clients: int) -> None:
        """Refuse groups that make another block, and owners outside the cohort or in two groups."""
        owner = self.owner
        if len(owner) and not (int(owner.min()) >= 0 and int(owner.max()) < clients):
            raise UpdateError(f"block {self.block!r}: owners must be positions 0..{clients - 1} in the cohort")
        check_unique(self.block, owner)
        for group in self.groups:
            if group.shape != block.shape:
                raise UpdateError(
                    f"block {self.block!r} was declared with shape {block.shape} but the update makes {group.shape}"
                )

    def norm_power(self, order: int, clients: int) -> Float[Tensor, " clients"]:
        """Sum of |value|^order of every client's block, in float64."""
        out = torch.zeros(clients, dtype=torch.float64)
        for group in self.groups:
            out[group.owner] = group.norm_power(order)
        return out

    def scale_(self, factors: Float[Tensor, " clients"]) -> None:
        """Multiply in place."""
        for group in self.groups:
            group.scale_(factors[group.owner])

    def add_to(self, total: Tensor) -> None:
        """Add the sum over clients."""
        for group in self.groups:
            if len(group.owner):
                group.add_to(total)

    def fills(self, slots: Int64[Tensor, " clients"], rows: int) -> bool:
        """True where every row has an owner."""
        return int((slots[self.owner] >= 0).sum()) == rows

    def write(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Dense blocks of the chosen clients."""
        for group in self.groups:
            chosen = (slots[group.owner] >= 0).nonzero().squeeze(1)
            for some in torch.split(chosen, _AT_ONCE):
                out[slots[group.owner[some]]] = group.dense(some).to(out.dtype)

    def rows_at(self, owner: Int64[Tensor, " k"], ids: Int64[Tensor, " k"]) -> Float[Tensor, "k width"]:
        """Rows of the clients' blocks, each made dense once; zero where a client owns nothing."""
        out = torch.zeros(len(ids), self.groups[0].shape[-1]) if self.groups else torch.zeros(len(ids), 0)
        for group in self.groups:
            place = torch.full((int(torch.cat([owner, group.owner]).max()) + 1,), -1)
            place[group.owner] = torch.arange(len(group.owner))
            wanted = place[owner]
            for client in sorted(set(wanted[wanted >= 0].tolist())):
                mine = (wanted == client).nonzero().squeeze(1)
                out[mine] = group.dense(torch.tensor([client]))[0, ids[mine]].to(out.dtype)
        return out

    def touched(self, slots: Int64[Tensor, " clients"], out: Tensor) -> None:
        """Every coordinate of an owner is sent."""
        slot = slots[self.owner]
        out[slot[slot >= 0]] = True
