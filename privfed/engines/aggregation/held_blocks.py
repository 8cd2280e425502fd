"""Who holds which block of a query, and the sums that follow where clients send held blocks only.

Blocks that the same clients hold travel in one vector, so there is one masked sum per distinct set of holders: the
fewest that are right. A sum per kind of client instead would distinguish, within a block that several kinds hold, what
each of them sent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from privfed.compute.devices import on_host
from privfed.compute.processes import Processes
from privfed.contracts import Schema
from privfed.engines.aggregation.base import Aggregation, BlockSums
from privfed.federation import Call
from privfed.updates import ClientUpdates


@dataclass(frozen=True, slots=True, eq=False)
class BlockGroup:
    """Blocks with equal holders.

    Attributes:
        blocks: their names, in the order of the schema.
        holders: positions of the holders in the cohort, ascending.
    """

    blocks: tuple[str, ...]
    holders: Int64[Tensor, " holders"]


class Holdings:
    """Which client sends anything of which block, gathered over the chunks of one query.

    Args:
        schema: of the query.
    """

    def __init__(self, schema: Schema) -> None:
        self.blocks = tuple(schema)
        self._chunks: list[Bool[Tensor, "clients blocks"]] = []

    def add(self, updates: ClientUpdates) -> None:
        """Note the holdings of the next clients of the cohort."""
        self._chunks.append(updates.holds())

    def gather(self, processes: Processes) -> None:
        """Take in what clients hold who live in other processes."""
        self._chunks = list(processes.every(self.held))

    @property
    def held(self) -> Bool[Tensor, "members blocks"]:
        """Who holds what, in the order of the cohort."""
        return torch.cat([torch.zeros(0, len(self.blocks), dtype=torch.bool), *self._chunks])

    def groups(self) -> list[BlockGroup]:
        """Blocks by their holders, in the order in which they first come in the schema."""
        held, groups = self.held, dict[bytes, list[int]]()
        for column in range(len(self.blocks)):
            groups.setdefault(on_host(held[:, column]).tobytes(), []).append(column)
        return [
            BlockGroup(tuple(self.blocks[column] for column in columns), held[:, columns[0]].nonzero().squeeze(1))
            for columns in groups.values()
        ]


class HeldBlocks:
    """The holdings of one query under a plan in which clients take part in the sums of held blocks only.

    Args:
        schema: of the query.
        reveals: whether a sum of so many clients is revealed.
        processes: that share the clients.
    """

    def __init__(self, schema: Schema, reveals: Callable[[int], bool], processes: Processes) -> None:
        self.holdings = Holdings(schema)
        self._schema, self._reveals, self._processes = schema, reveals, processes

    def gather(self) -> None:
        """Take in the holdings of the clients of all processes."""
        self.holdings.gather(self._processes)

    def revealed(self) -> list[BlockGroup]:
        """Blocks that enough clients hold."""
        return [group for group in self.holdings.groups() if self._reveals(len(group.holders))]

    def suppress_(self, summed: BlockSums) -> None:
        """Put zeros, in place, for the sums of blocks that too few clients hold."""
        for group in self.holdings.groups():
            for name in () if self._reveals(len(group.holders)) else group.blocks:
                summed.sums[name].zero_()
                summed.revealed[name] = torch.zeros(self._schema[name].shape[:1], dtype=torch.bool)


class HeldBlockSum:
    """An aggregation whose sums of blocks that too few clients hold are suppressed.

    Args:
        inner: adds the uploads.
        held: the holdings of the query.
    """

    def __init__(self, inner: Aggregation[BlockSums], held: HeldBlocks) -> None:
        self._inner, self._held = inner, held

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Note who holds what, and add the updates."""
        self._held.holdings.add(updates)
        self._inner.add(call, updates)

    def close(self) -> BlockSums:
        """Sums of the blocks that enough clients hold; zeros for the others."""
        self._held.gather()
        summed = self._inner.close()
        self._held.suppress_(summed)
        return summed
