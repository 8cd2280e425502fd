"""Sums of secret-shared uploads: what additive shares between aggregators open, over in-process clients.

Blocks that clients send as `Rows` are shared row by row, over the rows that each client announced; every other block is
shared whole. `exact` adds in the open what the aggregators' sums come to; `protocol` makes, adds and opens real shares
with `secure_agg.sparse`. The two are equal to the bit.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.processes import ALONE, Processes
from privfed.compute.tiles import TILE
from privfed.engines.aggregation.base import BlockSums, QueryContext
from privfed.engines.aggregation.share_dealer import ShareDealer
from privfed.federation import Call, FederationError
from privfed.guards import ClientGuard
from privfed.updates import ClientUpdates, Rows
from secure_agg.encoding import Ring, RingElements
from secure_agg.sparse import RowSums, reveal_rows, row_share_bytes

RowObserver = Callable[[Call, Rows, int], None]

_WHOLE = 0
"""Lane of the blocks that are shared whole; tables follow, in the order of the schema."""
_VALUES_AT_ONCE = 1 << 22
"""Values of blocks shared whole that are made at a time."""


class ShareSum:
    """Shares the updates of every chunk between the aggregators, and opens what enough clients sent.

    Args:
        query: the query.
        dealer: of the run.
        guard: of the clients.
        max_clients: largest number of clients of a round.
        observe_rows: sees the rows of a table that the clients of a call name: (call, rows, length of the table).
        processes: that share out their own clients' updates, each for itself.

    Attributes:
        up_bytes: bytes of the shares of the clients of this process so far.
    """

    def __init__(
        self,
        query: QueryContext,
        dealer: ShareDealer,
        guard: ClientGuard,
        max_clients: int,
        observe_rows: RowObserver | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self._dealer, self._guard, self._observe_rows, self._processes = dealer, guard, observe_rows, processes
        self._schema, self._cohort_id = query.schema, query.cohort.id
        self._code, self._ring = dealer.code(query.schema, max_clients), Ring(dealer.mechanism.bits)
        self._every_row = dealer.mechanism.padding.every_row
        self._tables: dict[str, list[RowSums]] | None = None
        self._whole: list[RingElements] = []
        self.up_bytes = 0.0

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Share and add the updates of one call.

        Raises:
            FederationError: a row that was not announced, or a block that other clients sent in another form.
        """
        self._guard.clip_(updates, call.clip_norm)
        mechanism, announced, clients = self._dealer.mechanism, self._dealer.announced, len(updates)
        tables = self._row_by_row(updates)
        whole = [name for name in self._schema if name not in tables]
        ring_elements = sum(self._schema[name].size for name in whole) * clients
        for name, rows in tables.items():
            part = announced.padded(rows, self._cohort_id, call.clients, self._schema[name].shape[0])
            ring_elements += part.values.numel()
            if self._observe_rows is not None:
                self._observe_rows(call, part, self._schema[name].shape[0])
            self.up_bytes += announced.name_bytes(part, clients) * mechanism.aggregators
            self._add_rows(name, part, call)
        self.up_bytes += row_share_bytes(0, self._ring, mechanism.aggregators) * clients
        self.up_bytes += self._ring.dtype.itemsize * ring_elements
        if whole:
            self._add_whole(whole, updates, call)

    def close(self) -> BlockSums:
        """Sums of all blocks over all clients, and for tables which rows are revealed."""
        self._add_up(self._processes)
        min_clients, sums, revealed = self._dealer.mechanism.min_cohort, dict[str, Tensor](), dict[str, Tensor]()
        tables, at = self._tables or {}, 0
        whole = self._ring.sum(self._whole) if self._whole else self._ring.zeros(0)
        for name, block in self._schema.items():
            if name in tables:
                ring_elements, wide_enough = self._opened(tables[name], min_clients)
                revealed[name] = placed(wide_enough)
            else:
                ring_elements, at = whole[at : at + block.size], at + block.size
            sums[name] = placed(self._code.decode(name, ring_elements)).view(block.shape)
        return BlockSums(sums, revealed)

    def _add_up(self, processes: Processes) -> None:
        """Sums over the clients of all processes; one without queried clients has nothing to add."""
        if processes.size == 1:
            return
        every = processes.every(None if self._tables is None else [*self._tables])
        sent = [tables for tables in every if tables is not None]
        if any(tables != sent[0] for tables in sent):
            raise FederationError("blocks are sent as rows in one process and whole in another; send them alike")
        if self._tables is None:
            self._tables = {name: self._nothing(name) for name in (sent[0] if sent else ())}
        for rows in self._tables.values():
            processes.add_ring_elements_(rows[0].elements)
            processes.add_({"supporters": placed(rows[0].contributors)})
        whole = sum(block.size for name, block in self._schema.items() if name not in self._tables)
        self._whole = [processes.add_ring_elements_(share) for share in self._whole or [self._ring.zeros(whole)]]

    def _opened(self, held: Sequence[RowSums], min_clients: int) -> tuple[RingElements, np.ndarray]:
        if self._dealer.protocol:
            return reveal_rows(held, min_clients)
        return held[0].revealed_elements(min_clients), held[0].revealed_rows(min_clients)

    def _row_by_row(self, updates: ClientUpdates) -> dict[str, Rows]:
        """Blocks that are shared row by row, the same in every chunk."""
        tables: dict[str, Rows] = {}
        for name in self._schema:
            parts = [part for part in updates.parts if part.block == name]
            if not self._every_row and len(parts) == 1 and isinstance(parts[0], Rows):
                tables[name] = parts[0]
        if self._tables is None:
            self._tables = {name: self._nothing(name) for name in tables}
        for name in sorted(tables.keys() ^ self._tables.keys()):
            raise FederationError(
                f"block {name!r} is sent as rows by some clients and whole by others, and the two could be "
                f"distinguished; send it alike"
            )
        return tables

    def _nothing(self, name: str) -> list[RowSums]:
        rows, width = self._schema[name].shape
        return [RowSums.empty(self._ring, rows, width) for _ in range(self._dealer.mechanism.aggregators)]

    def _add_rows(self, name: str, part: Rows, call: Call) -> None:
        held, clients = (self._tables or {})[name], on_host(call.clients)
        named, rows_of_each = self._dealer.named(part, clients, self._schema[name].shape[0])
        ring_elements = self._code.encode(name, on_host(part.values)).reshape(-1)
        if not self._dealer.protocol:
            held[0].add(named, ring_elements)
            return
        lane, address = 1 + list(self._schema).index(name), (self._cohort_id, call.query_id)
        shares = self._dealer.split(lane, address, clients, rows_of_each * part.values.shape[1], ring_elements)
        for sums, share in zip(held, shares, strict=True):
            sums.add(named, share)

    def _add_whole(self, names: Sequence[str], updates: ClientUpdates, call: Call) -> None:
        """Blocks that are sent whole, one after another in one vector per client."""
        if not self._dealer.protocol:
            self._keep([np.concatenate([self._in_the_open(name, updates) for name in names])])
            return
        for some in self._some_clients(names, updates):
            blocks = self._materialised(names, updates, some)
            ring_elements = np.concatenate([self._code.encode(name, block) for name, block in blocks.items()], axis=1)
            counts = np.full(len(some), ring_elements.shape[1])
            shares = self._dealer.split(
                _WHOLE, (self._cohort_id, call.query_id), on_host(call.clients[some]), counts, ring_elements.reshape(-1)
            )
            self._keep([share.reshape(ring_elements.shape).sum(0, dtype=share.dtype) for share in shares])

    def _in_the_open(self, name: str, updates: ClientUpdates) -> RingElements:
        """What shares of one block come to: the sum of its ring elements."""
        block, dtype = self._schema[name], self._ring.dtype
        if block.kind == "real":
            made = [self._materialised([name], updates, some)[name] for some in self._some_clients([name], updates)]
            return self._ring.sum(self._code.encode(name, values).sum(0, dtype=dtype) for values in made)
        self._code.accepts(name, updates.largest(name))
        total = torch.zeros(block.shape, dtype=torch.int64)
        for part in updates.parts:
            if part.block == name:
                part.add_to(total)
        return on_host(total).astype(dtype).reshape(-1)

    def _some_clients(self, names: Sequence[str], updates: ClientUpdates) -> Sequence[Tensor]:
        """Positions of clients whose blocks are made together, in whole tiles."""
        size = sum(self._schema[name].size for name in names)
        return torch.split(torch.arange(len(updates)), max(_VALUES_AT_ONCE // size // TILE, 1) * TILE)

    def _materialised(self, names: Sequence[str], updates: ClientUpdates, some: Tensor) -> dict[str, np.ndarray]:
        """Blocks of some clients, `[clients, size]`."""
        out = {}
        for name in names:
            block = self._schema[name]
            out[name] = torch.empty(
                (len(some), *block.shape), dtype=torch.float32 if block.kind == "real" else torch.int64
            )
        return {name: on_host(values.reshape(len(some), -1)) for name, values in updates.materialise(some, out).items()}

    def _keep(self, shares: Sequence[RingElements]) -> None:
        held = self._whole or [self._ring.zeros(len(share)) for share in shares]
        self._whole = [self._ring.sum(pair) for pair in zip(held, shares, strict=True)]
