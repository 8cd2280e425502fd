"""What a chunk of clients uploads: tiles are trained in any order, parts leave in the order of the clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.methods.hetefedrec.layout import ModelLayout, members, touched
from privfed.methods.hetefedrec.padding import Tile
from privfed.methods.hetefedrec.sampling import DistinctSamples
from privfed.methods.hetefedrec.training import TrainedTile
from privfed.updates import Dense, Part, Rows


@dataclass(frozen=True, slots=True, eq=False)
class RowPlaces:
    """Where rows of clients of one model go.

    Attributes:
        values: of all tables, one table after another.
        bounds: first column of each of the model's segments, and the end; item biases are a column behind the others.
        places: where a client's part of every segment begins, row after row; -1 where it is not sent.
    """

    values: Float32[np.ndarray, " numbers"]
    bounds: Int64[np.ndarray, " ends"]
    places: Int64[np.ndarray, "segments n"]


class UploadBuilder:
    """Collects the updates of all tiles of a call.

    Args:
        layout: who holds what.
        schema: of the query.
        model: of every client.
        samples: of every client; their items are the rows it sends.
        sends: which clients upload at all.
    """

    def __init__(
        self,
        layout: ModelLayout,
        schema: Schema,
        model: Int64[Tensor, " n"],
        samples: DistinctSamples,
        sends: Bool[Tensor, " n"],
    ) -> None:
        self._layout, self._schema = layout, schema
        active = sends & (samples.counts > 0)

        def held(holders: tuple[int, ...]) -> Tensor:
            return active & torch.isin(model, torch.tensor(holders, dtype=model.dtype))

        tables = {s.block: s.holders for s in layout.segments} | layout.biases
        self._tables = {name: _Table(held(holders), samples, schema[name].shape[1]) for name, holders in tables.items()}
        self._values = torch.empty(sum(table.size for table in self._tables.values()))
        at = 0
        for table in self._tables.values():
            table.lie_in(self._values, at)
            at += table.size
        shapes = [layout.head(head).head(0).shapes() for head in range(len(layout.models))]
        self._heads = [_Head(held(layout.head_holders(head)), shape) for head, shape in enumerate(shapes)]

    def places(self, model: int, clients: Int64[Tensor, " k"]) -> RowPlaces:
        """Where rows of clients of a model go."""
        segments = self._layout.held(model)
        tables, bounds = [self._tables[s.block] for s in segments], [0, *(s.stop for s in segments)]
        if self._layout.config.item_bias:
            tables.append(self._tables[self._layout.bias_name(model)])
            bounds.append(bounds[-1] + 1)
        places = torch.stack([table.places(clients) for table in tables])
        return RowPlaces(self._values.numpy(), np.array(bounds), places.numpy())

    def put_heads(self, model: int, clients: Int64[Tensor, " k"], heads: Sequence[Mapping[str, Tensor]]) -> None:
        """Keep the heads of clients of a model."""
        for head, weights in zip(self._layout.models[model].heads, heads, strict=True):
            self._heads[head].put(clients, weights)

    def put(self, model: int, tile: Tile, trained: TrainedTile) -> None:
        """Keep one tile's updates."""
        real = len(tile.clients)
        owner, rank = tile.existing()
        existing = tile.real[:real]
        moved = trained.rows[:real].transpose(1, 2)[existing]
        for segment in self._layout.held(model):
            self._tables[segment.block].put(owner, rank, moved[:, segment.start : segment.stop])
        if trained.bias is not None:
            moved = trained.bias[:real][existing].unsqueeze(1)
            self._tables[self._layout.bias_name(model)].put(owner, rank, moved)
        self.put_heads(model, tile.clients, trained.heads)

    def parts(self) -> list[Part]:
        """Everything that was kept, and the counts that the schema declares."""
        found: list[Part] = []
        for block, table in self._tables.items():
            found.append(Rows(block, table.owner, table.ids, table.values))
            if touched(block) in self._schema:
                ones = torch.ones(len(table.ids), 1, dtype=torch.int64)
                found.append(Rows(touched(block), table.owner, table.ids, ones))
        for index, head in enumerate(self._heads):
            prefix = self._layout.head_name(index)
            found += [Dense(f"{prefix}.{name}", head.owner, values) for name, values in head.values.items()]
            if members(prefix) in self._schema:
                found.append(Dense(members(prefix), head.owner, torch.ones(len(head.owner), 1, dtype=torch.int64)))
        return found


class _Table:
    """Rows of one block, those of every holder one after the other."""

    def __init__(self, held: Bool[Tensor, " n"], samples: DistinctSamples, width: int) -> None:
        counts = torch.where(held, samples.counts, 0)
        self.owner, self.ids = samples.owner, samples.items
        if int(counts.sum()) < len(self.ids):
            keep = held[samples.owner].nonzero().squeeze(1)
            self.owner, self.ids = self.owner.index_select(0, keep), self.ids.index_select(0, keep)
        self.size, self._width = len(self.ids) * width, width
        self._held, self._start = held, counts.cumsum(0) - counts

    def lie_in(self, values: Float[Tensor, " numbers"], at: int) -> None:
        """Keep values in a part of that tensor."""
        self.values, self._at = values[at : at + self.size].view(-1, self._width), at

    def places(self, clients: Int64[Tensor, " k"]) -> Int64[Tensor, " k"]:
        """Where a client's values begin in that tensor; -1 of clients that do not send."""
        return torch.where(self._held[clients], self._at + self._start[clients] * self._width, -1)

    def put(self, owner: Int64[Tensor, " k"], rank: Int64[Tensor, " k"], rows: Float[Tensor, "k width"]) -> None:
        """Row `rank[j]` of client `owner[j]`; rows of clients that do not send are dropped."""
        keep = self._held[owner]
        if not bool(keep.all()):
            owner, rank, rows = owner[keep], rank[keep], rows[keep]
        self.values.index_copy_(0, self._start[owner] + rank, rows)


class _Head:
    """Weights of one head, stacked over its holders."""

    def __init__(self, held: Bool[Tensor, " n"], shapes: dict[str, tuple[int, ...]]) -> None:
        self.owner = held.nonzero().squeeze(1)
        self.values = {name: torch.empty(len(self.owner), *shape) for name, shape in shapes.items()}
        self._held, self._place = held, held.cumsum(0) - 1

    def put(self, clients: Int64[Tensor, " k"], weights: Mapping[str, Tensor]) -> None:
        """Weights of a tile, whose first k clients are `clients`; those of clients that do not send are dropped."""
        keep = self._held[clients].nonzero().squeeze(1)
        for name, values in self.values.items():
            values.index_copy_(0, self._place[clients[keep]], weights[name].index_select(0, keep))
