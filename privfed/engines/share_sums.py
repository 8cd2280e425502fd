"""Sums of secret-shared uploads: what is opened of them, over in-process clients.

Blocks that clients send as `Rows` are shared row by row, over the rows that each client announced; every other block is
shared whole. `exact` adds in the open what the aggregators' sums come to; `protocol` makes, adds and opens real shares
with `secure_agg.sparse`. The two are equal to the bit.

Keys follow from the simulation's seed and addresses from draw and ask, so a resumed run sends the very messages of the
rounds it repeats, and two runs of one seed share their streams: a simulation hides nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.compute.processes import Processes
from privfed.compute.tiles import TILE
from privfed.contracts import Schema
from privfed.data import Histories
from privfed.engines.transcript import Transcript
from privfed.federation import SERVER, Call, Cohort, FederationError, Purpose, Streams
from privfed.guards.share_code import ShareCode
from privfed.privacy.mechanisms.secret_sharing import SecretSharing
from privfed.updates import ClientUpdates, RowPattern, Rows
from secure_agg.encoding import Ring, RingElements
from secure_agg.sparse import (
    ClientCiphers,
    KeyStreams,
    RowSums,
    agree_keys,
    masked_share,
    reveal_rows,
    row_indices_bytes,
    row_share_bytes,
)

_KEY_WORDS = 8
_WHOLE = 0
"""Lane of the blocks that are shared whole; tables follow, in the order of the schema."""
_VALUES_AT_ONCE = 1 << 22
"""Values of blocks shared whole that are made at a time."""


class Announced:
    """The rows that clients named at enrolment: what a cover drew, with their own.

    Args:
        support: rows of every user; None where clients name the rows of each upload.
    """

    def __init__(self, support: Histories | None) -> None:
        self.support = support
        self._cohort_id = -1
        self._patterns: dict[tuple[int, int], tuple[Tensor, RowPattern]] = {}
        self._earlier: dict[tuple[int, int], tuple[Tensor, RowPattern]] = {}
        self._twins: dict[tuple[int, int], tuple[RowPattern, RowPattern]] = {}

    @property
    def enrolment_bytes(self) -> int:
        """Bytes in which all clients name their rows to one aggregator, once; 0 where they name them as they go."""
        if self.support is None:
            return 0
        return self.support.n_users * row_indices_bytes(0) + len(self.support) * (
            row_indices_bytes(1) - row_indices_bytes(0)
        )

    def padded(self, part: Rows, cohort_id: int, clients: Int64[Tensor, " clients"], rows: int) -> Rows:
        """The part with a row of zeros for every announced row that it leaves out.

        Args:
            part: what the clients of a call send.
            cohort_id: of their cohort.
            clients: who they are.
            rows: of the table.

        Raises:
            FederationError: it holds a row that was not announced.
        """
        if self.support is None:
            return part
        pattern = self._pattern(self.support, cohort_id, clients, rows)
        whose = int(clients[0]), len(clients)
        announced_by, sent_by = self._twins.get(whose, (None, None))
        if announced_by is pattern and sent_by is part.pattern:
            return pattern.with_values(part.block, part.values)
        if torch.equal(part.ids, pattern.ids) and torch.equal(part.owner, pattern.owner):
            if part.pattern is not None:
                self._twins[whose] = pattern, part.pattern
            return pattern.with_values(part.block, part.values)
        values = torch.zeros(len(pattern.ids), part.values.shape[1], dtype=part.values.dtype)
        if len(part.ids):
            announced, sent = pattern.owner * rows + pattern.ids, part.owner * rows + part.ids
            place = torch.searchsorted(announced, sent).clamp_(max=max(len(announced) - 1, 0))
            if len(announced) == 0 or not torch.equal(announced[place], sent):
                raise FederationError(
                    f"block {part.block!r}: a client sends a row that it did not announce, so its cover would show it; "
                    f"train on the covered items only"
                )
            values[place] = part.values
        return pattern.with_values(part.block, values)

    def name_bytes(self, part: Rows, clients: int) -> int:
        """Bytes in which clients name the rows of one upload to one aggregator; 0 where they did so at enrolment."""
        if self.support is not None:
            return 0
        return clients * row_indices_bytes(0) + len(part.ids) * (row_indices_bytes(1) - row_indices_bytes(0))

    def _pattern(self, support: Histories, cohort_id: int, clients: Int64[Tensor, " clients"], rows: int) -> RowPattern:
        """Announced rows of the called clients; kept for as long as the same clients are called draw after draw."""
        if support.n_items != rows:
            raise FederationError(
                f"a client sends rows of a table of {rows} rows, while covers are drawn over the catalogue; send "
                f"tables with one row per item"
            )
        if cohort_id != self._cohort_id:
            self._cohort_id, self._earlier, self._patterns = cohort_id, self._patterns, {}
            self._twins = {whose: twins for whose, twins in self._twins.items() if whose in self._earlier}
        whose = int(clients[0]), len(clients)
        known = self._patterns.get(whose) or self._earlier.get(whose)
        if known is None or not torch.equal(known[0], clients):
            mine = support.subset(on_host(clients))
            keys = placed(mine.owners * rows + mine.items).sort().values
            known = clients.clone(), RowPattern(len(clients), rows, keys // rows, keys % rows)
        self._patterns[whose] = known
        return known[1]


class SharedSums:
    """The secret-shared sums of one run.

    Args:
        mechanism: of the plan.
        population: number of users.
        streams: the simulation's keys; clients agree theirs with aggregators from them.
        support: rows that every user announced, cover included; None where clients name the rows they send.
        protocol: whether real shares are made.
    """

    def __init__(
        self, mechanism: SecretSharing, population: int, streams: Streams, support: Histories | None, *, protocol: bool
    ) -> None:
        self.mechanism, self.protocol = mechanism, protocol
        self.announced = Announced(support)
        self._population, self._streams = population, streams
        self._ciphers: list[ClientCiphers] = []
        self._lanes: dict[int, list[tuple[KeyStreams, KeyStreams]]] = {}
        self._codes: dict[tuple[Any, ...], ShareCode] = {}

    @property
    def enrolment_bytes(self) -> int:
        """Bytes in which all clients name their rows to all aggregators before the first round."""
        return self.announced.enrolment_bytes * self.mechanism.aggregators

    def code(self, schema: Schema, max_clients: int) -> ShareCode:
        """The code of an ask; see `ShareCode` for what is refused."""
        key = tuple(schema.items())
        if key not in self._codes:
            self._codes[key] = ShareCode(self.mechanism, schema, max_clients)
        return self._codes[key]

    def split(
        self,
        lane: int,
        address: tuple[int, int],
        clients: Int64[np.ndarray, " clients"],
        counts: Int64[np.ndarray, " clients"],
        ring_elements: RingElements,
    ) -> list[RingElements]:
        """Every aggregator's share of the words of some clients, `counts[j]` of client `clients[j]`.

        Args:
            lane: which array of the ask.
            address: draw and ask.
            clients: ascending.
            counts: words of each.
            ring_elements: of one client after another.
        """
        if not self._ciphers:
            key = self._streams.words(Purpose.SHARE, 0, 0, [SERVER], _KEY_WORDS)[0].tobytes()
            keys = agree_keys(self._population, self.mechanism.aggregators, key)
            self._ciphers = [ClientCiphers(of_one) for of_one in keys]
        ring = Ring(self.mechanism.bits)
        if lane not in self._lanes:
            self._lanes[lane] = [(KeyStreams(own, ring, lane), KeyStreams(own, ring, lane)) for own in self._ciphers]
        query = *address, clients, counts
        left = masked_share(ring_elements, [own.take(*query) for own, _ in self._lanes[lane]])
        return [left, *(aggregator.take(*query) for _, aggregator in self._lanes[lane])]


class SharedQuery:
    """One ask: add the updates of every chunk, then open.

    Args:
        sums: of the run.
        schema: of the ask.
        cohort: of the ask.
        max_clients: clients that a round can have.
        transcript: notes the rows that are named; None notes none.
    """

    def __init__(
        self, sums: SharedSums, schema: Schema, cohort: Cohort, max_clients: int, transcript: Transcript | None = None
    ) -> None:
        self._transcript = transcript
        self._sums, self._schema, self._cohort_id = sums, schema, cohort.id
        self._code, self._ring = sums.code(schema, max_clients), Ring(sums.mechanism.bits)
        self._every_row = sums.mechanism.padding.every_row
        self._tables: dict[str, list[RowSums]] | None = None
        self._whole: list[RingElements] = []
        self.up_bytes = 0.0

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Share and add the updates of one chunk.

        Raises:
            FederationError: a row that was not announced, or a block that other clients sent in another form.
        """
        mechanism, announced, clients = self._sums.mechanism, self._sums.announced, len(updates)
        tables = self._row_by_row(updates)
        whole = [name for name in self._schema if name not in tables]
        ring_elements = sum(self._schema[name].size for name in whole) * clients
        for name, rows in tables.items():
            part = announced.padded(rows, self._cohort_id, call.clients, self._schema[name].shape[0])
            ring_elements += part.values.numel()
            if self._transcript is not None:
                self._transcript.record_rows(call, part, self._schema[name].shape[0])
            self.up_bytes += announced.name_bytes(part, clients) * mechanism.aggregators
            self._add_rows(name, part, call)
        self.up_bytes += row_share_bytes(0, self._ring, mechanism.aggregators) * clients
        self.up_bytes += self._ring.dtype.itemsize * ring_elements
        if whole:
            self._add_whole(whole, updates, call)

    def close(self, processes: Processes) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Sums of all blocks, float64 or int64, and for tables which rows were opened.

        Args:
            processes: processes that have added their clients' updates, each for itself.
        """
        self._add_up(processes)
        min_clients, sums, revealed = self._sums.mechanism.min_cohort, dict[str, Tensor](), dict[str, Tensor]()
        tables, at = self._tables or {}, 0
        whole = self._ring.sum(self._whole) if self._whole else self._ring.zeros(0)
        for name, block in self._schema.items():
            if name in tables:
                ring_elements, wide_enough = self._opened(tables[name], min_clients)
                revealed[name] = placed(wide_enough)
            else:
                ring_elements, at = whole[at : at + block.size], at + block.size
            sums[name] = placed(self._code.decode(name, ring_elements)).view(block.shape)
        return sums, revealed

    def _add_up(self, processes: Processes) -> None:
        """Sums over the clients of all processes; one whose clients were not asked has nothing to add."""
        if processes.size == 1:
            return
        every = processes.every(None if self._tables is None else [*self._tables])
        query = [tables for tables in every if tables is not None]
        if any(tables != query[0] for tables in query):
            raise FederationError("blocks are sent as rows in one process and whole in another; send them alike")
        if self._tables is None:
            self._tables = {name: self._nothing(name) for name in (query[0] if query else ())}
        for rows in self._tables.values():
            processes.add_ring_elements_(rows[0].elements)
            processes.add_({"supporters": placed(rows[0].contributors)})
        whole = sum(block.size for name, block in self._schema.items() if name not in self._tables)
        self._whole = [processes.add_ring_elements_(share) for share in self._whole or [self._ring.zeros(whole)]]

    def _opened(self, held: Sequence[RowSums], min_clients: int) -> tuple[RingElements, np.ndarray]:
        if self._sums.protocol:
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
                f"block {name!r} is sent as rows by some clients and whole by others, and the two would be told "
                f"apart; send it alike"
            )
        return tables

    def _nothing(self, name: str) -> list[RowSums]:
        rows, width = self._schema[name].shape
        return [RowSums.empty(self._ring, rows, width) for _ in range(self._sums.mechanism.aggregators)]

    def _add_rows(self, name: str, part: Rows, call: Call) -> None:
        held, ids, clients = (self._tables or {})[name], on_host(part.ids), on_host(call.clients)
        ring_elements = self._code.encode(name, on_host(part.values)).reshape(-1)
        if not self._sums.protocol:
            held[0].add(clients, ids, ring_elements)
            return
        counts = np.bincount(on_host(part.owner), minlength=len(clients)) * part.values.shape[1]
        lane = 1 + list(self._schema).index(name)
        for sums, share in zip(
            held, self._sums.split(lane, (self._cohort_id, call.query_id), clients, counts, ring_elements), strict=True
        ):
            sums.add(clients, ids, share)

    def _add_whole(self, names: Sequence[str], updates: ClientUpdates, call: Call) -> None:
        """Blocks that are sent whole, one after another in one vector per client."""
        if not self._sums.protocol:
            self._keep([np.concatenate([self._in_the_open(name, updates) for name in names])])
            return
        for some in self._some_clients(names, updates):
            blocks = self._materialised(names, updates, some)
            ring_elements = np.concatenate([self._code.encode(name, block) for name, block in blocks.items()], axis=1)
            counts = np.full(len(some), ring_elements.shape[1])
            shares = self._sums.split(
                _WHOLE, (self._cohort_id, call.query_id), on_host(call.clients[some]), counts, ring_elements.reshape(-1)
            )
            self._keep([share.reshape(ring_elements.shape).sum(0, dtype=share.dtype) for share in shares])

    def _in_the_open(self, name: str, updates: ClientUpdates) -> RingElements:
        """What shares of one block come to: the sum of its words."""
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
