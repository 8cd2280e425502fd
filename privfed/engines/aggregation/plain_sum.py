"""Sums of uploads that travel as numbers, and their counterpart with the noise of all clients drawn at once."""

import math

import torch
from torch import Tensor

from privfed.compute.processes import ALONE, Processes
from privfed.compute.tiles import tile_size
from privfed.contracts import Schema
from privfed.engines.aggregation.base import BlockSums, QueryContext, SentObserver, stacked, unobserved
from privfed.federation import Call
from privfed.guards import ClientGuard, RingCode, ServerGuard
from privfed.updates import ClientUpdates

_WITHIN = "clients within the clip norm"


class PlainSum:
    """Adds uploads as numbers, each with its own noise where the plan gives every upload some.

    Args:
        schema: of the query.
        guard: of the clients.
        processes: that add up their own clients, each for itself.
        sent: sees single uploads, where the plan releases them.
    """

    def __init__(
        self, schema: Schema, guard: ClientGuard, *, processes: Processes = ALONE, sent: SentObserver = unobserved
    ) -> None:
        self._guard, self._processes, self._sent = guard, processes, sent
        self._single = guard.plan.mechanism.release == "individual"
        self._noisy = guard.rewrites
        self._within = 0
        self._sums = {
            name: torch.zeros(block.shape, dtype=torch.float64 if block.kind == "real" else torch.int64)
            for name, block in schema.items()
        }

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Add the updates of one call; noisy uploads are made tile by tile."""
        self._within += self._guard.clip_(updates, call.clip_norm)
        if self._noisy:
            for tile in torch.split(torch.arange(len(updates)), tile_size()):
                self._add_protected(updates, call, tile)
            return
        if self._single:
            self._sent(call, lambda positions: self._guard.protect(updates, call, positions), None)
        updates.add_to(self._sums, precise=self._guard.sums_precisely)

    def close(self) -> BlockSums:
        """Sums over all clients, and how many of them were within the clip norm."""
        within = torch.tensor(float(self._within), dtype=torch.float64)
        self._processes.add_({**self._sums, _WITHIN: within})
        return BlockSums(self._sums, within=int(within))

    def _add_protected(self, updates: ClientUpdates, call: Call, tile: Tensor) -> None:
        uploads = self._guard.protect(updates, call, tile)
        self._sent(call, stacked(uploads), tile)
        for name, values in uploads.items():
            self._sums[name].add_(values.sum(0, dtype=self._sums[name].dtype))


class AnalyticSum(PlainSum):
    """Adds uploads without noise and draws the noise of all clients once, with the variance that the sum has.

    Args:
        query: the query.
        guard: of the clients.
        server_guard: draws the noise.
        members: number of clients in the sum.
        code: of uploads that would travel as ring elements; None where they travel as numbers.
        processes: as for `PlainSum`.
        sent: as for `PlainSum`.
    """

    def __init__(
        self,
        query: QueryContext,
        guard: ClientGuard,
        server_guard: ServerGuard,
        members: int,
        code: RingCode | None = None,
        *,
        processes: Processes = ALONE,
        sent: SentObserver = unobserved,
    ) -> None:
        super().__init__(query.schema, guard, processes=processes, sent=sent)
        self._query, self._server_guard, self._members, self._code = query, server_guard, members, code
        noise = guard.plan.mechanism.noise
        normal = noise is not None and (noise.law, noise.coordinates) == ("gaussian", "all")
        self._deviation: float | None = None
        if normal and noise is not None and guard.plan.upload_bits is None:
            self._noisy, self._deviation = False, noise.scale * math.sqrt(members)

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """As `PlainSum`; whole numbers are held to the bounds that ring elements have."""
        if self._code is not None:
            self._code.accepts(updates)
        super().add(call, updates)

    def close(self) -> BlockSums:
        """Sums with the noise of all clients."""
        summed = super().close()
        if self._deviation is not None:
            self._add_gaussian_(summed, self._deviation)
        if self._code is not None and self._code.distributed is not None:
            self._add_gaussian_(summed, self._code.analytic_deviation(self._members))
        return summed

    def _add_gaussian_(self, summed: BlockSums, deviation: float) -> None:
        query = self._query
        self._server_guard.add_gaussian_(summed.sums, query.cohort.round, query.query_id, query.schema, deviation)
