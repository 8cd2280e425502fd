"""The server: what it refuses, when it gives up, and that it opens nothing before the end."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg import shamir
from secure_agg.errors import (
    ConfigurationError,
    DuplicateMessage,
    KeyRefused,
    MalformedMessage,
    SharesRefused,
    SignatureRefused,
    StaleMessage,
    TooFewClients,
    UnexpectedStage,
    WrongParty,
)
from secure_agg.masking import SERVER, ClientRequirements, MaskingServer, Stage, Terms, messages
from secure_agg.masking.simulation import aggregate, modular_sum
from secure_agg.primitives.keys import Identity, KeyPair

RUN = bytes(range(16))
HEADER = messages.HEADER_BYTES
SIZES = {False: {"clients": 5, "threshold": 3}, True: {"clients": 7, "threshold": 5, "signed": True}}
STAGES = {
    False: (Stage.ADVERTISEMENT, Stage.SHARES, Stage.MASKED_INPUT, Stage.REVEAL),
    True: (Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL),
}
EVERY_STAGE = [(signed, stage) for signed, stages in STAGES.items() for stage in stages]


def terms(threshold=3, **changes):
    return Terms(RUN, 3, 32, 4, threshold, **changes)


def must_be_over(game):
    """Nothing is open, nothing is kept, nothing is taken."""
    server = game.server
    assert (server.awaits, server.finished, server.pending_clients) == (None, False, frozenset())
    assert server._sum.size == 0
    assert server._members == {}
    for look in ("total", "survivors"):
        with pytest.raises(UnexpectedStage, match="has not finished"):
            getattr(server, look)
    with pytest.raises(UnexpectedStage, match="not begun, or is over"):
        server.advance()
    with pytest.raises(UnexpectedStage, match="not begun, or is over"):
        server.receive(game.ids[0], b"")
    with pytest.raises(UnexpectedStage, match="make a new server"):
        server.invite(game.ids)


@pytest.mark.parametrize(
    ("invited", "match"),
    [
        ([0, 1, 2, 3, 3], "distinct"),
        ([0, 1, 2, 3, -1], "distinct and from 0"),
        ([0, 1, 2, 3, SERVER], f"from 0 to {SERVER - 1}"),
        ([0, 1, 2], "3 clients are invited; this round reveals no sum of fewer than 4"),
        ([], "0 clients are invited"),
        (range(7), "7 clients are invited.*threshold of 3"),
    ],
)
def test_invitations_that_cannot_be(invited, match):
    server = MaskingServer(terms())
    with pytest.raises(ConfigurationError, match=match):
        server.invite(invited)
    assert server.awaits is None
    assert sorted(server.invite({0, SERVER - 1, 7, 9})) == [0, 7, 9, SERVER - 1]


def test_fewer_than_the_minimum():
    with pytest.raises(ConfigurationError, match="reveals no sum of fewer than 6"):
        MaskingServer(terms(), min_clients=6).invite(range(5))


def test_nothing_is_due_before_the_invitation():
    server = MaskingServer(terms())
    assert (server.awaits, server.pending_clients, server.finished) == (None, frozenset(), False)
    with pytest.raises(UnexpectedStage, match="not begun"):
        server.receive(0, b"")
    with pytest.raises(UnexpectedStage, match="not begun"):
        server.advance()
    with pytest.raises(UnexpectedStage, match="not finished"):
        _ = server.total
    server.invite(range(5))
    with pytest.raises(UnexpectedStage, match="make a new server"):
        server.invite(range(5))


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_what_is_not_this_clients_message_of_this_stage(play, signed, stage):
    size = SIZES[signed]
    game = play(**size).until(stage)
    server, reply, others = game.server, game.answer(2), game.answer(3)
    elsewhere, later = play(**size, run=bytes(16)).until(stage), play(**size, number=4).until(stage)
    complete = play(**size)
    complete.finish()
    before = game.server_state()
    for sender, message, error, match in (
        (99, reply, WrongParty, "client 99 is not expected to send the"),
        (SERVER, reply, WrongParty, "not expected"),
        (1, reply, WrongParty, "from client 2 to the server; one from client 1 to the server"),
        (2, others, WrongParty, "from client 3"),
        (2, reply[:36] + bytes(4) + reply[HEADER:], WrongParty, "to client 0"),
        (2, elsewhere.answer(2), StaleMessage, "of run 0000"),
        (2, later.answer(2), StaleMessage, "of round 4; this is round 3"),
        (2, game.requests[2], WrongParty, "from the server"),
        (2, b"", MalformedMessage, "0 bytes"),
        *((2, complete.replies[other][2], UnexpectedStage, "is due") for other in STAGES[signed] if other is not stage),
    ):
        with pytest.raises(error, match=match):
            server.receive(sender, message)
    assert game.server_state() == before
    assert server.pending_clients == frozenset(game.ids)
    game.receive(2, reply)
    assert server.pending_clients == frozenset(game.ids) - {2}
    for again in (reply, reply[:-1] + bytes([reply[-1] ^ 1])):
        after = game.server_state()
        with pytest.raises(DuplicateMessage, match="client 2 has sent its"):
            server.receive(2, again)
        assert game.server_state() == after
    game.receive(3, others)
    game.finish()
    np.testing.assert_array_equal(server.total, game.expected())


def test_a_masked_input_that_comes_too_late_is_not_added(play):
    game = play().until(Stage.MASKED_INPUT)
    late = game.answer(2)
    game.answer_all(but=[2])
    game.advance()
    before = game.server_state()
    with pytest.raises(UnexpectedStage):
        game.server.receive(4, game.replies[Stage.MASKED_INPUT][4])
    with pytest.raises(WrongParty, match="client 2 is not expected"):
        game.server.receive(2, late)
    assert game.server_state() == before
    game.finish()
    assert game.server.survivors == (0, 1, 3, 4)
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_one_too_few_at_each_stage(play, signed, stage):
    """threshold + 1 answers are enough everywhere; with threshold answers nothing is revealed and nothing stays."""
    size = SIZES[signed]
    least = size["threshold"] + 1
    game = play(**size).until(stage)
    game.fork().finish(silent=game.ids[least:])
    game.answer_all(but=game.ids[least - 1 :])
    inputs = [vector.copy() for vector in game.vectors.values()]
    with pytest.raises(TooFewClients, match="the round is over and nothing was unmasked"):
        game.server.advance()
    must_be_over(game)
    assert not any(np.array_equal(array, vector) for array in arrays_of(game.server) for vector in inputs)


def test_the_minimum_holds_at_every_stage(play):
    for stage in STAGES[False][:3]:
        game = play(6, 4, min_clients=6).until(stage)
        game.answer_all(but=[5])
        with pytest.raises(TooFewClients, match="a sum needs 6"):
            game.server.advance()
        must_be_over(game)
    game = play(6, 4, min_clients=6).until(Stage.REVEAL)
    game.finish(silent=[5])
    assert len(game.server.survivors) == 6


def arrays_of(root):
    result, waiting, seen = [], [root], set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            result.append(thing)
        waiting += gc.get_referents(thing)
    return result


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_nothing_of_the_total_is_there_before_the_end(play, data):
    """Whoever falls silent whenever: no array within the server is an input or a sum of inputs until it is finished."""
    signed = data.draw(st.booleans())
    game = play(**SIZES[signed])
    mostly = st.sampled_from([None] * 9 + list(STAGES[signed]))
    silent_from = {one: data.draw(mostly) for one in game.ids}
    gone = set()
    try:
        while game.server.awaits is not None:
            gone |= {one for one, stage in silent_from.items() if stage is game.server.awaits}
            if not data.draw(st.integers(0, 3)):
                assert not game.server.finished
            game.answer_all(but=gone)
            sums = [game.expected(some) for some in (*([one] for one in game.ids), game.ids, set(game.ids) - gone)]
            arrays = arrays_of(game.server)
            assert not any(np.array_equal(array, one) for array in arrays for one in sums)
            for look in ("total", "survivors"):
                with pytest.raises(UnexpectedStage):
                    getattr(game.server, look)
            game.advance()
    except TooFewClients:
        must_be_over(game)
        return
    assert game.server.finished
    np.testing.assert_array_equal(game.server.total, game.expected())
    assert game.server._members == {}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("of", ["a survivor", "one that dropped out"])
@pytest.mark.parametrize("how", ["another number", "no secret at all"])
def test_wrong_shares_in_a_reveal(play, signed, of, how):
    """With none to spare they rebuild another secret: the server says so, opens nothing and keeps nothing."""
    gone = 6 if signed else 4
    game = play(**SIZES[signed]).until(Stage.MASKED_INPUT)
    game.answer_all(but=[gone])
    game.advance()
    game.until(Stage.REVEAL, silent=[gone])
    # A client that dropped out has one holder more than a survivor: a second wrong share uses up the spare one.
    for liar in (0,) if of == "a survivor" else (0, 3):
        reply = bytearray(game.answer(liar))
        start = HEADER if of == "a survivor" else len(reply) - shamir.SHARE_BYTES
        honest = int.from_bytes(reply[start : start + shamir.SHARE_BYTES], "big")
        # Equal errors of parties 1 and 4 would cancel in the secret, which would then be right after all.
        wrong = (honest + 1 + liar) % shamir.PRIME
        if how == "no secret at all" and liar == 0:
            wrong = nonsense(game, start, honest)
        reply[start : start + shamir.SHARE_BYTES] = wrong.to_bytes(shamir.SHARE_BYTES, "big")
        game.receive(liar, bytes(reply))
    game.answer_all()
    owner = 1 if of == "a survivor" else gone
    with pytest.raises(SharesRefused, match="rebuild") as refused:
        game.server.advance()
    assert refused.value.suspects == game.server.suspects
    assert set(game.server.suspects) == {owner}
    assert "either it dealt wrong shares, or more than 0 of the" in game.server.suspects[owner]
    must_be_over(game)


def nonsense(game, start, honest):
    """A share with which the owner's shares meet in a number of 257 bits."""
    threshold = game.terms.threshold
    owner = 1 if start == HEADER else max(game.ids)
    holders = [one for one in game.ids if one != owner][:threshold]
    positions = tuple([one for one in game.ids if one != owner].index(one) + 1 for one in holders)
    weight = shamir._lagrange_weights(positions, shamir.PRIME)[0]
    pair = game.clients[holders[1]]._state.held_shares[owner]
    assert holders[0] == 0
    assert len(pair) == 2 * shamir.SHARE_BYTES
    shares = [bytes(game.clients[one]._state.held_shares[owner]) for one in holders[1:]]
    part = slice(33, 66) if owner == 1 else slice(0, 33)
    values = [honest] + [int.from_bytes(share[part], "big") for share in shares]
    secret = shamir._interpolate_at_zero(positions, values, shamir.PRIME)
    target = 2**256 + 7
    return (honest + (target - secret) * pow(weight, -1, shamir.PRIME)) % shamir.PRIME


def test_a_share_beyond_the_field_is_dropped_and_the_right_one_still_taken(play):
    game = play().until(Stage.REVEAL)
    reply = game.answer(0)
    before = game.server_state()
    for position in range(4):
        start = HEADER + position * shamir.SHARE_BYTES
        wrong = reply[:start] + shamir.PRIME.to_bytes(33, "big") + reply[start + 33 :]
        with pytest.raises(MalformedMessage, match="not below"):
            game.server.receive(0, wrong)
    assert game.server_state() == before
    game.receive(0, reply)
    game.finish()
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_a_client_that_shared_another_key_than_it_advertised(play, monkeypatch):
    """It drops out after its input was due; the key that comes back is not the one whose masks the others added."""
    game = play().until(Stage.SHARES)
    other = KeyPair.generate().private_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(KeyPair, "private_bytes", lambda _: other)
        game.receive(4, game.answer(4))
    game.until(Stage.MASKED_INPUT)
    game.until(Stage.REVEAL, silent=[4])
    game.answer_all()
    with pytest.raises(SharesRefused, match="client 4 rebuild another key than it advertised"):
        game.server.advance()
    must_be_over(game)


def test_a_client_that_committed_to_another_self_mask(play):
    game = play().until(Stage.SHARES)
    reply = bytearray(game.answer(4))
    reply[HEADER] ^= 1
    game.receive(4, bytes(reply))
    game.until(Stage.REVEAL)
    game.answer_all()
    with pytest.raises(SharesRefused, match="client 4 do not rebuild the self mask it committed to"):
        game.server.advance()
    must_be_over(game)


@pytest.mark.parametrize("positions", [(0, 0), (0, 32), (32, 32), (32, 0)])
def test_clients_with_one_key_between_them_are_left_out(play, positions):
    """Client 5 copies a key of client 1: nobody can say whose it is, so both go, and the others' sum is revealed."""
    game = play(7, 4)
    ours, theirs = positions
    stolen = game.answer(1)
    copied = bytearray(game.answer(5))
    copied[HEADER + ours : HEADER + ours + 32] = stolen[HEADER + theirs : HEADER + theirs + 32]
    game.receive(1, stolen)
    game.receive(5, bytes(copied))
    game.finish()
    assert game.server.survivors == (0, 2, 3, 4, 6)
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_a_client_with_one_key_twice_is_left_out(play):
    game = play(6, 3 + 1)
    reply = game.answer(1)
    game.receive(1, reply[: HEADER + 32] + reply[HEADER : HEADER + 32])
    game.finish()
    assert game.server.survivors == (0, 2, 3, 4, 5)


@pytest.mark.parametrize("position", [0, 32], ids=["mask key", "channel key"])
def test_a_client_with_a_low_order_key_does_not_end_the_round_of_the_others(play, position):
    game = play(6, 4)
    reply = bytearray(game.answer(1))
    reply[HEADER + position : HEADER + position + 32] = bytes(32)
    with pytest.raises(KeyRefused, match="client 1 advertises a key of low order"):
        game.receive(1, bytes(reply))
    game.finish()
    assert game.server.survivors == (0, 2, 3, 4, 5)


def test_signed_advertisements_and_confirmations_by_whom_the_directory_knows(play):
    game = play(**SIZES[True])
    reply, stranger = game.answer(2), Identity.generate()
    for directory, match in (
        ({one: key for one, key in game.directory.items() if one != 2}, "directory knows no client 2"),
        (game.directory | {2: stranger.public}, "not one of identity"),
        (game.directory | {2: b"short"}, "not one of identity"),
    ):
        server = MaskingServer(game.terms, directory=directory)
        server.invite(game.ids)
        with pytest.raises(SignatureRefused, match=match):
            server.receive(2, reply)
        assert server.pending_clients == frozenset(game.ids)
    game.receive(2, reply)
    game.until(Stage.CONFIRMATION)
    confirmation = game.answer(2)
    before = game.server_state()
    for wrong in (bytes(64), stranger.sign(b""), game.answer(3)[HEADER:]):
        with pytest.raises(SignatureRefused, match="not one of identity"):
            game.server.receive(2, confirmation[:HEADER] + wrong)
    assert game.server_state() == before
    game.receive(2, confirmation)
    game.finish(silent=[3])
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_a_server_without_a_directory_takes_no_signature(play):
    game = play(**SIZES[True])
    server = MaskingServer(game.terms)
    server.invite(game.ids)
    with pytest.raises(SignatureRefused, match="directory knows no client 2"):
        server.receive(2, game.answer(2))


def test_the_graph_is_not_there_before_the_roster():
    server = MaskingServer(terms())
    server.invite(range(5))
    with pytest.raises(UnexpectedStage, match="roster is not settled"):
        _ = server._context


def test_sharers_without_enough_neighbours_are_pruned_until_none_is_left_to_prune(play):
    """A stretch of the ring loses its neighbours one after the other, as dominoes."""
    game = play(30, 2, neighbours=2).until(Stage.SHARES)
    game.answer_all(but=[0])
    with pytest.raises(TooFewClients, match="shared their secrets with enough neighbours"):
        game.server.advance()
    must_be_over(game)


def test_pruning_leaves_the_largest_set_in_which_each_has_enough_neighbours(play):
    """Against an oracle that throws out whoever has too few, again and again, for many sets of sharers."""
    game = play(24, 4, neighbours=6).until(Stage.SHARES)
    around = {one: set(game.server._graph.neighbours(one)) for one in game.ids}
    rng, sizes = np.random.default_rng(3), set()
    for _ in range(300):
        sharers = {one for one in game.ids if rng.random() < 0.75}
        expected = set(sharers)
        while poor := {one for one in expected if len(around[one] & expected) < 4}:
            expected -= poor
        assert game.server._with_enough_neighbours(frozenset(sharers)) == expected
        sizes.add(len(sharers) - len(expected))
    assert len(sizes) > 3


@pytest.mark.parametrize("dropped", [None, *STAGES[True]])
def test_signed_rounds_from_end_to_end(dropped):
    """One client falls silent at each stage: the sum is over the others, or over all if it masked its input."""
    agreed = Terms(RUN, 0, 32, 4, 5, signed=True)
    vectors = {one: np.full(4, one, np.uint32) for one in range(7)}
    outcome = aggregate(vectors, agreed, dropouts={dropped: [6]} if dropped else None)
    masked = dropped in {None, Stage.CONFIRMATION, Stage.REVEAL}
    assert outcome.survivors == tuple(range(7 if masked else 6))
    np.testing.assert_array_equal(outcome.total, modular_sum(vectors, outcome.survivors, agreed))


def test_a_round_that_every_client_refuses():
    vectors = {one: np.zeros(4, np.uint32) for one in range(5)}
    with pytest.raises(TooFewClients, match="0 of 5 clients advertised"):
        aggregate(
            vectors, terms(), requirements=ClientRequirements(min_clients=3, min_threshold=4, require_signatures=False)
        )


def test_threads_do_not_change_the_total(play):
    game = play(5, 3, length=100_000)
    game.server._threads = 3
    game.finish(silent=[])
    np.testing.assert_array_equal(game.server.total, game.expected())
