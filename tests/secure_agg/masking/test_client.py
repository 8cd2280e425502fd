"""The client: what it refuses, what it deletes, and that it answers once."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from secure_agg.errors import (
    AlreadyAnswered,
    ConfigurationError,
    MessageRefused,
    RosterRefused,
    SecureAggregationError,
    SignatureRefused,
    StaleMessage,
    TermsRefused,
    TooFewClients,
    UnexpectedStage,
    UnmaskRefused,
    WrongParty,
)
from secure_agg.masking import SERVER, ClientRequirements, MaskingClient, MaskingServer, Stage, Terms, messages

RUN = bytes(range(16))
REQUIREMENTS = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
SIZES = {False: {"clients": 5, "threshold": 3}, True: {"clients": 7, "threshold": 5, "signed": True}}
STAGES = {
    False: (Stage.ADVERTISEMENT, Stage.SHARES, Stage.MASKED_INPUT, Stage.REVEAL),
    True: (Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL),
}
EVERY_STAGE = [(signed, stage) for signed, stages in STAGES.items() for stage in stages]


def body(message):
    return message[messages.HEADER_BYTES :]


def with_body(message, new):
    return message[: messages.HEADER_BYTES] + new


def test_set_up():
    for bad in (-1, SERVER):
        with pytest.raises(ConfigurationError, match=f"the client's id is {bad}"):
            MaskingClient(bad, REQUIREMENTS, run=RUN)
    for run in (b"", bytes(15), bytes(17)):
        with pytest.raises(ConfigurationError, match=f"run has {len(run)} bytes; give 16"):
            MaskingClient(0, REQUIREMENTS, run=run)
    client = MaskingClient(SERVER - 1, REQUIREMENTS, run=RUN)
    assert (client.awaits, client.ended) == (Stage.INVITATION, None)
    with pytest.raises(ConfigurationError, match="holds no terms"):
        _ = client.terms


def test_a_number_of_threads_that_cannot_be():
    with pytest.raises(ConfigurationError, match="threads"):
        MaskingClient(0, REQUIREMENTS, run=RUN, threads=0)
    with pytest.raises(ConfigurationError, match="threads"):
        MaskingServer(Terms(RUN, 0, 32, 1, 2), threads=0)


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_it_awaits_one_message_at_a_time(play, signed, stage):
    """At each stage the four or five other messages are out of turn, and so is every method but one."""
    game = play(**SIZES[signed])
    game.until(stage)
    everything = play(**SIZES[signed])
    everything.finish()
    client, request = game.clients[1], game.requests[1]
    assert client.awaits is game.follows[stage]
    before = client.snapshot()
    for other in STAGES[signed]:
        if other is not stage:
            with pytest.raises(UnexpectedStage, match=f"{game.follows[other]} message"):
                game.call(client, other, request)
            with pytest.raises(UnexpectedStage, match="awaits"):
                game.call(client, other, everything.sent[game.follows[other]][1])
            with pytest.raises(UnexpectedStage, match="is due"):
                game.call(client, stage, everything.sent[game.follows[other]][1])
    assert client.snapshot() == before
    game.finish()
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_a_store_that_fails_lets_nothing_out(play, signed, stage):
    game = play(**SIZES[signed]).until(stage)
    game.note_secrets(1)

    def broken(_):
        raise OSError("the disk is full")

    game.clients[1]._store = broken
    with pytest.raises(OSError, match="disk is full"):
        game.answer(1)
    game.clients[1]._store = None
    if stage is Stage.ADVERTISEMENT:
        game.secrets[1] = [b"no secret yet"]
    game.must_be_over(1)


def test_the_store_is_called_before_the_reply_is_returned(play):
    game = play()
    order = []
    game.clients[1]._store = lambda snapshot: order.append(json.loads(snapshot)["awaits"])
    for _ in range(4):
        reply = game.answer(1)
        order.append(bytes(reply[6:8]))
        game.receive(1, reply)
        game.answer_all(but=[1])
        game.advance()
    stages = [Stage.ADVERTISEMENT, Stage.SHARES, Stage.MASKED_INPUT, Stage.REVEAL]
    assert order[1::2] == [stage.to_bytes(2, "big") for stage in stages]
    assert order[::2] == [Stage.ROSTER, Stage.DELIVERY, Stage.REQUEST, None]


@pytest.mark.parametrize("number", [0, 5, 6])
def test_rounds_do_not_go_backwards(number):
    terms = Terms(RUN, number, 32, 1, 2)
    client = MaskingClient(1, REQUIREMENTS, run=RUN, last_round=6)
    before = client.snapshot()
    with pytest.raises(StaleMessage, match=f"to round {number}; this client takes part in rounds after 6"):
        client.advertise(MaskingServer(terms).invite(range(3))[1])
    assert client.snapshot() == before
    assert client.advertise(MaskingServer(dataclasses.replace(terms, round=7)).invite(range(3))[1])


def test_the_run_in_the_terms_is_the_run_of_the_header(play):
    game = play()
    other = dataclasses.replace(game.terms, run=bytes(16))
    with pytest.raises(StaleMessage):
        game.answer(1, with_body(game.requests[1], other.encode()))
    later = dataclasses.replace(game.terms, round=99)
    with pytest.raises(StaleMessage, match="of round 3; this is round 99"):
        game.answer(1, with_body(game.requests[1], later.encode()))
    game.finish()
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_signed_terms_need_an_identity(play):
    game = play(**SIZES[True])
    client = MaskingClient(1, REQUIREMENTS, run=RUN, directory=game.directory)
    with pytest.raises(TermsRefused, match="no identity to sign with"):
        client.advertise(game.requests[1])
    assert client.ended == "aborted"


def test_a_client_put_back_without_its_identity_does_not_confirm(play):
    game = play(**SIZES[True]).until(Stage.CONFIRMATION)
    game.note_secrets(1)
    game.clients[1] = MaskingClient.restore(game.clients[1].snapshot(), REQUIREMENTS, directory=game.directory)
    with pytest.raises(SignatureRefused, match="no identity to sign with"):
        game.answer(1)
    game.must_be_over(1)


def test_a_client_put_back_without_its_directory_refuses_by_name(play):
    game = play(**SIZES[True]).until(Stage.REVEAL)
    client = MaskingClient.restore(game.clients[1].snapshot(), REQUIREMENTS, identity=game.identities[1])
    with pytest.raises(SignatureRefused, match="directory knows no client"):
        client.unmask(game.requests[1])


@pytest.mark.parametrize("missing", [0, 6])
def test_a_neighbour_that_the_directory_does_not_know(play, missing):
    game = play(**SIZES[True])
    del game.clients[1]._directory[missing]
    game.directory[missing] = game.identities[missing].public
    client = MaskingClient(1, REQUIREMENTS, run=RUN, identity=game.identities[1],
                           directory={one: key for one, key in game.directory.items() if one != missing})  # fmt: skip
    game.clients[1] = client
    game.until(Stage.SHARES)
    game.note_secrets(1)
    with pytest.raises(SignatureRefused, match=f"directory knows no client {missing}"):
        game.answer(1)
    game.must_be_over(1)


WRONG_VECTORS = [
    np.zeros(3, np.uint32), np.zeros(5, np.uint32), np.zeros((4, 1), np.uint32), np.zeros(0, np.uint32),
    np.zeros(4, np.uint64), np.zeros(4, np.int32), np.zeros(4, ">u4"), np.zeros(4, np.float32), np.zeros((), np.uint32),
    np.zeros(1_000_000, np.uint32),
]  # fmt: skip


@pytest.mark.parametrize("vector", WRONG_VECTORS, ids=lambda vector: f"{vector.dtype}{vector.shape}")
def test_a_wrong_vector_changes_nothing(play, vector):
    game = play().until(Stage.MASKED_INPUT)
    client = game.clients[1]
    before = client.snapshot()
    with pytest.raises(ConfigurationError, match="the terms ask for"):
        client.mask(game.requests[1], vector)
    assert client.snapshot() == before
    game.finish()
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize("vector", [[1, 2, 3, 4], None, b"0123456789abcdef"])
def test_a_vector_that_is_no_array(play, vector):
    game = play().until(Stage.MASKED_INPUT)
    before = game.clients[1].snapshot()
    with pytest.raises(ConfigurationError, match="the terms ask for"):
        game.clients[1].mask(game.requests[1], vector)
    assert game.clients[1].snapshot() == before


def test_the_vector_itself_is_left_alone(play):
    game = play().until(Stage.MASKED_INPUT)
    vector = np.arange(8, dtype=np.uint32)[::2]
    vector.flags.writeable = False
    game.vectors[1] = vector
    game.finish()
    assert vector.tolist() == [0, 2, 4, 6]
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_a_client_that_is_not_on_the_roster(play):
    game = play(6, 4)
    stranger = game.clients[5]
    stranger.advertise(game.requests[5])
    game.until(Stage.SHARES, silent=[5])
    game.note_secrets(5)
    roster = bytearray(game.requests[0])
    roster[36:40] = (5).to_bytes(4, "big")
    with pytest.raises(SecureAggregationError) as refused:
        stranger.share(bytes(roster))
    assert isinstance(refused.value, RosterRefused)
    assert "client 5 advertised keys and is not on the roster" in str(refused.value)
    game.must_be_over(5)


@pytest.mark.parametrize(("signed", "stage"), EVERY_STAGE)
def test_secrets_are_gone_as_soon_as_they_are_not_needed(play, signed, stage):
    """Own masks go when the input is masked, neighbours' shares when the answer is given."""
    game = play(**SIZES[signed]).until(stage)
    client = game.clients[1]
    client_knew = set(game.note_secrets(1))
    game.answer(1)
    knows = set(game.note_secrets(1))
    match stage:
        case Stage.ADVERTISEMENT:
            assert len(knows) == 2
        case Stage.SHARES:
            assert client_knew < knows
        case Stage.CHECK:
            assert client_knew < knows
            assert len(knows) == len(client_knew) + 2 * (len(game.ids) - 1)
        case Stage.MASKED_INPUT:
            assert knows < client_knew if signed else not client_knew & knows
            assert len(knows) == 2 * (len(game.ids) - 1)
            with pytest.raises(ConfigurationError, match="keys of the round are gone"):
                _ = client._keys
        case Stage.CONFIRMATION:
            assert client_knew == knows
        case _:
            assert not knows
            assert (client.awaits, client.ended) == (None, "answered")


@pytest.mark.parametrize("signed", [False, True])
def test_it_answers_once(play, signed):
    game = play(**SIZES[signed], stores=True).until(Stage.REVEAL)
    client, kept = game.clients[1], game.kept[1]
    first = game.answer(1)
    after = client.snapshot()
    assert kept[-1] == after
    attempts = [game.requests[1], game.requests[2], b"", first, *(sent[1] for sent in game.sent.values())]
    for again in (client, game.restored(1, kept[-1])):
        for stage in STAGES[signed]:
            for message in attempts:
                with pytest.raises(AlreadyAnswered, match="client 1 has revealed its shares"):
                    game.call(again, stage, message)
        assert again.snapshot() == after
    game.receive(1, first)
    game.finish()
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_no_request_of_all_makes_a_client_give_both_shares_of_one_neighbour(play):
    """All 256 unsigned requests to a client with four neighbours of whom one never shared."""
    game = play(5, 3).until(Stage.SHARES).until(Stage.REVEAL, silent=[4])
    held = json.loads(game.clients[0].snapshot())["held"]
    key_share = {one: bytes.fromhex(pair)[:33] for one, pair in held}
    seed_share = {one: bytes.fromhex(pair)[33:] for one, pair in held}
    answered = 0
    for survived, dropped in itertools.product(range(16), repeat=2):
        client = game.restored(0)
        try:
            reply = client.unmask(with_body(game.requests[0], bytes([survived, dropped])))
        except (UnmaskRefused, TooFewClients):
            assert client.ended == "aborted"
            assert survived & dropped or (survived | dropped) & 0b1000 or survived.bit_count() < 3
            continue
        assert client.ended == "answered"
        answered += 1
        revealed = body(reply)
        for one in (1, 2, 3):
            assert not (key_share[one] in revealed and seed_share[one] in revealed)
            assert (seed_share[one] in revealed) == bool(survived >> (one - 1) & 1)
            assert (key_share[one] in revealed) == bool(dropped >> (one - 1) & 1)
    assert answered == 1


@pytest.mark.parametrize("signed", [False, True])
def test_no_order_of_calls_snapshots_and_restores_reveals_twice(play, signed):
    """A process that dies at any point comes back as what its store kept last, and still answers at most once."""
    rng = np.random.default_rng(5)
    game = play(**SIZES[signed], stores=True)
    full = play(**SIZES[signed])
    full.finish()
    game.until(Stage.REVEAL)
    kept = game.kept[1]
    start = len(kept)
    for _ in range(20):
        del kept[start:]
        client = game.restored(1, kept[-1])
        client._store = kept.append
        replies = []
        for _ in range(12):
            if rng.random() < 0.3:
                client = game.restored(1, kept[-1])
                client._store = kept.append
            if rng.random() < 0.15:
                client._store = dies
            stage = STAGES[signed][rng.integers(len(STAGES[signed]))]
            message = game.requests[1] if rng.random() < 0.7 else list(full.sent.values())[rng.integers(4)][1]
            try:
                reply = game.call(client, stage, message)
            except (SecureAggregationError, OSError):
                continue
            replies.append(reply)
        assert len(replies) <= 1
        if replies:
            assert json.loads(kept[-1])["ended"] == "answered"


def dies(_):
    raise OSError("the process ended here")


def test_why_the_round_ended_is_reported_even_when_the_store_fails(play):
    game = play().until(Stage.REVEAL)
    client = game.clients[1]
    client._store = dies
    overlapping = with_body(game.requests[1], b"\x0f\x01")
    with pytest.raises(UnmaskRefused, match="survived and as dropped"):
        client.unmask(overlapping)


def test_the_named_error_says_it_is_a_refusal():
    """What changes nothing and what ends the round are told apart by class."""
    assert issubclass(AlreadyAnswered, MessageRefused)
    assert issubclass(WrongParty, MessageRefused)
    assert not issubclass(UnmaskRefused, MessageRefused)
    assert not issubclass(ConfigurationError, MessageRefused)


@pytest.mark.parametrize("kind", [np.int64, np.uint32])
def test_ids_and_rounds_out_of_numpy_arrays(play, kind):
    game = play(stores=True)
    game.clients[2] = MaskingClient(kind(2), REQUIREMENTS, run=RUN, last_round=kind(2), store=game.kept[2].append)
    game.finish()
    assert 2 in game.server.survivors
    assert game.restored(2, game.kept[2][-1]).ended == "answered"


@pytest.mark.parametrize("last_round", [-2, 2**64])
def test_a_last_round_that_cannot_be(last_round):
    with pytest.raises(ConfigurationError, match="last_round is"):
        MaskingClient(0, REQUIREMENTS, run=RUN, last_round=last_round)


def test_a_masked_array_is_no_vector_or_is_summed(play):
    game = play().until(Stage.MASKED_INPUT)
    try:
        game.clients[1].mask(game.requests[1], np.ma.array(game.vectors[1], mask=[True, False, False, False]))
    except ConfigurationError:
        assert game.clients[1].ended is None
