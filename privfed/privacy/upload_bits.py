"""Bytes of uploads that travel as numbers, of 32 bits or rounded to b (`privfed.guards.quantising`); no tensors."""

from collections.abc import Mapping

from privfed.contracts import Block, Schema, upload_bytes
from secure_agg.encoding import Ring

STEP_BYTES = 4
ROW_ID_BYTES = 4


def levels(bits: int) -> int:
    """The largest whole number that travels, L = 2^(bits - 1) - 1."""
    return (1 << (bits - 1)) - 1


def coded_bytes(coordinates: float, bits: int) -> float:
    """Bytes of a block's step and so many numbers: rounded up once, unless they are a mean and no whole number."""
    whole = coordinates == int(coordinates)
    return STEP_BYTES + (Ring(bits).packed_bytes(int(coordinates)) if whole else coordinates * bits / 8)


def numbers_bytes(schema: Schema, sent_rows: Mapping[str, float], bits: int | None) -> float:
    """Bytes of one client's upload as numbers: dense blocks, and rows with a 32-bit id each.

    Args:
        schema: blocks of the query.
        sent_rows: for tables that are sent row by row, number of rows that a client sends.
        bits: of a number; None sends 32.
    """
    if bits is not None:
        return sum(_coded_block_bytes(block, bits, sent_rows.get(name)) for name, block in schema.items())
    dense = upload_bytes({name: block for name, block in schema.items() if name not in sent_rows})
    return float(
        dense
        + sum(
            min(rows, schema[name].shape[0])
            * (upload_bytes({name: schema[name]}) / schema[name].shape[0] + ROW_ID_BYTES)
            for name, rows in sent_rows.items()
            if name in schema
        )
    )


def _coded_block_bytes(block: Block, bits: int, rows: float | None) -> float:
    """Bytes of one block of a rounded upload; integer blocks are not rounded."""
    sent = 0.0 if rows is None else min(rows, block.shape[0])
    size = block.size if rows is None else sent * block.size / block.shape[0]
    return (8 * size if block.kind == "integer" else coded_bytes(size, bits)) + ROW_ID_BYTES * sent
