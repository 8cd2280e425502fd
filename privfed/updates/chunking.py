"""How many clients are computed together: few on the processor, whose caches are small, many on an accelerator."""

from collections.abc import Callable

from privfed.compute.devices import HOST, here
from privfed.contracts.schema import Schema

DEFAULT_CHUNK, ACCELERATED_CHUNK = 64, 1024

Chunk = int | Callable[[Schema], int]
"""Number of clients that are trained together, or a function from the schema of a query to it."""


def clients_at_once(chunk: Chunk | None, schema: Schema) -> int:
    """Clients of one call; where nothing is chosen, as many as suit the place where tensors are made."""
    if chunk is None:
        return DEFAULT_CHUNK if here() == HOST else ACCELERATED_CHUNK
    return chunk if isinstance(chunk, int) else chunk(schema)
