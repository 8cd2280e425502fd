"""The update algebra: blocks, parts and what a cohort's updates can do without being copied."""

from privfed.updates.client_updates import ClientUpdates
from privfed.updates.low_rank import LowRank
from privfed.updates.parts import Dense, Part, Rows, add_rows_
from privfed.updates.schema import Block, Schema, UpdateError, schema_digest, upload_bytes
from privfed.updates.tiles import TILE, padded, tiles

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
