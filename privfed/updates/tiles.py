"""Client tiles of one fixed size, so that floating point does not move with the chunk size.

BLAS and vectorised kernels round differently for ragged batches and short tails; the same client in a batch of
exactly `TILE` clients always rounds the same (docs/architecture.md, "Bit parity"). An accelerator rounds by itself
anyhow and starves on so few, so its tiles are larger.
"""

from collections.abc import Callable, Iterator

from privfed.devices import HOST, here
from privfed.updates.schema import Schema

TILE, ACCELERATED_TILE = 16, 128
DEFAULT_CHUNK, ACCELERATED_CHUNK = 64, 1024
"""Clients that are trained together on the processor, whose caches are small, and on an accelerator."""

Chunk = int | Callable[[Schema], int]
"""Clients that are trained together, or how many by the blocks they are asked for."""


def tile_size() -> int:
    """Clients of a tile where tensors are made now."""
    return TILE if here() == HOST else ACCELERATED_TILE


def tiles(clients: int, per_tile: int = TILE) -> Iterator[slice]:
    """Slices `[0, per_tile), ...` that cover a multiple of `per_tile` clients; pad to `padded(clients)` first."""
    for start in range(0, padded(clients, per_tile), per_tile):
        yield slice(start, start + per_tile)


def clients_at_once(chunk: Chunk | None, schema: Schema) -> int:
    """Clients of one call; where nothing is chosen, as many as suit the place where tensors are made."""
    if chunk is None:
        return DEFAULT_CHUNK if here() == HOST else ACCELERATED_CHUNK
    return chunk if isinstance(chunk, int) else chunk(schema)


def padded(size: int, multiple: int = TILE) -> int:
    """`size` rounded up to a multiple."""
    return -(-size // multiple) * multiple
