"""Client tiles of one fixed size, so that floating point does not move with the chunk size.

BLAS and vectorised kernels round differently for ragged batches and short tails; the same client in a batch of
exactly `TILE` clients always rounds the same (docs/architecture/arithmetic.md, "Bit parity").
"""

from collections.abc import Iterator

import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.compute.devices import HOST, here

TILE = 16
_RATIO = 1.25
ACCELERATED_TILE = 128
"""An accelerator rounds by itself anyhow, and starves on a `TILE`."""


def tile_size() -> int:
    """Clients of a tile where tensors are made now."""
    return TILE if here() == HOST else ACCELERATED_TILE


def tiles(clients: int, per_tile: int = TILE) -> Iterator[slice]:
    """Slices `[0, per_tile), ...` that cover a multiple of `per_tile` clients; pad to `padded(clients)` first."""
    for start in range(0, padded(clients, per_tile), per_tile):
        yield slice(start, start + per_tile)


def padded(size: int, multiple: int = TILE) -> int:
    """`size` rounded up to a multiple."""
    return -(-size // multiple) * multiple


def ladder(longest: int) -> Int64[Tensor, " rungs"]:
    """Widths that lists of clients are padded to: whole tiles, about a quarter apart, up to the longest."""
    rungs = [TILE]
    while rungs[-1] < longest:
        rungs.append(padded(int(rungs[-1] * _RATIO) + 1))
    return torch.tensor(rungs)


def rungs_of(counts: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """The width that each list is padded to, which its own length alone decides."""
    rungs = ladder(int(counts.max()) if len(counts) else 1)
    return rungs[torch.searchsorted(rungs, counts)]
