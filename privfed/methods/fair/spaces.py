"""How a device of a tier keeps an item table: hashed (FAIR), low-rank (FedHM) or cut to its first columns (HeteroFL).

A device's `size` stored values make a table by `recover`, which is linear. What a device learnt is a difference of
stored values, and only its recovery is added to anything.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int8, Int32, Int64
from torch import Tensor

from privfed.compute.devices import here, on_host
from privfed.methods.fair.subspaces import Columns, LowRankTables, Subspace, lift


class Basis(Protocol):
    """Values that make a block."""

    @property
    def size(self) -> int:
        """Number of values."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block."""

    def recover(self, values: Float[Tensor, "*batch size"]) -> Tensor:
        """The block `[*batch, *shape]`; linear."""

    def counts(self) -> Int64[Tensor, " size"]:
        """Number of the block's entries that repeat each value, up to its sign."""


class TableSpace(Basis, Protocol):
    """One tier's way to keep a table."""

    @property
    def kept(self) -> int:
        """Stored values of a row, k."""

    def reduce(self, table: Float[Tensor, "items dim"]) -> tuple[Float[Tensor, " size"], Float[Tensor, "k dim"] | None]:
        """Stored values that a device receives and, where rows are products, their factor."""

    def project(self, table: Float[Tensor, "items dim"]) -> Float[Tensor, "items dim"]:
        """The table as such a device has it."""

    def slots(self) -> Int32[np.ndarray, " elements"] | None:
        """Slot of every element; None where these are the elements themselves."""

    def signs(self) -> Int8[np.ndarray, " elements"] | None:
        """-1 or 1 for every element; None where all are 1."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """A level of FAIR's nested subspaces.

    Attributes:
        subspace: of the table.
        offset: added to the number of elements in the means of `reduce`, which is then no projection but shrinks.
    """

    subspace: Subspace
    offset: float = 0.0

    @property
    def size(self) -> int:
        """Slots."""
        return self.subspace.size

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the table."""
        return self.subspace.rows, self.subspace.width

    @property
    def kept(self) -> int:
        """The whole width: every element has a slot."""
        return self.subspace.width

    def reduce(self, table: Float[Tensor, "items dim"]) -> tuple[Float[Tensor, " size"], None]:
        """Means over slots."""
        values = self.subspace.reduce(table)
        # At level 0 every slot has one element, which there is nothing to average with.
        if self.offset and self.subspace.level:
            counts = self.counts().to(values.dtype)
            # The mean sum / count becomes sum / (count + offset).
            values = values * (counts / (counts + self.offset))
        return values, None

    def recover(self, values: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch items dim"]:
        """Every element takes its slot's value."""
        return self.subspace.recover(values)

    def project(self, table: Float[Tensor, "items dim"]) -> Float[Tensor, "items dim"]:
        """`recover` of `reduce`."""
        return self.recover(self.reduce(table)[0])

    def counts(self) -> Int64[Tensor, " size"]:
        """Elements in every slot."""
        # A function of the subspace alone that hashes a whole table, so it is computed once (`_counts`).
        return _counts(self.subspace, here())

    def slots(self) -> Int32[np.ndarray, " elements"] | None:
        """Slots of the whole table, for a simulation; a device hashes elements when it needs them."""
        # The kernel then indexes by element and needs no list.
        if self.subspace.level == 0:
            return None
        # int32: the longest array of a simulation, and `tiers.MOST_SLOTS` keeps its numbers in range.
        slots: np.ndarray = on_host(self.subspace.slots(self._elements()).int())
        return slots

    def signs(self) -> Int8[np.ndarray, " elements"] | None:
        """Signs of the whole table, for a simulation."""
        signs = self.subspace.signs(self._elements())
        return None if signs is None else on_host(signs.to(torch.int8))

    def _elements(self) -> Int64[Tensor, " elements"]:
        return torch.arange(self.subspace.rows * self.subspace.width)


class _OneEach(ABC):
    """Base of spaces in which every stored value is one element of a smaller table."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """Stored values."""

    def counts(self) -> Int64[Tensor, " size"]:
        """1 for every value: each is one element."""
        return torch.ones(self.size, dtype=torch.int64)

    def slots(self) -> None:
        """None: every stored value is an element."""
        return

    def signs(self) -> None:
        """None: all signs are 1."""
        return


@dataclass(frozen=True, slots=True)
class FirstColumns(_OneEach):
    """The first columns of the table; the others are zero on the device and stay what they are on the server."""

    columns: Columns

    @property
    def size(self) -> int:
        """Values kept."""
        return self.columns.size

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the table."""
        return self.columns.rows, self.columns.width

    @property
    def kept(self) -> int:
        """Columns."""
        return self.columns.kept

    def reduce(self, table: Float[Tensor, "items dim"]) -> tuple[Float[Tensor, " size"], None]:
        """The columns kept."""
        return self.columns.reduce(table).flatten(), None

    def recover(self, values: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch items dim"]:
        """The whole table, zero in the other columns."""
        return self.columns.recover(values.reshape(*values.shape[:-1], self.columns.rows, self.columns.kept))

    def project(self, table: Float[Tensor, "items dim"]) -> Float[Tensor, "items dim"]:
        """The table with zeros in the other columns."""
        return self.columns.project(table)


@dataclass(frozen=True, slots=True)
class Factors(_OneEach):
    """Low-rank: stored values are B `[items, k]`, with a factor C `[k, dim]`."""

    low_rank: LowRankTables

    @property
    def size(self) -> int:
        """Values of B."""
        return self.low_rank.rows * self.low_rank.rank

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of B."""
        return self.low_rank.rows, self.low_rank.rank

    @property
    def kept(self) -> int:
        """The rank."""
        return self.low_rank.rank

    def reduce(self, table: Float[Tensor, "items dim"]) -> tuple[Float[Tensor, " size"], Float[Tensor, "k dim"]]:
        """B and C of the truncated singular value decomposition."""
        B, C = self.low_rank.reduce(table)
        return B.flatten(), C

    def recover(self, values: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch items k"]:
        """B."""
        return values.reshape(*values.shape[:-1], *self.shape)

    def project(self, table: Float[Tensor, "items dim"]) -> Float[Tensor, "items dim"]:
        """The nearest table of this rank."""
        return self.low_rank.project(table)


@dataclass(frozen=True, slots=True)
class InTier:
    """A device's slots in the block of a tier that is summed in its own subspace.

    Attributes:
        subspace: in which the device trained.
        tier: of the block, a level no deeper; `rows_of` rows of the table's width, filled up with zeros.
    """

    subspace: Subspace
    tier: Subspace

    @property
    def size(self) -> int:
        """Slots of the device."""
        return self.subspace.size

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the tier's block."""
        return rows_of(self.tier), self.tier.width

    def recover(self, values: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch rows dim"]:
        """The same table in the tier's slots."""
        # Subspaces are nested: a slot of the tier lies within one slot of the device, whose value it repeats.
        lifted = lift(values, self.subspace, self.tier)
        # Blocks are tables, and the tier's slots need not fill the last row.
        missing = rows_of(self.tier) * self.tier.width - lifted.shape[-1]
        return torch.nn.functional.pad(lifted, (0, missing)).reshape(*values.shape[:-1], *self.shape)

    def counts(self) -> Int64[Tensor, " size"]:
        """Slots of the tier that take each value."""
        if self.tier.level == 0:
            return _counts(self.subspace, here())
        # Also by nesting: every slot of the device splits into equally many of the tier.
        return torch.full((self.size,), self.tier.size // self.subspace.size)


def rows_of(tier: Subspace) -> int:
    """Rows of a tier's block: its slots, a table's width to a row."""
    return -(-tier.size // tier.width)


def from_block(block: Float[Tensor, "*batch rows dim"], tier: Subspace) -> Float[Tensor, "*batch items dim"]:
    """The table that a tier's block stands for."""
    return tier.recover(block.flatten(-2)[..., : tier.size])


@lru_cache(maxsize=32)
def _counts(subspace: Subspace, device: torch.device) -> Int64[Tensor, " size"]:
    return subspace.counts(device)
