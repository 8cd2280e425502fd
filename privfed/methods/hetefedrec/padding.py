"""Tiles of clients with alike many samples, padded to widths off one fixed ladder.

A client's width depends on its own number of samples and the number of clients in a tile on the width, so that
neither its arithmetic nor its place in memory depends on who else is in the chunk
(docs/architecture/arithmetic.md, "Bit parity").
Wide tiles hold fewer clients: a tile's rows then stay in the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from privfed.compute.devices import on_host
from privfed.compute.tiles import TILE, ladder, tile_size, tiles
from privfed.methods.hetefedrec.sampling import DistinctSamples

_ROWS_PER_TILE = 16384


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Some clients of one size.

    Attributes:
        clients: their positions, without padding; what is left of the tile's `[clients, ...]` is padding.
        items: item of every row; 0 at padding.
        real: where rows exist.
        labels: 1 for positives.
        count: rows of every client.
    """

    clients: Int64[Tensor, " real"]
    items: Int64[Tensor, "clients rows"]
    real: Bool[Tensor, "clients rows"]
    labels: Float[Tensor, "clients rows"]
    count: Float[Tensor, " clients"]

    def existing(self) -> tuple[Int64[Tensor, " k"], Int64[Tensor, " k"]]:
        """(client, place among its rows) of every existing row, client after client."""
        lane, rank = self.real[: len(self.clients)].nonzero(as_tuple=True)
        return self.clients[lane], rank


def clients_per_tile(width: int) -> int:
    """Number of clients of a width that train together: a power of two, at most `tile_size()`."""
    fits = max(_ROWS_PER_TILE * tile_size() // (TILE * width), 1)
    return min(tile_size(), 1 << (fits.bit_length() - 1))


def sample_tiles(samples: DistinctSamples, model: Int64[Tensor, " n"], n_items: int) -> Iterator[tuple[int, Tile]]:
    """(model, tile) pairs that cover every client with samples once."""
    rungs = ladder(n_items)
    rung = torch.searchsorted(rungs, samples.counts)
    start = samples.counts.cumsum(0) - samples.counts
    key = torch.where(samples.counts > 0, model * len(rungs) + rung, -1)
    for kind in np.unique(on_host(key[key >= 0])).tolist():
        which, width = kind // len(rungs), int(rungs[kind % len(rungs)])
        members, per_tile = (key == kind).nonzero().squeeze(1), clients_per_tile(width)
        column = torch.arange(width)
        for span in tiles(len(members), per_tile):
            clients = members[span]
            count = torch.zeros(per_tile, dtype=torch.int64)
            count[: len(clients)] = samples.counts[clients]
            first = torch.zeros(per_tile, dtype=torch.int64)
            first[: len(clients)] = start[clients]
            real = column < count.unsqueeze(1)
            at = torch.where(real, first.unsqueeze(1) + column, 0)
            labels = samples.labels[at] * real
            yield which, Tile(clients, torch.where(real, samples.items[at], 0), real, labels, count.float())
