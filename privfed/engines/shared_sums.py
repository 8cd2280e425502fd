"""Sums of secret-shared uploads: what `SharedSum` opens, over in-process clients.

Blocks that clients send as `Rows` are shared row by row, over the rows that each client announced; every other block is
shared whole. `exact` adds in the open what the aggregators' sums come to; `protocol` makes, adds and opens real shares
with `secure_agg.sparse`. The two are equal to the bit.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.data import Histories
from privfed.federation import SERVER, Call, Cohort, FederationError, Purpose, Streams
from privfed.privacy import EveryRow
from privfed.privacy.secure import SharedSum
from privfed.privacy.share_code import ShareCode
from privfed.updates import ClientUpdates, CodeProducts, Dense, Part, RowPattern, Rows, Schema
from secure_agg.prg import Words
from secure_agg.sparse import Ciphers, KeyStreams, RowSums, agree_keys, names_bytes, open_rows, share_bytes, withhold

_KEY_WORDS = 8
_WHOLE = 0
"""Lane of the blocks that are shared whole; tables follow, in the order of the schema."""


class Announced:
    """The rows that clients named at enrolment: what a cover drew, with their own.

    Args:
        support: rows of every user; None where clients name the rows of each upload.
    """

    def __init__(self, support: Histories | None) -> None:
        self.support = support
        self._patterns: dict[tuple[int, int], tuple[Tensor, RowPattern]] = {}
        self._named: set[int] = set()
        self._latest: dict[tuple[int, int], RowPattern] = {}

    def padded(self, part: Rows, clients: Int64[Tensor, " clients"], rows: int) -> Rows:
        """The part with a row of zeros for every announced row that it leaves out.

        Raises:
            FederationError: it holds a row that was not announced.
        """
        if self.support is None:
            return part
        pattern = self._pattern(clients, rows)
        if torch.equal(part.ids, pattern.ids) and torch.equal(part.owner, pattern.owner):
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

    def name_bytes(self, part: Rows, clients: Int64[Tensor, " clients"]) -> int:
        """Bytes in which clients name rows now: at their first upload, and again whenever the rows change."""
        if self.support is not None:
            fresh = [user for user in clients.tolist() if user not in self._named]
            self._named.update(fresh)
            return len(fresh) * names_bytes(0) + 4 * int(self.support.counts[fresh].sum())
        whose = int(clients[0]), len(clients)
        if part.pattern is not None and self._latest.get(whose) is part.pattern:
            return 0
        if part.pattern is not None:
            self._latest[whose] = part.pattern
        return len(clients) * names_bytes(0) + 4 * len(part.ids)

    def _pattern(self, clients: Int64[Tensor, " clients"], rows: int) -> RowPattern:
        support = self.support
        if support is None or support.n_items != rows:
            raise FederationError(
                f"a client sends rows of a table of {rows} rows, while covers are drawn over the catalogue; send "
                f"tables with one row per item"
            )
        whose = int(clients[0]), len(clients)
        known = self._patterns.get(whose)
        if known is None or not torch.equal(known[0], clients):
            mine = support.subset(clients.numpy())
            keys = torch.from_numpy(mine.owners * rows + mine.items).sort().values
            known = self._patterns[whose] = clients.clone(), RowPattern(len(clients), rows, keys // rows, keys % rows)
        return known[1]


class SharedSums:
    """The secret-shared sums of one run.

    Args:
        protection: of the plan.
        population: number of users.
        streams: the simulation's keys; clients agree theirs with aggregators from them.
        support: rows that every user announced, cover included; None where clients name the rows they send.
        protocol: whether real shares are made.
    """

    def __init__(
        self, protection: SharedSum, population: int, streams: Streams, support: Histories | None, *, protocol: bool
    ) -> None:
        self.protection, self.protocol = protection, protocol
        self.announced = Announced(support)
        self._population, self._streams = population, streams
        self._ciphers: list[Ciphers] = []
        self._lanes: dict[int, list[tuple[KeyStreams, KeyStreams]]] = {}
        self._codes: dict[tuple[Any, ...], ShareCode] = {}

    def code(self, schema: Schema, most: int) -> ShareCode:
        """The code of an ask; see `ShareCode` for what is refused."""
        key = tuple(schema.items())
        if key not in self._codes:
            self._codes[key] = ShareCode(self.protection, schema, most)
        return self._codes[key]

    def lane(self, number: int, draw: int) -> list[tuple[KeyStreams, KeyStreams]]:
        """Of every aggregator but the first: the streams as clients make them, and as the aggregator does."""
        if not self._ciphers:
            key = self._streams.words(Purpose.SHARE, 0, 0, [SERVER], _KEY_WORDS)[0].tobytes()
            keys = agree_keys(self._population, self.protection.aggregators, key)
            self._ciphers = [Ciphers(of_one) for of_one in keys]
        ring = next(iter(self._codes.values())).ring
        if number not in self._lanes:
            self._lanes[number] = [
                (KeyStreams(own, ring, number), KeyStreams(own, ring, number)) for own in self._ciphers
            ]
        for pair in self._lanes[number]:
            for side in pair:
                side.begin(draw)
        return self._lanes[number]


class SharedAsk:
    """One ask: add the updates of every chunk, then open.

    Args:
        sums: of the run.
        schema: of the ask.
        cohort: of the ask.
        most: clients that a round can have.
    """

    def __init__(self, sums: SharedSums, schema: Schema, cohort: Cohort, most: int) -> None:
        self._sums, self._schema, self._cohort = sums, schema, cohort
        self._code = sums.code(schema, most)
        self._every_row = isinstance(sums.protection.cover, EveryRow)
        self._tables: dict[str, list[RowSums]] = {}
        self._whole: dict[str, Words] = {}
        self.up_bytes = 0.0

    def add(self, call: Call, updates: ClientUpdates) -> None:
        """Share and add the updates of one chunk."""
        protection, ring = self._sums.protection, self._code.ring
        tables, whole = self._parts(updates)
        words = 0
        for name, rows in tables.items():
            part = self._sums.announced.padded(rows, call.clients, self._schema[name].shape[0])
            words += part.values.numel()
            self.up_bytes += self._sums.announced.name_bytes(part, call.clients) * protection.aggregators
            self._add_rows(name, part, call)
        words += sum(self._schema[name].size for name in whole) * len(updates)
        self.up_bytes += share_bytes(0, ring, protection.aggregators) * len(updates) + ring.dtype.itemsize * words
        if whole and self._sums.protocol:
            self._share_whole(whole, updates, call)
        elif whole:
            self._add_whole(whole, updates)

    def close(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Sums of all blocks, float64 or int64, and for tables which rows were opened."""
        fewest, sums, opened = self._sums.protection.min_cohort, dict[str, Tensor](), dict[str, Tensor]()
        for name, block in self._schema.items():
            if name in self._tables:
                words, wide_enough = open_rows(self._tables[name], fewest)
                opened[name] = torch.from_numpy(wide_enough)
            else:
                words = self._whole.get(name, self._code.ring.zeros(block.size))
            sums[name] = torch.from_numpy(self._code.decode(name, words)).view(block.shape)
        return sums, opened

    def _parts(self, updates: ClientUpdates) -> tuple[dict[str, Rows], list[str]]:
        """Tables that are sent row by row, and names of the blocks that are sent whole."""
        tables: dict[str, Rows] = {}
        for name in self._schema:
            parts = [part for part in updates.parts if part.block == name]
            if not self._every_row and len(parts) == 1 and isinstance(parts[0], Rows):
                tables[name] = parts[0]
            elif name in self._tables:
                raise FederationError(f"block {name!r} is sent as rows by some clients and whole by others")
        return tables, [name for name in self._schema if name not in tables]

    def _add_rows(self, name: str, part: Rows, call: Call) -> None:
        ring, block = self._code.ring, self._schema[name]
        ids, width = part.ids.numpy(), part.values.shape[1]
        words = self._code.encode(name, part.values.numpy()).reshape(-1)
        parties = self._sums.protection.aggregators
        if name not in self._tables:
            self._tables[name] = [RowSums.empty(ring, block.shape[0], width) for _ in range(parties)]
        held = self._tables[name]
        if not self._sums.protocol:
            held[0].add(ids, words)
            for other in held[1:]:
                other.supporters[:] = held[0].supporters
            return
        counts = np.bincount(part.owner.numpy(), minlength=len(call.clients)) * width
        lane = self._sums.lane(1 + list(self._schema).index(name), self._cohort.draw)
        clients = call.clients.numpy()
        held[0].add(ids, withhold(words, [mine.take(clients, counts) for mine, _ in lane]))
        for sums, (_, theirs) in zip(held[1:], lane, strict=True):
            sums.add(ids, theirs.take(clients, counts))

    def _share_whole(self, names: list[str], updates: ClientUpdates, call: Call) -> None:
        """Blocks that are sent whole, one after another in one vector per client."""
        values = updates.materialise(torch.arange(len(updates)))
        words = np.concatenate([self._code.encode(name, values[name].flatten(1).numpy()) for name in names], axis=1)
        clients, width = call.clients.numpy(), words.shape[1]
        counts = np.full(len(clients), width)
        lane = self._sums.lane(_WHOLE, self._cohort.draw)
        left = withhold(words.reshape(-1), [mine.take(clients, counts) for mine, _ in lane])
        shares = [left, *(theirs.take(clients, counts) for _, theirs in lane)]
        partial = [share.reshape(-1, width).sum(0, dtype=share.dtype) for share in shares]
        self._place(names, self._code.ring.sum(partial))

    def _add_whole(self, names: list[str], updates: ClientUpdates) -> None:
        for name in names:
            block, parts = self._schema[name], [part for part in updates.parts if part.block == name]
            if block.kind == "integer":
                total = torch.zeros(block.shape, dtype=torch.int64)
                for part in parts:
                    self._code.accepts(name, _largest(part))
                    part.add_to(total)
                words = total.numpy().astype(self._code.ring.dtype).reshape(-1)
            else:
                values = updates.stacked(name).flatten(1).numpy()
                words = self._code.encode(name, values).sum(0, dtype=self._code.ring.dtype)
            self._place([name], words)

    def _place(self, names: list[str], words: Words) -> None:
        at = 0
        for name in names:
            size = self._schema[name].size
            held = self._whole.setdefault(name, self._code.ring.zeros(size))
            np.add(held, words[at : at + size], out=held)
            at += size


def _largest(part: Part) -> int:
    """The largest magnitude of a part's whole numbers."""
    if isinstance(part, CodeProducts):
        values = part.weights
    elif isinstance(part, Dense | Rows):
        values = part.values
    else:
        raise FederationError(f"block {part.block!r} comes as {type(part).__name__}, which holds no whole numbers")
    if values.numel() == 0:
        return 0
    least, most = values.aminmax()
    return max(-int(least), int(most))
