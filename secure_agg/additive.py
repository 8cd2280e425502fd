"""Additive secret sharing between two or more aggregators: any of them may be curious as long as one keeps to itself.

A client splits its ring words into n shares that add up to them and sends one to each aggregator. Each aggregator adds
what it received, and only these n sums, put together, are opened:

    shares 1 .. n-1 = streams of fresh 32-byte seeds,    share 0 = words - their sum        (in the ring)

Any n-1 shares tell nothing about the words to whoever cannot tell AES-256 in counter mode from chance: without share 0
they are seeds drawn from nothing else, and without share j the stream of its seed, unknown, masks share 0. All n shares
are needed to open a sum, so one aggregator that is lost loses the round; dropped clients cost nothing as long as every
aggregator leaves out the same ones, which `reconstruct` checks.

On the wire a share of party 1 .. n-1 is its seed, so a client uploads one vector and n-1 times 72 bytes.

What this does not do: it neither encrypts nor signs, so each share travels over a channel that is encrypted to its
aggregator and authenticated; and it believes that aggregators follow the protocol. The tag that binds the shares of a
split finds mistakes (a client counted by one aggregator and not by another), not an aggregator that lies. How few
clients a sum may cover is for the aggregator to rule: it hands out no sum with fewer `contributors` than it set itself,
and takes from a client only shares that claim one.

Source: n-of-n additive sharing is folklore; shares compressed to seeds as in Corrigan-Gibbs and Boneh, "Prio: Private,
Robust, and Scalable Computation of Aggregate Statistics" (NSDI 2017).
"""

import math
import secrets
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from secure_agg.encoding import Ring
from secure_agg.errors import MalformedMessage, ShareError
from secure_agg.prg import StreamCipher, Words, add_streams, random_words

MAX_PARTIES: Final = (1 << 16) - 1
MAX_CONTRIBUTORS: Final = (1 << 32) - 1
MAX_RANK: Final = 8

_SEED_BYTES: Final = StreamCipher.AES256.key_bytes
_TAG_BYTES: Final = 16
_TAG_MODULUS: Final = 1 << (8 * _TAG_BYTES)
_MAGIC: Final = b"SAAS"
_VERSION: Final = 1
_WORDS_FOLLOW: Final = 0
_SEED_FOLLOWS: Final = 1
_HEADER: Final = struct.Struct("<4sBBBBHHI16s")
"""Magic, version, what follows, bits of the ring, axes, party, parties, contributors, tag: 32 bytes, little-endian."""


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveShare:
    """What one aggregator holds of one client's words, or of the sum of several clients' words.

    `repr` leaves tag and payload out, so that a share in a log gives nothing away.

    Attributes:
        ring: where the words live.
        shape: of the words.
        party: whose share it is, 0 .. parties-1.
        parties: how many aggregators the words were split between.
        contributors: how many splits the share sums.
        tag: sum modulo 2^128 of the random numbers drawn at those splits, one for all shares of a split. Two sums whose
            tags agree are sums of the same splits, but for a chance of 2^-128.
        payload: the words, or the 32-byte seed whose stream they are.

    Raises:
        ShareError: an attribute is out of its range, or the payload does not fit ring and shape.
    """

    ring: Ring
    shape: tuple[int, ...]
    party: int
    parties: int
    contributors: int
    tag: int = field(repr=False)
    payload: Words | bytes = field(repr=False)

    def __post_init__(self) -> None:
        _accept_parties(self.parties)
        if not 0 <= self.party < self.parties:
            raise ShareError(f"a share of party {self.party} was given; {self.parties} parties are numbered from 0")
        if not 1 <= self.contributors <= MAX_CONTRIBUTORS:
            raise ShareError(f"a share of {self.contributors} contributions was given; give 1 to {MAX_CONTRIBUTORS}")
        if not 0 <= self.tag < _TAG_MODULUS:
            raise ShareError("a tag outside 0 .. 2^128 - 1 was given; keep the one that `split` drew")
        if len(self.shape) > MAX_RANK:
            raise ShareError(f"a share of {len(self.shape)} axes was given; reshape the words to at most {MAX_RANK}")
        if isinstance(self.payload, bytes):
            if len(self.payload) != _SEED_BYTES:
                raise ShareError(f"a seed of {len(self.payload)} bytes was given; seeds have {_SEED_BYTES}")
        elif self.payload.dtype != self.ring.dtype or self.payload.shape != self.shape:
            raise ShareError(
                f"words of {self.payload.dtype} and shape {self.payload.shape} were given for a share of "
                f"{self.ring.dtype} and shape {self.shape}; give words of the share's ring and shape"
            )

    @property
    def words(self) -> Words:
        """The share as ring words of `shape`, made from the seed at every access where the payload is one."""
        if isinstance(self.payload, bytes):
            made = random_words(math.prod(self.shape), self.ring.dtype, self.payload)
            return self.ring.reduce_(made).reshape(self.shape)
        return self.payload

    def encode(self) -> bytes:
        """The share as bytes: a header of 32, then 8 for each axis, then 32 of seed or the packed words.

        All is little-endian; of every word as many bits travel as the ring has.
        """
        seed = self.payload if isinstance(self.payload, bytes) else None
        header = _HEADER.pack(
            _MAGIC,
            _VERSION,
            _WORDS_FOLLOW if seed is None else _SEED_FOLLOWS,
            self.ring.bits,
            len(self.shape),
            self.party,
            self.parties,
            self.contributors,
            self.tag.to_bytes(_TAG_BYTES, "little"),
        )
        axes = struct.pack(f"<{len(self.shape)}Q", *self.shape)
        return header + axes + (self.ring.pack(self.words).tobytes() if seed is None else seed)

    @classmethod
    def decode(cls, data: bytes, *, ring: Ring, shape: tuple[int, ...]) -> "AdditiveShare":
        """The share that `encode` wrote, if it is of the ring and shape that the receiver expects.

        The receiver says what it expects, and the message is compared with that, never believed: nothing is allocated
        because a message claims a size. Words are read-only, a view of `data` where they fill machine words. That
        nobody altered the bytes on their way is for the channel to prove: a flipped bit of the words makes other words.

        Args:
            data: one whole message.
            ring: the ring that this sum is made in.
            shape: the shape that every client's words have.

        Raises:
            MalformedMessage: `data` is anything else, including a share of another ring or shape.
        """
        if len(data) < _HEADER.size:
            raise MalformedMessage(f"a share of {len(data)} bytes was given; the header alone has {_HEADER.size}")
        magic, version, follows, bits, rank, party, parties, contributors, tag = _HEADER.unpack_from(data)
        if (magic, version) != (_MAGIC, _VERSION):
            raise MalformedMessage(
                f"the message begins {data[:5].hex()}; an additive share of version {_VERSION} begins "
                f"{(_MAGIC + bytes([_VERSION])).hex()}, so check sender and versions"
            )
        if follows not in (_WORDS_FOLLOW, _SEED_FOLLOWS):
            raise MalformedMessage(f"a share with payload kind {follows} was given; 0 is words and 1 a seed")
        if (bits, rank) != (ring.bits, len(shape)):
            raise MalformedMessage(
                f"a share of {rank} axes in the ring of {bits} bits was given; {len(shape)} axes and {ring.bits} bits "
                "were expected, so drop it"
            )
        start = _HEADER.size + 8 * rank
        count = math.prod(shape)
        expected = start + (_SEED_BYTES if follows == _SEED_FOLLOWS else ring.packed_bytes(count))
        if len(data) != expected:
            raise MalformedMessage(f"a share of {len(data)} bytes was given; {expected} were expected, so drop it")
        claimed = struct.unpack_from(f"<{rank}Q", data, _HEADER.size)
        if claimed != shape:
            raise MalformedMessage(f"a share of shape {claimed} was given; {shape} was expected, so drop it")
        payload: bytes | Words = data[start:]
        if follows == _WORDS_FOLLOW:
            payload = ring.unpack(memoryview(data)[start:], count).reshape(shape)
        try:
            return cls(ring, shape, party, parties, contributors, int.from_bytes(tag, "little"), payload)
        except ShareError as refused:
            raise MalformedMessage(str(refused)) from refused


def split(words: Words, parties: int, key: bytes | None = None, ring: Ring | None = None) -> tuple[AdditiveShare, ...]:
    """One client's words as one share for each aggregator, in the order of their numbers.

    Args:
        words: an array of ring words, of up to 8 axes.
        parties: how many aggregators, 2 or more.
        key: `None` draws seeds and tag from `secrets`; 32 bytes, used for nothing else, make the split a simulation
            that can be repeated and that hides nothing from whoever knows the key.
        ring: of the words; None takes them as filling machine words.

    Raises:
        ShareError: fewer than 2 parties or more than 65535, or more than 8 axes.
        ConfigurationError: the words are of no ring, or the key is not 32 bytes long.
    """
    ring = ring or Ring(8 * words.dtype.itemsize)
    ring.accept(words)
    _accept_parties(parties)
    needed = _TAG_BYTES + _SEED_BYTES * (parties - 1)
    drawn = secrets.token_bytes(needed) if key is None else random_words(needed, np.uint8, key).tobytes()
    tag = int.from_bytes(drawn[:_TAG_BYTES], "little")
    seeds = [drawn[start : start + _SEED_BYTES] for start in range(_TAG_BYTES, needed, _SEED_BYTES)]
    remainder: Words = words.flatten()
    add_streams(remainder, plus=[], minus=seeds)
    payloads: list[Words | bytes] = [ring.reduce_(remainder).reshape(words.shape), *seeds]
    return tuple(AdditiveShare(ring, words.shape, party, parties, 1, tag, own) for party, own in enumerate(payloads))


def add(shares: Iterable[AdditiveShare]) -> AdditiveShare:
    """One aggregator's sum of what clients sent it, or of sums it made earlier.

    Seeds are expanded and added while they are in cache, so the sum of n seeded shares takes the memory of one vector.

    Args:
        shares: one or more, all of one party, ring and shape; read once, so a generator will do.

    Raises:
        ShareError: no share; shares of different parties, rings or shapes; or one contribution given twice (a client
            that is contained in an earlier sum as well is not noticed: the aggregator keeps that account).
    """
    arriving = iter(shares)
    first = next(arriving, None)
    if first is None:
        raise ShareError("no share was given to add; give at least one")
    total = first.ring.zeros(math.prod(first.shape))
    seeds: list[bytes] = []
    tags: set[int] = set()
    contributors = 0
    for share in chain([first], arriving):
        _require_alike(first, share, "party", "parties", "ring", "shape")
        if share.tag in tags:
            raise ShareError("one contribution was given twice; add each client's share once")
        tags.add(share.tag)
        contributors += share.contributors
        if isinstance(share.payload, bytes):
            seeds.append(share.payload)
        else:
            np.add(total, share.payload.reshape(-1), out=total)
    add_streams(total, plus=seeds)
    first.ring.reduce_(total)
    tag = sum(tags) % _TAG_MODULUS
    return AdditiveShare(
        first.ring, first.shape, first.party, first.parties, contributors, tag, total.reshape(first.shape)
    )


def reconstruct(shares: Iterable[AdditiveShare]) -> Words:
    """The words that were split, or the sum of several clients' words, from the shares of all parties.

    Args:
        shares: one from each party, in any order.

    Returns:
        A new array of the shares' ring and shape.

    Raises:
        ShareError: no share; shares of splits between different numbers of parties, of different rings or shapes; a
            party that is missing or given twice; or shares that do not sum the same contributions.
    """
    held = list(shares)
    if not held:
        raise ShareError("no share was given to reconstruct from; give one of each party")
    first = held[0]
    for share in held:
        _require_alike(first, share, "parties", "ring", "shape")
    given = Counter(share.party for share in held)
    repeated = sorted(party for party, times in given.items() if times > 1)
    if repeated:
        raise ShareError(f"several shares of parties {repeated} were given; give one of each")
    missing = sorted(set(range(first.parties)) - set(given))
    if missing:
        raise ShareError(f"shares of parties {missing} are missing; all {first.parties} are needed")
    for share in held:
        if (share.contributors, share.tag) != (first.contributors, first.tag):
            raise ShareError(
                f"party {share.party} sums {share.contributors} contributions and party {first.party} "
                f"{first.contributors}, not the same ones; let all parties add the same clients"
            )
    return first.ring.sum(share.words for share in held)


def _require_alike(first: AdditiveShare, share: AdditiveShare, *attributes: str) -> None:
    for name in attributes:
        one, other = getattr(first, name), getattr(share, name)
        if one != other:
            raise ShareError(f"shares of {name} {one} and {other} were given together; give shares of one {name}")


def _accept_parties(parties: int) -> None:
    if not 2 <= parties <= MAX_PARTIES:
        raise ShareError(f"a sharing between {parties} parties was asked for; give 2 to {MAX_PARTIES}")
