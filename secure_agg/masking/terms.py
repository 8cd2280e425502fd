"""What all parties of one round must agree on, and the digest that binds every key and message to it."""

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

from secure_agg.encoding import Ring
from secure_agg.errors import ConfigurationError, MalformedMessage
from secure_agg.keys import Aead
from secure_agg.parameters import Parameters, Server
from secure_agg.prg import StreamCipher
from secure_agg.shamir import MOST_SHARES

PROTOCOL_VERSION = 1
RUN_BYTES = 16
LAYOUT_BYTES = 32
MAX_CLIENTS = 2**32 - 1
"""Client ids run from 0 below this."""

MAX_ROUND = 2**64
"""Rounds run from 0 below this."""

_FIELDS = struct.Struct(">16sQQIIBBBx32s")


class Suite(IntEnum):
    """The cipher that makes masks and the cipher that seals shares, chosen together."""

    AES256 = 1
    AES128 = 2
    CHACHA20 = 3

    @property
    def stream(self) -> StreamCipher:
        """The cipher whose keystream is the mask."""
        return {
            Suite.AES256: StreamCipher.AES256,
            Suite.AES128: StreamCipher.AES128,
            Suite.CHACHA20: StreamCipher.CHACHA20,
        }[self]

    @property
    def aead(self) -> Aead:
        """The cipher that seals a relayed share."""
        return Aead.CHACHA20_POLY1305 if self is Suite.CHACHA20 else Aead.AES256_GCM


@dataclass(frozen=True, slots=True)
class Terms:
    """The public terms of one round.

    Attributes:
        run: 16 bytes that no other run has.
        round: counts up within the run.
        bits: width of a ring word, 2 to 64; so many bits of each travel.
        length: words in every vector.
        threshold: shares that rebuild a secret; more than half of a client's neighbours, and more than two thirds of
            the roster where the terms are signed.
        neighbours: even number of clients each client shares masks with; 0 is everybody.
        suite: ciphers.
        signed: advertisements and the list of survivors carry signatures of known identities, which is what a server
            that deviates from the protocol needs to be held by; the graph is complete then.
        layout: 32 bytes that name what the words mean, for instance a SHA-256 of block names and shapes.
    """

    run: bytes
    round: int
    bits: int
    length: int
    threshold: int
    neighbours: int = 0
    suite: Suite = Suite.AES256
    signed: bool = False
    layout: bytes = bytes(LAYOUT_BYTES)

    def __post_init__(self) -> None:
        Ring(self.bits)
        for name, value, size in (("run", self.run, RUN_BYTES), ("layout", self.layout, LAYOUT_BYTES)):
            if len(value) != size:
                raise ConfigurationError(f"{name} has {len(value)} bytes; give {size}")
        for name, number, least, limit in (
            ("round", self.round, 0, MAX_ROUND),
            ("length", self.length, 1, 2**48),
            ("threshold", self.threshold, 2, MAX_CLIENTS),
            ("neighbours", self.neighbours, 0, MAX_CLIENTS),
        ):
            if not least <= number < limit:
                raise ConfigurationError(f"{name} is {number}; it must be at least {least} and below {limit}")
        if self.neighbours % 2:
            raise ConfigurationError(
                f"neighbours is {self.neighbours}; give an even number (half on either side), or 0 for all"
            )
        if self.neighbours and not self.neighbours / 2 < self.threshold <= self.neighbours:
            raise ConfigurationError(
                f"threshold is {self.threshold} of {self.neighbours} neighbours; it must be more than half of them "
                "(else a server could collect both secrets of a client) and at most all"
            )
        if self.signed and self.neighbours:
            raise ConfigurationError(
                f"signed terms need the complete graph, and neighbours is {self.neighbours}; set it to 0"
            )

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        *,
        bits: int,
        length: int,
        run: bytes,
        round: int = 0,
        suite: Suite = Suite.AES256,
        layout: bytes = bytes(LAYOUT_BYTES),
    ) -> "Terms":
        """The terms that `secure_agg.parameters.choose` or `assess` describes; signed where the server may deviate."""
        signed = parameters.server is Server.ACTIVE
        return cls(run, round, bits, length, parameters.threshold, parameters.neighbours, suite, signed, layout)

    @property
    def ring(self) -> Ring:
        """The ring that vectors live in."""
        return Ring(self.bits)

    @property
    def context(self) -> bytes:
        """32 bytes that stand for protocol version and terms; every key and signature is bound to them."""
        return hashlib.sha256(b"secure_agg masking %d" % PROTOCOL_VERSION + self.encode()).digest()

    def degree(self, clients: int) -> int:
        """Neighbours of each client in a roster of this many."""
        everybody = clients - 1
        return everybody if self.neighbours == 0 else min(self.neighbours, everybody)

    def suffices(self, clients: int) -> bool:
        """Whether a roster of this size can be run under these terms with both secrets of a client out of reach."""
        degree = self.degree(clients)
        if self.signed and 3 * self.threshold <= 2 * clients:
            return False
        return degree / 2 < self.threshold <= degree <= MOST_SHARES

    def encode(self) -> bytes:
        """The terms as bytes of fixed length."""
        return _FIELDS.pack(
            self.run, self.round, self.length, self.neighbours, self.threshold,
            self.bits, self.suite, self.signed, self.layout,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> "Terms":
        """The terms in these bytes.

        Raises:
            MalformedMessage: wrong length, unknown values, or terms that contradict themselves.
        """
        if len(data) != _FIELDS.size:
            raise MalformedMessage(f"terms have {len(data)} bytes; {_FIELDS.size} were expected")
        run, number, length, neighbours, threshold, bits, suite, signed, layout = _FIELDS.unpack(data)
        try:
            terms = cls(run, number, bits, length, threshold, neighbours, Suite(suite), bool(signed), layout)
        except ValueError as refused:
            raise MalformedMessage(f"the terms cannot be: {refused}") from refused
        if terms.encode() != data:
            raise MalformedMessage("the terms are not in their one encoding; their sender speaks another version")
        return terms
