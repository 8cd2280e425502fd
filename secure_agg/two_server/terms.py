"""The public terms of one sum between two servers, and the digest that binds every key and message to them."""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from secure_agg.encoding.ring import Ring
from secure_agg.errors import ConfigurationError
from secure_agg.primitives.keys import KEY_BYTES, is_canonical_public_key, length_prefixed
from secure_agg.two_server.shares import Splitting, shares_of

PROTOCOL_VERSION = 1
RUN_BYTES = 16
DIGEST_BYTES = 32
MAX_CLIENTS = 2**32 - 1
"""Client ids run from 0 below this."""

_FIELDS = struct.Struct(">16sQIQBI32s32s32s32sQ")
_LIMITS = {
    "round": (0, 2**64), "query": (0, 2**32), "length": (1, 2**40), "min_clients": (2, MAX_CLIENTS),
    "max_squared_norm": (0, 2**63),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SumTerms:
    """The public terms of one sum.

    Attributes:
        run: 16 bytes that identify the run.
        round: number of the round, rising within the run.
        query: number of the sum, rising within the round.
        length: number of elements in every vector.
        bits: width of a ring element, 2 to 64; the number of bits transmitted of each.
        min_clients: smallest number of clients whose sum either server releases.
        servers: X25519 public keys of server 0 and server 1.
        roster: digest of who may take part (`roster_digest`).
        bound: 32 bytes that identify what the clients were sent with the query, and what the elements mean.
        max_squared_norm: largest squared L2 norm of a vector of integers, which clients prove; 0 asks for no proof.
            With a proof the ring has 64 bits, and an upload takes 8 bytes for each element besides its proof.
    """

    run: bytes
    round: int
    query: int
    length: int
    bits: int
    min_clients: int
    servers: tuple[bytes, bytes]
    roster: bytes
    bound: bytes = bytes(DIGEST_BYTES)
    max_squared_norm: int = 0

    def __post_init__(self) -> None:
        Ring(self.bits)
        sizes = (
            ("run", self.run, RUN_BYTES),
            ("roster", self.roster, DIGEST_BYTES),
            ("bound", self.bound, DIGEST_BYTES),
        )
        for name, value, size in sizes:
            if len(value) != size:
                raise ConfigurationError(f"{name} has {len(value)} bytes; give {size}")
        for name, (minimum, limit) in _LIMITS.items():
            number = getattr(self, name)
            if type(number) is not int or not minimum <= number < limit:
                raise ConfigurationError(f"{name} is {number!r}; it must be at least {minimum} and below {limit}")
        first, second = self.servers
        for key in self.servers:
            if len(key) != KEY_BYTES or not is_canonical_public_key(key):
                raise ConfigurationError(f"a server's key is {key.hex()}; give an X25519 public key of full order")
        if first == second:
            raise ConfigurationError("both servers have the same key; one server alone could open every vector")
        if self.max_squared_norm and self.bits != 64:
            raise ConfigurationError(f"a proof of the norm needs a ring of 64 bits, and {self.bits} were given")
        shares_of(self.ring, self.length, self.max_squared_norm)

    @property
    def ring(self) -> Ring:
        """The ring of the vectors."""
        return Ring(self.bits)

    @property
    def shares(self) -> Splitting:
        """How vectors are split, checked and added."""
        return shares_of(self.ring, self.length, self.max_squared_norm)

    @property
    def number(self) -> tuple[int, int]:
        """Round and query: a client answers, and a server releases, rising numbers only."""
        return self.round, self.query

    @property
    def context(self) -> bytes:
        """32 bytes that stand for protocol version and terms; every key and signature is bound to them."""
        return hashlib.sha256(b"secure_agg two servers %d" % PROTOCOL_VERSION + self.encode()).digest()

    def client_context(self, client: int) -> bytes:
        """`context`, for one client."""
        return self.context + client.to_bytes(4, "big")

    def encode(self) -> bytes:
        """Encode as bytes of fixed length."""
        return _FIELDS.pack(
            self.run, self.round, self.query, self.length, self.bits, self.min_clients,
            *self.servers, self.roster, self.bound, self.max_squared_norm,
        )  # fmt: skip


def roster_digest(directory: Mapping[int, bytes]) -> bytes:
    """Digest of who may take part.

    Args:
        directory: Ed25519 public keys by client id.
    """
    parts = [client.to_bytes(4, "big") + key for client, key in sorted(directory.items())]
    return hashlib.sha256(length_prefixed(b"secure_agg two servers roster", *parts)).digest()
