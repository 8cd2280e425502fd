"""The public parameters of one round, and the digest that binds every key and message to them."""

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

from secure_agg.encoding.ring import Ring
from secure_agg.errors import ConfigurationError, MalformedMessage
from secure_agg.masking.parameters import MIN_CIRCLE, MaskingParameters, ServerAdversary
from secure_agg.primitives.keys import Aead
from secure_agg.primitives.prg import StreamCipher
from secure_agg.shamir import MAX_SHARES

PROTOCOL_VERSION = 3
RUN_BYTES = 16
LAYOUT_BYTES = 32
BOUND_BYTES = 32
"""Length of a digest of what the server sends with a round."""

MAX_CLIENTS = 2**32 - 1
"""Client ids run from 0 below this."""

MAX_ROUND = 2**64
"""Rounds run from 0 below this."""

_FIELDS = struct.Struct(">16sQQIIBBBx32s")


class Suite(IntEnum):
    """A stream cipher for masks and an AEAD for relayed shares, chosen together."""

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
        """The cipher that encrypts relayed shares."""
        return Aead.CHACHA20_POLY1305 if self is Suite.CHACHA20 else Aead.AES256_GCM


def signed_threshold(clients: int, corrupt: int) -> int:
    """The smallest threshold of signed terms under which `corrupt` clients may collude with the server.

    Raises:
        ConfigurationError: there is none.
    """
    threshold = max(2, (clients + corrupt + 1) // 2)
    if threshold >= clients:
        raise ConfigurationError(
            f"{clients} clients of whom {corrupt} may collude with the server need a threshold of {threshold}, and it "
            f"must be below {clients}: have {corrupt + 2 - clients} more clients take part, or allow for fewer corrupt"
        )
    return threshold


@dataclass(frozen=True, slots=True)
class Terms:
    """The public terms of one round.

    The server writes them and chooses the roster, under signed terms too: it may invite every client that colludes with
    it and one other, whose vector is then the sum less what it knows (9 corrupt of 100 suffice where clients accept a
    sum of 10). `ClientRequirements.max_corrupt` is what stops that, and no share of all clients. Unsigned terms hold
    against a server that follows the protocol only: one that lies opens any client, on a sparse graph without a single
    colluding one.

    Attributes:
        run: 16 bytes that identify the run.
        round: number of the round, rising within the run.
        bits: width of a ring element, 2 to 64; the number of bits transmitted of each.
        length: number of elements in every vector.
        threshold: number of shares that rebuild a secret; more than half of a client's neighbours. Under signed terms
            it decides how many clients may collude with the server (`max_corrupt`).
        neighbours: even number of clients that each client shares masks with; 0 for all others.
        suite: cipher suite.
        signed: whether advertisements and the lists of clients carry signatures of known identities, which protects
            against a server that deviates from the protocol.
        layout: 32 bytes that identify the meaning of the elements, for instance a SHA-256 of block names and shapes.
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
        for name, number, minimum, limit in (
            ("round", self.round, 0, MAX_ROUND),
            ("length", self.length, 1, 2**48),
            ("threshold", self.threshold, 2, MAX_CLIENTS),
            ("neighbours", self.neighbours, 0, MAX_CLIENTS),
        ):
            if not minimum <= number < limit:
                raise ConfigurationError(f"{name} is {number}; it must be at least {minimum} and below {limit}")
        if self.neighbours % 2:
            raise ConfigurationError(
                f"neighbours is {self.neighbours}; give an even number (half on either side), or 0 for all"
            )
        if self.neighbours and not self.neighbours / 2 < self.threshold <= self.neighbours:
            raise ConfigurationError(
                f"threshold is {self.threshold} of {self.neighbours} neighbours; it must be more than half of them "
                "(else a server could collect both secrets of a client) and at most all"
            )

    @classmethod
    def from_parameters(
        cls,
        parameters: MaskingParameters,
        *,
        bits: int,
        length: int,
        run: bytes,
        round: int = 0,
        suite: Suite = Suite.AES256,
        layout: bytes = bytes(LAYOUT_BYTES),
    ) -> "Terms":
        """Terms with the graph and threshold of `choose_parameters`; signed against an active server."""
        signed = parameters.server is ServerAdversary.ACTIVE
        return cls(run, round, bits, length, parameters.threshold, parameters.neighbours, suite, signed, layout)

    @property
    def ring(self) -> Ring:
        """The ring of the vectors."""
        return Ring(self.bits)

    @property
    def context(self) -> bytes:
        """32 bytes that stand for protocol version and terms; every key and signature is bound to them."""
        return hashlib.sha256(b"secure_agg masking %d" % PROTOCOL_VERSION + self.encode()).digest()

    @property
    def signs_inputs(self) -> bool:
        """Whether a masked input carries a signature: under signed terms on a sparse graph."""
        return self.signed and self.neighbours > 0

    def degree(self, clients: int) -> int:
        """Number of neighbours of each client in a roster of `clients`."""
        others = clients - 1
        return others if self.neighbours == 0 else min(self.neighbours, others)

    def allows_roster_of(self, clients: int) -> bool:
        """Whether both secrets of a client stay out of the server's reach in a roster of this size.

        Signed terms on a sparse graph also need a circle of `MIN_CIRCLE` times the neighbours.
        """
        degree = self.degree(clients)
        long_enough = not self.signs_inputs or clients >= MIN_CIRCLE * self.neighbours
        return long_enough and degree / 2 < self.threshold <= degree <= MAX_SHARES

    def max_corrupt(self, clients: int) -> int:
        """How many around any one client may collude with a server that lies, under signed terms.

        Of a client with k neighbours, c of them corrupt, the server gets at most k + c shares, one of each honest
        neighbour and two of each corrupt one, and both secrets take 2t: ruled out by c <= 2t - k - 1.

        In the complete graph, where k = n - 1, this is how many of all may be corrupt, 2t - n. It rules out two more
        lies. A client reveals once it and a threshold of others confirmed the same: t + 1 of n. Two such groups that
        confirmed different things have only corrupt clients c in common, so 2(t + 1) <= n + c. And a server that
        provokes complaints about shares holds those of at most n - t - 1 who complained and of c, and needs t. On a
        sparse graph complaints reveal nothing, and how many of all may be corrupt is a matter of probability:
        `log2_insecure`.
        """
        return 2 * self.threshold - self.degree(clients) - 1

    def encode(self) -> bytes:
        """Encode as bytes of fixed length."""
        return _FIELDS.pack(
            self.run, self.round, self.length, self.neighbours, self.threshold,
            self.bits, self.suite, self.signed, self.layout,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> "Terms":
        """Decode terms.

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
