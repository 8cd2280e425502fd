"""How many clients are computed together: few on the processor, whose caches are small, many on an accelerator."""

from collections.abc import Callable

from privfed.devices import HOST, here
from privfed.updates.schema import Schema
from privfed.updates.tiles import TILE

ACCELERATED_TILE = 128
"""An accelerator rounds by itself anyhow, and starves on a `TILE`."""
DEFAULT_CHUNK, ACCELERATED_CHUNK = 64, 1024

Chunk = int | Callable[[Schema], int]
"""Clients that are trained together, or how many by the blocks they are asked for."""


def tile_size() -> int:
    """Clients of a tile where tensors are made now."""
    return TILE if here() == HOST else ACCELERATED_TILE


def clients_at_once(chunk: Chunk | None, schema: Schema) -> int:
    """Clients of one call; where nothing is chosen, as many as suit the place where tensors are made."""
    if chunk is None:
        return DEFAULT_CHUNK if here() == HOST else ACCELERATED_CHUNK
    return chunk if isinstance(chunk, int) else chunk(schema)
