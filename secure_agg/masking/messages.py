"""The messages between a client and the server, byte for byte.

Every message is a header of 40 bytes and a body whose length follows from what the receiver already knows, so that no
length field has to be trusted. Numbers are big-endian, ring elements little-endian. Each body has exactly one encoding.

    header        magic "SAgg", version (2 bytes), stage (2), run (16), round (8), sender (4), receiver (4)
    invitation    the terms
    advertisement mask key (32), channel key (32), and where signed a signature (64)
    roster        participants (4), their ids in rising order (4 each), advertisements of the receiver's neighbours
    shares        commitment to the self mask (32), one encrypted pair of shares per neighbour (82 each)
    delivery      who shared (1 bit each: neighbours, under signed terms participants), the neighbours' encrypted pairs
    check         signed terms only: a signature over who shared; or "complaint", the neighbours accused (1 bit each),
                  in the complete graph the channel private key (32), a signature (64)
    go-ahead      which participants checked (1 bit each), in the complete graph with their signatures; signed terms
                  only
    masked input  the elements, packed: as many bits of each as the ring has, lowest bit first; under signed terms on a
                  sparse graph a signature over who checked
    survivors     which participants' inputs arrived (1 bit each), on a sparse graph with the signatures that came with
                  those of neighbours; signed terms only
    confirmation  a signature over who checked and who survived; signed terms only
    request       which neighbours survived, which dropped out (1 bit each); where signed, who confirmed, with
                  signatures
    reveal        one share (33) per neighbour named in the request
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from secure_agg import shamir
from secure_agg.errors import MalformedMessage, StaleMessage, UnexpectedStage, WrongParty
from secure_agg.masking.graph import Ids
from secure_agg.masking.terms import MAX_CLIENTS, PROTOCOL_VERSION, Terms
from secure_agg.primitives.keys import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES
from secure_agg.primitives.prg import RingElements

SERVER = MAX_CLIENTS
"""The server's id in a header; no client has it."""

SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES
MAGIC = b"SAgg"
_COMPLAINT = b"complaint"

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
    CHECK = 6
    GO_AHEAD = 7
    MASKED_INPUT = 8
    SURVIVORS = 9
    CONFIRMATION = 10
    REQUEST = 11
    REVEAL = 12

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
        """Decode the header of a message.

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


def encode_header(stage: Stage, terms: Terms, sender: int, receiver: int) -> bytes:
    """The first 40 bytes of a message."""
    return _HEADER.pack(MAGIC, PROTOCOL_VERSION, stage, terms.run, terms.round, sender, receiver)


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A client's public keys for this round, and its signature over them (empty where terms are unsigned)."""

    mask_key: bytes
    channel_key: bytes
    signature: bytes = b""

    def encode(self) -> bytes:
        """Encode as bytes."""
        return self.mask_key + self.channel_key + self.signature

    @staticmethod
    def size(terms: Terms) -> int:
        """Bytes of an advertisement under these terms."""
        return 2 * KEY_BYTES + (SIGNATURE_BYTES if terms.signed else 0)

    @classmethod
    def decode(cls, body: memoryview, terms: Terms) -> "Advertisement":
        """Decode an advertisement."""
        _check_size(body, cls.size(terms), Stage.ADVERTISEMENT)
        data = bytes(body)
        return cls(data[:KEY_BYTES], data[KEY_BYTES : 2 * KEY_BYTES], data[2 * KEY_BYTES :])


@dataclass(frozen=True, slots=True)
class Roster:
    """The ids of all participants, and the advertisements of the receiver's neighbours in the order of their ids."""

    ids: Ids
    advertisements: tuple[Advertisement, ...]

    def encode(self) -> bytes:
        """Encode as bytes."""
        keys = b"".join(advertisement.encode() for advertisement in self.advertisements)
        return len(self.ids).to_bytes(4, "big") + self.ids.astype(">u4").tobytes() + keys

    @classmethod
    def decode(cls, body: memoryview, terms: Terms) -> "Roster":
        """Decode a roster; ids must rise, which also makes them distinct."""
        if len(body) < 4:
            raise MalformedMessage(f"the roster message has a body of {len(body)} bytes; at least 4 were expected")
        count = int.from_bytes(body[:4], "big")
        size, ids_end = Advertisement.size(terms), 4 + 4 * count
        _check_size(body, ids_end + size * max(terms.degree(count), 0), Stage.ROSTER)
        ids = np.frombuffer(body[4:ids_end], ">u4").astype(np.uint32)
        if (ids[1:] <= ids[:-1]).any() or (ids == SERVER).any():
            raise MalformedMessage("the roster's ids do not rise strictly below the server's id; its sender is broken")
        chunks = [body[start : start + size] for start in range(ids_end, len(body), size)]
        return cls(ids, tuple(Advertisement.decode(chunk, terms) for chunk in chunks))


@dataclass(frozen=True, slots=True)
class EncryptedShares:
    """A commitment to the self mask, and for each neighbour an encrypted share of mask key and self-mask seed."""

    commitment: bytes
    sealed: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Encode as bytes."""
        return self.commitment + b"".join(self.sealed)

    @classmethod
    def decode(cls, body: memoryview, neighbours: int) -> "EncryptedShares":
        """Decode the shares of a client with `neighbours` neighbours."""
        _check_size(body, KEY_BYTES + SEALED_BYTES * neighbours, Stage.SHARES)
        return cls(bytes(body[:KEY_BYTES]), _split_evenly(body[KEY_BYTES:], SEALED_BYTES))


@dataclass(frozen=True, slots=True)
class Delivery:
    """Who shared, and the neighbours' encrypted pairs for the receiver, in the order of their ids.

    The flags are of the neighbours; under signed terms of all participants, who sign them.
    """

    shared: Bits
    sealed: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Encode as bytes."""
        return _pack_bits(self.shared) + b"".join(self.sealed)

    @classmethod
    def decode(cls, body: memoryview, sealing: Bits) -> "Delivery":
        """Decode a delivery; `sealing` says by flag whether a pair belongs to it: those of neighbours have one."""
        shared, rest = _unpack_bits(body, len(sealing), Stage.DELIVERY)
        _check_size(rest, SEALED_BYTES * int((shared & sealing).sum()), Stage.DELIVERY)
        return cls(shared, _split_evenly(rest, SEALED_BYTES))


@dataclass(frozen=True, slots=True)
class Complaint:
    """Neighbours whose sealed pairs hold no pair of shares.

    In the complete graph with the channel private key, which lets the server look; on a sparse graph it is empty.
    """

    accused: Bits
    channel_private: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Encode as bytes."""
        return _COMPLAINT + _pack_bits(self.accused) + self.channel_private + self.signature

    @classmethod
    def decode(cls, body: memoryview, neighbours: int, *, evidence: bool) -> "Complaint":
        """Decode the complaint of a client with `neighbours` neighbours; it accuses somebody."""
        if bytes(body[: len(_COMPLAINT)]) != _COMPLAINT:
            raise MalformedMessage("the check is neither a signature nor a complaint; it was padded or altered")
        accused, rest = _unpack_bits(body[len(_COMPLAINT) :], neighbours, Stage.CHECK)
        key = KEY_BYTES if evidence else 0
        _check_size(rest, key + SIGNATURE_BYTES, Stage.CHECK)
        if not accused.any():
            raise MalformedMessage("the check is a complaint about nobody; its sender is broken")
        return cls(accused, bytes(rest[:key]), bytes(rest[key:]))


def decode_check(body: memoryview, neighbours: int, *, evidence: bool) -> bytes | Complaint:
    """Decode a check: a signature, or a complaint, which is longer; in the complete graph it carries evidence."""
    if len(body) <= SIGNATURE_BYTES:
        return decode_signature(body, Stage.CHECK)
    return Complaint.decode(body, neighbours, evidence=evidence)


@dataclass(frozen=True, slots=True)
class GoAhead:
    """The participants that checked what they were delivered, and signatures of some, in the order of their ids."""

    checked: Bits
    signatures: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Encode as bytes."""
        return _pack_bits(self.checked) + b"".join(self.signatures)

    @classmethod
    def decode(cls, body: memoryview, signing: Bits) -> "GoAhead":
        """Decode a go-ahead; `signing` says by participant whether its signature belongs to it."""
        return cls(*_unpack_signed(body, signing, Stage.GO_AHEAD))


def decode_masked_input(body: memoryview, terms: Terms) -> tuple[RingElements, bytes]:
    """Decode the elements of a masked input, without a copy where they fill machine words, and its signature if any."""
    size = terms.ring.packed_bytes(terms.length)
    _check_size(body, size + (SIGNATURE_BYTES if terms.signs_inputs else 0), Stage.MASKED_INPUT)
    return terms.ring.unpack(body[:size], terms.length), bytes(body[size:])


@dataclass(frozen=True, slots=True)
class Survivors:
    """Which participants' masked inputs arrived, in the order of the roster, and signatures that came with some."""

    alive: Bits
    signatures: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """Encode as bytes."""
        return _pack_bits(self.alive) + b"".join(self.signatures)

    @classmethod
    def decode(cls, body: memoryview, signing: Bits) -> "Survivors":
        """Decode the survivors; `signing` says by participant whether its signature belongs to the message."""
        return cls(*_unpack_signed(body, signing, Stage.SURVIVORS))


@dataclass(frozen=True, slots=True)
class UnmaskRequest:
    """The neighbours whose self-mask or mask-key shares the server requests, and who confirmed the survivors."""

    survived: Bits
    dropped: Bits
    confirmed: Bits
    confirmations: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Encode as bytes."""
        return b"".join(
            [_pack_bits(self.survived), _pack_bits(self.dropped), _pack_bits(self.confirmed), *self.confirmations]
        )

    @classmethod
    def decode(cls, body: memoryview, neighbours: int, *, signed: bool) -> "UnmaskRequest":
        """Decode the request to a client with `neighbours` neighbours."""
        survived, rest = _unpack_bits(body, neighbours, Stage.REQUEST)
        dropped, rest = _unpack_bits(rest, neighbours, Stage.REQUEST)
        confirmed, rest = _unpack_bits(rest, neighbours if signed else 0, Stage.REQUEST)
        _check_size(rest, SIGNATURE_BYTES * int(confirmed.sum()), Stage.REQUEST)
        return cls(survived, dropped, confirmed, _split_evenly(rest, SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True)
class RevealedShares:
    """The requested shares, in the order of the neighbours' ids."""

    shares: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Encode as bytes."""
        return b"".join(self.shares)

    @classmethod
    def decode(cls, body: memoryview, requested: int) -> "RevealedShares":
        """Decode the reply to a request for `requested` shares."""
        _check_size(body, shamir.SHARE_BYTES * requested, Stage.REVEAL)
        return cls(_split_evenly(body, shamir.SHARE_BYTES))


def decode_signature(body: memoryview, stage: Stage) -> bytes:
    """Decode a message that is a signature."""
    _check_size(body, SIGNATURE_BYTES, stage)
    return bytes(body)


def membership_bits(members: Sequence[int] | Ids, chosen: set[int] | frozenset[int]) -> Bits:
    """One flag per member: whether it is among the chosen."""
    return np.isin(np.asarray(members, np.uint32), np.fromiter(chosen, np.uint32, len(chosen)))


def _check_size(body: memoryview, size: int, stage: Stage) -> None:
    if len(body) != size:
        raise MalformedMessage(
            f"the {stage} carries {len(body)} bytes where {size} belong; it was truncated, padded or meant for "
            "other terms"
        )


def _split_evenly(data: memoryview, size: int) -> tuple[bytes, ...]:
    octets = bytes(data)
    return tuple(octets[start : start + size] for start in range(0, len(octets), size))


def _pack_bits(flags: Bits) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def _unpack_bits(body: memoryview, count: int, stage: Stage) -> tuple[Bits, memoryview]:
    size = -(-count // 8)
    if len(body) < size:
        raise MalformedMessage(
            f"the {stage} message ends inside a list of {count} flags; it was truncated or made for other terms"
        )
    flags = np.unpackbits(np.frombuffer(body[:size], np.uint8), bitorder="little").astype(bool)
    if flags[count:].any():
        raise MalformedMessage(f"the {stage} message sets flags beyond its {count} parties; its sender is broken")
    return flags[:count], body[size:]


def _unpack_signed(body: memoryview, signing: Bits, stage: Stage) -> tuple[Bits, tuple[bytes, ...]]:
    """Flags of all participants, then a signature of each that is flagged and among those that sign."""
    flags, rest = _unpack_bits(body, len(signing), stage)
    _check_size(rest, SIGNATURE_BYTES * int((flags & signing).sum()), stage)
    return flags, _split_evenly(rest, SIGNATURE_BYTES)


def _party(number: int) -> str:
    return "the server" if number == SERVER else f"client {number}"
