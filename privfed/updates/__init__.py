"""The update algebra: blocks, parts and what a cohort's updates can do without being copied."""

from privfed.updates.chunking import Chunk, clients_at_once
from privfed.updates.client_updates import ClientUpdates
from privfed.updates.code_products import CodeProducts
from privfed.updates.low_rank import LowRank
from privfed.updates.parts import Dense, Part, RowPattern, Rows, add_rows_
from privfed.updates.symmetric import Symmetric, packed_size, unpacked

__all__ = [
    "Chunk",
    "ClientUpdates",
    "CodeProducts",
    "Dense",
    "LowRank",
    "Part",
    "RowPattern",
    "Rows",
    "Symmetric",
    "add_rows_",
    "clients_at_once",
    "packed_size",
    "unpacked",
]
