"""Sums of tables of which every client sends a few rows, additively shared between aggregators, cohort by cohort.

At enrolment a client agrees a key of 32 bytes with every aggregator but the first (party 0), and names the rows that it
sends to all of them. From then on, for one ask,

    to aggregator 0 go     words - the streams of its keys     (of its rows, in the ring)
    to aggregator j goes   a header: that aggregator makes the stream of its key itself

so a client uploads its words once, however many aggregators there are. Each aggregator adds what it holds row by row;
their sums, put together, are opened for rows that enough clients send, and no aggregator hands out the others. What
hides a client's words is AES-256 in counter mode: aggregators j >= 1 hold keys and see no words, aggregator 0 sees
words less streams that it cannot make. All of them together can.

The rows that a client sends are seen by every aggregator: that is what cover rows are for. Words of a stream are used
once: the counter is lane | draw | block, a lane is one array of an ask, and a draw is never repeated under one key.

`additive` does the same for one client's dense words at a time, with fresh seeds; here a cohort is one flat array, and
keys live as long as the client. What this does not do is what `additive` does not do either: channels are encrypted
and authenticated elsewhere, and aggregators follow the protocol.
"""

import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from secure_agg.encoding import Ring
from secure_agg.errors import ConfigurationError, MalformedMessage, ShareError
from secure_agg.prg import CHUNK, Words, random_words

Counts = NDArray[np.int64]

_KEY_BYTES: Final = 32
_BLOCK: Final = 16
_SLACK: Final = _BLOCK - 1
_AHEAD_BYTES: Final = 1 << 27
_MOST_AHEAD: Final = 32

_MAGIC: Final = b"SASP"
_VERSION: Final = 1
_NAMES: Final = struct.Struct("<4sBBHI")
"""Magic, version, kind 0, reserved, rows named: 12 bytes, then 4 for each row."""
_SHARE: Final = struct.Struct("<4sBBHIII")
"""Magic, version, kind 1, party, draw, ask, words that follow: 20 bytes, then the words of party 0."""


def agree_keys(clients: int, parties: int, key: bytes | None = None) -> list[list[bytes]]:
    """Keys of `clients` clients with every aggregator but the first, `[parties - 1][clients]`.

    Args:
        clients: how many.
        parties: aggregators, 2 or more.
        key: None draws from the operating system; 32 bytes make the keys a simulation that hides nothing.

    Raises:
        ShareError: fewer than two aggregators.
    """
    if parties < 2:
        raise ShareError(f"{parties} aggregators were asked for; additive shares need 2 or more that do not collude")
    needed = clients * (parties - 1) * _KEY_BYTES
    drawn = secrets.token_bytes(needed) if key is None else random_words(needed, np.uint8, key).tobytes()
    keys = [drawn[at : at + _KEY_BYTES] for at in range(0, needed, _KEY_BYTES)]
    return [keys[party * clients : (party + 1) * clients] for party in range(parties - 1)]


class Ciphers:
    """The ciphers of one aggregator's keys with all clients, set up once.

    Args:
        keys: of every client, in the order of their numbers.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._contexts = [_context(key) for key in keys]

    def __len__(self) -> int:
        return len(self._contexts)

    def encrypt(self, client: int, plain: memoryview, out: memoryview) -> None:
        """Cipher blocks of `plain` into `out`, which has 15 bytes more."""
        self._contexts[client].update_into(plain, out)


class KeyStreams:
    """Streams of one aggregator's keys with all clients: held by that aggregator, and by the clients, one key each.

    Both sides take the same numbers of words in the same order and get the same words. After two takes alike, words
    of the takes to come are made at once.

    Args:
        ciphers: of every client.
        ring: whose words.
        lane: which array of an ask; two lanes never share a word.
    """

    def __init__(self, ciphers: Ciphers, ring: Ring, lane: int = 0) -> None:
        self.ring, self._lane, self._ciphers = ring, lane, ciphers
        self._used = np.zeros(len(ciphers), np.int64)
        self._draw = -1
        self._ahead: dict[tuple[int, int], _Ahead] = {}

    def begin(self, draw: int) -> None:
        """Go on to another draw, whose words are all fresh.

        Raises:
            ConfigurationError: a draw that was passed already.
        """
        if draw == self._draw:
            return
        if draw < self._draw:
            raise ConfigurationError(f"draw {draw} comes after draw {self._draw}; streams never go back")
        self._draw = draw
        self._ahead.clear()
        self._used[:] = 0

    def take(self, clients: Counts, counts: Counts) -> Words:
        """The next `counts[j]` words of client `clients[j]`, one client after the other, `[sum of counts]`."""
        if len(clients) == 0:
            return self.ring.zeros(0)
        whose = int(clients[0]), len(clients)
        ahead = self._ahead.get(whose)
        alike = ahead is not None and np.array_equal(ahead.clients, clients) and np.array_equal(ahead.counts, counts)
        if ahead is None or not alike or ahead.left == 0:
            ahead = self._ahead[whose] = self._refill(clients, counts, repeated=alike)
        return ahead.next()

    def _refill(self, clients: Counts, counts: Counts, *, repeated: bool) -> "_Ahead":
        total, width = int(counts.sum()), self.ring.dtype.itemsize
        takes = min(max(_AHEAD_BYTES // max(total * width, 1), 1), _MOST_AHEAD) if repeated else 1
        per_block = _BLOCK // width
        blocks = -(-counts * takes // per_block)
        starts = self._used[clients]
        self._used[clients] += blocks
        plain = _counters(self._lane, self._draw, int((starts + blocks).max(initial=0)))
        words = np.empty((takes, total), self.ring.dtype)
        ends = np.cumsum(counts)
        group = max(CHUNK // (_BLOCK * max(int(blocks.max(initial=0)), 1)), 1)
        for first in range(0, len(clients), group):
            some = slice(first, first + group)
            made, at = self._streams(clients[some], starts[some], blocks[some], plain)
            own = counts[some]
            begin = ends[some] - own
            # Take t of a client stands t times its count into the stream, so that every take of a group is one look-up.
            places = np.arange(begin[0], ends[some][-1]) + np.repeat(at * per_block - begin, own)
            steps = np.repeat(own, own)
            words[:, begin[0] : ends[some][-1]] = made[places + np.arange(takes)[:, None] * steps]
        return _Ahead(clients.copy(), counts.copy(), words)

    def _streams(self, clients: Counts, starts: Counts, blocks: Counts, plain: memoryview) -> tuple[Words, Counts]:
        """Blocks `starts[j]` to `starts[j] + blocks[j]` of every client's stream, and at which block each begins."""
        ends = np.cumsum(blocks)
        out = np.empty(int(ends[-1]) * _BLOCK + _SLACK, np.uint8)
        view = out.data
        at = ends - blocks
        for client, start, count, place in zip(
            clients.tolist(), starts.tolist(), blocks.tolist(), at.tolist(), strict=True
        ):
            piece = plain[_BLOCK * start : _BLOCK * (start + count)]
            self._ciphers.encrypt(client, piece, view[_BLOCK * place : _BLOCK * (place + count) + _SLACK])
        return out[: len(out) - _SLACK].view(self.ring.dtype), at


@dataclass(slots=True, eq=False)
class _Ahead:
    """Words of several takes alike, `[takes, words]`, of which some have been handed out."""

    clients: Counts
    counts: Counts
    words: Words
    taken: int = 0

    @property
    def left(self) -> int:
        return len(self.words) - self.taken

    def next(self) -> Words:
        self.taken += 1
        taken: Words = self.words[self.taken - 1]
        return taken


def withhold(words: Words, streams: Sequence[Words]) -> Words:
    """What goes to aggregator 0: the words less the streams of all the other aggregators, in the ring."""
    left = words.copy()
    for stream in streams:
        np.subtract(left, stream, out=left)
    return left


@dataclass(slots=True, eq=False)
class RowSums:
    """What one aggregator adds up: words by row, and how many clients sent each.

    Attributes:
        ring: of the words.
        words: `[rows, width]`, this aggregator's share of the sums.
        supporters: clients that sent each row, `[rows]`.
    """

    ring: Ring
    words: Words
    supporters: Counts

    @classmethod
    def empty(cls, ring: Ring, rows: int, width: int) -> "RowSums":
        """Sums of nothing."""
        return cls(ring, ring.zeros((rows, width)), np.zeros(rows, np.int64))

    def add(self, ids: Counts, words: Words) -> None:
        """Add one share of every row that some clients sent.

        Args:
            ids: the rows, client after client; a client names a row once.
            words: their shares, `[len(ids) * width]`.

        Raises:
            ShareError: a row outside the table, or words that do not fit the rows.
        """
        rows, width = self.words.shape
        if words.dtype != self.ring.dtype or words.size != len(ids) * width:
            raise ShareError(
                f"{words.size} words of {words.dtype} were given for {len(ids)} rows of {width} words of "
                f"{self.ring.dtype}; give every row its words"
            )
        if len(ids) and not (ids.min() >= 0 and ids.max() < rows):
            raise ShareError(f"rows {ids.min()} to {ids.max()} were given; the table has rows 0 to {rows - 1}")
        per_row = words.reshape(len(ids), width)
        for column in range(width):
            np.add.at(self.words[:, column], ids, per_row[:, column])
        self.supporters += np.bincount(ids, minlength=rows)


def open_rows(sums: Sequence[RowSums], fewest: int) -> tuple[Words, NDArray[np.bool_]]:
    """The sums of all rows that at least `fewest` clients sent, from what all aggregators hold.

    Args:
        sums: one of each aggregator.
        fewest: clients that a row needs; each aggregator applies it, so one that keeps to it is enough.

    Returns:
        Words `[rows, width]`, zero where a row stays closed, and which rows were opened `[rows]`.

    Raises:
        ShareError: one aggregator, other tables, or aggregators that did not add the same clients.
    """
    if len(sums) < 2:
        raise ShareError(f"sums of {len(sums)} aggregators were given; give those of all, 2 or more")
    first = sums[0]
    for other in sums[1:]:
        if other.ring != first.ring or other.words.shape != first.words.shape:
            raise ShareError("aggregators hold tables of different shapes or rings; let all add the same ask")
        if not np.array_equal(other.supporters, first.supporters):
            raise ShareError("aggregators did not add the same clients; let all leave out the same ones")
    opened = first.supporters >= fewest
    total = first.ring.sum(part.words for part in sums)
    total[~opened] = 0
    return total, opened


@dataclass(frozen=True, slots=True, eq=False)
class RowNames:
    """The rows that a client sends from now on, named once to every aggregator."""

    rows: NDArray[np.uint32]

    def encode(self) -> bytes:
        """12 bytes, then 4 for each row, little-endian."""
        return _NAMES.pack(_MAGIC, _VERSION, 0, 0, len(self.rows)) + self.rows.astype("<u4").tobytes()

    @classmethod
    def decode(cls, data: bytes, rows: int) -> "RowNames":
        """The names that `encode` wrote, of a table with `rows` rows.

        Raises:
            MalformedMessage: `data` is anything else, or names are not distinct, ascending rows of the table.
        """
        if len(data) < _NAMES.size:
            raise MalformedMessage(f"a message of {len(data)} bytes was given; the header alone has {_NAMES.size}")
        magic, version, kind, reserved, count = _NAMES.unpack_from(data)
        if (magic, version, kind, reserved) != (_MAGIC, _VERSION, 0, 0) or len(data) != _NAMES.size + 4 * count:
            raise MalformedMessage("the message does not name rows, or has another length than it says; drop it")
        named = np.frombuffer(data, "<u4", offset=_NAMES.size).astype(np.uint32)
        if len(named) and (int(named.max()) >= rows or bool((np.diff(named.astype(np.int64)) <= 0).any())):
            raise MalformedMessage(f"named rows are not distinct, ascending and below {rows}; drop the message")
        return cls(named)


@dataclass(frozen=True, slots=True, eq=False)
class RowShare:
    """One client's share of one ask for one aggregator: words for aggregator 0, a header alone for the others."""

    party: int
    draw: int
    ask: int
    words: Words

    def encode(self) -> bytes:
        """20 bytes, then the words of party 0, little-endian."""
        follows = self.words.tobytes() if self.party == 0 else b""
        return _SHARE.pack(_MAGIC, _VERSION, 1, self.party, self.draw, self.ask, self.words.size) + follows

    @classmethod
    def decode(cls, data: bytes, ring: Ring, words: int) -> "RowShare":
        """The share that `encode` wrote, of as many words as the receiver knows that this client sends.

        Raises:
            MalformedMessage: `data` is anything else.
        """
        if len(data) < _SHARE.size:
            raise MalformedMessage(f"a message of {len(data)} bytes was given; the header alone has {_SHARE.size}")
        magic, version, kind, party, draw, ask, count = _SHARE.unpack_from(data)
        expected = _SHARE.size + (words * ring.dtype.itemsize if party == 0 else 0)
        if (magic, version, kind) != (_MAGIC, _VERSION, 1) or count != words or len(data) != expected:
            raise MalformedMessage(f"the message is no share of {words} words for party {party}; drop it")
        held = np.frombuffer(data, ring.dtype, offset=_SHARE.size) if party == 0 else ring.zeros(words)
        return cls(party, draw, ask, held)


def names_bytes(rows: int) -> int:
    """Bytes in which a client names so many rows to one aggregator."""
    return _NAMES.size + 4 * rows


def share_bytes(words: float, ring: Ring, parties: int) -> float:
    """Bytes in which a client sends so many words (on average, where that is a fraction) to all aggregators."""
    return parties * _SHARE.size + ring.dtype.itemsize * words


def _context(key: bytes) -> CipherContext:
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"a key of {len(key)} bytes was given; keys of sparse sums have {_KEY_BYTES}")
    # Counter mode with the counter blocks written out: one context serves every position of every draw.
    return Cipher(AES(key), ECB()).encryptor()  # noqa: S305


def _counters(lane: int, draw: int, blocks: int) -> memoryview:
    """Counter blocks 0 .. blocks-1: lane(4) | draw(4) | block(8), little-endian."""
    counters = np.zeros((blocks, 2), "<u8")
    counters[:, 0] = lane | (draw << 32)
    counters[:, 1] = np.arange(blocks)
    return counters.data.cast("B") if blocks else memoryview(b"")
