"""Additive sharing: shares sum to the elements, fewer tell nothing, and what does not belong together is refused."""

import hashlib
import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from secure_agg.additive import MAX_CONTRIBUTORS, MAX_PARTIES, MAX_RANK, AdditiveShare, add, reconstruct, split
from secure_agg.encoding import FixedPoint, IntegerEncoding, Ring, Rounding
from secure_agg.errors import ConfigurationError, MalformedMessage, ShareError
from secure_agg.primitives.prg import random_uints

KEY = bytes(range(32))
RINGS = [Ring(16), Ring(32), Ring(64)]
rings = st.sampled_from(RINGS)
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
quick = settings(max_examples=50, deadline=None)


def sharing(elements, parties=3, number=0):
    """A split that is the same in every run; one `number`, one split."""
    return split(elements, parties, hashlib.sha256(b"split %d" % number).digest())


def sent(share):
    """The share at its aggregator, after a journey over the wire."""
    return AdditiveShare.decode(share.encode(), ring=share.ring, shape=share.shape)


# Sharing and opening


@quick
@given(data=st.data(), ring=rings, shape=shapes, parties=st.integers(2, 5), clients=st.integers(1, 4))
def test_revealed_sums_are_ring_sums(data, ring, shape, parties, clients):
    vectors = [data.draw(hnp.arrays(ring.dtype, shape)) for _ in range(clients)]
    splits = [split(vector, parties) for vector in vectors]
    sums = [add(sent(shares[party]) for shares in splits) for party in range(parties)]
    revealed = reconstruct(data.draw(st.permutations([sent(total) for total in sums])))
    assert np.array_equal(revealed, ring.sum(vectors))
    assert (revealed.shape, revealed.dtype) == (shape, ring.dtype)
    assert {total.contributors for total in sums} == {clients}


@quick
@given(data=st.data(), ring=rings, shape=shapes, parties=st.integers(2, 6))
def test_the_shares_of_one_split_sum_to_the_elements(data, ring, shape, parties):
    elements = data.draw(hnp.arrays(ring.dtype, shape))
    kept = elements.copy()
    shares = split(elements, parties)
    assert [share.party for share in shares] == list(range(parties))
    assert np.array_equal(ring.sum(share.elements for share in shares), kept)
    assert np.array_equal(reconstruct(shares), kept)
    assert np.array_equal(elements, kept)
    assert not any(np.shares_memory(share.elements, elements) for share in shares)


def test_sums_of_sums_and_sums_of_one():
    ring = Ring(32)
    vectors = [ring.from_integers(np.arange(5) * k) for k in (1, -20, 300)]
    splits = [split(vector, 2) for vector in vectors]
    nested = [add([add([splits[0][p], splits[1][p]]), splits[2][p]]) for p in range(2)]
    assert np.array_equal(reconstruct(nested), ring.sum(vectors))
    together = [add(splits[k][p] for k in (2, 0, 1)) for p in range(2)]
    assert np.array_equal(reconstruct([nested[0], together[1]]), ring.sum(vectors))
    assert np.array_equal(reconstruct([add([splits[0][0]]), splits[0][1]]), vectors[0])


def test_elements_in_any_layout_are_split():
    table = Ring(16).from_integers(np.arange(24).reshape(4, 6))
    assert np.array_equal(reconstruct(split(table.T[::2], 2)), table.T[::2])


def test_long_vectors_cross_the_chunks_of_the_stream():
    elements = random_uints(300_001, np.uint64, KEY)
    assert np.array_equal(reconstruct([add([share]) for share in split(elements, 3)]), elements)


def test_encoded_numbers_travel_through_shares():
    ring, generator = Ring(32), np.random.default_rng(0)
    point = FixedPoint.for_sum(ring, bound=2.0, clients=4, rounding=Rounding.STOCHASTIC)
    integer = IntegerEncoding(ring, 9, 4)
    reals = generator.uniform(-2, 2, (4, 50))
    wholes = generator.integers(-9, 10, (4, 50))
    for code, values, allowed in ((point, reals, point.error_bound()), (integer, wholes, 0)):
        splits = [split(code.encode(row), 2) for row in values]
        revealed = code.decode(reconstruct([add(shares[party] for shares in splits) for party in range(2)]))
        assert np.abs(revealed - values.sum(0)).max() <= allowed


def test_most_shares_are_seeds_and_never_repeat():
    elements = Ring(64).zeros(1000)
    one, other = split(elements, 4), split(elements, 4)
    seeds = [share.payload for share in (*one[1:], *other[1:])]
    assert all(isinstance(seed, bytes) and len(seed) == 32 for seed in seeds)
    assert len(set(seeds)) == 6
    assert one[0].tag == one[3].tag != other[0].tag
    assert not np.array_equal(one[0].elements, other[0].elements)


def test_a_key_repeats_the_split():
    elements = Ring(32).from_integers(np.arange(4))
    one, other = split(elements, 3, KEY), split(elements, 3, KEY)
    assert [share.encode() for share in one] == [share.encode() for share in other]
    assert split(elements, 3, bytes(32))[1].payload != one[1].payload


def test_a_printed_share_gives_nothing_away():
    first, second = split(Ring(32).from_integers(np.array([271828])), 2)
    assert repr(first) == "AdditiveShare(ring=Ring(bits=32), shape=(1,), party=0, parties=2, contributors=1)"
    assert repr(second) == repr(first).replace("party=0", "party=1")


# Secrecy


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("absent", [0, 1, 2])
def test_two_of_three_shares_are_uniform_whatever_the_secret(ring, absent):
    """Byte histograms of each share and of their sum, for three extreme secrets, with fixed simulation keys."""
    histograms = []
    for secret in (0, 1, ring.modulus - 1):
        elements = np.full((200,), secret, ring.dtype)
        seen = [[s.elements for s in sharing(elements, number=n) if s.party != absent] for n in range(100)]
        views = [np.stack([pair[0] for pair in seen]), np.stack([pair[1] for pair in seen])]
        views.append(np.stack([ring.sum(pair) for pair in seen]))
        counts = [np.bincount(view.view(np.uint8).ravel(), minlength=256) for view in views]
        assert min(stats.chisquare(count).pvalue for count in counts) > 1e-6
        histograms.append(np.concatenate(counts))
    assert stats.chi2_contingency(np.stack(histograms)).pvalue > 1e-6


def test_without_share_0_the_shares_do_not_depend_on_the_secret_at_all():
    zero, other = (sharing(np.full(9, secret, "<u4")) for secret in (0, 77))
    assert [share.encode() for share in zero[1:]] == [share.encode() for share in other[1:]]
    assert zero[0].encode() != other[0].encode()


def test_seeds_come_from_the_operating_system(monkeypatch):
    requested = []
    monkeypatch.setattr("secure_agg.additive.secrets.token_bytes", lambda n: requested.append(n) or bytes(range(n)))
    shares = split(Ring(32).zeros(2), 3)
    assert requested == [16 + 2 * 32]
    assert shares[0].tag == int.from_bytes(bytes(range(16)), "little")
    assert [share.payload for share in shares[1:]] == [bytes(range(16, 48)), bytes(range(48, 80))]


# Refusals of split, add and reconstruct


@pytest.mark.parametrize("parties", [-1, 0, 1, MAX_PARTIES + 1])
def test_split_between_too_few_or_too_many(parties):
    with pytest.raises(ShareError, match=f"between {parties} parties was requested; give 2 to 65535"):
        split(Ring(32).zeros(2), parties)


@pytest.mark.parametrize("dtype", ["i4", "f8", ">u4", "f2", "c16"])
def test_split_of_what_is_no_ring(dtype):
    with pytest.raises(ConfigurationError, match=r"the ring of|from 2 to 64"):
        split(np.zeros(2, dtype), 2)


def test_split_of_too_many_axes_or_with_a_short_key():
    with pytest.raises(ShareError, match="9 axes was given; reshape"):
        split(Ring(32).zeros((1,) * 9), 2)
    assert split(Ring(32).zeros((1,) * MAX_RANK), 2)[0].shape == (1,) * 8
    with pytest.raises(ConfigurationError, match="a key of 3 bytes"):
        split(Ring(32).zeros(1), 2, b"key")


def test_add_refuses_what_does_not_belong_together():
    ring = Ring(32)
    ours = sharing(ring.zeros(3))
    others = {
        "party": ours[1],
        "parties": sharing(ring.zeros(3), parties=2, number=1)[0],
        "ring": sharing(Ring(64).zeros(3), number=1)[0],
        "shape": sharing(ring.zeros((3, 1)), number=1)[0],
    }
    for name, other in others.items():
        with pytest.raises(ShareError, match=f"shares of {name} .* were given together; give shares of one {name}"):
            add([ours[0], other])
    with pytest.raises(ShareError, match="no share was given to add"):
        add([])
    with pytest.raises(ShareError, match="one contribution was given twice"):
        add([ours[0], sharing(ring.zeros(3), number=1)[0], ours[0]])
    with pytest.raises(ShareError, match=f"a share of {MAX_CONTRIBUTORS + 1} contributions"):
        add([replace(ours[0], contributors=MAX_CONTRIBUTORS), sharing(ring.zeros(3), number=1)[0]])


def test_reconstruct_refuses_what_does_not_belong_together():
    ring = Ring(32)
    ours = sharing(ring.zeros(3))
    others = {
        "parties": sharing(ring.zeros(3), parties=4, number=1)[2],
        "ring": sharing(Ring(16).zeros(3), number=1)[2],
        "shape": sharing(ring.zeros(4), number=1)[2],
    }
    for name, other in others.items():
        with pytest.raises(ShareError, match=f"shares of {name} .* were given together; give shares of one {name}"):
            reconstruct([*ours[:2], other])
    with pytest.raises(ShareError, match="no share was given to reconstruct from"):
        reconstruct([])


def test_reconstruct_needs_every_party_once():
    ours = sharing(Ring(32).zeros(3))
    with pytest.raises(ShareError, match=r"shares of parties \[1\] are missing; all 3 are needed"):
        reconstruct([ours[0], ours[2]])
    with pytest.raises(ShareError, match=r"parties \[0, 2\] are missing"):
        reconstruct(ours[1:2])
    with pytest.raises(ShareError, match=r"several shares of parties \[2\] were given"):
        reconstruct([*ours, ours[2]])
    with pytest.raises(ShareError, match=r"several shares of parties \[0\] were given"):
        reconstruct([ours[0], ours[0], ours[1]])


def test_reconstruct_refuses_sums_of_different_clients():
    splits = [sharing(Ring(32).zeros(3), parties=2, number=number) for number in range(4)]
    ours = add(splits[k][0] for k in (0, 1, 2))
    with pytest.raises(ShareError, match="party 1 sums 2 contributions and party 0 3, not the same ones"):
        reconstruct([ours, add(splits[k][1] for k in (0, 1))])
    with pytest.raises(ShareError, match="party 1 sums 3 contributions and party 0 3, not the same ones"):
        reconstruct([ours, add(splits[k][1] for k in (0, 1, 3))])
    with pytest.raises(ShareError, match="not the same ones"):
        reconstruct([splits[0][0], splits[1][1]])
    with pytest.raises(ShareError, match="not the same ones"):
        reconstruct([ours, replace(add(splits[k][1] for k in (0, 1, 2)), contributors=4)])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"parties": 1}, "between 1 parties"),
        ({"parties": MAX_PARTIES + 1}, "between 65536 parties"),
        ({"party": 3}, "a share of party 3 was given; 3 parties are numbered from 0"),
        ({"party": -1}, "a share of party -1"),
        ({"contributors": 0}, "a share of 0 contributions was given; give 1 to 4294967295"),
        ({"contributors": MAX_CONTRIBUTORS + 1}, "a share of 4294967296 contributions"),
        ({"tag": -1}, "a tag outside"),
        ({"tag": 1 << 128}, "a tag outside"),
        ({"shape": (1,) * 9}, "a share of 9 axes"),
        ({"payload": bytes(31)}, "a seed of 31 bytes was given; seeds have 32"),
        ({"shape": (4,)}, r"elements of uint32 and shape \(3,\) were given for a share of uint32 and shape \(4,\)"),
        ({"ring": Ring(64)}, "elements of uint32 .* for a share of uint64"),
    ],
)
def test_a_share_that_contradicts_itself_is_refused(wrong, sentence):
    share = sharing(Ring(32).zeros(3))[0]
    limits = {"parties": MAX_PARTIES, "party": MAX_PARTIES - 1, "contributors": MAX_CONTRIBUTORS, "tag": (1 << 128) - 1}
    assert sent(replace(share, **limits)).tag == limits["tag"]
    assert sent(replace(share, tag=0)).tag == 0
    with pytest.raises(ShareError, match=sentence):
        replace(share, **wrong)


# The wire


@quick
@given(data=st.data(), ring=rings, shape=shapes, parties=st.integers(2, 4))
def test_shares_survive_the_wire(data, ring, shape, parties):
    for share in split(data.draw(hnp.arrays(ring.dtype, shape)), parties):
        arrived = sent(share)
        for name in ("ring", "shape", "party", "parties", "contributors", "tag"):
            assert getattr(arrived, name) == getattr(share, name)
        assert isinstance(arrived.payload, bytes) == isinstance(share.payload, bytes)
        assert np.array_equal(arrived.elements, share.elements)
        assert arrived.elements.shape == shape
        assert arrived.encode() == share.encode()


def test_bytes_on_the_wire_are_elements_and_a_header():
    first, second = split(Ring(32).zeros(1000), 2)
    assert len(first.encode()) == 32 + 8 + 4000
    assert len(second.encode()) == 32 + 8 + 32


def test_frozen_bytes_of_version_1():
    """Magic, version, kind, bits, axes, party, parties, contributors, tag: other bytes are another version."""
    elements = Ring(16).from_integers(np.array([[1, -2], [300, -400]]))
    shares = split(elements, 2, KEY)
    tag, axes = "f29000b62a499fd0a9f39a6add2e7780", "02000000000000000200000000000000"
    first = f"53414153 01 00 10 02 0000 0200 01000000 {tag} {axes} a385a83eeb86e361"
    seed = "f05d76ae4ab99fe5a6f69b3148c2363d0ebcb5deb52c83bd08a8a935182c9199"
    second = f"53414153 01 01 10 02 0100 0200 01000000 {tag} {axes} {seed}"
    expanded = f"53414153 01 00 10 02 0100 0200 01000000 {tag} {axes} 5e7a56c1417a8d9c"
    assert [share.encode() for share in shares] == [bytes.fromhex(first), bytes.fromhex(second)]
    assert add(shares[1:]).encode() == bytes.fromhex(expanded)
    kept = [AdditiveShare.decode(bytes.fromhex(frozen), ring=Ring(16), shape=(2, 2)) for frozen in (first, expanded)]
    assert np.array_equal(reconstruct(kept), elements)


def rewritten(share, offset, layout, value):
    """The share's bytes with one field overwritten."""
    data = bytearray(share.encode())
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


SHARES = sharing(Ring(32).from_integers(np.arange(6).reshape(2, 3)))
decode = partial(AdditiveShare.decode, ring=Ring(32), shape=(2, 3))


@pytest.mark.parametrize("share", SHARES[:2], ids=["elements", "seed"])
@pytest.mark.parametrize(
    ("offset", "layout", "value", "sentence"),
    [
        (0, "4s", b"SAAT", "the message begins 5341415401; an additive share of version 1 begins 5341415301"),
        (4, "B", 2, "the message begins 5341415302"),
        (4, "B", 0, "the message begins 5341415300"),
        (5, "B", 2, "payload kind 2 was given; 0 is elements and 1 a seed"),
        (6, "B", 16, "2 axes in the ring of 16 bits was given; 2 axes and 32 bits were expected"),
        (6, "B", 33, "the ring of 33 bits"),
        (7, "B", 1, "a share of 1 axes"),
        (7, "B", 255, "a share of 255 axes"),
        (8, "<H", 3, "a share of party 3 was given; 3 parties"),
        (10, "<H", 0, "between 0 parties"),
        (10, "<H", 1, "between 1 parties"),
        (12, "<I", 0, "a share of 0 contributions"),
        (32, "<Q", 3, r"a share of shape \(3, 3\) was given; \(2, 3\) was expected"),
        (32, "<Q", 2**64 - 1, r"a share of shape \(18446744073709551615, 3\)"),
        (40, "<Q", 2**40, r"a share of shape \(2, 1099511627776\)"),
    ],
)
def test_each_field_of_a_message_is_checked(share, offset, layout, value, sentence):
    decode(share.encode())
    with pytest.raises(MalformedMessage, match=sentence):
        decode(rewritten(share, offset, layout, value))


@pytest.mark.parametrize("share", SHARES, ids=["elements", "seed", "seed"])
def test_cut_or_lengthened_messages_are_refused(share):
    data = share.encode()
    for length in range(len(data)):
        with pytest.raises(MalformedMessage, match=f"a share of {length} bytes was given"):
            decode(data[:length])
    with pytest.raises(
        MalformedMessage, match=f"a share of {len(data) + 1} bytes was given; {len(data)} were expected"
    ):
        decode(data + b"\0")


def test_elements_and_seeds_are_not_taken_for_one_another():
    elements, seed = SHARES[0].encode(), SHARES[1].encode()
    for data in (elements[:5] + b"\1" + elements[6:], seed[:5] + b"\0" + seed[6:]):
        with pytest.raises(MalformedMessage, match="bytes was given"):
            decode(data)


def test_a_share_of_another_shape_or_ring_than_expected_is_refused():
    share = sharing(Ring(32).zeros(6))[1]
    for shape in ((5,), (7,), (2, 3), (), (6, 1), (-1,), (1,) * 9, (10**12,)):
        with pytest.raises(MalformedMessage):
            AdditiveShare.decode(share.encode(), ring=Ring(32), shape=shape)
    with pytest.raises(MalformedMessage, match="32 bits was given; 1 axes and 64 bits were expected"):
        AdditiveShare.decode(share.encode(), ring=Ring(64), shape=(6,))


def accepts(data):
    """Whether the decoder takes the bytes; what it takes must encode to the same bytes again."""
    try:
        share = decode(data)
    except MalformedMessage:
        return False
    assert share.encode() == data
    assert share.elements.shape == (2, 3)
    return True


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120) | st.binary(max_size=90).map(lambda rest: b"SAAS\1" + rest))
def test_random_bytes_raise_nothing_but_malformed(data):
    accepts(data)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), share=st.sampled_from(SHARES))
def test_altered_messages_raise_nothing_but_malformed(data, share):
    message = bytearray(share.encode())
    for _ in range(data.draw(st.integers(1, 6))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    accepts(bytes(message))


@pytest.mark.parametrize("share", SHARES[:2], ids=["elements", "seed"])
def test_every_single_bit_flip_is_refused_or_another_share(share):
    """Only party, parties, contributors, tag and payload may hold other values; the rest of the message is fixed."""
    original = share.encode()
    fixed = [*range(8), *range(32, 48)]
    for position in range(len(original)):
        for bit in range(8):
            data = bytearray(original)
            data[position] ^= 1 << bit
            assert not (accepts(bytes(data)) and position in fixed)


def test_arrived_elements_cannot_be_overwritten_and_are_added_all_the_same():
    arrived = sent(SHARES[0])
    with pytest.raises(ValueError, match="read-only"):
        arrived.elements[0] = 1
    revealed = reconstruct([add([arrived]), *SHARES[1:]])
    revealed += np.uint32(1)
    assert revealed.tolist() == (np.arange(6).reshape(2, 3) + 1).tolist()
