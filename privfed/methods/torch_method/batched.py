"""Tiles of clients in which a client's floats do not depend on its company.

Matrix products round differently by how the memory of a matrix is aligned, and where a client's parameters have a
size that is no multiple of a cache line, alignment depends on the client's place in the tile. Which places round alike
is measured once, on the module's own shapes; clients then keep to places that do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from privfed.compute.tiles import TILE, padded
from privfed.methods.shared.samples import Samples
from privfed.methods.torch_method.stacked import StackedModule

_PERIODS = (1, 2, 4, 8, TILE)


@dataclass(frozen=True, slots=True, eq=False)
class ClientBatch:
    """One local step of a tile.

    Attributes:
        samples: which samples; padding points at sample 0.
        real: false for padding.
    """

    samples: Int64[Tensor, "tile batch"]
    real: Bool[Tensor, "tile batch"]


def lane_period(module: StackedModule, parameters: Mapping[str, Tensor], items: Int64[Tensor, " batch"]) -> int:
    """The smallest period p for which lanes of a tile that are equal mod p give the same bits for the same client.

    Args:
        module: the module.
        parameters: those of one client, off any point where gradients vanish; tables as rows where it reads rows.
        items: a batch of the width that training uses.
    """
    labels = (torch.arange(len(items)) % 3 == 0).float()
    same = {name: value.repeat(TILE, *[1] * value.dim()) for name, value in parameters.items()}
    batch = items.repeat(TILE, 1)
    found = module.gradients(same, batch, labels.repeat(TILE, 1), torch.ones_like(batch).bool())
    for period in _PERIODS[:-1]:
        place = torch.arange(TILE) % period
        if all(torch.equal(value, value[place]) for value in found.values()):
            return period
    return TILE


def client_tiles(users: Int64[Tensor, " n"], counts: Int64[Tensor, " n"], period: int) -> Int64[Tensor, "tiles tile"]:
    """Positions of the clients, user u in a lane equal to u mod `period`, -1 where a lane is empty.

    Large clients come first, so that clients of alike size share a tile and need alike many steps. Users of
    consecutive numbers fill every lane; with a long period a sampled cohort leaves some empty.
    """
    order = counts.argsort(descending=True, stable=True)
    order = order[(users[order] % period).argsort(stable=True)]
    lane, alike = users[order] % period, TILE // period
    held = torch.bincount(lane, minlength=period)
    rank = torch.arange(len(order)) - (held.cumsum(0) - held)[lane]
    tiles = torch.full((-(-int(held.max()) // alike), TILE), -1)
    tiles[rank // alike, lane + period * (rank % alike)] = order
    return tiles


def client_batches(
    samples: Samples, users: Int64[Tensor, " n"], period: int, batch_size: int
) -> Iterator[tuple[Int64[Tensor, " tile"], list[ClientBatch]]]:
    """Every tile (positions, -1 for padding) with the steps of one pass, each padded to one canonical width."""
    start, column = samples.counts.cumsum(0) - samples.counts, torch.arange(padded(batch_size))
    for clients in client_tiles(users, samples.counts, period):
        count = torch.where(clients >= 0, samples.counts[clients], 0).unsqueeze(1)
        batches = []
        for first in range(0, int(count.max()), batch_size):
            real = column < (count - first).clamp(max=batch_size)
            batches.append(ClientBatch(torch.where(real, start[clients].unsqueeze(1) + first + column, 0), real))
        yield clients, batches
