"""Each message has one encoding, and a decoder that says no by name to every other bytes."""

import struct

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secure_agg import shamir
from secure_agg.errors import ConfigurationError, MalformedMessage, StaleMessage, UnexpectedStage, WrongParty
from secure_agg.masking import PROTOCOL_VERSION, SERVER, Stage, Suite, Terms, messages
from secure_agg.masking.parameters import assess_parameters
from secure_agg.primitives.keys import Aead
from secure_agg.primitives.prg import StreamCipher

RUN = bytes(range(16))
KEY = st.binary(min_size=32, max_size=32)
MANY = settings(max_examples=50, deadline=None)


@st.composite
def some_terms(draw, **fixed):
    """Any terms that can be."""
    signed = draw(st.booleans())
    half = draw(st.integers(0, 2**31 - 1))
    threshold = draw(st.integers(max(2, half + 1), 2 * half if half else 2**31))
    fields = {
        "run": draw(st.binary(min_size=16, max_size=16)),
        "round": draw(st.integers(0, 2**64 - 1)),
        "bits": draw(st.integers(2, 64)),
        "length": draw(st.integers(1, 2**48 - 1)),
        "threshold": threshold,
        "neighbours": 2 * half,
        "suite": draw(st.sampled_from(list(Suite))),
        "signed": signed,
        "layout": draw(KEY),
    }
    return Terms(**(fields | fixed))


def plain(signed=False, neighbours=0, **changes):
    return Terms(RUN, 3, 32, 5, neighbours or 3, neighbours, signed=signed, **changes)


def flags(count):
    return st.lists(st.booleans(), min_size=count, max_size=count).map(lambda given: np.array(given, bool))


def same(one, other):
    """Field by field, arrays and all."""
    assert type(one) is type(other)
    for name in one.__slots__:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@given(some_terms())
@MANY
def test_terms_come_back(terms):
    assert Terms.decode(terms.encode()) == terms


@given(terms=some_terms(), position=st.integers(0, 83), change=st.integers(1, 255))
@MANY
def test_altered_terms_are_refused_or_other_terms(terms, position, change):
    data = bytearray(terms.encode())
    assume(position < len(data))
    data[position] ^= change
    try:
        other = Terms.decode(bytes(data))
    except MalformedMessage:
        return
    assert other != terms
    assert other.encode() == bytes(data)
    assert other.context != terms.context


@given(st.binary(max_size=100))
@MANY
def test_bytes_are_terms_only_if_they_are_their_one_encoding(data):
    try:
        terms = Terms.decode(data)
    except MalformedMessage:
        return
    assert terms.encode() == data


@pytest.mark.parametrize(("position", "value", "match"), [(40, 65, "ring of 65 bits"), (41, 9, "cannot be: 9")])
def test_terms_of_unknown_bits_or_suite(position, value, match):
    data = bytearray(plain().encode())
    data[position] = value
    with pytest.raises(MalformedMessage, match=match):
        Terms.decode(bytes(data))


def test_terms_have_one_encoding():
    data = plain().encode()
    for position, value in ((42, 2), (43, 1)):
        altered = bytearray(data)
        altered[position] = value
        with pytest.raises(MalformedMessage, match="not in their one encoding"):
            Terms.decode(bytes(altered))
    for other in (b"", data[:-1], data + b"\0"):
        with pytest.raises(MalformedMessage, match="bytes"):
            Terms.decode(other)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"run": bytes(15)}, "run has 15 bytes; give 16"),
        ({"layout": bytes(33)}, "layout has 33 bytes; give 32"),
        ({"bits": 1}, "ring of 1 bits"),
        ({"round": -1}, "round is -1"),
        ({"round": 2**64}, "round is"),
        ({"length": 0}, "length is 0"),
        ({"length": 2**48}, "length is"),
        ({"threshold": 1}, "threshold is 1"),
        ({"neighbours": 5}, "even number"),
        ({"neighbours": -2}, "neighbours is -2"),
        ({"neighbours": 6, "threshold": 3}, "more than half"),
        ({"neighbours": 6, "threshold": 7}, "at most all"),
    ],
)
def test_terms_refused_at_set_up(change, match):
    with pytest.raises(ConfigurationError, match=match):
        Terms(**({"run": RUN, "round": 0, "bits": 32, "length": 1, "threshold": 3} | change))


def test_every_field_of_the_terms_is_bound_into_the_context():
    base = {"run": RUN, "round": 1, "bits": 32, "length": 9, "threshold": 4, "neighbours": 6}
    changes = [
        {"run": bytes(16)}, {"round": 2}, {"bits": 64}, {"length": 8}, {"threshold": 5}, {"neighbours": 4},
        {"suite": Suite.CHACHA20}, {"neighbours": 0}, {"neighbours": 0, "signed": True}, {"signed": True},
        {"layout": bytes(31) + b"\1"},
    ]  # fmt: skip
    contexts = {Terms(**(base | change)).context for change in [{}, *changes]}
    assert len(contexts) == len(changes) + 1


def test_what_suffices():
    complete, signed, sparse = plain(), plain(signed=True), plain(neighbours=4)
    assert [complete.allows_roster_of(n) for n in range(8)] == [False] * 4 + [True] * 3 + [False]
    assert [signed.allows_roster_of(n) for n in range(8)] == [complete.allows_roster_of(n) for n in range(8)]
    assert [signed.max_corrupt(n) for n in range(4, 7)] == [2, 1, 0]
    assert [sparse.allows_roster_of(n) for n in range(8)] == [False] * 5 + [True] * 3
    assert [sparse.degree(n) for n in (3, 5, 6, 50)] == [2, 4, 4, 4]
    both = plain(signed=True, neighbours=4)
    assert [both.allows_roster_of(n) for n in (5, 6, 15, 16, 17, 1000)] == [False] * 3 + [True] * 3
    assert [both.max_corrupt(n) for n in (16, 17, 1000)] == [3] * 3
    assert [one.signs_inputs for one in (complete, signed, sparse, both)] == [False, False, False, True]
    wide = Terms(RUN, 0, 32, 1, 40_000)
    assert wide.allows_roster_of(shamir.MAX_SHARES + 1)
    assert not wide.allows_roster_of(shamir.MAX_SHARES + 2)


def test_suites():
    assert [suite.stream for suite in Suite] == [StreamCipher.AES256, StreamCipher.AES128, StreamCipher.CHACHA20]
    assert [suite.aead for suite in Suite] == [Aead.AES256_GCM, Aead.AES256_GCM, Aead.CHACHA20_POLY1305]


def test_terms_of_parameters():
    curious = assess_parameters(40, 20, 12, corrupt=0.1, dropout=0.1, server="curious")
    assert Terms.from_parameters(curious, bits=32, length=3, run=RUN) == Terms(RUN, 0, 32, 3, 12, 20)
    active = assess_parameters(10, 0, 8, corrupt=0.1, dropout=0.1, server="active")
    assert Terms.from_parameters(active, bits=16, length=3, run=RUN, round=4) == Terms(RUN, 4, 16, 3, 8, signed=True)
    sparse = assess_parameters(400, 20, 16, corrupt=0.0, dropout=0.1, server="active")
    assert Terms.from_parameters(sparse, bits=16, length=3, run=RUN) == Terms(RUN, 0, 16, 3, 16, 20, signed=True)


@given(
    stage=st.sampled_from(list(Stage)), sender=st.integers(0, SERVER), receiver=st.integers(0, SERVER),
    body=st.binary(max_size=20), terms=some_terms(),
)  # fmt: skip
@MANY
def test_envelopes_come_back(stage, sender, receiver, body, terms):
    data = messages.encode_header(stage, terms, sender, receiver) + body
    envelope = messages.Envelope.decode(data)
    assert (envelope.stage, envelope.run, envelope.round) == (stage, terms.run, terms.round)
    assert (envelope.sender, envelope.receiver, bytes(envelope.body)) == (sender, receiver, body)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"SAgg\0\1\0" + tail))
@MANY
def test_bytes_are_an_envelope_only_if_they_are_its_one_encoding(data):
    try:
        it = messages.Envelope.decode(data)
    except MalformedMessage:
        return
    again = struct.pack(">4sHH16sQII", b"SAgg", PROTOCOL_VERSION, it.stage, it.run, it.round, it.sender, it.receiver)
    assert again + bytes(it.body) == data


def test_envelopes_refused():
    data = messages.encode_header(Stage.ROSTER, plain(), SERVER, 2)
    for other, match in (
        (b"", "0 bytes arrived; a message has at least 40"),
        (data[:39], "39 bytes"),
        (b"sAgg" + data[4:], "do not begin like"),
        (data[:4] + b"\0\1" + data[6:], "protocol version 1; this is version 3"),
        (data[:6] + b"\0\0" + data[8:], "stage 0 does not exist"),
        (data[:6] + b"\0\x0d" + data[8:], "stage 13 does not exist"),
    ):
        with pytest.raises(MalformedMessage, match=match):
            messages.Envelope.decode(other)


def test_an_envelope_says_what_is_wrong_with_it():
    envelope = messages.Envelope.decode(messages.encode_header(Stage.ROSTER, plain(), SERVER, 2))
    fits = {"stage": Stage.ROSTER, "run": RUN, "sender": SERVER, "receiver": 2}
    envelope.expect(**fits)
    envelope.expect_round(3)
    with pytest.raises(StaleMessage, match="run 000102"):
        envelope.expect(**fits | {"run": bytes(16)})
    with pytest.raises(WrongParty, match="from the server to client 2; one from the server to client 3"):
        envelope.expect(**fits | {"receiver": 3})
    with pytest.raises(WrongParty, match="one from client 5 to client 2"):
        envelope.expect(**fits | {"sender": 5})
    with pytest.raises(UnexpectedStage, match="got the roster message; the delivery message is due"):
        envelope.expect(**fits | {"stage": Stage.DELIVERY})
    with pytest.raises(StaleMessage, match="of round 3; this is round 4"):
        envelope.expect_round(4)


def advertisements(signed):
    tail = st.binary(min_size=64, max_size=64) if signed else st.just(b"")
    return st.builds(messages.Advertisement, KEY, KEY, tail)


@given(data=st.data(), signed=st.booleans())
@MANY
def test_advertisements_come_back(data, signed):
    one = data.draw(advertisements(signed))
    same(messages.Advertisement.decode(memoryview(one.encode()), plain(signed)), one)


@given(data=st.data(), signed=st.booleans(), sparse=st.booleans())
@MANY
def test_rosters_come_back(data, signed, sparse):
    agreed = plain(signed, 4 * sparse)
    ids = np.array(sorted(data.draw(st.sets(st.integers(0, SERVER - 1), max_size=9))), np.uint32)
    degree = max(agreed.degree(len(ids)), 0)
    keys = tuple(data.draw(advertisements(signed)) for _ in range(degree))
    one = messages.Roster(ids, keys)
    same(messages.Roster.decode(memoryview(one.encode()), agreed), one)


@given(st.binary(min_size=0, max_size=400))
@MANY
def test_bytes_are_a_roster_only_if_they_are_its_one_encoding(body):
    try:
        one = messages.Roster.decode(memoryview(body), plain())
    except MalformedMessage:
        return
    assert one.encode() == body


@pytest.mark.parametrize("ids", [(1, 1), (2, 1), (0, SERVER)])
def test_rosters_whose_ids_do_not_rise(ids):
    body = struct.pack(">3I", 2, *ids) + bytes(64)
    with pytest.raises(MalformedMessage, match="do not rise strictly"):
        messages.Roster.decode(memoryview(body), plain())


@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 7, 2**16, 2**31, 2**32 - 1])
def test_a_count_that_lies(count):
    honest = messages.Roster(np.arange(5, dtype=np.uint32), tuple([messages.Advertisement(bytes(32), bytes(32))] * 4))
    body = count.to_bytes(4, "big") + honest.encode()[4:]
    for agreed in (plain(), plain(neighbours=4)):
        with pytest.raises(MalformedMessage, match="roster carries"):
            messages.Roster.decode(memoryview(body), agreed)


def test_a_roster_without_a_count():
    with pytest.raises(MalformedMessage, match="at least 4"):
        messages.Roster.decode(memoryview(bytes(3)), plain())


@given(data=st.data(), neighbours=st.integers(0, 12))
@MANY
def test_shares_deliveries_and_reveals_come_back(data, neighbours):
    sealed = st.binary(min_size=messages.SEALED_BYTES, max_size=messages.SEALED_BYTES)
    shares = messages.EncryptedShares(data.draw(KEY), tuple(data.draw(sealed) for _ in range(neighbours)))
    same(messages.EncryptedShares.decode(memoryview(shares.encode()), neighbours), shares)
    shared, sealing = data.draw(flags(neighbours)), data.draw(flags(neighbours))
    delivery = messages.Delivery(shared, tuple(data.draw(sealed) for _ in range(int((shared & sealing).sum()))))
    same(messages.Delivery.decode(memoryview(delivery.encode()), sealing), delivery)
    share = st.binary(min_size=shamir.SHARE_BYTES, max_size=shamir.SHARE_BYTES)
    reveal = messages.RevealedShares(tuple(data.draw(share) for _ in range(neighbours)))
    same(messages.RevealedShares.decode(memoryview(reveal.encode()), neighbours), reveal)


@given(data=st.data(), count=st.integers(0, 40), signed=st.booleans())
@MANY
def test_survivors_and_requests_come_back(data, count, signed):
    signature = st.binary(min_size=64, max_size=64)
    alive, signing = data.draw(flags(count)), data.draw(flags(count))
    for kind in (messages.Survivors, messages.GoAhead):
        one = kind(alive, tuple(data.draw(signature) for _ in range(int((alive & signing).sum()))))
        same(kind.decode(memoryview(one.encode()), signing), one)
    confirmed = data.draw(flags(count if signed else 0))
    request = messages.UnmaskRequest(
        data.draw(flags(count)), data.draw(flags(count)), confirmed,
        tuple(data.draw(signature) for _ in range(int(confirmed.sum()))),
    )  # fmt: skip
    same(messages.UnmaskRequest.decode(memoryview(request.encode()), count, signed=signed), request)


@given(body=st.binary(max_size=8) | st.binary(min_size=80, max_size=90), count=st.integers(0, 10), signed=st.booleans())
@MANY
def test_bytes_are_a_message_only_if_they_are_its_one_encoding(body, count, signed):
    for decode in (
        lambda view: messages.Delivery.decode(view, np.ones(count, bool)),
        lambda view: messages.Survivors.decode(view, np.full(count, signed)),
        lambda view: messages.GoAhead.decode(view, np.full(count, signed)),
        lambda view: messages.Complaint.decode(view, count, evidence=signed),
        lambda view: messages.UnmaskRequest.decode(view, count, signed=signed),
        lambda view: messages.EncryptedShares.decode(view, count),
        lambda view: messages.RevealedShares.decode(view, count),
        lambda view: messages.Advertisement.decode(view, plain(signed)),
    ):
        try:
            one = decode(memoryview(body))
        except MalformedMessage:
            continue
        assert one.encode() == body


@pytest.mark.parametrize("count", [1, 5, 7, 9, 15])
def test_flags_beyond_the_parties(count):
    body = bytearray(-(-count // 8))
    body[-1] = 1 << (count % 8)
    for decode, size in (
        (lambda view: messages.Survivors.decode(view, np.zeros(count, bool)), 1),
        (lambda view: messages.GoAhead.decode(view, np.zeros(count, bool)), 1),
        (lambda view: messages.Delivery.decode(view, np.zeros(count, bool)), 1),
        (lambda view: messages.UnmaskRequest.decode(view, count, signed=False), 2),
    ):
        padded = bytes(len(body) * (size - 1)) + bytes(body)
        with pytest.raises(MalformedMessage, match=f"flags beyond its {count} parties"):
            decode(memoryview(padded))


def test_flags_cut_short():
    with pytest.raises(MalformedMessage, match="ends inside a list of 9 flags"):
        messages.Survivors.decode(memoryview(b"\0"), np.zeros(9, bool))
    with pytest.raises(MalformedMessage, match="survivors carries 1 bytes where 0 belong"):
        messages.Survivors.decode(memoryview(b"\0\0\0"), np.zeros(9, bool))


def test_elements_of_the_right_length_only():
    agreed = plain()
    elements = np.arange(5, dtype=np.uint32)
    for one, signature in (
        (agreed, b""),
        (plain(signed=True), b""),
        (plain(signed=True, neighbours=4), bytes(range(64))),
    ):
        read, signed = messages.decode_masked_input(memoryview(elements.tobytes() + signature), one)
        np.testing.assert_array_equal(read, elements)
        assert signed == signature
        right = 20 + len(signature)
        for size in {0, 16, 19, 20, 21, 24, 40, 83, 84, 85} - {right}:
            with pytest.raises(MalformedMessage, match=f"masked input carries {size} bytes where {right} belong"):
                messages.decode_masked_input(memoryview(bytes(size)), one)


def test_signatures_of_the_right_length_only():
    assert messages.decode_signature(memoryview(bytes(64)), Stage.CONFIRMATION) == bytes(64)
    for size in (0, 63, 65):
        with pytest.raises(MalformedMessage, match="confirmation"):
            messages.decode_signature(memoryview(bytes(size)), Stage.CONFIRMATION)


def test_stages_read_as_elements():
    assert [str(stage) for stage in (Stage.MASKED_INPUT, Stage.REVEAL)] == ["masked input", "reveal"]
