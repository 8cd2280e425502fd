"""What travels between a client and the server, byte for byte.

Every message is a header of 40 bytes and a body whose length follows from what the receiver already knows, so that no
length field can lie. Numbers are big-endian, ring words little-endian. Each body has exactly one encoding.

    header        magic "SAgg", version (2 bytes), stage (2), run (16), round (8), sender (4), receiver (4)
    invitation    the terms
    advertisement mask key (32), channel key (32), and where signed a signature (64)
    roster        participants (4), their ids in rising order (4 each), advertisements of the receiver's neighbours
    shares        commitment to the self mask (32), one sealed pair of shares per neighbour (82 each)
    delivery      which neighbours shared (1 bit each), their sealed pairs
    masked input  the words, as many bits of each as the ring has, lowest bit first
    survivors     which participants' inputs arrived (1 bit each); signed terms only
    confirmation  a signature over the survivors; signed terms only
    request       which neighbours survived, which dropped out (1 bit each); where signed, who confirmed, and how
    reveal        one share (33) per neighbour named in the request
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_agg import shamir
from secure_agg.errors import MalformedMessage, StaleMessage, UnexpectedStage, WrongParty
from secure_agg.keys import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES
from secure_agg.masking.graph import Ids
from secure_agg.masking.terms import MAX_CLIENTS, PROTOCOL_VERSION, Terms
from secure_agg.prg import Words

SERVER = MAX_CLIENTS
"""The server's place in a header; no client has this id."""

SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES
MAGIC = b"SAgg"

Bits = NDArray[np.bool_]

_HEADER = struct.Struct(">4sHH16sQII")
HEADER_BYTES = _HEADER.size


class Stage(IntEnum):
    """The kinds of message, in the order they are sent."""

    INVITATION = 1
    ADVERTISEMENT = 2
    ROSTER = 3
    SHARES = 4
    DELIVERY = 5
    MASKED_INPUT = 6
    SURVIVORS = 7
    CONFIRMATION = 8
    REQUEST = 9
    REVEAL = 10

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Header and body of a message."""

    stage: Stage
    run: bytes
    round: int
    sender: int
    receiver: int
    body: memoryview

    @classmethod
    def decode(cls, data: bytes) -> "Envelope":
        """Split a message.

        Raises:
            MalformedMessage: shorter than a header, another magic or version, an unknown stage.
        """
        if len(data) < HEADER_BYTES:
            raise MalformedMessage(f"{len(data)} bytes arrived; a message has at least {HEADER_BYTES}")
        magic, version, stage, run, number, sender, receiver = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise MalformedMessage(
                "the bytes do not begin like a secure_agg message; their sender speaks another protocol"
            )
        if version != PROTOCOL_VERSION:
            raise MalformedMessage(
                f"the message is of protocol version {version}; this is version {PROTOCOL_VERSION}, so update one side"
            )
        if stage not in Stage._value2member_map_:
            raise MalformedMessage(f"stage {stage} does not exist; stages run from 1 to {len(Stage)}")
        return cls(Stage(stage), run, number, sender, receiver, memoryview(data)[HEADER_BYTES:])

    def expect(self, *, stage: Stage, run: bytes, sender: int, receiver: int) -> None:
        """Refuse a message of another run, party or stage.

        Raises:
            StaleMessage: another run.
            WrongParty: another sender or receiver.
            UnexpectedStage: another stage.
        """
        if self.run != run:
            raise StaleMessage(f"the message is of run {self.run.hex()}; this is run {run.hex()}, so it is dropped")
        if (self.sender, self.receiver) != (sender, receiver):
            raise WrongParty(
                f"the message is from {_party(self.sender)} to {_party(self.receiver)}; "
                f"one from {_party(sender)} to {_party(receiver)} was expected, so it is dropped"
            )
        if self.stage is not stage:
            raise UnexpectedStage(f"got the {self.stage} message; the {stage} message is due, so this one is dropped")

    def expect_round(self, number: int) -> None:
        """Refuse a message of another round.

        Raises:
            StaleMessage: another round.
        """
        if self.round != number:
            raise StaleMessage(f"the message is of round {self.round}; this is round {number}, so it is dropped")


def header(stage: Stage, terms: Terms, sender: int, receiver: int) -> bytes:
    """The first 40 bytes of a message."""
    return _HEADER.pack(MAGIC, PROTOCOL_VERSION, stage, terms.run, terms.round, sender, receiver)


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A client's public keys for this round, and its signature over them (empty where terms are unsigned)."""

    mask_key: bytes
    channel_key: bytes
    signature: bytes = b""

    def encode(self) -> bytes:
        """As bytes."""
        return self.mask_key + self.channel_key + self.signature

    @staticmethod
    def size(terms: Terms) -> int:
        """Bytes of an advertisement under these terms."""
        return 2 * KEY_BYTES + (SIGNATURE_BYTES if terms.signed else 0)

    @classmethod
    def decode(cls, body: memoryview, terms: Terms) -> "Advertisement":
        """Read one."""
        _exactly(body, cls.size(terms), Stage.ADVERTISEMENT)
        data = bytes(body)
        return cls(data[:KEY_BYTES], data[KEY_BYTES : 2 * KEY_BYTES], data[2 * KEY_BYTES :])


@dataclass(frozen=True, slots=True)
class Roster:
    """Everybody's ids, and the advertisements of the receiver's neighbours in the order of their ids."""

    ids: Ids
    advertisements: tuple[Advertisement, ...]

    def encode(self) -> bytes:
        """As bytes."""
        keys = b"".join(advertisement.encode() for advertisement in self.advertisements)
        return len(self.ids).to_bytes(4, "big") + self.ids.astype(">u4").tobytes() + keys

    @classmethod
    def decode(cls, body: memoryview, terms: Terms) -> "Roster":
        """Read one; ids must rise, which also keeps them distinct."""
        if len(body) < 4:
            raise MalformedMessage(f"the roster message has a body of {len(body)} bytes; at least 4 were expected")
        count = int.from_bytes(body[:4], "big")
        size, ids_end = Advertisement.size(terms), 4 + 4 * count
        _exactly(body, ids_end + size * max(terms.degree(count), 0), Stage.ROSTER)
        ids = np.frombuffer(body[4:ids_end], ">u4").astype(np.uint32)
        if (ids[1:] <= ids[:-1]).any() or (ids == SERVER).any():
            raise MalformedMessage("the roster's ids do not rise strictly below the server's id; its sender is broken")
        pieces = [body[start : start + size] for start in range(ids_end, len(body), size)]
        return cls(ids, tuple(Advertisement.decode(piece, terms) for piece in pieces))


@dataclass(frozen=True, slots=True)
class Shares:
    """A commitment to the self mask; sealed for each neighbour a share of the mask key and one of the self mask."""

    commitment: bytes
    sealed: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As bytes."""
        return self.commitment + b"".join(self.sealed)

    @classmethod
    def decode(cls, body: memoryview, neighbours: int) -> "Shares":
        """Read one from a client with this many neighbours."""
        _exactly(body, KEY_BYTES + SEALED_BYTES * neighbours, Stage.SHARES)
        return cls(bytes(body[:KEY_BYTES]), _pieces(body[KEY_BYTES:], SEALED_BYTES))


@dataclass(frozen=True, slots=True)
class Delivery:
    """Which neighbours shared, and what they sealed for the receiver, in the order of their ids."""

    shared: Bits
    sealed: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As bytes."""
        return _pack(self.shared) + b"".join(self.sealed)

    @classmethod
    def decode(cls, body: memoryview, neighbours: int) -> "Delivery":
        """Read one for a client with this many neighbours."""
        shared, rest = _unpack(body, neighbours, Stage.DELIVERY)
        _exactly(rest, SEALED_BYTES * int(shared.sum()), Stage.DELIVERY)
        return cls(shared, _pieces(rest, SEALED_BYTES))


def decode_words(body: memoryview, terms: Terms) -> Words:
    """The words of a masked input, without a copy where they fill machine words."""
    _exactly(body, terms.ring.packed_bytes(terms.length), Stage.MASKED_INPUT)
    return terms.ring.unpack(body, terms.length)


@dataclass(frozen=True, slots=True)
class Survivors:
    """Which participants' masked inputs arrived, in the order of the roster."""

    alive: Bits

    def encode(self) -> bytes:
        """As bytes."""
        return _pack(self.alive)

    @classmethod
    def decode(cls, body: memoryview, clients: int) -> "Survivors":
        """Read one for a roster of this size."""
        alive, rest = _unpack(body, clients, Stage.SURVIVORS)
        _exactly(rest, 0, Stage.SURVIVORS)
        return cls(alive)


@dataclass(frozen=True, slots=True)
class Request:
    """Whose self mask and whose mask key the server asks a share of; where signed, who confirmed the survivors."""

    survived: Bits
    dropped: Bits
    confirmed: Bits
    confirmations: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As bytes."""
        return b"".join([_pack(self.survived), _pack(self.dropped), _pack(self.confirmed), *self.confirmations])

    @classmethod
    def decode(cls, body: memoryview, neighbours: int, *, signed: bool) -> "Request":
        """Read one for a client with this many neighbours."""
        survived, rest = _unpack(body, neighbours, Stage.REQUEST)
        dropped, rest = _unpack(rest, neighbours, Stage.REQUEST)
        confirmed, rest = _unpack(rest, neighbours if signed else 0, Stage.REQUEST)
        _exactly(rest, SIGNATURE_BYTES * int(confirmed.sum()), Stage.REQUEST)
        return cls(survived, dropped, confirmed, _pieces(rest, SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True)
class Reveal:
    """The shares asked for, in the order of the neighbours' ids."""

    shares: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As bytes."""
        return b"".join(self.shares)

    @classmethod
    def decode(cls, body: memoryview, asked: int) -> "Reveal":
        """Read one to a request that named this many neighbours."""
        _exactly(body, shamir.SHARE_BYTES * asked, Stage.REVEAL)
        return cls(_pieces(body, shamir.SHARE_BYTES))


def decode_signature(body: memoryview) -> bytes:
    """The signature that a confirmation is."""
    _exactly(body, SIGNATURE_BYTES, Stage.CONFIRMATION)
    return bytes(body)


def bits(members: Sequence[int] | Ids, chosen: set[int] | frozenset[int]) -> Bits:
    """Which members are among the chosen."""
    return np.fromiter((int(member) in chosen for member in members), bool, len(members))


def _exactly(body: memoryview, size: int, stage: Stage) -> None:
    if len(body) != size:
        raise MalformedMessage(
            f"the {stage} carries {len(body)} bytes where {size} belong; it was cut, padded or meant for other terms"
        )


def _pieces(data: memoryview, size: int) -> tuple[bytes, ...]:
    whole = bytes(data)
    return tuple(whole[start : start + size] for start in range(0, len(whole), size))


def _pack(flags: Bits) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def _unpack(body: memoryview, count: int, stage: Stage) -> tuple[Bits, memoryview]:
    size = -(-count // 8)
    if len(body) < size:
        raise MalformedMessage(
            f"the {stage} message ends inside a list of {count} flags; it was cut or made for other terms"
        )
    flags = np.unpackbits(np.frombuffer(body[:size], np.uint8), bitorder="little").astype(bool)
    if flags[count:].any():
        raise MalformedMessage(f"the {stage} message sets flags beyond its {count} parties; its sender is broken")
    return flags[:count], body[size:]


def _party(number: int) -> Any:
    return "the server" if number == SERVER else f"client {number}"
