"""Sparse shares: they sum to the words, an address is used once, few clients stay closed, messages are not believed."""

from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secure_agg import sparse
from secure_agg.encoding import Ring
from secure_agg.errors import ConfigurationError, MalformedMessage, ShareError
from secure_agg.sparse import (
    Ciphers,
    KeyStreams,
    RowNames,
    RowShare,
    RowSums,
    agree_keys,
    names_bytes,
    open_rows,
    share_bytes,
    withhold,
)

KEY = bytes(range(32))
RINGS = [Ring(32), Ring(64)]
rings = st.sampled_from(RINGS)
quick = settings(max_examples=50, deadline=None)


def naive_stream(key, lane, draw, ask, count, ring):
    """Word after word, straight from the definition of an address."""
    cipher, width = Cipher(AES(key), ECB()), ring.dtype.itemsize
    blocks = b""
    for block in range(-(-count * width // 16)):
        plain = b"".join(number.to_bytes(4, "little") for number in (lane, draw, ask, block))
        encryptor = cipher.encryptor()
        blocks += encryptor.update(plain) + encryptor.finalize()
    return np.frombuffer(blocks[: count * width], ring.dtype)


def naive_streams(keys, lane, draw, ask, clients, counts, ring):
    made = [naive_stream(keys[u], lane, draw, ask, n, ring) for u, n in zip(clients, counts, strict=True)]
    return np.concatenate([ring.zeros(0), *made])


@st.composite
def asks(draw, population=9):
    """Asks in rising order, each with its own cohort, split into chunks, and counts that change now and then."""
    counts = np.array(draw(st.lists(st.integers(0, 7), min_size=population, max_size=population)))
    said = []
    for number in range(draw(st.integers(1, 4))):
        members = sorted(draw(st.sets(st.integers(0, population - 1))))
        for ask in range(draw(st.integers(1, 6))):
            if draw(st.integers(0, 5)) == 0:
                counts = np.array(draw(st.lists(st.integers(0, 7), min_size=population, max_size=population)))
            cuts = sorted(draw(st.sets(st.integers(1, population), max_size=2)))
            chunks = [c for c in np.split(np.array(members, np.int64), cuts) if len(c)]
            said.append((2 * number, ask, [(chunk, counts[chunk]) for chunk in chunks]))
    return said


# Streams


@quick
@given(said=asks(), ring=rings, lane=st.integers(0, 3))
def test_every_word_is_that_of_its_address_however_clients_are_grouped(said, ring, lane):
    """One side takes in chunks, the other client by client, a third with another room for words made ahead."""
    keys = agree_keys(9, 2, KEY)[0]
    chunked, alone, cramped = (KeyStreams(Ciphers(keys), ring, lane) for _ in range(3))
    for draw, ask, chunks in said:
        for clients, counts in chunks:
            wanted = naive_streams(keys, lane, draw, ask, clients, counts, ring)
            assert chunked.take(draw, ask, clients, counts).tobytes() == wanted.tobytes()
            one_by_one = [alone.take(draw, ask, clients[j : j + 1], counts[j : j + 1]) for j in range(len(clients))]
            assert np.concatenate([ring.zeros(0), *one_by_one]).tobytes() == wanted.tobytes()
            room, sparse._AHEAD_BYTES = sparse._AHEAD_BYTES, 64
            try:
                assert cramped.take(draw, ask, clients, counts).tobytes() == wanted.tobytes()
            finally:
                sparse._AHEAD_BYTES = room


def test_long_streams_and_many_asks_are_those_of_their_addresses():
    """Several groups of one refill, and more asks than are made ahead."""
    ring, rng = Ring(64), np.random.default_rng(0)
    keys = agree_keys(40, 2, KEY)[0]
    streams, counts = KeyStreams(Ciphers(keys), ring, 5), rng.integers(0, 2000, 40)
    clients = np.arange(40)
    for ask in range(40):
        taken = streams.take(7, ask, clients, counts)
        if ask in (0, 1, 2, 8, 9, 10, 39):
            assert taken.tobytes() == naive_streams(keys, 5, 7, ask, clients, counts, ring).tobytes()


class Recording(Ciphers):
    """Ciphers that note every counter block under every key."""

    def __init__(self, keys):
        super().__init__(keys)
        self.seen = []

    def encrypt(self, client, plain, out):
        self.seen += [(client, bytes(plain[at : at + 16])) for at in range(0, len(plain), 16)]
        super().encrypt(client, plain, out)


@quick
@given(said=asks(), ring=rings)
def test_no_block_serves_two_addresses(said, ring):
    """Blocks of a lane are encrypted again only for the very same draw, ask and place, and never across lanes."""
    ciphers = Recording(agree_keys(9, 2, KEY)[0])
    lanes = [KeyStreams(ciphers, ring, lane) for lane in (0, 1, 258)]
    of_lane = []
    for lane in lanes:
        ciphers.seen = []
        handed = {}
        for draw, ask, chunks in said:
            for clients, counts in chunks:
                taken, at = lane.take(draw, ask, clients, counts), np.cumsum(counts)
                for user, words in zip(clients.tolist(), np.split(taken, at[:-1]), strict=True):
                    for place, word in enumerate(words.tolist()):
                        handed.setdefault((user, word), set()).add((draw, ask, place))
        of_lane.append(set(ciphers.seen))
        if ring.bits == 64:
            assert all(len(addresses) == 1 for addresses in handed.values())
    assert not of_lane[0] & of_lane[1]
    assert not of_lane[0] & of_lane[2]
    assert not of_lane[1] & of_lane[2]


def test_words_of_all_lanes_draws_asks_clients_and_parties_differ():
    """Of a million words of 64 bits, two are equal by chance once in 37 million runs."""
    seen = []
    for keys in agree_keys(20, 3, KEY):
        for lane in range(3):
            streams = KeyStreams(Ciphers(keys), Ring(64), lane)
            for draw in range(3):
                for ask in range(9):
                    seen.append(streams.take(draw, ask, np.arange(20), np.arange(1, 21) * 3))
    words = np.concatenate(seen)
    assert len(np.unique(words)) == len(words) > 100_000


@pytest.mark.parametrize(
    "again", [(3, 2), (3, 1), (3, 0), (2, 9), (0, 0)], ids=["same", "earlier", "first", "last draw", "start"]
)
def test_an_address_is_never_used_again(again):
    streams = KeyStreams(Ciphers(agree_keys(5, 2, KEY)[0]), Ring(64))
    some = np.array([1, 3])
    for ask in range(3):
        streams.take(3, ask, some, np.array([4, 4]))
    with pytest.raises(ConfigurationError, match="words used twice hide nothing"):
        streams.take(*again, some, np.array([4, 4]))
    with pytest.raises(ConfigurationError, match="words used twice hide nothing"):
        streams.take(*again, np.arange(5), np.full(5, 4))
    streams.take(*again, np.array([0, 2, 4]), np.full(3, 4))
    streams.take(3, 3, some, np.array([4, 4]))


@pytest.mark.parametrize(
    ("clients", "counts"),
    [([1, 1], [2, 2]), ([2, 1], [2, 2]), ([0, 5], [2, 2]), ([-1, 0], [2, 2]), ([0, 1], [2, -1]), ([0, 1], [2])],
)
def test_clients_come_once_each_with_a_count(clients, counts):
    """A client given twice in one take would get the same words twice."""
    streams = KeyStreams(Ciphers(agree_keys(5, 2, KEY)[0]), Ring(64))
    with pytest.raises(ConfigurationError, match="words were asked for clients"):
        streams.take(0, 0, np.array(clients), np.array(counts))


@pytest.mark.parametrize(("draw", "ask"), [(-1, 0), (0, -1), (1 << 31, 0), (0, 1 << 31)])
def test_numbers_that_no_address_holds_are_refused(draw, ask):
    streams = KeyStreams(Ciphers(agree_keys(2, 2, KEY)[0]), Ring(64))
    with pytest.raises(ConfigurationError, match=r"addresses for numbers from 0 to 2147483647"):
        streams.take(draw, ask, np.array([0]), np.array([1]))
    with pytest.raises(ConfigurationError, match="lane is"):
        KeyStreams(Ciphers([]), Ring(64), draw or ask)


def test_the_last_address_there_is():
    streams = KeyStreams(Ciphers(agree_keys(1, 2, KEY)[0]), Ring(64))
    last = (1 << 31) - 1
    for ask in (last - 2, last - 1, last):
        streams.take(last, ask, np.array([0]), np.array([3]))


@pytest.mark.parametrize(("bits", "count"), [(64, 10), (64, 1), (32, 1)])
def test_words_made_ahead_stay_within_their_room(monkeypatch, bits, count):
    """Also where a client takes but a part of its last block. One ask of one group may come on top."""
    monkeypatch.setattr(sparse, "_AHEAD_BYTES", 4000)
    streams = KeyStreams(Ciphers(agree_keys(100, 2, KEY)[0]), Ring(bits))
    for ask in range(6):
        for first in range(0, 100, 10):
            streams.take(0, ask, np.arange(first, first + 10), np.full(10, count))
        held = sum(ahead.words.nbytes for ahead in streams._ahead.values())
        assert held <= 4000 + 10 * 16 * -(-count * bits // 128)
    streams.take(1, 0, np.array([0]), np.array([1]))
    assert len(streams._ahead) == 1


@pytest.mark.parametrize("clients", [[], [2]])
def test_nobody_and_nothing(clients):
    streams = KeyStreams(Ciphers(agree_keys(3, 2, KEY)[0]), Ring(32))
    for ask in range(4):
        assert streams.take(0, ask, np.array(clients, np.int64), np.zeros(len(clients), np.int64)).size == 0


def test_keys():
    keys = agree_keys(4, 3, KEY)
    assert [len(of_one) for of_one in keys] == [4, 4]
    assert len({key for of_one in keys for key in of_one}) == 8
    assert agree_keys(4, 3, KEY) == keys != agree_keys(4, 3) != agree_keys(4, 3)
    with pytest.raises(ShareError, match="2 or more"):
        agree_keys(4, 1)
    with pytest.raises(ConfigurationError, match="keys of sparse sums have 32"):
        Ciphers([bytes(16)])


# Sums


def shared_sum(said, ring, parties, width, rows, words_of, fewest, asked=(0, 0)):
    """Real messages from every client to every aggregator, in the chunks that each side likes."""
    draw, ask = asked
    keys = agree_keys(9, parties, KEY)
    own = [KeyStreams(Ciphers(of_one), ring, 1) for of_one in keys]
    theirs = [KeyStreams(Ciphers(of_one), ring, 1) for of_one in keys]
    sums = [RowSums.empty(ring, rows, width) for _ in range(parties)]
    sent_bytes = 0
    for clients, supports in said:
        ids = np.concatenate([np.empty(0, np.int64), *supports])
        counts = np.array([len(support) * width for support in supports])
        words = np.concatenate([ring.zeros(0), *(words_of[u].reshape(-1) for u in clients.tolist())])
        left = withhold(words, [streams.take(draw, ask, clients, counts) for streams in own])
        arrived = []
        for part, count in zip(np.split(left, np.cumsum(counts)[:-1]), counts.tolist(), strict=True):
            message = RowShare(0, draw, ask, count, part).encode()
            arrived.append(RowShare.decode(message, ring, party=0, draw=draw, ask=ask, count=count).words)
            sent_bytes += len(message)
        sums[0].add(clients, ids, np.concatenate(arrived))
        for party, streams in enumerate(theirs, start=1):
            for count in counts.tolist():
                message = RowShare(party, draw, ask, count).encode()
                sent_bytes += len(message)
                assert RowShare.decode(message, ring, party=party, draw=draw, ask=ask, count=count).words is None
            sums[party].add(clients, ids, streams.take(draw, ask, clients, counts))
    return *open_rows(sums, fewest), sums, sent_bytes


@quick
@given(data=st.data(), ring=rings, parties=st.sampled_from([2, 3]), width=st.integers(1, 3), fewest=st.integers(1, 4))
def test_opened_rows_are_sums_of_words_and_the_others_are_closed(data, ring, parties, width, fewest):
    rows, members = 6, sorted(data.draw(st.sets(st.integers(0, 8), min_size=1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    supports = {u: np.flatnonzero(rng.random(rows) < rng.random()) for u in members}
    words_of = {u: rng.integers(0, ring.modulus, (len(s), width), ring.dtype) for u, s in supports.items()}
    cuts = sorted(data.draw(st.sets(st.integers(1, 8), max_size=3)))
    chunks = [c for c in np.split(np.array(members), cuts) if len(c)]
    said = [(chunk, [supports[u] for u in chunk.tolist()]) for chunk in chunks]
    total, opened, sums, sent_bytes = shared_sum(said, ring, parties, width, rows, words_of, fewest, (3, 2))

    plain, supporters = ring.zeros((rows, width)), np.zeros(rows, int)
    for u, support in supports.items():
        plain[support] += words_of[u]
        supporters[support] += 1
    assert np.array_equal(opened, supporters >= fewest)
    assert np.array_equal(total, np.where(opened[:, None], plain, 0))
    for part in sums:
        handed = part.handed_out(fewest)
        assert handed.dtype == ring.dtype
        assert not handed[~opened].any()
        assert np.array_equal(part.supporters, supporters)
    assert sent_bytes == sum(share_bytes(words.size, ring, parties) for words in words_of.values())


def test_what_aggregator_0_holds_looks_like_chance_whatever_was_sent():
    """Constant words: the bytes of 2^17 shares against the uniform law, and lag-one pairs of their low bits."""
    ring, n = Ring(64), 64
    streams = KeyStreams(Ciphers(agree_keys(n, 2, KEY)[0]), ring)
    clients, counts = np.arange(n), np.full(n, 128)
    shares = [withhold(np.full(n * 128, 5, np.uint64), [streams.take(0, ask, clients, counts)]) for ask in range(16)]
    words = np.concatenate(shares)
    assert stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue > 1e-3
    low = (words & np.uint64(1)).astype(int)
    assert stats.chisquare(np.bincount(2 * low[1:] + low[:-1], minlength=4)).pvalue > 1e-3
    across = (shares[0] - shares[1]).view(np.uint8)
    assert stats.chisquare(np.bincount(across, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize("left", [0, 1, 2])
def test_any_two_of_three_aggregators_see_chance(left):
    ring, clients, counts = Ring(32), np.arange(40), np.full(40, 200)
    words = np.full(8000, 7, np.uint32)
    streams = [KeyStreams(Ciphers(keys), ring).take(0, 0, clients, counts) for keys in agree_keys(40, 3, KEY)]
    shares = [withhold(words, streams), *streams]
    seen = ring.sum(share for party, share in enumerate(shares) if party != left)
    assert np.array_equal(ring.sum(shares), words)
    assert stats.chisquare(np.bincount(seen.view(np.uint8), minlength=256)).pvalue > 1e-3


def two(ring=RINGS[1], rows=4, width=2):
    return [RowSums.empty(ring, rows, width) for _ in range(2)]


def add(sums, clients, ids):
    sums.add(np.array(clients), np.array(ids), sums.ring.zeros(len(ids) * sums.words.shape[1]))


def test_aggregators_that_disagree_are_refused():
    sums = two()
    add(sums[0], [0, 1], [1, 2, 1])
    add(sums[1], [0, 1], [1, 2, 1])
    open_rows(sums, 1)
    add(sums[0], [2], [3])
    with pytest.raises(ShareError, match="did not add the same clients"):
        open_rows(sums, 1)
    add(sums[1], [3], [3])
    with pytest.raises(ShareError, match="did not add the same clients"):
        open_rows(sums, 1)


def test_clients_in_another_order_or_without_rows_agree():
    sums = two()
    add(sums[0], [0], [1])
    add(sums[0], [1, 5], [2])
    add(sums[1], [1, 5], [2])
    add(sums[1], [0], [1])
    assert open_rows(sums, 1)[1].tolist() == [False, True, True, False]


def test_a_client_that_is_added_twice_is_refused():
    sums = two()
    for part in sums:
        add(part, [0, 1], [1, 2])
        add(part, [1], [3])
    with pytest.raises(ShareError, match="added a client twice"):
        open_rows(sums, 1)


def test_one_aggregator_or_other_tables_are_refused():
    with pytest.raises(ShareError, match="2 or more"):
        open_rows(two()[:1], 1)
    for other in (RowSums.empty(Ring(32), 4, 2), RowSums.empty(Ring(64), 5, 2), RowSums.empty(Ring(64), 4, 1)):
        with pytest.raises(ShareError, match="different shapes or rings"):
            open_rows([two()[0], other], 1)


@pytest.mark.parametrize(
    ("ids", "words", "said"),
    [
        ([4], np.zeros(2, np.uint64), "rows 0 to 3"),
        ([-1], np.zeros(2, np.uint64), "rows 0 to 3"),
        ([1], np.zeros(1, np.uint64), "give every row its words"),
        ([1], np.zeros(2, np.uint32), "give every row its words"),
    ],
)
def test_words_that_do_not_fit_change_nothing(ids, words, said):
    sums = two()[0]
    with pytest.raises(ShareError, match=said):
        sums.add(np.array([0]), np.array(ids), words)
    assert not sums.words.any()
    assert not sums.supporters.any()
    assert sums.clients == []


def test_one_aggregator_that_keeps_to_the_rule_is_enough():
    """Against one that hands out all it has, a closed row is that one's share alone: chance."""
    ring, clients = Ring(64), np.array([0, 1])
    stream = KeyStreams(Ciphers(agree_keys(2, 2, KEY)[0]), ring).take(0, 0, clients, np.array([1, 1]))
    sums = [RowSums.empty(ring, 2, 1) for _ in range(2)]
    sums[0].add(clients, np.array([0, 1]), withhold(np.array([9, 9], np.uint64), [stream]))
    sums[1].add(clients, np.array([0, 1]), stream)
    together = sums[0].words + sums[1].handed_out(2)
    assert not (together == 9).any()
    assert (sums[0].words + sums[1].words == 9).all()


# Messages


@quick
@given(rows=st.sets(st.integers(0, 99)))
def test_names_come_back_in_as_many_bytes_as_said(rows):
    named = np.array(sorted(rows), np.uint32)
    data = RowNames(named).encode()
    assert len(data) == names_bytes(len(rows))
    assert np.array_equal(RowNames.decode(data, 100).rows, named)
    for broken in (data[:-1], data + b"\0"):
        with pytest.raises(MalformedMessage):
            RowNames.decode(broken, 100)


@quick
@given(data=st.data(), ring=rings, party=st.integers(0, 2), count=st.integers(0, 5))
def test_shares_come_back_and_nothing_else_does(data, ring, party, count):
    expected = {"party": party, "draw": 3, "ask": 4, "count": count}
    words = data.draw(st.lists(st.integers(0, ring.modulus - 1), min_size=count, max_size=count))
    share = RowShare(party, 3, 4, count, np.array(words, ring.dtype) if party == 0 else None)
    message = share.encode()
    back = RowShare.decode(message, ring, **expected)
    assert back.words is None if party else np.array_equal(back.words, share.words)
    cut = data.draw(st.integers(0, len(message) - 1))
    for broken in (message[:cut], message + b"\0", message[1:]):
        with pytest.raises(MalformedMessage, match="drop it"):
            RowShare.decode(broken, ring, **expected)
    for name, value in expected.items():
        with pytest.raises(MalformedMessage):
            RowShare.decode(message, ring, **(expected | {name: value + 1}))
    with pytest.raises(MalformedMessage):
        RowNames.decode(message, 100)
    place = data.draw(st.integers(0, 19))
    flipped = bytearray(message)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MalformedMessage):
        RowShare.decode(bytes(flipped), ring, **expected)


@quick
@given(data=st.binary(max_size=60))
def test_bytes_from_nowhere_are_refused(data):
    with pytest.raises(MalformedMessage):
        RowNames.decode(data, 10)
    with pytest.raises(MalformedMessage):
        RowShare.decode(data, Ring(32), party=0, draw=0, ask=0, count=3)


@pytest.mark.parametrize("rows", [[2, 1], [1, 1], [0, 7, 7], [10], [4_294_967_295]])
def test_names_out_of_order_repeated_or_outside_are_refused(rows):
    data = RowNames(np.array(rows, np.uint32)).encode()
    with pytest.raises(MalformedMessage, match="distinct, ascending and below 10"):
        RowNames.decode(data, 10)


def test_a_header_that_promises_more_rows_than_follow_is_refused():
    data = bytearray(RowNames(np.arange(3, dtype=np.uint32)).encode())
    for place in (0, 4, 5, 6, 8):
        broken = data.copy()
        broken[place] ^= 0x41
        with pytest.raises(MalformedMessage, match="drop it"):
            RowNames.decode(bytes(broken), 10)


@pytest.mark.parametrize(("party", "words"), [(0, None), (1, np.zeros(2, np.uint64)), (0, np.zeros(1, np.uint64))])
def test_a_share_that_cannot_be(party, words):
    with pytest.raises(ShareError, match="holds as many words as it says"):
        RowShare(party, 0, 0, 2, words)


def test_a_share_in_a_log_gives_nothing_away():
    assert "words" not in repr(RowShare(0, 0, 0, 1, np.array([77], np.uint64)))


def test_messages_are_what_they_were():
    """Frozen: a change of format is a change of version."""
    message = RowShare(0, 1, 2, 2, np.array([3, 4], np.uint64)).encode() + RowNames(np.array([5], np.uint32)).encode()
    assert message.hex() == (
        "53415350" "01" "01" "0000" "01000000" "02000000" "02000000" "0300000000000000" "0400000000000000"
        "53415350" "01" "00" "0000" "01000000" "05000000"
    )  # fmt: skip
    stream = KeyStreams(Ciphers([KEY]), Ring(64), 1).take(2, 3, np.array([0]), np.array([3]))
    assert stream.tobytes().hex() == "7017231887a24790c8f4603a4a9628d954abfaeddef8cfdc"


def test_the_example_of_the_page_opens_what_it_says():
    page = (Path(__file__).parents[2] / "docs" / "secure_aggregation.md").read_text()
    [example] = [code for code in page.split("```python\n") if "open_rows" in code.split("```")[0]]
    found = {}
    exec(example.split("```")[0], found)
    assert found["total"][:, 0].tolist() == [0, 0, 2, 0, 0, 0]
    assert found["opened"].tolist() == [False, False, True, False, False, False]
