"""Sums of uploads as ring elements, added in the open: exactly what secure aggregation computes."""

import torch

from privfed.compute.devices import HOST, here, on_host
from privfed.compute.processes import ALONE, Processes
from privfed.compute.tiles import tile_size
from privfed.engines.aggregation.base import BlockSums
from privfed.federation import Call
from privfed.guards import ClientGuard, RingCode
from privfed.updates import ClientUpdates
from secure_agg.encoding import RingElements


class RingSum:
    """Rounds and noises every client's upload under its own key, and adds the ring elements.

    Args:
        code: of the query.
        guard: of the clients.
        processes: that add up their own clients, each for itself.
    """

    def __init__(self, code: RingCode, guard: ClientGuard, processes: Processes = ALONE) -> None:
        self._code, self._guard, self._processes = code, guard, processes
        self._total = code.ring.zeros(code.length)
        # Without random bits of each client's own, uploads are rounded and added where they are, and leave an
        # accelerator once. Whole numbers add up modulo 2^64 in any order, so the ring elements are the same.
        accelerated = here() != HOST and not code.randomised
        self._steps = torch.zeros(code.length, dtype=torch.int64) if accelerated else None

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Add the ring elements of the clients of one call."""
        self._guard.clip_(updates, call.clip_norm)
        for tile in torch.split(torch.arange(len(updates)), tile_size()):
            uploads = updates.materialise(tile)
            if self._steps is not None:
                self._steps += self._code.summed_steps(uploads)
            else:
                elements = self._guard.ring_elements(self._code, uploads, call, tile)
                self._total = self._code.ring.sum([self._total, *elements])

    @property
    def elements(self) -> RingElements:
        """The sum `[length]` over the clients of this process."""
        if self._steps is not None:
            return self._code.ring.reduce_(on_host(self._steps).astype(self._code.ring.dtype))
        return self._total

    def close(self) -> BlockSums:
        """Decoded sums over all clients."""
        return BlockSums(self._code.decode(self._processes.add_ring_elements_(self.elements)))
