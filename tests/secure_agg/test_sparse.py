"""Sparse shares: they sum to the elements, addresses are used once, rows of few clients stay suppressed."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secure_agg.encoding import Ring
from secure_agg.errors import ConfigurationError, MalformedMessage, ShareError
from secure_agg.sparse import (
    ClientCiphers,
    ClientRows,
    KeyStreams,
    RowIndices,
    RowShare,
    RowSums,
    agree_keys,
    keystreams,
    masked_share,
    reveal_rows,
    row_indices_bytes,
    row_share_bytes,
)

KEY = bytes(range(32))
RINGS = [Ring(32), Ring(64)]
rings = st.sampled_from(RINGS)
quick = settings(max_examples=50, deadline=None)


def naive_stream(key, array, cohort, query, count, ring):
    """Element after element, straight from the definition of an address."""
    cipher, width = Cipher(AES(key), ECB()), ring.dtype.itemsize
    blocks = b""
    for block in range(-(-count * width // 16)):
        plain = b"".join(number.to_bytes(4, "little") for number in (array, cohort, query, block))
        encryptor = cipher.encryptor()
        blocks += encryptor.update(plain) + encryptor.finalize()
    return np.frombuffer(blocks[: count * width], ring.dtype)


def naive_streams(keys, array, cohort, query, clients, counts, ring):
    made = [naive_stream(keys[u], array, cohort, query, n, ring) for u, n in zip(clients, counts, strict=True)]
    return np.concatenate([ring.zeros(0), *made])


@st.composite
def queries(draw, population=9):
    """Asks in rising order, each with its own cohort, split into chunks, and counts that change now and then."""
    counts = np.array(draw(st.lists(st.integers(0, 7), min_size=population, max_size=population)))
    calls = []
    for number in range(draw(st.integers(1, 4))):
        members = sorted(draw(st.sets(st.integers(0, population - 1))))
        for query in range(draw(st.integers(1, 6))):
            if draw(st.integers(0, 5)) == 0:
                counts = np.array(draw(st.lists(st.integers(0, 7), min_size=population, max_size=population)))
            cuts = sorted(draw(st.sets(st.integers(1, population), max_size=2)))
            chunks = [c for c in np.split(np.array(members, np.int64), cuts) if len(c)]
            calls.append((2 * number, query, [(chunk, counts[chunk]) for chunk in chunks]))
    return calls


# Streams


@quick
@given(calls=queries(), ring=rings, array=st.integers(0, 3))
def test_every_element_is_that_of_its_address_however_clients_are_grouped(calls, ring, array):
    """One side takes in chunks, the other client by client, a third with another room for elements made ahead."""
    keys = agree_keys(9, 2, KEY)[0]
    chunked, alone, cramped = (KeyStreams(ClientCiphers(keys), ring, array) for _ in range(3))
    for cohort, query, chunks in calls:
        for clients, counts in chunks:
            wanted = naive_streams(keys, array, cohort, query, clients, counts, ring)
            assert chunked.take(cohort, query, clients, counts).tobytes() == wanted.tobytes()
            one_by_one = [alone.take(cohort, query, clients[j : j + 1], counts[j : j + 1]) for j in range(len(clients))]
            assert np.concatenate([ring.zeros(0), *one_by_one]).tobytes() == wanted.tobytes()
            room, keystreams._BUFFER_BYTES = keystreams._BUFFER_BYTES, 64
            try:
                assert cramped.take(cohort, query, clients, counts).tobytes() == wanted.tobytes()
            finally:
                keystreams._BUFFER_BYTES = room


def test_long_streams_and_many_queries_are_those_of_their_addresses():
    """Several groups of one refill, and more queries than are made ahead."""
    ring, rng = Ring(64), np.random.default_rng(0)
    keys = agree_keys(40, 2, KEY)[0]
    streams, counts = KeyStreams(ClientCiphers(keys), ring, 5), rng.integers(0, 2000, 40)
    clients = np.arange(40)
    for query in range(40):
        taken = streams.take(7, query, clients, counts)
        if query in (0, 1, 2, 8, 9, 10, 39):
            assert taken.tobytes() == naive_streams(keys, 5, 7, query, clients, counts, ring).tobytes()


class Recording(ClientCiphers):
    """ClientCiphers that note every counter block under every key."""

    def __init__(self, keys):
        super().__init__(keys)
        self.seen = []

    def select(self, clients):
        chosen = zip(clients.tolist(), super().select(clients), strict=True)
        return [SimpleNamespace(update_into=partial(self.encrypt, client, context)) for client, context in chosen]

    def encrypt(self, client, context, plain, out):
        self.seen += [(client, bytes(plain[at : at + 16])) for at in range(0, len(plain), 16)]
        context.update_into(plain, out)


@quick
@given(calls=queries(), ring=rings)
def test_no_block_serves_two_addresses(calls, ring):
    """Blocks of an array are encrypted again only for the same cohort, query and position, never across arrays."""
    ciphers = Recording(agree_keys(9, 2, KEY)[0])
    arrays = [KeyStreams(ciphers, ring, array) for array in (0, 1, 258)]
    of_array = []
    for array in arrays:
        ciphers.seen = []
        released = {}
        for cohort, query, chunks in calls:
            for clients, counts in chunks:
                taken, at = array.take(cohort, query, clients, counts), np.cumsum(counts)
                for user, elements in zip(clients.tolist(), np.split(taken, at[:-1]), strict=True):
                    for position, element in enumerate(elements.tolist()):
                        released.setdefault((user, element), set()).add((cohort, query, position))
        of_array.append(set(ciphers.seen))
        assert bool(of_array[-1]) == bool(released)
        if ring.bits == 64:
            assert all(len(addresses) == 1 for addresses in released.values())
    assert not of_array[0] & of_array[1]
    assert not of_array[0] & of_array[2]
    assert not of_array[1] & of_array[2]


def test_elements_of_all_arrays_cohorts_queries_clients_and_parties_differ():
    """Of a million elements of 64 bits, two are equal by chance once in 37 million runs."""
    seen = []
    for keys in agree_keys(20, 3, KEY):
        for array in range(3):
            streams = KeyStreams(ClientCiphers(keys), Ring(64), array)
            for cohort in range(3):
                for query in range(9):
                    seen.append(streams.take(cohort, query, np.arange(20), np.arange(1, 21) * 3))
    elements = np.concatenate(seen)
    assert len(np.unique(elements)) == len(elements) > 100_000


@pytest.mark.parametrize(
    "again", [(3, 2), (3, 1), (3, 0), (2, 9), (0, 0)], ids=["same", "earlier", "first", "last cohort", "start"]
)
def test_an_address_is_never_used_again(again):
    streams = KeyStreams(ClientCiphers(agree_keys(5, 2, KEY)[0]), Ring(64))
    some = np.array([1, 3])
    for query in range(3):
        streams.take(3, query, some, np.array([4, 4]))
    with pytest.raises(ConfigurationError, match="elements used twice hide nothing"):
        streams.take(*again, some, np.array([4, 4]))
    with pytest.raises(ConfigurationError, match="elements used twice hide nothing"):
        streams.take(*again, np.arange(5), np.full(5, 4))
    streams.take(*again, np.array([0, 2, 4]), np.full(3, 4))
    streams.take(3, 3, some, np.array([4, 4]))


@pytest.mark.parametrize(
    ("clients", "counts"),
    [([1, 1], [2, 2]), ([2, 1], [2, 2]), ([0, 5], [2, 2]), ([-1, 0], [2, 2]), ([0, 1], [2, -1]), ([0, 1], [2])],
)
def test_clients_come_once_each_with_a_count(clients, counts):
    """A client given twice in one take would get the same elements twice."""
    streams = KeyStreams(ClientCiphers(agree_keys(5, 2, KEY)[0]), Ring(64))
    with pytest.raises(ConfigurationError, match="elements were requested for clients"):
        streams.take(0, 0, np.array(clients), np.array(counts))


@pytest.mark.parametrize(("cohort", "query"), [(-1, 0), (0, -1), (1 << 31, 0), (0, 1 << 31)])
def test_numbers_that_no_address_holds_are_refused(cohort, query):
    streams = KeyStreams(ClientCiphers(agree_keys(2, 2, KEY)[0]), Ring(64))
    with pytest.raises(ConfigurationError, match=r"keystreams have addresses from 0 to 2147483647"):
        streams.take(cohort, query, np.array([0]), np.array([1]))
    with pytest.raises(ConfigurationError, match="array is"):
        KeyStreams(ClientCiphers([]), Ring(64), cohort or query)


def test_the_last_address_there_is():
    streams = KeyStreams(ClientCiphers(agree_keys(1, 2, KEY)[0]), Ring(64))
    last = (1 << 31) - 1
    for query in (last - 2, last - 1, last):
        streams.take(last, query, np.array([0]), np.array([3]))


@pytest.mark.parametrize(("bits", "count"), [(64, 10), (64, 1), (32, 1)])
def test_elements_made_ahead_stay_within_the_limit(monkeypatch, bits, count):
    """Also where a client takes but a part of its last block. One query of one group may come on top."""
    monkeypatch.setattr(keystreams, "_BUFFER_BYTES", 4000)
    streams = KeyStreams(ClientCiphers(agree_keys(100, 2, KEY)[0]), Ring(bits))
    for query in range(6):
        for first in range(0, 100, 10):
            streams.take(0, query, np.arange(first, first + 10), np.full(10, count))
        held = sum(buffer.elements.nbytes for buffer in streams._buffers.values())
        assert held <= 4000 + 10 * 16 * -(-count * bits // 128)
    streams.take(1, 0, np.array([0]), np.array([1]))
    assert len(streams._buffers) == 1


@pytest.mark.parametrize("clients", [[], [2]])
def test_nobody_and_nothing(clients):
    streams = KeyStreams(ClientCiphers(agree_keys(3, 2, KEY)[0]), Ring(32))
    for query in range(4):
        assert streams.take(0, query, np.array(clients, np.int64), np.zeros(len(clients), np.int64)).size == 0


def test_keys():
    keys = agree_keys(4, 3, KEY)
    assert [len(of_one) for of_one in keys] == [4, 4]
    assert len({key for of_one in keys for key in of_one}) == 8
    assert agree_keys(4, 3, KEY) == keys != agree_keys(4, 3) != agree_keys(4, 3)
    with pytest.raises(ShareError, match="2 or more"):
        agree_keys(4, 1)
    with pytest.raises(ConfigurationError, match="keys of sparse sums have 32"):
        ClientCiphers([bytes(16)])


# Sums


def shared_sum(calls, ring, parties, width, rows, elements_of, min_clients, requested=(0, 0)):
    """Real messages from every client to every aggregator, in the chunks that each side likes."""
    cohort, query = requested
    keys = agree_keys(9, parties, KEY)
    own = [KeyStreams(ClientCiphers(of_one), ring, 1) for of_one in keys]
    theirs = [KeyStreams(ClientCiphers(of_one), ring, 1) for of_one in keys]
    sums = [RowSums.empty(ring, rows, width) for _ in range(parties)]
    sent_bytes = 0
    for clients, supports in calls:
        ids = np.concatenate([np.empty(0, np.int64), *supports])
        counts = np.array([len(support) * width for support in supports])
        elements = np.concatenate([ring.zeros(0), *(elements_of[u].reshape(-1) for u in clients.tolist())])
        left = masked_share(elements, [streams.take(cohort, query, clients, counts) for streams in own])
        arrived = []
        for part, count in zip(np.split(left, np.cumsum(counts)[:-1]), counts.tolist(), strict=True):
            message = RowShare(0, cohort, query, count, part).encode()
            arrived.append(RowShare.decode(message, ring, party=0, cohort=cohort, query=query, count=count).elements)
            sent_bytes += len(message)
        sums[0].add(ClientRows(clients, ids, rows), np.concatenate(arrived))
        for party, streams in enumerate(theirs, start=1):
            for count in counts.tolist():
                message = RowShare(party, cohort, query, count).encode()
                sent_bytes += len(message)
                assert (
                    RowShare.decode(message, ring, party=party, cohort=cohort, query=query, count=count).elements
                    is None
                )
            sums[party].add(ClientRows(clients, ids, rows), streams.take(cohort, query, clients, counts))
    return *reveal_rows(sums, min_clients), sums, sent_bytes


@quick
@given(
    data=st.data(), ring=rings, parties=st.sampled_from([2, 3]), width=st.integers(1, 3), min_clients=st.integers(1, 4)
)
def test_revealed_rows_are_sums_of_elements_and_the_others_are_suppressed(data, ring, parties, width, min_clients):
    rows, members = 6, sorted(data.draw(st.sets(st.integers(0, 8), min_size=1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    supports = {u: np.flatnonzero(rng.random(rows) < rng.random()) for u in members}
    elements_of = {u: rng.integers(0, ring.modulus, (len(s), width), ring.dtype) for u, s in supports.items()}
    cuts = sorted(data.draw(st.sets(st.integers(1, 8), max_size=3)))
    chunks = [c for c in np.split(np.array(members), cuts) if len(c)]
    calls = [(chunk, [supports[u] for u in chunk.tolist()]) for chunk in chunks]
    total, revealed, sums, sent_bytes = shared_sum(calls, ring, parties, width, rows, elements_of, min_clients, (3, 2))

    plain, contributors = ring.zeros((rows, width)), np.zeros(rows, int)
    for u, support in supports.items():
        plain[support] += elements_of[u]
        contributors[support] += 1
    assert np.array_equal(revealed, contributors >= min_clients)
    assert np.array_equal(total, np.where(revealed[:, None], plain, 0))
    for part in sums:
        released = part.revealed_elements(min_clients)
        assert released.dtype == ring.dtype
        assert not released[~revealed].any()
        assert np.array_equal(part.contributors, contributors)
    assert sent_bytes == sum(row_share_bytes(elements.size, ring, parties) for elements in elements_of.values())


def test_what_aggregator_0_holds_looks_random_whatever_was_sent():
    """Constant elements: the bytes of 2^17 shares against the uniform law, and lag-one pairs of their low bits."""
    ring, n = Ring(64), 64
    streams = KeyStreams(ClientCiphers(agree_keys(n, 2, KEY)[0]), ring)
    clients, counts = np.arange(n), np.full(n, 128)
    shares = [
        masked_share(np.full(n * 128, 5, np.uint64), [streams.take(0, query, clients, counts)]) for query in range(16)
    ]
    elements = np.concatenate(shares)
    assert stats.chisquare(np.bincount(elements.view(np.uint8), minlength=256)).pvalue > 1e-3
    low = (elements & np.uint64(1)).astype(int)
    assert stats.chisquare(np.bincount(2 * low[1:] + low[:-1], minlength=4)).pvalue > 1e-3
    across = (shares[0] - shares[1]).view(np.uint8)
    assert stats.chisquare(np.bincount(across, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize("left", [0, 1, 2])
def test_any_two_of_three_aggregators_see_random_elements(left):
    ring, clients, counts = Ring(32), np.arange(40), np.full(40, 200)
    elements = np.full(8000, 7, np.uint32)
    streams = [KeyStreams(ClientCiphers(keys), ring).take(0, 0, clients, counts) for keys in agree_keys(40, 3, KEY)]
    shares = [masked_share(elements, streams), *streams]
    seen = ring.sum(share for party, share in enumerate(shares) if party != left)
    assert np.array_equal(ring.sum(shares), elements)
    assert stats.chisquare(np.bincount(seen.view(np.uint8), minlength=256)).pvalue > 1e-3


def two(ring=RINGS[1], rows=4, width=2):
    return [RowSums.empty(ring, rows, width) for _ in range(2)]


def add(sums, clients, ids):
    sums.add(
        ClientRows(np.array(clients), np.array(ids), len(sums.elements)),
        sums.ring.zeros(len(ids) * sums.elements.shape[1]),
    )


def test_aggregators_that_disagree_are_refused():
    sums = two()
    add(sums[0], [0, 1], [1, 2, 1])
    add(sums[1], [0, 1], [1, 2, 1])
    reveal_rows(sums, 1)
    add(sums[0], [2], [3])
    with pytest.raises(ShareError, match="did not add the same clients"):
        reveal_rows(sums, 1)
    add(sums[1], [3], [3])
    with pytest.raises(ShareError, match="did not add the same clients"):
        reveal_rows(sums, 1)


def test_clients_in_another_order_or_without_rows_agree():
    sums = two()
    add(sums[0], [0], [1])
    add(sums[0], [1, 5], [2])
    add(sums[1], [1, 5], [2])
    add(sums[1], [0], [1])
    assert reveal_rows(sums, 1)[1].tolist() == [False, True, True, False]


def test_a_client_that_is_added_twice_is_refused():
    sums = two()
    for part in sums:
        add(part, [0, 1], [1, 2])
        add(part, [1], [3])
    with pytest.raises(ShareError, match="added a client twice"):
        reveal_rows(sums, 1)


def test_one_aggregator_or_other_tables_are_refused():
    with pytest.raises(ShareError, match="2 or more"):
        reveal_rows(two()[:1], 1)
    for other in (RowSums.empty(Ring(32), 4, 2), RowSums.empty(Ring(64), 5, 2), RowSums.empty(Ring(64), 4, 1)):
        with pytest.raises(ShareError, match="different shapes or rings"):
            reveal_rows([two()[0], other], 1)


@pytest.mark.parametrize(
    ("ids", "rows", "elements", "calls"),
    [
        ([4], 4, np.zeros(2, np.uint64), "rows 0 to 3"),
        ([-1], 4, np.zeros(2, np.uint64), "rows 0 to 3"),
        ([1], 4, np.zeros(1, np.uint64), "give every row its elements"),
        ([1], 4, np.zeros(2, np.uint32), "give every row its elements"),
        ([1], 3, np.zeros(2, np.uint64), "this table has 4"),
        ([4], 5, np.zeros(2, np.uint64), "this table has 4"),
    ],
)
def test_elements_that_do_not_fit_change_nothing(ids, rows, elements, calls):
    sums = two()[0]
    with pytest.raises(ShareError, match=calls):
        sums.add(ClientRows(np.array([0]), np.array(ids), rows), elements)
    assert not sums.elements.any()
    assert not sums.contributors.any()
    assert sums.clients == []


def test_one_aggregator_that_keeps_to_the_rule_is_enough():
    """Against one that releases all it has, a suppressed row is that one's share alone: random."""
    ring, clients = Ring(64), np.array([0, 1])
    stream = KeyStreams(ClientCiphers(agree_keys(2, 2, KEY)[0]), ring).take(0, 0, clients, np.array([1, 1]))
    sums = [RowSums.empty(ring, 2, 1) for _ in range(2)]
    named = ClientRows(clients, np.array([0, 1]), rows=2)
    sums[0].add(named, masked_share(np.array([9, 9], np.uint64), [stream]))
    sums[1].add(named, stream)
    together = sums[0].elements + sums[1].revealed_elements(2)
    assert not (together == 9).any()
    assert (sums[0].elements + sums[1].elements == 9).all()


# Messages


@quick
@given(rows=st.sets(st.integers(0, 99)))
def test_row_indices_come_back_in_as_many_bytes_as_declared(rows):
    named = np.array(sorted(rows), np.uint32)
    data = RowIndices(named).encode()
    assert len(data) == row_indices_bytes(len(rows))
    assert np.array_equal(RowIndices.decode(data, 100).rows, named)
    for broken in (data[:-1], data + b"\0"):
        with pytest.raises(MalformedMessage):
            RowIndices.decode(broken, 100)


@quick
@given(data=st.data(), ring=rings, party=st.integers(0, 2), count=st.integers(0, 5))
def test_shares_come_back_and_nothing_else_does(data, ring, party, count):
    expected = {"party": party, "cohort": 3, "query": 4, "count": count}
    elements = data.draw(st.lists(st.integers(0, ring.modulus - 1), min_size=count, max_size=count))
    share = RowShare(party, 3, 4, count, np.array(elements, ring.dtype) if party == 0 else None)
    message = share.encode()
    back = RowShare.decode(message, ring, **expected)
    assert back.elements is None if party else np.array_equal(back.elements, share.elements)
    cut = data.draw(st.integers(0, len(message) - 1))
    for broken in (message[:cut], message + b"\0", message[1:]):
        with pytest.raises(MalformedMessage, match="drop it"):
            RowShare.decode(broken, ring, **expected)
    for name, value in expected.items():
        with pytest.raises(MalformedMessage):
            RowShare.decode(message, ring, **(expected | {name: value + 1}))
    with pytest.raises(MalformedMessage):
        RowIndices.decode(message, 100)
    position = data.draw(st.integers(0, 19))
    flipped = bytearray(message)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MalformedMessage):
        RowShare.decode(bytes(flipped), ring, **expected)


@quick
@given(data=st.binary(max_size=60))
def test_bytes_from_nowhere_are_refused(data):
    with pytest.raises(MalformedMessage):
        RowIndices.decode(data, 10)
    with pytest.raises(MalformedMessage):
        RowShare.decode(data, Ring(32), party=0, cohort=0, query=0, count=3)


@pytest.mark.parametrize("rows", [[2, 1], [1, 1], [0, 7, 7], [10], [4_294_967_295]])
def test_names_out_of_order_repeated_or_outside_are_refused(rows):
    data = RowIndices(np.array(rows, np.uint32)).encode()
    with pytest.raises(MalformedMessage, match="distinct, ascending and below 10"):
        RowIndices.decode(data, 10)


def test_a_header_that_promises_more_rows_than_follow_is_refused():
    data = bytearray(RowIndices(np.arange(3, dtype=np.uint32)).encode())
    for position in (0, 4, 5, 6, 8):
        broken = data.copy()
        broken[position] ^= 0x41
        with pytest.raises(MalformedMessage, match="drop it"):
            RowIndices.decode(bytes(broken), 10)


@pytest.mark.parametrize(("party", "elements"), [(0, None), (1, np.zeros(2, np.uint64)), (0, np.zeros(1, np.uint64))])
def test_a_share_that_cannot_be(party, elements):
    with pytest.raises(ShareError, match="holds `count` elements"):
        RowShare(party, 0, 0, 2, elements)


def test_a_share_in_a_log_gives_nothing_away():
    assert "elements" not in repr(RowShare(0, 0, 0, 1, np.array([77], np.uint64)))


def test_messages_are_what_they_were():
    """Frozen: a change of format is a change of version."""
    message = RowShare(0, 1, 2, 2, np.array([3, 4], np.uint64)).encode() + RowIndices(np.array([5], np.uint32)).encode()
    assert message.hex() == (
        "53415350" "01" "01" "0000" "01000000" "02000000" "02000000" "0300000000000000" "0400000000000000"
        "53415350" "01" "00" "0000" "01000000" "05000000"
    )  # fmt: skip
    stream = KeyStreams(ClientCiphers([KEY]), Ring(64), 1).take(2, 3, np.array([0]), np.array([3]))
    assert stream.tobytes().hex() == "7017231887a24790c8f4603a4a9628d954abfaeddef8cfdc"


def test_the_example_of_the_page_opens_what_it_says():
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "secure_aggregation.md").read_text()
    [example] = [code for code in page.split("```python\n") if "reveal_rows" in code.split("```")[0]]
    result = {}
    exec(example.split("```")[0], result)
    assert result["total"][:, 0].tolist() == [0, 0, 2, 0, 0, 0]
    assert result["revealed"].tolist() == [False, False, True, False, False, False]
