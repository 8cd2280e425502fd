"""Messages that were altered, replayed or made up, and servers and clients that mean ill."""

import contextlib
import copy
import dataclasses
import itertools
import json
import re
import struct

import numpy as np
import pytest

from benchmarks.privacy import fuzz_secure_agg as fuzzer
from secure_agg import shamir
from secure_agg.errors import (
    KeyRefused,
    MalformedMessage,
    MessageRefused,
    PartiesAccused,
    RosterRefused,
    RoundAborted,
    SharesRefused,
    SignatureRefused,
    StaleMessage,
    TooFewClients,
    UnexpectedStage,
    UnmaskRefused,
    WrongParty,
)
from secure_agg.masking import SERVER, ClientRequirements, Stage, key_derivation, messages
from secure_agg.masking import client as client_module
from secure_agg.primitives.keys import KeyPair, seal
from secure_agg.primitives.prg import add_keystreams

HEADER = messages.HEADER_BYTES
SIZES = {False: {"clients": 5, "threshold": 3}, True: {"clients": 7, "threshold": 5, "signed": True}}
STAGES = {
    False: (Stage.ADVERTISEMENT, Stage.SHARES, Stage.MASKED_INPUT, Stage.REVEAL),
    True: (Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL),
}
SPARSE = {"clients": 16, "threshold": 3, "neighbours": 4, "signed": True}
EVERY_STAGE = [(signed, stage) for signed, stages in STAGES.items() for stage in stages]

P = 2**255 - 19
ORDER_8 = (
    0xB8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
)
LOW_ORDER = [
    number.to_bytes(32, "little")
    for base in (0, 1, *ORDER_8, P - 1, P, P + 1)
    for number in (base, base + 2**255)
]  # fmt: skip


def flipped(message, position):
    """With one bit of the byte at this position flipped."""
    data = bytearray(message)
    data[position] ^= 1 << (position % 8)
    return bytes(data)


def with_a_bit_flipped(message):
    """One bit of every byte; every bit of a short body."""
    yield from (flipped(message, position) for position in range(len(message)))
    body = message[HEADER:]
    if len(body) <= 8:
        number = int.from_bytes(body, "big")
        yield from (with_body(message, (number ^ 1 << bit).to_bytes(len(body), "big")) for bit in range(8 * len(body)))


def with_body(message, body):
    return message[:HEADER] + body


def is_sound(game, accused=None):
    """Play on: the round ends by name, or its total is the sum of the vectors of those it names."""
    try:
        game.finish()
    except PartiesAccused as refused:
        if accused is not None:
            accused |= refused.clients
        return True
    except RoundAborted:
        return True
    return np.array_equal(game.server.total, game.expected())


def refused_and_accepted(game, sender, reply):
    """Send the reply with each byte altered; at these positions the server did not notice at once."""
    before, accepted = game.server_state(), []
    for position in range(len(reply)):
        altered = flipped(reply, position)
        try:
            copy.deepcopy(game.server).receive(sender, altered)
        except (MessageRefused, SignatureRefused, KeyRefused) as refused:
            with pytest.raises(type(refused)):
                game.receive(sender, altered)
            assert game.server_state() == before
        else:
            accepted.append(position)
    return accepted


@pytest.mark.parametrize(
    ("signed", "stage"),
    [(signed, stage) for signed, stage in EVERY_STAGE if stage is not Stage.MASKED_INPUT],
)
def test_a_bit_is_flipped_on_the_way_to_the_server(play, signed, stage):
    """Every byte of a client's message: refused by name and nothing changed, or the round ends by name, or no harm."""
    game = play(**SIZES[signed]).until(stage)
    sender = game.ids[-2]
    reply = game.answer(sender)
    accepted = refused_and_accepted(game, sender, reply)
    assert all(position >= HEADER for position in accepted)
    assert bool(accepted) == (stage in {Stage.SHARES, Stage.REVEAL} or not signed)
    outcomes, accused = set(), set()
    for position in accepted[:: 9 if stage is Stage.SHARES else 1]:
        other = game.fork()
        other.receive(sender, flipped(reply, position))
        assert is_sound(other, accused)
        outcomes.add(other.server.finished)
    if stage is Stage.SHARES:
        assert outcomes == ({False} if signed else {True, False})
        assert accused == ({sender} if signed else set())
    if stage is Stage.REVEAL:
        assert outcomes == {True}
    game.receive(sender, reply)
    game.finish()
    assert game.server.survivors == tuple(game.ids)
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize("signed", [False, True])
def test_a_bit_of_the_masked_elements_is_flipped(play, signed):
    """The elements are not authenticated: the bit that was flipped on the way is flipped in the sum, and no other."""
    game = play(**SIZES[signed]).until(Stage.MASKED_INPUT)
    reply = game.answer(2)
    accepted = refused_and_accepted(game, 2, reply)
    assert accepted == list(range(HEADER, len(reply)))
    for position in accepted:
        other = game.fork()
        other.receive(2, flipped(reply, position))
        elements = np.frombuffer(reply[HEADER:], game.terms.ring.dtype)
        change = np.frombuffer(flipped(reply, position)[HEADER:], game.terms.ring.dtype) - elements
        np.testing.assert_array_equal(other.finish(), other.expected() + change)


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_a_bit_is_flipped_on_the_way_to_a_client(play, signed, stage):
    """Every byte of a server's message: as above."""
    game = play(**SIZES[signed]).until(stage)
    one, request = 2, game.requests[2]
    before, seen = game.clients[2].snapshot(), set()
    for altered in with_a_bit_flipped(request):
        client = game.restored(one)
        try:
            reply = game.call(client, stage, altered)
        except MessageRefused as refused:
            seen.add(type(refused))
            assert client.snapshot() == before
            continue
        except RoundAborted as refused:
            seen.add(type(refused))
            assert client.ended == "aborted"
            continue
        other = game.fork()
        other.clients[one] = client
        with contextlib.suppress(MessageRefused, SignatureRefused):
            other.receive(one, reply)
        accused = set()
        assert is_sound(other, accused)
        if accused:
            assert accused == {one}
            seen.add(PartiesAccused)
    assert {MalformedMessage, StaleMessage, WrongParty} <= seen
    ends = {
        Stage.ADVERTISEMENT: set(),
        Stage.SHARES: {SignatureRefused, RosterRefused, KeyRefused},
        Stage.CHECK: {PartiesAccused},
        Stage.MASKED_INPUT: {SignatureRefused} if signed else {SharesRefused},
        Stage.CONFIRMATION: {UnmaskRefused, PartiesAccused},
        Stage.REVEAL: {UnmaskRefused, SignatureRefused},
    }
    assert seen <= {MalformedMessage, StaleMessage, WrongParty, UnexpectedStage} | ends[stage]
    if stage is Stage.CONFIRMATION or (signed and stage is not Stage.ADVERTISEMENT):
        assert seen & {UnmaskRefused, SharesRefused, SignatureRefused, PartiesAccused}


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_messages_cut_or_padded_on_the_way_to_a_client(play, signed, stage):
    game = play(**SIZES[signed]).until(stage)
    one = 2
    before, request = game.clients[one].snapshot(), game.requests[one]
    for wrong in [request[:size] for size in range(len(request))] + [request + bytes(size) for size in (1, 2, 64, 82)]:
        with pytest.raises(MalformedMessage):
            game.answer(one, wrong)
    assert game.clients[one].snapshot() == before
    game.finish()
    assert game.server.survivors == tuple(game.ids)
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_messages_cut_or_padded_on_the_way_to_the_server(play, signed, stage):
    game = play(**SIZES[signed]).until(stage)
    one = 2
    before, reply = game.server_state(), game.answer(one)
    for wrong in [reply[:size] for size in range(len(reply))] + [reply + bytes(size) for size in (1, 2, 33, 64, 82)]:
        with pytest.raises(MalformedMessage):
            game.receive(one, wrong)
    assert game.server_state() == before
    game.receive(one, reply)
    game.finish()
    assert game.server.survivors == tuple(game.ids)
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_messages_of_elsewhere_reach_a_client(play, signed, stage):
    """Replays of earlier stages, and the message due, but of another round, another run, another client's."""
    size = SIZES[signed]
    game = play(**size).until(stage)
    later, elsewhere = play(**size, number=4).until(stage), play(**size, run=bytes(16)).until(stage)
    one, client = 2, game.clients[2]
    before = client.snapshot()
    for earlier, sent in game.sent.items():
        if earlier is not game.follows[stage]:
            with pytest.raises(UnexpectedStage):
                game.answer(one, sent[one])
    with pytest.raises(StaleMessage, match="run"):
        game.answer(one, elsewhere.requests[one])
    with pytest.raises(WrongParty, match="from the server to client 1"):
        game.answer(one, game.requests[1])
    with pytest.raises(WrongParty):
        game.answer(one, game.requests[one][:32] + struct.pack(">II", 1, one) + game.requests[one][HEADER:])
    if stage is not Stage.ADVERTISEMENT:
        with pytest.raises(StaleMessage, match="of round 4; this is round 3"):
            game.answer(one, later.requests[one])
    assert client.snapshot() == before
    game.finish()
    assert game.server.survivors == tuple(game.ids)
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize("field", ["round", "run"])
def test_a_message_of_another_round_or_run_whose_header_was_mended_does_not_open(play, field):
    """What a header says is bound into keys as well: a delivery of elsewhere under this round's header is of no use."""
    game = play().until(Stage.MASKED_INPUT)
    other = play(**{"number": 4} if field == "round" else {"run": bytes(16)}).until(Stage.MASKED_INPUT)
    game.note_secrets(2)
    with pytest.raises(SharesRefused, match="does not open"):
        game.answer(2, with_body(game.requests[2], other.requests[2][HEADER:]))
    game.must_be_over(2)


def test_a_replayed_delivery_of_the_same_run_and_round_does_not_open(play):
    game, twin = play(), play()
    for one in (game, twin):
        one.until(Stage.MASKED_INPUT)
    game.note_secrets(2)
    with pytest.raises(SharesRefused):
        game.answer(2, twin.requests[2])
    game.must_be_over(2)


def roster_parts(message, size):
    """Ids and advertisements (of `size` bytes) in a roster message."""
    count = int.from_bytes(message[HEADER : HEADER + 4], "big")
    start = HEADER + 4 + 4 * count
    return message[:start], [message[at : at + size] for at in range(start, len(message), size)]


@pytest.mark.parametrize("position", [0, 32], ids=["mask key", "channel key"])
@pytest.mark.parametrize("key", LOW_ORDER, ids=lambda key: key.hex()[:8] + key.hex()[-2:])
def test_low_order_keys(play, key, position):
    """All u-coordinates of low order, in every encoding, as a neighbour's mask key and as its channel key."""
    game = play().until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 64)
    adverts[0] = adverts[0][:position] + key + adverts[0][position + 32 :]
    game.note_secrets(2)
    with pytest.raises(KeyRefused, match="client 0 advertises"):
        game.answer(2, head + b"".join(adverts))
    game.must_be_over(2)


@pytest.mark.parametrize(
    ("position", "of"),
    [*itertools.product((0, 32), ("own mask", "own channel", "other")), (32, "same")],
)
@pytest.mark.parametrize("signed", [False, True])
def test_keys_given_twice(play, position, of, signed):
    """Own keys reflected, one key for two neighbours, one key in both positions."""
    game = play(**SIZES[signed]).until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 128 if signed else 64)
    own = game.replies[Stage.ADVERTISEMENT][2][HEADER:]
    taken = {"own mask": own[:32], "own channel": own[32:64], "other": adverts[1][:32], "same": adverts[0][:32]}[of]
    adverts[0] = adverts[0][:position] + taken + adverts[0][position + 32 :]
    game.note_secrets(2)
    with pytest.raises((KeyRefused, SignatureRefused)) as refused:
        game.answer(2, head + b"".join(adverts))
    assert refused.type is KeyRefused or signed
    game.must_be_over(2)


@pytest.mark.parametrize("of", ["own mask", "other"])
def test_keys_given_twice_in_two_encodings(play, of):
    game = play().until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 64)
    own = game.replies[Stage.ADVERTISEMENT][2][HEADER : HEADER + 32]
    taken = bytearray(own if of == "own mask" else adverts[1][:32])
    taken[31] ^= 0x80
    adverts[0] = bytes(taken) + adverts[0][32:]
    with pytest.raises(KeyRefused):
        game.answer(2, head + b"".join(adverts))


def test_swapped_keys_on_a_signed_roster(play):
    game = play(**SIZES[True]).until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 128)
    game.note_secrets(2)
    with pytest.raises(SignatureRefused, match="not one of identity"):
        game.answer(2, head + b"".join([adverts[1], adverts[0], *adverts[2:]]))
    game.must_be_over(2)


@pytest.mark.parametrize("made", ["of another round", "of other terms", "by another identity", "cut off"])
def test_signatures_that_are_not_over_these_keys_in_this_round(play, made):
    game = play(**SIZES[True]).until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 128)
    keys, pieces = adverts[0][:64], (0, adverts[0][:32], adverts[0][32:64])
    signer, terms = game.identities[0], game.terms
    match made:
        case "of another round":
            terms = dataclasses.replace(terms, round=4)
        case "of other terms":
            terms = dataclasses.replace(terms, layout=bytes(31) + b"\1")
        case "by another identity":
            signer = game.identities[1]
    signature = bytes(64) if made == "cut off" else signer.sign(key_derivation.advertisement_message(terms, *pieces))
    game.note_secrets(2)
    with pytest.raises(SignatureRefused):
        game.answer(2, head + keys + signature + b"".join(adverts[1:]))
    game.must_be_over(2)


def test_swapped_keys_on_an_unsigned_roster_are_noticed_when_shares_do_not_open(play):
    """Client 2 seals for 0 what only 1 could open, and cannot open what 0 sealed: all three leave the round."""
    game = play(6, 4).until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 64)
    game.receive(2, game.answer(2, head + b"".join([adverts[1], adverts[0], *adverts[2:]])))
    game.answer_all()
    game.advance()
    for one in (0, 1, 2):
        game.note_secrets(one)
        with pytest.raises(SharesRefused):
            game.fork().answer(one)
        with pytest.raises(SharesRefused):
            game.answer(one)
        game.must_be_over(one)
    assert is_sound(game)


def test_swapped_mask_keys_on_an_unsigned_roster_do_not_end_in_a_wrong_total(play):
    game = play(6, 4).until(Stage.SHARES)
    head, adverts = roster_parts(game.requests[2], 64)
    swapped = [adverts[1][:32] + adverts[0][32:], adverts[0][:32] + adverts[1][32:], *adverts[2:]]
    game.receive(2, game.answer(2, head + b"".join(swapped)))
    assert is_sound(game)


def delivery_of(game, one):
    body = memoryview(game.requests[one])[HEADER:]
    return messages.Delivery.decode(body, np.ones(len(game.ids) - 1, bool))


def cut_for(game, one, listed):
    """The delivery, or under signed terms the go-ahead, with only the client itself and `listed` left in it."""
    others = [other for other in game.ids if other != one]
    kept = [other in listed for other in others]
    if not game.terms.signed:
        flags, kind = np.array(kept), messages.Delivery
        pieces = delivery_of(game, one).sealed
    else:
        flags, kind = messages.membership_bits(game.ids, frozenset(listed) | {one}), messages.GoAhead
        signing = messages.membership_bits(game.ids, frozenset(others))
        pieces = kind.decode(memoryview(game.requests[one])[HEADER:], signing).signatures
    return with_body(game.requests[one], kind(flags, tuple(itertools.compress(pieces, kept))).encode())


def deliver(game, one, shared, sealed):
    return with_body(game.requests[one], messages.Delivery(np.array(shared, bool), tuple(sealed)).encode())


def test_sealed_shares_that_belong_elsewhere(play):
    """Exchanged between senders, meant for another receiver, the client's own sent back: none opens."""
    game = play().until(Stage.MASKED_INPUT)
    sealed = delivery_of(game, 2).sealed
    own = messages.EncryptedShares.decode(memoryview(game.replies[Stage.SHARES][2])[HEADER:], 4).sealed
    for wrong in (
        [sealed[1], sealed[0], *sealed[2:]],
        [delivery_of(game, 1).sealed[0], *sealed[1:]],
        [own[0], *sealed[1:]],
        [bytes(82), *sealed[1:]],
    ):
        other = game.fork()
        other.note_secrets(2)
        with pytest.raises(SharesRefused, match="does not open"):
            other.answer(2, deliver(game, 2, [True] * 4, wrong))
        other.must_be_over(2)


def test_a_delivery_of_too_few(play):
    game = play().until(Stage.MASKED_INPUT)
    sealed = delivery_of(game, 2).sealed
    game.note_secrets(2)
    with pytest.raises(TooFewClients, match="2 of 4 neighbours shared; the threshold is 3"):
        game.answer(2, deliver(game, 2, [True, True, False, False], sealed[:2]))
    game.must_be_over(2)


@pytest.mark.parametrize("pair", [b"\xff" * 66, bytes(33) + b"\xff" * 33, b"\xff" * 33 + bytes(33)])
def test_a_neighbour_that_seals_what_is_no_share(play, monkeypatch, pair):
    """Well sealed, by a client that means ill: numbers beyond the field."""
    game = play().until(Stage.SHARES)
    monkeypatch.setattr(client_module, "seal", lambda aead, key, _, associated: seal(aead, key, pair, associated))
    game.receive(0, game.answer(0))
    monkeypatch.undo()
    game.answer_all()
    game.advance()
    game.note_secrets(2)
    with pytest.raises(SharesRefused, match="client 0 encrypted something other than a pair of shares"):
        game.answer(2)
    game.must_be_over(2)


def request_for(game, one, survived, dropped, confirmed=(), signatures=()):
    neighbours = [other for other in game.ids if other != one]
    flags = [messages.membership_bits(neighbours, frozenset(chosen)) for chosen in (survived, dropped)]
    confirming = messages.membership_bits(neighbours, frozenset(confirmed)) if game.terms.signed else np.zeros(0, bool)
    return with_body(game.requests[one], messages.UnmaskRequest(*flags, confirming, tuple(signatures)).encode())


@pytest.mark.parametrize(
    ("survived", "dropped", "error", "match"),
    [
        ({1, 3, 4}, {1}, UnmaskRefused, "client 1 is named as survived and as dropped"),
        ({1, 3, 4}, {1, 3, 4}, UnmaskRefused, "named as survived and as dropped"),
        ({0, 1, 3}, {4}, UnmaskRefused, "never shared"),
        ({1, 3, 4}, {0}, UnmaskRefused, "never shared"),
        ({1, 3}, {4}, TooFewClients, "2 neighbours survive; the threshold is 3"),
        (set(), {1, 3, 4}, TooFewClients, "0 neighbours survive"),
        (set(), set(), TooFewClients, "0 neighbours survive"),
    ],
)
def test_requests_for_too_much(play, survived, dropped, error, match):
    """Client 0 advertised and never shared."""
    game = play().until(Stage.SHARES).until(Stage.REVEAL, silent=[0])
    game.note_secrets(2)
    with pytest.raises(error, match=match):
        game.answer(2, request_for(game, 2, survived, dropped))
    game.must_be_over(2)


def test_a_request_for_less_is_answered_with_less(play):
    game = play().until(Stage.REVEAL)
    reply = game.answer(2, request_for(game, 2, {0, 1, 3}, set()))
    assert len(reply) == HEADER + 3 * shamir.SHARE_BYTES


def survivors_message(game, alive):
    """What is signed to confirm these survivors among all, of whom everybody checked."""
    return key_derivation.survivors_message(game.server._context, bytes(32), np.ones(len(game.ids), bool), alive)


def confirmations(game, but=()):
    """Everybody's signature over the survivors, as the server would hold it."""
    return {one: game.replies[Stage.CONFIRMATION][one][HEADER:] for one in game.ids if one not in but}


@pytest.mark.parametrize(
    ("tampering", "error", "match"),
    [
        ("too few", TooFewClients, "4 clients confirmed the survivors; the threshold is 5"),
        ("none", TooFewClients, "0 clients confirmed"),
        ("exchanged", SignatureRefused, "not one of identity"),
        ("over another list", SignatureRefused, "not one of identity"),
        ("of another round", SignatureRefused, "not one of identity"),
        ("own, as another's", SignatureRefused, "not one of identity"),
        ("zeros", SignatureRefused, "not one of identity"),
        ("by who dropped out", UnmaskRefused, "confirmation is by a client that is not among the survivors"),
    ],
)
def test_confirmations_that_do_not_hold(play, tampering, error, match):
    silent = {6} if tampering == "by who dropped out" else set()
    game = play(**SIZES[True]).until(Stage.MASKED_INPUT).until(Stage.REVEAL, silent=silent)
    one, others = 2, [other for other in game.ids if other != 2]
    alive = set(others) - silent
    signed = {other: signature for other, signature in confirmations(game, silent).items() if other != one}
    match tampering:
        case "too few":
            signed = dict(list(signed.items())[:4])
        case "none":
            signed = {}
        case "exchanged":
            signed[0], signed[1] = signed[1], signed[0]
        case "over another list":
            fewer = messages.membership_bits(game.ids, frozenset(game.ids[:-1]))
            signed[0] = game.identities[0].sign(survivors_message(game, fewer))
        case "of another round":
            later = play(**SIZES[True], number=4).until(Stage.CONFIRMATION)
            everybody = messages.membership_bits(game.ids, frozenset(game.ids))
            signed[0] = game.identities[0].sign(survivors_message(later, everybody))
        case "own, as another's":
            signed[0] = confirmations(game)[one]
        case "zeros":
            signed[0] = bytes(64)
        case _:
            everybody = messages.membership_bits(game.ids, frozenset(alive | {one}))
            signed[6] = game.identities[6].sign(survivors_message(game, everybody))
    game.note_secrets(one)
    with pytest.raises(error, match=match):
        game.answer(one, request_for(game, one, alive, silent, signed, signed.values()))
    game.must_be_over(one)


@pytest.mark.parametrize(
    ("survived", "dropped"), [({0, 1, 3, 4, 5, 6}, set()), ({0, 1, 3, 4, 5}, {6}), ({0, 1, 3, 4, 6}, {5})]
)
def test_a_signed_request_against_the_confirmed_list(play, survived, dropped):
    """Everybody confirmed that 6 dropped out: naming 6 as a survivor, or 5 as dropped, is refused; the truth is not."""
    game = play(**SIZES[True]).until(Stage.MASKED_INPUT).until(Stage.REVEAL, silent=[6])
    signed = {other: signature for other, signature in confirmations(game, {6}).items() if other != 2}
    request = request_for(game, 2, survived, dropped, signed, signed.values())
    if dropped == {6}:
        assert request == game.requests[2]
        return
    game.note_secrets(2)
    with pytest.raises(UnmaskRefused, match="contradicts the list of survivors"):
        game.answer(2, request)
    game.must_be_over(2)


def test_a_signed_request_for_the_mask_key_of_a_confirmed_survivor(play):
    """Others reveal its self-mask, and both together would unmask its input: enough survivors are named besides it."""
    game = play(clients=8, threshold=5, signed=True).until(Stage.REVEAL)
    signed = {other: signature for other, signature in confirmations(game).items() if other != 2}
    game.note_secrets(2)
    with pytest.raises(UnmaskRefused, match="contradicts the list of survivors"):
        game.answer(2, request_for(game, 2, {0, 1, 3, 4, 6, 7}, {5}, signed, signed.values()))
    game.must_be_over(2)


def test_a_list_of_survivors_without_oneself_or_with_too_few(play):
    for alive, error, match in (
        ({0, 1, 3, 4, 5, 6}, UnmaskRefused, "sent its masked input and is not among the survivors"),
        ({0, 1, 2, 3, 4}, TooFewClients, "4 neighbours survive; the threshold is 5"),
    ):
        game = play(**SIZES[True]).until(Stage.CONFIRMATION)
        game.note_secrets(2)
        listed = messages.Survivors(messages.membership_bits(game.ids, frozenset(alive))).encode()
        with pytest.raises(error, match=match):
            game.answer(2, with_body(game.requests[2], listed))
        game.must_be_over(2)


def test_a_list_of_survivors_with_one_that_never_shared(play):
    game = play(**SIZES[True]).until(Stage.MASKED_INPUT)
    game.receive(2, game.answer(2, cut_for(game, 2, {1, 3, 4, 5, 6})))
    game.answer_all()
    game.advance()
    game.note_secrets(2)
    with pytest.raises(UnmaskRefused):
        game.answer(2)
    game.must_be_over(2)


class Deviating:
    """A server that tells each client what it likes, and the clients that work for it.

    Everything it uses was sent to it, or is in the memory of one of `corrupt`.
    """

    def __init__(self, game, victim, listed, corrupt=()):
        """`listed`: whom the victim is told to share masks with; all others are told the truth."""
        self.game, self.victim, self.listed, self.corrupt = game, victim, sorted(listed), corrupt
        game.until(Stage.MASKED_INPUT)
        self.context = game.server._context
        everybody = [other for other in game.ids if other != victim]
        game.requests[victim] = cut_for(game, victim, listed)
        self.upload = np.frombuffer(game.answer(victim)[HEADER:], game.terms.ring.dtype).copy()
        for other in everybody:
            game.answer(other)
        self.pool = {}
        for one in corrupt:
            for owner, pair in json.loads(game.clients[one].snapshot())["held"]:
                self.learn("key", owner, one, bytes.fromhex(pair[:66]))
                self.learn("seed", owner, one, bytes.fromhex(pair[66:]))

    def learn(self, kind, owner, holder, share):
        position = [other for other in self.game.ids if other != owner].index(holder) + 1
        self.pool.setdefault((kind, owner), {})[position] = share

    def ask(self, one, survived, dropped, confirmed=None):
        """Put a request to an honest client, and keep what it reveals."""
        signatures = {other: signature for other, signature in (confirmed or {}).items() if other != one}
        header = messages.encode_header(Stage.REQUEST, self.game.terms, SERVER, one)
        self.game.requests[one] = header
        request = request_for(self.game, one, survived, dropped, signatures, signatures.values())
        shares = self.game.clients[one].unmask(request)[HEADER:]
        for at, owner in enumerate(sorted((set(survived) | set(dropped)) - {one})):
            share = shares[33 * at : 33 * (at + 1)]
            self.learn("seed" if owner in survived else "key", owner, one, share)

    def confirmed(self, alive):
        """Signatures that can be had for a list of survivors, the friends' own included."""
        flags = messages.membership_bits(self.game.ids, frozenset(alive))
        got = {}
        for one in sorted(alive):
            header = messages.encode_header(Stage.SURVIVORS, self.game.terms, SERVER, one)
            if one in self.corrupt:
                got[one] = self.game.identities[one].sign(survivors_message(self.game, flags))
                continue
            try:
                got[one] = self.game.clients[one].confirm(header + messages.Survivors(flags).encode())[HEADER:]
            except (UnmaskRefused, UnexpectedStage):
                continue
        return got

    def revealed(self):
        """The victim's vector, from shares alone."""
        game, terms, me = self.game, self.game.terms, self.victim
        key_of = {one: game.replies[Stage.ADVERTISEMENT][one][HEADER : HEADER + 32] for one in game.ids}
        seed = shamir.reconstruct(self.pool["seed", me], terms.threshold)
        plus, minus = [], [key_derivation.self_mask_key(terms, self.context, seed, me, bytes(32))]
        for other in self.listed:
            if other in self.corrupt:
                mask = self.friends_mask(other, key_of[me])
            else:
                pair = KeyPair.from_private(shamir.reconstruct(self.pool["key", other], terms.threshold))
                assert pair.public == key_of[other]
                mask = key_derivation.pairwise_mask_key(
                    terms, self.context, pair, ours=other, theirs=me, their_key=key_of[me], bound=bytes(32)
                )
            (minus if me < other else plus).append(mask)
        add_keystreams(self.upload, plus, minus, terms.suite.stream)
        return self.upload

    def friends_mask(self, other, victims_key):
        pair = self.friends[other]
        return key_derivation.pairwise_mask_key(
            self.game.terms, self.context, pair,
            ours=other, theirs=self.victim, their_key=victims_key, bound=bytes(32),
        )  # fmt: skip

    @classmethod
    def begin(cls, game, victim, listed, corrupt=()):
        game.until(Stage.SHARES)
        friends = {one: KeyPair.from_private(game.clients[one]._state.keys[0].private_bytes()) for one in corrupt}
        server = cls(game, victim, listed, corrupt)
        server.friends = friends
        return server


def test_unsigned_terms_trust_the_server_to_follow_the_protocol(play):
    """What unsigned terms do not withstand, so that nobody claims it: a server alone opens one of 11, keys untouched.

    The victim is told that only six neighbours shared. Every other client is told that four of these six dropped out, a
    different four each time, and that the victim survived. No client sees anything wrong.
    """
    game = play(11, 6, requirements=ClientRequirements(min_clients=7, min_threshold=6, require_signatures=False))
    server = Deviating.begin(game, victim=0, listed=range(1, 7))
    wanted = dict.fromkeys(range(1, 7), 6)
    for one in [7, 8, 9, 10, 1, 2, 3, 4, 5, 6]:
        dropped = sorted((other for other in wanted if other != one), key=lambda other: -wanted[other])[:4]
        for other in dropped:
            wanted[other] -= 1
        server.ask(one, set(game.ids) - set(dropped) - {one}, dropped)
    assert max(wanted.values()) <= 0
    np.testing.assert_array_equal(server.revealed(), game.vectors[0])


def test_on_an_unsigned_sparse_graph_a_lying_server_needs_no_colluder(play):
    """60 honest clients with 8 neighbours each: one of them is told that five shared; the others, who dropped out.

    Of each of these five the server gets a threshold of key shares, and of the client itself of seed shares; nobody is
    told that more than 8 - 5 of its neighbours dropped out, so nobody refuses.
    """
    game = play(60, 5, neighbours=8).until(Stage.MASKED_INPUT)
    around = {one: game.clients[one]._state.neighbours for one in game.ids}
    victim, listed = 0, around[0][:5]
    flags = [other in listed for other in around[victim]]
    whole = messages.Delivery.decode(memoryview(game.requests[victim])[HEADER:], np.ones(8, bool))
    cut = messages.Delivery(np.array(flags), tuple(itertools.compress(whole.sealed, flags)))
    upload = np.frombuffer(game.answer(victim, with_body(game.requests[victim], cut.encode()))[HEADER:], "<u4").copy()
    for one in game.ids[1:]:
        game.answer(one)
    context, pool = game.server._context, {}
    wanted = dict.fromkeys(listed, 5)
    # Holders with the fewest of the five to choose from are asked first.
    for one in sorted(game.ids[1:], key=lambda other: len(set(around[other]) & set(listed))):
        dropped = sorted(set(around[one]) & set(listed), key=lambda other: -wanted[other])[:3]
        dropped = [other for other in dropped if wanted[other] > 0]
        lists = (messages.membership_bits(around[one], frozenset(set(around[one]) - set(dropped))),
                 messages.membership_bits(around[one], frozenset(dropped)))  # fmt: skip
        request = messages.encode_header(Stage.REQUEST, game.terms, SERVER, one)
        reply = game.clients[one].unmask(
            request + messages.UnmaskRequest(*lists, np.zeros(0, bool), ()).encode()
        )[HEADER:]  # fmt: skip
        for at, owner in enumerate(around[one]):
            kind = "key" if owner in dropped else "seed"
            pool.setdefault((kind, owner), {})[around[owner].index(one) + 1] = reply[33 * at : 33 * (at + 1)]
            wanted[owner] = wanted.get(owner, 0) - (kind == "key")
    key_of = {one: game.replies[Stage.ADVERTISEMENT][one][HEADER : HEADER + 32] for one in game.ids}
    seed = shamir.reconstruct(pool["seed", victim], 5)
    plus, minus = [], [key_derivation.self_mask_key(game.terms, context, seed, victim, bytes(32))]
    for other in listed:
        pair = KeyPair.from_private(shamir.reconstruct(pool["key", other], 5))
        plus.append(
            key_derivation.pairwise_mask_key(
                game.terms, context, pair, ours=other, theirs=victim, their_key=key_of[victim], bound=bytes(32)
            )
        )
    add_keystreams(upload, [], [*plus, *minus], game.terms.suite.stream)
    np.testing.assert_array_equal(upload, game.vectors[victim])


def test_signed_terms_stop_the_same_server(play):
    """Each answer needs confirmations of one list by a threshold of clients, and each client confirms one list."""
    game = play(
        11, 8, signed=True, requirements=ClientRequirements(min_clients=9, min_threshold=8, require_signatures=True)
    )
    server = Deviating.begin(game, victim=0, listed=range(1, 9))
    first, second = set(game.ids) - {1}, set(game.ids) - {2}
    confirmed = server.confirmed(first)
    assert set(confirmed) == set(range(2, 11))
    assert game.clients[0].ended == "aborted"
    assert set(server.confirmed(second)) == {1}
    server.ask(9, first - {9}, {1}, confirmed)
    with pytest.raises(UnmaskRefused, match="contradicts"):
        server.ask(10, second - {10}, {2}, confirmed)


def open_one_of_signed(game, corrupt, bystanders):
    """Victim 0 is told of the friends and of client 1, which is then listed as dropped."""
    server = Deviating.begin(game, victim=0, listed={1, *corrupt}, corrupt=corrupt)
    alive = set(game.ids) - {1}
    confirmed = server.confirmed(alive)
    for one in bystanders:
        server.ask(one, alive - {one}, {1}, confirmed)
    return server.revealed()


def test_a_deviating_server_with_as_many_friends_as_the_bound_allows(play):
    """n = 7, t = 5 and 2 t + 1 - n = 4 friends; with survivors held to those who shared, it takes 2 t + 2 - n."""
    game = play(7, 5, signed=True)
    with pytest.raises((UnmaskRefused, TooFewClients)):
        open_one_of_signed(game, corrupt=(3, 4, 5, 6), bystanders=(2,))


def test_a_deviating_server_with_threshold_minus_one_friends_opens_a_client_of_signed_terms(play):
    """n = 10, t = 7, six friends: threshold - 1 of them is a promise for a server that follows the protocol only."""
    game = play(10, 7, signed=True)
    np.testing.assert_array_equal(
        open_one_of_signed(game, corrupt=(4, 5, 6, 7, 8, 9), bystanders=(2, 3)), game.vectors[0]
    )


def test_two_seconds_of_fuzzing():
    """The script that runs for minutes before a release: every reader of bytes, thousands of mutations a second."""
    seen = fuzzer.fuzz(2.0, seed=1)
    readers = {name.split(",")[0] for name, _ in seen}
    of_two_servers = {"part of an upload", "share", "proposal"}
    assert readers == {"client", "server", "snapshot", "additive share", "shamir shares"} | of_two_servers
    assert sum(seen.values()) > 500
    assert "MalformedMessage" in fuzzer.report(seen)


def test_the_fuzzer_finds_what_is_wrong(monkeypatch, capsys):
    """Its twin: a decoder that stumbles is named with the bytes it stumbled over, and the script ends with status 1."""
    monkeypatch.setattr(fuzzer.AdditiveShare, "decode", lambda data, **_: data[1000])
    assert fuzzer.main(["--cpu-minutes", "0.1"]) == 1
    assert re.search("additive share, .*IndexError.*\nmessage [0-9a-f]*\n", capsys.readouterr().err)


@pytest.mark.parametrize("stage", STAGES[True])
def test_a_bit_is_flipped_on_the_way_on_a_signed_sparse_graph(play, stage):
    """Every third byte of a message in either direction: refused by name, or the round is sound all the same."""
    game = play(**SPARSE).until(stage)
    one, request, before = 2, game.requests[2], game.clients[2].snapshot()
    reply = game.answer(2)
    elements = range(HEADER, HEADER + 16) if stage is Stage.MASKED_INPUT else ()
    for position in range(0, len(reply), 3):
        other = game.fork()
        with contextlib.suppress(MessageRefused, SignatureRefused, KeyRefused):
            other.receive(one, flipped(reply, position))
        assert position in elements or is_sound(other)
    for position in range(0, len(request), 3):
        other = game.fork()
        other.clients[one] = game.restored(one, before)
        try:
            altered = game.call(other.clients[one], stage, flipped(request, position))
        except MessageRefused:
            assert other.clients[one].snapshot().decode() == before.decode()
            continue
        except RoundAborted:
            assert other.clients[one].ended == "aborted"
            continue
        with contextlib.suppress(MessageRefused, SignatureRefused):
            other.receive(one, altered)
        assert is_sound(other)
