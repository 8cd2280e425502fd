"""Sums of tables of which every client sends a few rows, additively shared between aggregators, cohort by cohort.

At enrolment a client agrees a key of 32 bytes with every aggregator but the first (party 0), and names the rows that it
sends to all of them. From then on, for one ask,

    to aggregator 0 go     words - the streams of its keys     (of its rows, in the ring)
    to aggregator j goes   a header: that aggregator makes the stream of its key itself

so a client uploads its words once, however many aggregators there are. Each aggregator adds what it holds row by row;
their sums, put together, are opened for rows that enough clients send, and no aggregator hands out the others. What
hides a client's words is AES-256 in counter mode: aggregators j >= 1 hold keys and see no words, aggregator 0 sees
words less streams that it cannot make. All of them together can.

Every word of a stream has an address: word w of an ask's array is word w of the blocks lane | draw | ask | 0, 1, ...
under the client's key, where a lane is one array of an ask. So the streams of both sides agree whatever was lost,
however clients are grouped, and an address that is used once hides what is sent with it. Used twice it would show the
difference of two messages: `KeyStreams` refuses a client whose (draw, ask) does not rise. That memory lasts as long as
the object, so whoever starts again remembers the last draw, or agrees new keys.

What aggregators see: which rows each client named, who takes part in which ask, and how many clients send each row.
Cover rows are for the first of these. A row of zeros counts as a client like any other, so a sum over `fewest` clients
may hold fewer true values, down to one.

`additive` does the same for one client's dense words at a time, with fresh seeds; here a cohort is one flat array, and
keys live as long as the client. What this does not do is what `additive` does not do either: channels are encrypted
and authenticated elsewhere, and aggregators follow the protocol.
"""

import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
_BLOCKS: Final = np.dtype((np.void, _BLOCK))
_SLACK: Final = _BLOCK - 1
_NUMBERS: Final = 1 << 31
"""Lanes, draws and asks are numbered below it, so that an address fits a signed word of 64 bits."""
_AHEAD_BYTES: Final = 1 << 27
"""Of the words that one `KeyStreams` makes ahead, in whole blocks, over all groups of clients."""
_FIRST_AHEAD: Final = 8
"""Asks whose words are made at once after the first two alike, before a draw has shown how many there are."""
_MOST_RUNS: Final = 4096

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

    Raises:
        ConfigurationError: a key that is not 32 bytes long.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._contexts = [_context(key) for key in keys]

    def __len__(self) -> int:
        return len(self._contexts)

    def of(self, clients: Counts) -> list[CipherContext]:
        """The ciphers of these clients, in their order."""
        return [self._contexts[client] for client in clients.tolist()]


class KeyStreams:
    """Streams of one aggregator's keys with all clients: held by that aggregator, and by the clients, one key each.

    A client's words depend on its key, lane, draw and ask alone. After two asks alike, words of the asks to come are
    made at once; in later draws, those of as many asks as were alike before.

    Args:
        ciphers: of every client.
        ring: whose words.
        lane: which array of an ask; two lanes never share a word.

    Raises:
        ConfigurationError: a lane that is no number below 2^31.
    """

    def __init__(self, ciphers: Ciphers, ring: Ring, lane: int = 0) -> None:
        self.ring, self._lane, self._ciphers = ring, _number("lane", lane), ciphers
        self._last = np.full(len(ciphers), -1, np.int64)
        self._draw, self._ahead = -1, dict[tuple[int, int], _Ahead]()
        self._runs: dict[tuple[int, int, int], int] = {}

    def take(self, draw: int, ask: int, clients: Counts, counts: Counts) -> Words:
        """The first `counts[j]` words of (draw, ask) of client `clients[j]`, one client after the other.

        Args:
            draw: of the cohort.
            ask: number within the draw.
            clients: distinct, ascending.
            counts: words of each.

        Raises:
            ConfigurationError: clients that are not as described, or one that has taken words of this ask or of a
                later one already.
        """
        address = (_number("draw", draw) << 32) | _number("ask", ask)
        if draw != self._draw:
            self._draw = draw
            self._ahead.clear()
        if len(clients) == 0:
            return self.ring.zeros(0)
        whose = int(clients[0]), len(clients)
        ahead = self._ahead.get(whose)
        alike = ahead is not None and np.array_equal(ahead.clients, clients) and np.array_equal(ahead.counts, counts)
        if not alike:
            self._refuse(clients, counts)
        if (self._last[clients] >= address).any():
            raise ConfigurationError(
                f"a client has taken words of draw {draw}, ask {ask} or later already; words used twice hide nothing"
            )
        if ahead is None or not alike or not ahead.holds(address):
            run = ahead.run if alike and ahead is not None and address == ahead.end else 0
            ahead = self._ahead[whose] = self._refill(address, clients, counts, run)
        self._last[clients] = address
        taken = ahead.hand_out(address)
        self._remember((*whose, len(taken)), ahead.run)
        return taken

    def _remember(self, shape: tuple[int, int, int], run: int) -> None:
        """How many asks alike came in one row, for the draws to come."""
        if len(self._runs) >= _MOST_RUNS:
            self._runs.clear()
        self._runs[shape] = max(self._runs.get(shape, 1), run)

    def _refuse(self, clients: Counts, counts: Counts) -> None:
        if len(clients) != len(counts) or bool((np.diff(clients) <= 0).any()) or bool((counts < 0).any()):
            raise ConfigurationError("words were asked for clients that are not ascending, each with a count from 0")
        if not 0 <= clients[0] <= clients[-1] < len(self._ciphers):
            raise ConfigurationError(
                f"words were asked for clients {clients[0]} to {clients[-1]} of {len(self._ciphers)}, numbered from 0"
            )

    def _refill(self, address: int, clients: Counts, counts: Counts, run: int) -> "_Ahead":
        """Words from `address` on, after `run` asks alike."""
        total, width = int(counts.sum()), self.ring.dtype.itemsize
        shape = int(clients[0]), len(clients), total
        self._ahead.pop(shape[:2], None)
        room = _AHEAD_BYTES - sum(other.words.nbytes for other in self._ahead.values())
        wanted = max(self._runs.get(shape, 1) - run, _FIRST_AHEAD if run else 1)
        per_block = _BLOCK // width
        blocks = -(-counts // per_block)
        most, ends = int(blocks.max()), np.cumsum(blocks)
        takes = min(max(room // max(_BLOCK * int(ends[-1]), 1), 1), wanted, _NUMBERS - address % (1 << 32))
        plain = _counters(self._lane, address, takes, most)
        made = np.empty((takes, int(ends[-1])), _BLOCKS)
        for some in _groups(ends, CHUNK // (_BLOCK * takes)):
            # One client's blocks come ask by ask within each number, so that one slice of the counters does for all.
            streams = self._streams(clients[some], blocks[some] * takes, plain).view(_BLOCKS).reshape(-1, takes)
            made[:, ends[some][-1] - len(streams) : ends[some][-1]] = streams.T
        word = np.arange(total) + np.repeat((ends - blocks) * per_block - (np.cumsum(counts) - counts), counts)
        return _Ahead(address, address + takes, clients.copy(), counts.copy(), made.view(self.ring.dtype), word, run)

    def _streams(self, clients: Counts, blocks: Counts, plain: memoryview) -> NDArray[np.uint8]:
        """The first `blocks[j]` blocks of `plain` under every client's key, one client after the other."""
        sizes = _BLOCK * blocks
        ends = np.cumsum(sizes)
        out = np.empty(int(ends[-1]) + _SLACK, np.uint8)
        view, begins, ends = out.data, (ends - sizes).tolist(), (ends + _SLACK).tolist()
        for cipher, size, begin, end in zip(self._ciphers.of(clients), sizes.tolist(), begins, ends, strict=True):
            cipher.update_into(plain[:size], view[begin:end])
        return out[: len(out) - _SLACK]


@dataclass(slots=True, eq=False)
class _Ahead:
    """Whole blocks of the asks from `first` to before `end`, `[asks, words]`, until the last of them is handed out.

    Attributes:
        places: of the words that clients take among those of their blocks.
        run: asks alike up to the latest, in one row.
    """

    first: int
    end: int
    clients: Counts
    counts: Counts
    words: Words
    places: Counts
    run: int

    def holds(self, address: int) -> bool:
        return self.first <= address < self.end

    def hand_out(self, address: int) -> Words:
        self.run += 1
        taken: Words = self.words[address - self.first].take(self.places)
        if address + 1 == self.end:
            self.words = self.words[:0].copy()
        return taken


def withhold(words: Words, streams: Sequence[Words]) -> Words:
    """What goes to aggregator 0: the words less the streams of all the other aggregators, in the ring."""
    left = words
    for stream in streams:
        left = np.subtract(left, stream)
    return left


@dataclass(slots=True, eq=False)
class RowSums:
    """What one aggregator adds up: words by row, and how many clients sent each.

    Attributes:
        ring: of the words.
        words: `[rows, width]`, this aggregator's share of the sums.
        supporters: clients that sent each row, zeros and all, `[rows]`.
        clients: numbers of those that were added.
    """

    ring: Ring
    words: Words
    supporters: Counts
    clients: list[Counts] = field(default_factory=list)

    @classmethod
    def empty(cls, ring: Ring, rows: int, width: int) -> "RowSums":
        """Sums of nothing."""
        return cls(ring, ring.zeros((rows, width)), np.zeros(rows, np.int64))

    def add(self, clients: Counts, ids: Counts, words: Words) -> None:
        """Add one share of every row that some clients sent.

        Args:
            clients: who they are; each is added once.
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
        self.clients.append(clients.copy())

    def enough(self, fewest: int) -> NDArray[np.bool_]:
        """Rows that at least `fewest` clients sent, `[rows]`."""
        return self.supporters >= fewest

    def handed_out(self, fewest: int) -> Words:
        """What this aggregator gives away: its words of rows that enough clients sent, zero elsewhere."""
        return np.where(self.enough(fewest)[:, None], self.words, self.ring.dtype.type(0))


def open_rows(sums: Sequence[RowSums], fewest: int) -> tuple[Words, NDArray[np.bool_]]:
    """The sums of all rows that at least `fewest` clients sent, from what all aggregators hold.

    Args:
        sums: one of each aggregator.
        fewest: clients that a row needs; each aggregator applies it, so one that keeps to it is enough.

    Returns:
        Words `[rows, width]`, zero where a row stays closed, and which rows were opened `[rows]`.

    Raises:
        ShareError: one aggregator, other tables, or aggregators that did not add the same clients and rows, each once.
    """
    if len(sums) < 2:
        raise ShareError(f"sums of {len(sums)} aggregators were given; give those of all, 2 or more")
    first, *others = sums
    added = _added(first)
    for other in others:
        if other.ring != first.ring or other.words.shape != first.words.shape:
            raise ShareError("aggregators hold tables of different shapes or rings; let all add the same ask")
        same = np.array_equal(_added(other), added)
        if not (same and np.array_equal(other.supporters, first.supporters)):
            raise ShareError("aggregators did not add the same clients; let all leave out the same ones")
    return first.ring.sum(part.handed_out(fewest) for part in sums), first.enough(fewest)


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
    """One client's share of one ask, all its arrays, for one aggregator: words for party 0, a header for the others.

    Attributes:
        party: whose share it is.
        draw, ask: of the words' address.
        count: words that the client sends in this ask.
        words: those of party 0, `[count]`; None for the others.

    Raises:
        ShareError: words that are not there, or there for another party, or not as many as they are said to be.
    """

    party: int
    draw: int
    ask: int
    count: int
    words: Words | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.party == 0) != (self.words is not None) or (self.words is not None and self.words.size != self.count):
            raise ShareError("a share of party 0 holds as many words as it says, and that of any other party none")

    def encode(self) -> bytes:
        """20 bytes, then the words of party 0, little-endian."""
        follows = b"" if self.words is None else self.words.tobytes()
        return _SHARE.pack(_MAGIC, _VERSION, 1, self.party, self.draw, self.ask, self.count) + follows

    @classmethod
    def decode(cls, data: bytes, ring: Ring, *, party: int, draw: int, ask: int, count: int) -> "RowShare":
        """The share that `encode` wrote, if it is the one that the receiver expects: a message is never believed.

        Args:
            data: one whole message.
            ring: of the words.
            party: the receiver's own number.
            draw: of the cohort that is asked.
            ask: that is under way.
            count: words that this client sends, by the rows it named.

        Raises:
            MalformedMessage: `data` is anything else.
        """
        expected = _SHARE.pack(_MAGIC, _VERSION, 1, party, draw, ask, count)
        words = count * ring.dtype.itemsize if party == 0 else 0
        if data[: _SHARE.size] != expected or len(data) != _SHARE.size + words:
            raise MalformedMessage(
                f"a message of {len(data)} bytes is no share of {count} words for party {party} in draw {draw}, ask "
                f"{ask}; drop it"
            )
        held = np.frombuffer(data, ring.dtype, offset=_SHARE.size) if party == 0 else None
        return cls(party, draw, ask, count, held)


def names_bytes(rows: int) -> int:
    """Bytes in which a client names so many rows to one aggregator."""
    return _NAMES.size + 4 * rows


def share_bytes(words: float, ring: Ring, parties: int) -> float:
    """Bytes in which a client sends so many words (on average, where that is a fraction) to all aggregators."""
    return parties * _SHARE.size + ring.dtype.itemsize * words


def _added(sums: RowSums) -> Counts:
    """Clients that an aggregator added, ascending; refused where one was added twice."""
    clients = np.sort(np.concatenate([np.empty(0, np.int64), *sums.clients]))
    if bool((np.diff(clients) == 0).any()):
        raise ShareError("an aggregator added a client twice; add each client of an ask once")
    return clients


def _number(name: str, value: int) -> int:
    if not 0 <= value < _NUMBERS:
        raise ConfigurationError(f"{name} is {value}; streams have addresses for numbers from 0 to {_NUMBERS - 1}")
    return value


def _groups(ends: Counts, most: int) -> Iterator[slice]:
    """Neighbours whose blocks together are at most `most`, one client at least; `ends` are running sums of blocks."""
    first, before = 0, 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield slice(first, last)
        first, before = last, int(ends[last - 1])


def _context(key: bytes) -> CipherContext:
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"a key of {len(key)} bytes was given; keys of sparse sums have {_KEY_BYTES}")
    # Counter mode with the counter blocks written out: one context serves every address.
    return Cipher(AES(key), ECB()).encryptor()  # noqa: S305


def _counters(lane: int, address: int, asks: int, blocks: int) -> memoryview:
    """Counter blocks lane(4) | draw(4) | ask(4) | block(4), little-endian, of consecutive asks, block after block."""
    if blocks >> 32:
        raise ConfigurationError(f"an ask takes {blocks} blocks of one client's stream; addresses end at 2^32")
    counters = np.empty((blocks, asks, 4), "<u4")
    counters[..., 0], counters[..., 1] = lane, address >> 32
    counters[..., 2] = address % (1 << 32) + np.arange(asks)
    counters[..., 3] = np.arange(blocks)[:, None]
    return counters.data.cast("B") if blocks else memoryview(b"")
