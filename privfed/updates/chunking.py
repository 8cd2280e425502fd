"""How many clients are computed together: few on the processor, whose caches are small, many on an accelerator."""

from collections.abc import Callable

from privfed.compute.devices import HOST, here
from privfed.contracts.schema import Schema

DEFAULT_CHUNK, ACCELERATED_CHUNK = 64, 1024

Chunk = int | Callable[[Schema], int]
"""Clients that are trained together, or how many by the blocks they are asked for."""


def clients_at_once(chunk: Chunk | None, schema: Schema) -> int:
    """Clients of one call; where nothing is chosen, as many as suit the place where tensors are made."""
    if chunk is None:
        return DEFAULT_CHUNK if here() == HOST else ACCELERATED_CHUNK
    return chunk if isinstance(chunk, int) else chunk(schema)
