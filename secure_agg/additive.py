"""Additive secret sharing between two or more aggregators, of which one must be honest.

A client splits its ring elements into n shares that add up to them and sends one share to each aggregator. Each
aggregator adds the shares it received; only the n sums together reveal the total:

    shares 1 .. n-1 = keystreams of fresh 32-byte seeds,    share 0 = elements - their sum        (in the ring)

Any n-1 shares are indistinguishable from random to whoever cannot distinguish AES-256 in counter mode from random:
without share 0 they are independent seeds, and without share j the unknown keystream of its seed masks share 0. All n
shares are needed to reconstruct a sum, so the failure of one aggregator aborts the round. Dropped clients cost nothing
as long as every aggregator leaves out the same ones, which `reconstruct` checks.

In a message a share of party 1 .. n-1 is its seed, so a client uploads one vector and n-1 times 72 bytes.

Limits: this module neither encrypts nor signs, so each share travels over a channel that is encrypted to its aggregator
and authenticated; and it assumes that aggregators follow the protocol. The tag that binds the shares of a split detects
mistakes (a client counted by one aggregator and not by another), not a malicious aggregator. The minimum number of
clients in a sum is the aggregator's to enforce: it releases no sum with fewer `contributors` than its own minimum, and
accepts from a client only shares with one contributor.

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
from secure_agg.primitives.prg import RingElements, StreamCipher, add_keystreams, random_uints

MAX_PARTIES: Final = (1 << 16) - 1
MAX_CONTRIBUTORS: Final = (1 << 32) - 1
MAX_RANK: Final = 8

_SEED_BYTES: Final = StreamCipher.AES256.key_bytes
_TAG_BYTES: Final = 16
_TAG_MODULUS: Final = 1 << (8 * _TAG_BYTES)
_MAGIC: Final = b"SAAS"
_VERSION: Final = 1
_KIND_ELEMENTS: Final = 0
_KIND_SEED: Final = 1
_HEADER: Final = struct.Struct("<4sBBBBHHI16s")
"""Magic, version, payload kind, bits of the ring, axes, party, parties, contributors, tag: 32 bytes, little-endian."""


@dataclass(frozen=True, slots=True, eq=False)
class AdditiveShare:
    """One aggregator's share of one client's elements, or of the sum of several clients' elements.

    `repr` omits tag and payload, so that a share in a log reveals nothing.

    Attributes:
        ring: ring of the elements.
        shape: shape of the elements.
        party: number of the aggregator, 0 .. parties-1.
        parties: number of aggregators that hold a share.
        contributors: number of splits that the share sums.
        tag: sum modulo 2^128 of the random numbers drawn at those splits, one for all shares of a split. Two sums with
            equal tags are sums of the same splits, except with probability 2^-128.
        payload: the elements, or the 32-byte seed whose keystream they are.

    Raises:
        ShareError: an attribute is out of its range, or the payload does not fit ring and shape.
    """

    ring: Ring
    shape: tuple[int, ...]
    party: int
    parties: int
    contributors: int
    tag: int = field(repr=False)
    payload: RingElements | bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_parties(self.parties)
        if not 0 <= self.party < self.parties:
            raise ShareError(f"a share of party {self.party} was given; {self.parties} parties are numbered from 0")
        if not 1 <= self.contributors <= MAX_CONTRIBUTORS:
            raise ShareError(f"a share of {self.contributors} contributions was given; give 1 to {MAX_CONTRIBUTORS}")
        if not 0 <= self.tag < _TAG_MODULUS:
            raise ShareError("a tag outside 0 .. 2^128 - 1 was given; keep the one that `split` drew")
        if len(self.shape) > MAX_RANK:
            raise ShareError(f"a share of {len(self.shape)} axes was given; reshape the elements to at most {MAX_RANK}")
        if isinstance(self.payload, bytes):
            if len(self.payload) != _SEED_BYTES:
                raise ShareError(f"a seed of {len(self.payload)} bytes was given; seeds have {_SEED_BYTES}")
        elif self.payload.dtype != self.ring.dtype or self.payload.shape != self.shape:
            raise ShareError(
                f"elements of {self.payload.dtype} and shape {self.payload.shape} were given for a share of "
                f"{self.ring.dtype} and shape {self.shape}; give elements of the share's ring and shape"
            )

    @property
    def elements(self) -> RingElements:
        """The share as ring elements of `shape`, expanded at every access where the payload is a seed."""
        if isinstance(self.payload, bytes):
            expanded = random_uints(math.prod(self.shape), self.ring.dtype, self.payload)
            return self.ring.reduce_(expanded).reshape(self.shape)
        return self.payload

    def encode(self) -> bytes:
        """Encode as a header of 32 bytes, 8 bytes for each axis, and the seed of 32 bytes or the packed elements.

        All numbers are little-endian; every element takes as many bits as the ring has.
        """
        seed = self.payload if isinstance(self.payload, bytes) else None
        header = _HEADER.pack(
            _MAGIC,
            _VERSION,
            _KIND_ELEMENTS if seed is None else _KIND_SEED,
            self.ring.bits,
            len(self.shape),
            self.party,
            self.parties,
            self.contributors,
            self.tag.to_bytes(_TAG_BYTES, "little"),
        )
        axes = struct.pack(f"<{len(self.shape)}Q", *self.shape)
        return header + axes + (self.ring.pack(self.elements).tobytes() if seed is None else seed)

    @classmethod
    def decode(cls, data: bytes, *, ring: Ring, shape: tuple[int, ...]) -> "AdditiveShare":
        """Decode a share of the ring and shape that the receiver expects.

        The message is compared with what the receiver expects, never trusted: nothing is allocated because a message
        declares a size. Elements are read-only, a view of `data` where they fill machine words. The
        channel must protect the integrity of the bytes: a flipped bit of the elements makes other elements.

        Args:
            data: one whole message.
            ring: ring of the sum.
            shape: shape of every client's elements.

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
        if follows not in (_KIND_ELEMENTS, _KIND_SEED):
            raise MalformedMessage(f"a share with payload kind {follows} was given; 0 is elements and 1 a seed")
        if (bits, rank) != (ring.bits, len(shape)):
            raise MalformedMessage(
                f"a share of {rank} axes in the ring of {bits} bits was given; {len(shape)} axes and {ring.bits} bits "
                "were expected, so drop it"
            )
        start = _HEADER.size + 8 * rank
        count = math.prod(shape)
        expected = start + (_SEED_BYTES if follows == _KIND_SEED else ring.packed_bytes(count))
        if len(data) != expected:
            raise MalformedMessage(f"a share of {len(data)} bytes was given; {expected} were expected, so drop it")
        declared = struct.unpack_from(f"<{rank}Q", data, _HEADER.size)
        if declared != shape:
            raise MalformedMessage(f"a share of shape {declared} was given; {shape} was expected, so drop it")
        payload: bytes | RingElements = data[start:]
        if follows == _KIND_ELEMENTS:
            payload = ring.unpack(memoryview(data)[start:], count).reshape(shape)
        try:
            return cls(ring, shape, party, parties, contributors, int.from_bytes(tag, "little"), payload)
        except ShareError as refused:
            raise MalformedMessage(str(refused)) from refused


def split(
    elements: RingElements, parties: int, key: bytes | None = None, ring: Ring | None = None
) -> tuple[AdditiveShare, ...]:
    """Split one client's elements into one share for each aggregator, in the order of their numbers.

    Args:
        elements: an array of ring elements with up to 8 axes.
        parties: number of aggregators, 2 or more.
        key: `None` draws seeds and tag from `secrets`; 32 bytes, used for nothing else, make the split a reproducible
            simulation that hides nothing from whoever knows the key.
        ring: ring of the elements; `None` assumes that they fill machine words.

    Raises:
        ShareError: fewer than 2 parties or more than 65535, or more than 8 axes.
        ConfigurationError: the elements belong to no ring, or the key is not 32 bytes long.
    """
    ring = ring or Ring(8 * elements.dtype.itemsize)
    ring.check(elements)
    _check_parties(parties)
    size = _TAG_BYTES + _SEED_BYTES * (parties - 1)
    randomness = secrets.token_bytes(size) if key is None else random_uints(size, np.uint8, key).tobytes()
    tag = int.from_bytes(randomness[:_TAG_BYTES], "little")
    seeds = [randomness[start : start + _SEED_BYTES] for start in range(_TAG_BYTES, size, _SEED_BYTES)]
    remainder: RingElements = elements.flatten()
    # Share 0 in the machine word's ring first; reducing once at the end is enough, because 2^bits divides 2^w.
    add_keystreams(remainder, plus=[], minus=seeds)
    payloads: list[RingElements | bytes] = [ring.reduce_(remainder).reshape(elements.shape), *seeds]
    return tuple(
        AdditiveShare(ring, elements.shape, party, parties, 1, tag, payload) for party, payload in enumerate(payloads)
    )


def add(shares: Iterable[AdditiveShare]) -> AdditiveShare:
    """Add the shares that one aggregator received, or its earlier sums of shares.

    Seeds are expanded and added while they are in cache, so the sum of n seeded shares takes the memory of one vector.

    Args:
        shares: one or more, all of one party, ring and shape; read once, so a generator works.

    Raises:
        ShareError: no share; shares of different parties, rings or shapes; or one contribution given twice (a client
            that is part of an earlier sum as well goes undetected: the aggregator must keep track of that).
    """
    remaining = iter(shares)
    first = next(remaining, None)
    if first is None:
        raise ShareError("no share was given to add; give at least one")
    total = first.ring.zeros(math.prod(first.shape))
    seeds: list[bytes] = []
    tags: set[int] = set()
    contributors = 0
    for share in chain([first], remaining):
        _check_equal(first, share, "party", "parties", "ring", "shape")
        if share.tag in tags:
            raise ShareError("one contribution was given twice; add each client's share once")
        tags.add(share.tag)
        contributors += share.contributors
        if isinstance(share.payload, bytes):
            seeds.append(share.payload)
        else:
            np.add(total, share.payload.reshape(-1), out=total)
    # All seeds at once: every chunk of the total is visited once for all of them, while it is in cache.
    add_keystreams(total, plus=seeds)
    first.ring.reduce_(total)
    tag = sum(tags) % _TAG_MODULUS
    return AdditiveShare(
        first.ring, first.shape, first.party, first.parties, contributors, tag, total.reshape(first.shape)
    )


def reconstruct(shares: Iterable[AdditiveShare]) -> RingElements:
    """Reconstruct one client's elements, or the sum of several clients' elements, from the shares of all parties.

    Args:
        shares: one from each party, in any order.

    Returns:
        A new array of the shares' ring and shape.

    Raises:
        ShareError: no share; shares of splits between different numbers of parties, of different rings or shapes; a
            party that is missing or given twice; or shares that do not sum the same contributions.
    """
    parts = list(shares)
    if not parts:
        raise ShareError("no share was given to reconstruct from; give one of each party")
    first = parts[0]
    for share in parts:
        _check_equal(first, share, "parties", "ring", "shape")
    counts = Counter(share.party for share in parts)
    repeated = sorted(party for party, times in counts.items() if times > 1)
    if repeated:
        raise ShareError(f"several shares of parties {repeated} were given; give one of each")
    missing = sorted(set(range(first.parties)) - set(counts))
    if missing:
        raise ShareError(f"shares of parties {missing} are missing; all {first.parties} are needed")
    for share in parts:
        if (share.contributors, share.tag) != (first.contributors, first.tag):
            raise ShareError(
                f"party {share.party} sums {share.contributors} contributions and party {first.party} "
                f"{first.contributors}, not the same ones; let all parties add the same clients"
            )
    return first.ring.sum(share.elements for share in parts)


def _check_equal(first: AdditiveShare, share: AdditiveShare, *attributes: str) -> None:
    for name in attributes:
        one, other = getattr(first, name), getattr(share, name)
        if one != other:
            raise ShareError(f"shares of {name} {one} and {other} were given together; give shares of one {name}")


def _check_parties(parties: int) -> None:
    if not 2 <= parties <= MAX_PARTIES:
        raise ShareError(f"a sharing between {parties} parties was requested; give 2 to {MAX_PARTIES}")
