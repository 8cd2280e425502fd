"""Who holds which block of an ask, and the sums that follow where clients send held blocks only.

Blocks that the same clients hold travel in one vector, so there is one masked sum per distinct set of holders: the
fewest that are right. A sum per kind of client instead would tell apart, within a block that several kinds hold, what
each of them sent.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from privfed.compute.devices import on_host
from privfed.compute.processes import Processes
from privfed.contracts import Schema
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
    """Who sends anything of which block, gathered over the chunks of one ask.

    Args:
        schema: of the ask.
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
        for place in range(len(self.blocks)):
            groups.setdefault(on_host(held[:, place]).tobytes(), []).append(place)
        return [
            BlockGroup(tuple(self.blocks[place] for place in places), held[:, places[0]].nonzero().squeeze(1))
            for places in groups.values()
        ]
