"""The messages of a sparse sum, byte for byte: declared rows at enrolment, and shares for each query."""

import struct
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secure_agg.encoding.ring import Ring
from secure_agg.errors import MalformedMessage, ShareError
from secure_agg.primitives.prg import RingElements

_MAGIC: Final = b"SASP"
_VERSION: Final = 1
_INDICES: Final = struct.Struct("<4sBBHI")
"""Magic, version, kind 0, reserved, number of rows: 12 bytes, then 4 for each row."""
_SHARE: Final = struct.Struct("<4sBBHIII")
"""Magic, version, kind 1, party, cohort, query, number of elements: 20 bytes, then the elements of party 0."""


@dataclass(frozen=True, slots=True, eq=False)
class RowIndices:
    """The rows that a client sends from now on, declared once to every aggregator."""

    rows: NDArray[np.uint32]

    def encode(self) -> bytes:
        """12 bytes, then 4 for each row, little-endian."""
        return _INDICES.pack(_MAGIC, _VERSION, 0, 0, len(self.rows)) + self.rows.astype("<u4").tobytes()

    @classmethod
    def decode(cls, data: bytes, rows: int) -> "RowIndices":
        """Decode the indices of rows of a table with `rows` rows.

        Raises:
            MalformedMessage: `data` is anything else, or the indices are not distinct, ascending rows of the table.
        """
        if len(data) < _INDICES.size:
            raise MalformedMessage(f"a message of {len(data)} bytes was given; the header alone has {_INDICES.size}")
        magic, version, kind, reserved, count = _INDICES.unpack_from(data)
        if (magic, version, kind, reserved) != (_MAGIC, _VERSION, 0, 0) or len(data) != _INDICES.size + 4 * count:
            raise MalformedMessage("the message holds no row indices, or has another length than it declares; drop it")
        indices = np.frombuffer(data, "<u4", offset=_INDICES.size).astype(np.uint32)
        if len(indices) and (int(indices.max()) >= rows or bool((np.diff(indices.astype(np.int64)) <= 0).any())):
            raise MalformedMessage(f"row indices are not distinct, ascending and below {rows}; drop the message")
        return cls(indices)


@dataclass(frozen=True, slots=True, eq=False)
class RowShare:
    """One client's share of all arrays of one query: elements for party 0, a header for the other aggregators.

    Attributes:
        party: number of the aggregator.
        cohort: id of the cohort, part of the keystream's address.
        query: number of the query within the cohort, part of the address as well.
        count: number of elements that the client sends in this query.
        elements: those of party 0, `[count]`; None for the others.

    Raises:
        ShareError: party 0 without its `count` elements, or another party with any.
    """

    party: int
    cohort: int
    query: int
    count: int
    elements: RingElements | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.party == 0) != (self.elements is not None) or (
            self.elements is not None and self.elements.size != self.count
        ):
            raise ShareError("a share of party 0 holds `count` elements, and that of any other party none")

    def encode(self) -> bytes:
        """20 bytes, then the elements of party 0, little-endian."""
        payload = b"" if self.elements is None else self.elements.tobytes()
        return _SHARE.pack(_MAGIC, _VERSION, 1, self.party, self.cohort, self.query, self.count) + payload

    @classmethod
    def decode(cls, data: bytes, ring: Ring, *, party: int, cohort: int, query: int, count: int) -> "RowShare":
        """Decode the share that the receiver expects; the message is compared with the expectation, never trusted.

        Args:
            data: one whole message.
            ring: ring of the elements.
            party: the receiver's number.
            cohort: id of the current cohort.
            query: number of the current query.
            count: number of elements that this client sends, by the rows it declared.

        Raises:
            MalformedMessage: `data` is anything else.
        """
        header = _SHARE.pack(_MAGIC, _VERSION, 1, party, cohort, query, count)
        payload_bytes = count * ring.dtype.itemsize if party == 0 else 0
        if data[: _SHARE.size] != header or len(data) != _SHARE.size + payload_bytes:
            raise MalformedMessage(
                f"a message of {len(data)} bytes is no share of {count} elements for party {party} in cohort {cohort}, "
                f"query {query}; drop it"
            )
        elements = np.frombuffer(data, ring.dtype, offset=_SHARE.size) if party == 0 else None
        return cls(party, cohort, query, count, elements)


def row_indices_bytes(rows: int) -> int:
    """Number of bytes in which a client declares `rows` rows to one aggregator."""
    return _INDICES.size + 4 * rows


def row_share_bytes(elements: float, ring: Ring, parties: int) -> float:
    """Number of bytes that a client uploads to all aggregators for `elements` elements, a mean where fractional."""
    return parties * _SHARE.size + ring.dtype.itemsize * elements
