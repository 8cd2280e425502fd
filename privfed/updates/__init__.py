"""The update algebra: blocks, parts and what a cohort's updates can do without being copied."""

from typing import TYPE_CHECKING

from privfed.lazily import lazily
from privfed.updates.schema import Block, Schema, UpdateError, schema_digest, upload_bytes
from privfed.updates.tiles import TILE, padded, tiles

if TYPE_CHECKING:
    from privfed.updates.client_updates import ClientUpdates
    from privfed.updates.low_rank import LowRank
    from privfed.updates.parts import Dense, Part, Rows, add_rows_

__all__ = [
    "TILE",
    "Block",
    "ClientUpdates",
    "Dense",
    "LowRank",
    "Part",
    "Rows",
    "Schema",
    "UpdateError",
    "add_rows_",
    "padded",
    "schema_digest",
    "tiles",
    "upload_bytes",
]

__getattr__ = lazily(
    __name__,
    {
        "ClientUpdates": "client_updates",
        "LowRank": "low_rank",
        "Dense": "parts",
        "Part": "parts",
        "Rows": "parts",
        "add_rows_": "parts",
    },
)
