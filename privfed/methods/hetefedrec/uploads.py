"""What a chunk of clients uploads: tiles are trained in any order, parts leave in the order of the clients."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.methods.hetefedrec.layout import ModelLayout, members, touched
from privfed.methods.hetefedrec.padding import Tile
from privfed.methods.hetefedrec.sampling import DistinctSamples
from privfed.methods.hetefedrec.training import TrainedTile
from privfed.updates import Dense, Part, Rows


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
        shapes = [layout.head(head).head(0).shapes() for head in range(len(layout.models))]
        self._heads = [_Head(held(layout.head_holders(head)), shape) for head, shape in enumerate(shapes)]

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
        for head, weights in zip(self._layout.models[model].heads, trained.heads, strict=True):
            self._heads[head].put(tile.clients, weights)

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
        keep = held[samples.owner]
        self.owner, self.ids = samples.owner[keep], samples.items[keep]
        self.values = torch.empty(len(self.ids), width)
        counts = torch.where(held, samples.counts, 0)
        self._held, self._start = held, counts.cumsum(0) - counts

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

    def put(self, clients: Int64[Tensor, " k"], weights: dict[str, Tensor]) -> None:
        """Weights of a tile, whose first k clients are `clients`; those of clients that do not send are dropped."""
        keep = self._held[clients].nonzero().squeeze(1)
        for name, values in self.values.items():
            values.index_copy_(0, self._place[clients[keep]], weights[name].index_select(0, keep))
