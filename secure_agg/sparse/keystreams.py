"""Addressed keystreams: the masks of a sparse sum, generated alike by clients and aggregators.

Every element of a keystream has an address: element i of an array of a query is element i of the AES blocks
array | cohort | query | 0, 1, ... under the client's key. So both sides generate the same keystream whatever messages
were dropped and however clients are grouped, and an address that is used once hides what is sent with it. Used twice it
would reveal the difference of two messages: `KeyStreams` refuses a client whose (cohort, query) does not rise. It
remembers that for as long as the object lives; a party that restarts must remember the last cohort, or agree new keys.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from secure_agg.encoding.ring import Ring
from secure_agg.errors import ConfigurationError, ShareError
from secure_agg.primitives.prg import CHUNK, RingElements, random_uints

Counts = NDArray[np.int64]

_KEY_BYTES: Final = 32
_BLOCK: Final = 16
_BLOCKS: Final = np.dtype((np.void, _BLOCK))
_SLACK: Final = _BLOCK - 1
_ADDRESS_LIMIT: Final = 1 << 31
"""Arrays, cohorts and queries are numbered below it, so that an address fits a signed 64-bit integer."""
_BUFFER_BYTES: Final = 1 << 27
"""Limit on the keystream that one `KeyStreams` generates ahead, in whole blocks, over all groups of clients."""
_FIRST_LOOKAHEAD: Final = 8
"""Queries generated at once after the first two identical ones, before a cohort has shown how many there are."""
_MAX_RUN_LENGTHS: Final = 4096


def agree_keys(clients: int, parties: int, key: bytes | None = None) -> list[list[bytes]]:
    """Keys of `clients` clients with every aggregator but the first, `[parties - 1][clients]`.

    Args:
        clients: number of clients.
        parties: number of aggregators, 2 or more.
        key: `None` draws from the operating system; 32 bytes make the keys a simulation that hides nothing.

    Raises:
        ShareError: fewer than two aggregators.
    """
    if parties < 2:
        raise ShareError(f"{parties} aggregators were given; additive shares need 2 or more that do not collude")
    size = clients * (parties - 1) * _KEY_BYTES
    material = secrets.token_bytes(size) if key is None else random_uints(size, np.uint8, key).tobytes()
    keys = [material[start : start + _KEY_BYTES] for start in range(0, size, _KEY_BYTES)]
    return [keys[party * clients : (party + 1) * clients] for party in range(parties - 1)]


class ClientCiphers:
    """The ciphers of one aggregator's keys with all clients, set up once.

    Args:
        keys: key of every client, in the order of their numbers.

    Raises:
        ConfigurationError: a key that is not 32 bytes long.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._contexts = [_cipher_context(key) for key in keys]

    def __len__(self) -> int:
        return len(self._contexts)

    def select(self, clients: Counts) -> list[CipherContext]:
        """The ciphers of these clients, in their order."""
        return [self._contexts[client] for client in clients.tolist()]


class KeyStreams:
    """Keystreams of one aggregator's keys with all clients.

    Held by that aggregator, and by the clients for one key each. A client's elements depend on its key, array, cohort
    and query alone. After two identical queries, the elements of queries to come are generated at once; in later
    cohorts, as many as there were identical queries before.

    Args:
        ciphers: cipher of every client.
        ring: ring of the elements.
        array: number of the array within a query; two arrays never share an element.

    Raises:
        ConfigurationError: an array number outside 0 to 2^31 - 1.
    """

    def __init__(self, ciphers: ClientCiphers, ring: Ring, array: int = 0) -> None:
        self.ring, self._array, self._ciphers = ring, _check_address("array", array), ciphers
        self._last = np.full(len(ciphers), -1, np.int64)
        self._cohort, self._buffers = -1, dict[tuple[int, int], _Buffer]()
        self._run_lengths: dict[tuple[int, int, int], int] = {}

    def take(self, cohort: int, query: int, clients: Counts, counts: Counts) -> RingElements:
        """The first `counts[j]` elements of (cohort, query) of client `clients[j]`, one client after the other.

        Args:
            cohort: id of the cohort.
            query: number of the query within the cohort.
            clients: distinct, ascending.
            counts: number of elements of each.

        Raises:
            ConfigurationError: clients that are not as described, or one that has taken elements of this query or of a
                later one already.
        """
        address = (_check_address("cohort", cohort) << 32) | _check_address("query", query)
        if cohort != self._cohort:
            self._cohort = cohort
            self._buffers.clear()
        if len(clients) == 0:
            return self.ring.zeros(0)
        group = int(clients[0]), len(clients)
        buffer = self._buffers.get(group)
        matches = buffer is not None and buffer.matches(clients, counts)
        if not matches:
            self._check_clients(clients, counts)
        if (self._last[clients] >= address).any():
            raise ConfigurationError(
                f"a client has taken elements of cohort {cohort}, query {query} or later already; elements used twice "
                "hide nothing"
            )
        if buffer is None or not matches or address not in buffer:
            run = buffer.run if matches and buffer is not None and address == buffer.end else 0
            buffer = self._buffers[group] = self._refill(address, clients, counts, run)
        self._last[clients] = address
        taken = buffer.pop(address)
        self._record_run((*group, len(taken)), buffer.run)
        return taken

    def _record_run(self, shape: tuple[int, int, int], run: int) -> None:
        """Record how many consecutive identical queries there were, as the lookahead in later cohorts."""
        if len(self._run_lengths) >= _MAX_RUN_LENGTHS:
            self._run_lengths.clear()
        self._run_lengths[shape] = max(self._run_lengths.get(shape, 1), run)

    def _check_clients(self, clients: Counts, counts: Counts) -> None:
        if len(clients) != len(counts) or bool((np.diff(clients) <= 0).any()) or bool((counts < 0).any()):
            raise ConfigurationError("elements were requested for clients that are not ascending, each with a count")
        if not 0 <= clients[0] <= clients[-1] < len(self._ciphers):
            raise ConfigurationError(
                f"elements were requested for clients {clients[0]} to {clients[-1]} of {len(self._ciphers)}, numbered "
                "from 0"
            )

    def _refill(self, address: int, clients: Counts, counts: Counts, run: int) -> "_Buffer":
        """Generate elements from `address` on, after `run` identical queries."""
        total, itemsize = int(counts.sum()), self.ring.dtype.itemsize
        shape = int(clients[0]), len(clients), total
        self._buffers.pop(shape[:2], None)
        free_bytes = _BUFFER_BYTES - sum(other.elements.nbytes for other in self._buffers.values())
        lookahead = max(self._run_lengths.get(shape, 1) - run, _FIRST_LOOKAHEAD if run else 1)
        per_block = _BLOCK // itemsize
        blocks = -(-counts // per_block)  # [clients], whole AES blocks of each
        ends = np.cumsum(blocks)
        queries = min(
            max(free_bytes // max(_BLOCK * int(ends[-1]), 1), 1), lookahead, _ADDRESS_LIMIT - address % (1 << 32)
        )
        if (counts == counts[:1]).all():
            # Blocks of a client are in the order of queries, as its counters are: nothing is moved.
            counters = _counter_blocks(self._array, address, queries, int(blocks[0]), by_query=True)
            elements = self._encrypt(clients, blocks * queries, counters).view(self.ring.dtype)
            elements = elements.reshape(len(clients), queries, int(blocks[0]) * per_block)
            return _Buffer(address, address + queries, clients.copy(), counts.copy(), elements, None, run)
        counters = _counter_blocks(self._array, address, queries, int(blocks.max()), by_query=False)
        generated = np.empty((queries, int(ends[-1])), _BLOCKS)
        for group in _cache_sized_groups(ends, CHUNK // (_BLOCK * queries)):
            # Counters are ordered by block number first and query second, so the blocks that a client needs for all
            # queries are one prefix of `counters`, whatever its count; hence the transpose to [queries, blocks].
            streams = self._encrypt(clients[group], blocks[group] * queries, counters)
            by_block = streams.view(_BLOCKS).reshape(-1, queries)
            generated[:, ends[group][-1] - len(by_block) : ends[group][-1]] = by_block.T
        # A client's elements begin at its first block; the unused rest of its last block is skipped.
        positions = np.repeat((ends - blocks) * per_block - (np.cumsum(counts) - counts), counts)
        positions += np.arange(total)
        elements = generated.view(self.ring.dtype)
        return _Buffer(address, address + queries, clients.copy(), counts.copy(), elements, positions, run)

    def _encrypt(self, clients: Counts, blocks: Counts, counters: memoryview) -> NDArray[np.uint8]:
        """The first `blocks[j]` blocks of `counters` under every client's key, one client after the other."""
        sizes = _BLOCK * blocks
        ends = np.cumsum(sizes)
        # `update_into` insists on 15 bytes of space beyond the ciphertext; the next client overwrites them.
        out = np.empty(int(ends[-1]) + _SLACK, np.uint8)
        view, starts, ends = out.data, (ends - sizes).tolist(), (ends + _SLACK).tolist()
        for cipher, size, start, end in zip(self._ciphers.select(clients), sizes.tolist(), starts, ends, strict=True):
            cipher.update_into(counters[:size], view[start:end])
        return out[: len(out) - _SLACK]


@dataclass(slots=True, eq=False)
class _Buffer:
    """Generated keystream of the queries from `first` to before `end`, released when the last of them is taken.

    Attributes:
        clients: clients of these queries, `[clients]`.
        counts: number of elements of each, `[clients]`.
        elements: whole blocks, `[queries, elements]`, or `[clients, queries, elements]` where every client has as many
            as any other.
        positions: positions of the clients' elements among those of their blocks, `[counts.sum()]`; None where every
            client has as many.
        run: number of consecutive identical queries up to the latest.
    """

    first: int
    end: int
    clients: Counts
    counts: Counts
    elements: RingElements
    positions: Counts | None
    run: int

    def __contains__(self, address: int) -> bool:
        return self.first <= address < self.end

    def matches(self, clients: Counts, counts: Counts) -> bool:
        return np.array_equal(self.clients, clients) and np.array_equal(self.counts, counts)

    def pop(self, address: int) -> RingElements:
        self.run += 1
        query = address - self.first
        if self.positions is None:
            taken = self.elements[:, query, : int(self.counts[0])].reshape(-1)
        else:
            taken = self.elements[query].take(self.positions)
        if address + 1 == self.end:
            self.elements = self.elements[:0].copy()
        return taken


def _check_address(name: str, value: int) -> int:
    if not 0 <= value < _ADDRESS_LIMIT:
        raise ConfigurationError(f"{name} is {value}; keystreams have addresses from 0 to {_ADDRESS_LIMIT - 1}")
    return value


def _cache_sized_groups(ends: Counts, max_blocks: int) -> Iterator[slice]:
    """Runs of consecutive clients with at most `max_blocks` blocks together, and at least one client each.

    Args:
        ends: running sums of the clients' blocks, `[clients]`.
        max_blocks: limit per run.
    """
    first, before = 0, 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, before + max_blocks, side="right")), first + 1)
        yield slice(first, last)
        first, before = last, int(ends[last - 1])


def _cipher_context(key: bytes) -> CipherContext:
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"a key of {len(key)} bytes was given; keys of sparse sums have {_KEY_BYTES}")
    # Counter mode with the counter blocks written out: one context serves every address.
    return Cipher(AES(key), ECB()).encryptor()  # noqa: S305


def _counter_blocks(array: int, address: int, queries: int, blocks: int, *, by_query: bool) -> memoryview:
    """AES inputs array(4) | cohort(4) | query(4) | block(4), little-endian.

    `[queries, blocks]` by query, else `[blocks, queries]`.
    """
    if blocks >> 32:
        raise ConfigurationError(f"a query takes {blocks} blocks of one client's keystream; addresses end at 2^32")
    counters = np.empty((queries, blocks, 4) if by_query else (blocks, queries, 4), "<u4")
    counters[..., 0], counters[..., 1] = array, address >> 32
    each_query, each_block = address % (1 << 32) + np.arange(queries), np.arange(blocks)
    counters[..., 2] = each_query[:, None] if by_query else each_query
    counters[..., 3] = each_block if by_query else each_block[:, None]
    return counters.data.cast("B") if blocks else memoryview(b"")
