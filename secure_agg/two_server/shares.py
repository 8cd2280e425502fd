"""What the two servers hold of a vector: shares in the ring, or shares in the field with a proof of a bounded norm."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from secure_agg.encoding.ring import Ring
from secure_agg.errors import MalformedMessage
from secure_agg.primitives.prg import RingElements, add_keystreams
from secure_agg.two_server import field
from secure_agg.two_server.norm_proof import NormBound

SEED_BYTES = 32


class Splitting(Protocol):
    """How vectors are split, checked and added."""

    @property
    def verifier_bytes(self) -> int:
        """Bytes that a server opens about each upload."""

    def split(self, context: bytes, vector: RingElements, seed: bytes) -> tuple[bytes, bytes]:
        """The shares of server 0 and of server 1 of a vector of ring elements, `[length]`; the seed is fresh."""

    def check(self, server: int, share: bytes) -> None:
        """Refuse what is no share (`MalformedMessage`)."""

    def verifier(self, context: bytes, server: int, share: bytes, query_key: bytes) -> bytes:
        """What a server opens about an upload, of `verifier_bytes`."""

    def accepts(self, first: bytes, second: bytes) -> bool:
        """Whether an upload is accepted, from what both servers opened."""

    def sum(self, server: int, shares: Sequence[bytes], noise: NDArray[np.int64] | None) -> bytes:
        """A server's share of the sum of several vectors and of its noise, encoded."""

    def combine(self, first: bytes, second: bytes) -> RingElements:
        """The sum, from both encoded shares (`MalformedMessage` where one is none)."""


class RingShares:
    """Shares in the ring without a proof: any vector is accepted.

    Args:
        ring: ring of the vectors.
        length: number of elements.
    """

    verifier_bytes = 0

    def __init__(self, ring: Ring, length: int) -> None:
        self._ring, self._length = ring, length

    def split(self, context: bytes, vector: RingElements, seed: bytes) -> tuple[bytes, bytes]:  # noqa: ARG002
        """The packed elements less the keystream of the seed, and the seed."""
        remainder: RingElements = vector.copy()
        add_keystreams(remainder, plus=[], minus=[seed])
        return self._ring.pack(self._ring.reduce_(remainder)).tobytes(), seed

    def check(self, server: int, share: bytes) -> None:
        """Refuse another length, and bits behind the last element."""
        expected = self._ring.packed_bytes(self._length) if server == 0 else SEED_BYTES
        if len(share) != expected:
            raise MalformedMessage(f"a share of {len(share)} bytes was given; {expected} were expected")
        if server == 0:
            self._ring.unpack(share, self._length)

    def verifier(self, context: bytes, server: int, share: bytes, query_key: bytes) -> bytes:  # noqa: ARG002
        """Nothing."""
        return b""

    def accepts(self, first: bytes, second: bytes) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def sum(self, server: int, shares: Sequence[bytes], noise: NDArray[np.int64] | None) -> bytes:
        """The packed sum; keystreams of all seeds are added while they are in cache."""
        total = self._ring.zeros(self._length)
        if server == 0:
            for share in shares:
                np.add(total, self._ring.unpack(share, self._length), out=total)
        else:
            add_keystreams(total, plus=shares)
        if noise is not None:
            np.add(total, noise.astype(total.dtype), out=total)
        return self._ring.pack(self._ring.reduce_(total)).tobytes()

    def combine(self, first: bytes, second: bytes) -> RingElements:
        """The sum in the ring."""
        return self._ring.sum(self._ring.unpack(one, self._length) for one in (first, second))


class ProvenShares:
    """Shares in the field, of vectors whose norm the servers check; sums are given back in the ring of 64 bits.

    Args:
        bound: of the squared norm.
    """

    def __init__(self, bound: NormBound) -> None:
        self._bound, self._ring = bound, Ring(64)

    @property
    def verifier_bytes(self) -> int:
        """Bytes that a server opens about each upload."""
        return self._bound.verifier_bytes

    def split(self, context: bytes, vector: RingElements, seed: bytes) -> tuple[bytes, bytes]:
        """Shares and proof; the first seed is the given one."""
        return self._bound.prove(context, self._ring.centred(vector), seed)

    def check(self, server: int, share: bytes) -> None:
        """Refuse another length, and words that are no field elements."""
        self._bound.vector_share(server, share)

    def verifier(self, context: bytes, server: int, share: bytes, query_key: bytes) -> bytes:
        """As of `NormBound`."""
        return self._bound.verifier(context, server, share, query_key)

    def accepts(self, first: bytes, second: bytes) -> bool:
        """Whether the vector is within the bound."""
        return self._bound.accepts(first, second)

    def sum(self, server: int, shares: Sequence[bytes], noise: NDArray[np.int64] | None) -> bytes:
        """The sum in the field, 8 bytes for each element."""
        total = np.zeros(self._bound.length, np.uint64) if noise is None else field.from_signed(noise)
        for share in shares:
            total = field.add(total, self._bound.vector_share(server, share))
        return field.encode(total)

    def combine(self, first: bytes, second: bytes) -> RingElements:
        """The centred sum, as elements of the ring of 64 bits."""
        parts = [field.decode(one, self._bound.length) for one in (first, second)]
        return self._ring.from_integers(field.centred(field.add(*parts)))


def shares_of(ring: Ring, length: int, max_squared_norm: int) -> Splitting:
    """Shares in the ring, or with a proof where a squared norm above 0 is given."""
    return ProvenShares(NormBound(length, max_squared_norm)) if max_squared_norm else RingShares(ring, length)
