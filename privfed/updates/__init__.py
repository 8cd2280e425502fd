"""The update algebra: blocks, parts and what a cohort's updates can do without being copied."""

from typing import TYPE_CHECKING

from privfed.lazily import lazily
from privfed.updates.schema import Block, Schema, UpdateError, schema_digest, share_of, upload_bytes
from privfed.updates.tiles import TILE, padded, tiles

if TYPE_CHECKING:
    from privfed.updates.at_once import Chunk, clients_at_once, tile_size
    from privfed.updates.client_updates import ClientUpdates
    from privfed.updates.code_products import CodeProducts
    from privfed.updates.low_rank import LowRank
    from privfed.updates.parts import Dense, Part, RowPattern, Rows, add_rows_
    from privfed.updates.symmetric import Symmetric, packed_size, unpacked

__all__ = [
    "TILE",
    "Block",
    "Chunk",
    "ClientUpdates",
    "CodeProducts",
    "Dense",
    "LowRank",
    "Part",
    "RowPattern",
    "Rows",
    "Schema",
    "Symmetric",
    "UpdateError",
    "add_rows_",
    "clients_at_once",
    "packed_size",
    "padded",
    "schema_digest",
    "share_of",
    "tile_size",
    "tiles",
    "unpacked",
    "upload_bytes",
]

__getattr__ = lazily(
    __name__,
    {
        "Chunk": "at_once",
        "clients_at_once": "at_once",
        "tile_size": "at_once",
        "ClientUpdates": "client_updates",
        "CodeProducts": "code_products",
        "LowRank": "low_rank",
        "Dense": "parts",
        "Part": "parts",
        "RowPattern": "parts",
        "Rows": "parts",
        "add_rows_": "parts",
        "Symmetric": "symmetric",
        "packed_size": "symmetric",
        "unpacked": "symmetric",
    },
)
