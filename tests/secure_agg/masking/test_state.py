"""A client that is put away between any two messages goes on as if nothing had been."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.errors import ConfigurationError, SecureAggregationError, StaleMessage
from secure_agg.masking import ClientRequirements, MaskingClient, MaskingServer, Stage, Terms
from secure_agg.masking.state import ClientState

REQUIREMENTS = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
SIZES = {False: {"clients": 5, "threshold": 3}, True: {"clients": 7, "threshold": 5}}
ROUNDS = [
    *({**size, "signed": signed} for signed, size in SIZES.items()),
    {"clients": 24, "threshold": 4, "neighbours": 6, "signed": True},
]


@pytest.mark.parametrize("size", ROUNDS)
def test_a_round_of_clients_put_away_after_every_message(play, size):
    game = play(**size)
    while game.server.awaits is not None:
        for one in game.requests:
            game.clients[one] = game.restored(one)
        game.answer_all()
        for one in list(game.clients):
            game.clients[one] = game.restored(one)
        game.advance()
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize("size", ROUNDS)
def test_snapshots_come_back_at_every_stage(play, size):
    game = play(**size)
    while game.server.awaits is not None:
        for client in game.clients.values():
            kept = client.snapshot()
            again = game.restored(client.client)
            assert again.snapshot() == kept
            assert (again.awaits, again.ended, again.client) == (client.awaits, client.ended, client.client)
        game.answer_all()
        game.advance()
    assert json.loads(game.clients[0].snapshot())["ended"] == "answered"
    assert game.restored(0).snapshot() == game.clients[0].snapshot()


def test_a_store_gets_every_state_before_its_bytes_are_handed_out(play):
    game = play(stores=True)
    kept = game.kept[0]
    for expected in range(1, 5):
        game.answer_all()
        assert len(kept) == expected
        assert kept[-1] == game.clients[0].snapshot()
        game.advance()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"null", b"5", b"[]", b"{}", b'{"secure_agg snapshot": 3}', b'{"secure_agg snapshot": 2}',
        b'"secure_agg snapshot"',
    ],
)  # fmt: skip
def test_bytes_that_are_no_snapshot(data):
    with pytest.raises(ConfigurationError, match="not a snapshot of version 3"):
        MaskingClient.restore(data, REQUIREMENTS)


def test_a_snapshot_of_another_version(play):
    known = json.loads(play().clients[0].snapshot())
    known["secure_agg snapshot"] = 2
    with pytest.raises(ConfigurationError, match="of version 2"):
        ClientState.decode(json.dumps(known).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"run": "zz"}, {"run": 5}, {"awaits": 99}, {"terms": "00"}, {"keys": ["00", "00"]}, {"keys": ["00"]},
        {"context": None}, {"roster": ["x"]}, {"roster": [-1]}, {"mask_keys": [3]}, {"inbound": [[1]]},
        {"self_seed": "0"}, {"held": [[1, 2, 3]]}, {"held": 1}, {"confirmed": 7}, {"neighbours": None},
        {"bound": "00"}, {"bound": None}, {"listed": 7}, {"listed": None},
    ],
)  # fmt: skip
def test_spoilt_snapshots(play, change):
    game = play().until(Stage.MASKED_INPUT)
    known = json.loads(game.clients[0].snapshot()) | change
    with pytest.raises(ConfigurationError, match="not a snapshot"):
        game.restored(0, json.dumps(known).encode())


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_mutilated_snapshots_are_refused_by_name_or_restored(play, data):
    game = play().until(Stage.MASKED_INPUT)
    known = bytearray(game.clients[0].snapshot())
    start = data.draw(st.integers(0, len(known)))
    known[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=10))
    try:
        game.restored(0, bytes(known))
    except SecureAggregationError:
        return


@pytest.mark.parametrize("change", [{"client": "x"}, {"client": None}, {"ended": "otherwise"}])
def test_spoilt_snapshots_of_the_wrong_kind(play, change):
    game = play().until(Stage.MASKED_INPUT)
    known = json.loads(game.clients[0].snapshot()) | change
    with pytest.raises(ConfigurationError, match="not a snapshot"):
        game.restored(0, json.dumps(known).encode())


def test_a_client_put_away_before_the_invitation_still_knows_its_last_round():
    terms = Terms(bytes(16), 7, 32, 1, 2)
    invitation = MaskingServer(terms).invite(range(3))[0]
    client = MaskingClient(0, REQUIREMENTS, run=terms.run, last_round=7)
    with pytest.raises(StaleMessage):
        client.advertise(invitation)
    with pytest.raises(StaleMessage):
        MaskingClient.restore(client.snapshot(), REQUIREMENTS).advertise(invitation)


def test_a_store_that_is_rolled_back_gives_both_shares_of_a_neighbour(play):
    """What no snapshot can prevent, so that nobody claims it: a backup that is restored answers the round again."""
    game = play(6, 4).until(Stage.REVEAL)
    backup = game.clients[0].snapshot()
    pair = next(pair for one, pair in json.loads(backup)["held"] if one == 5)
    head = game.requests[0][:40]
    survived = game.restored(0, backup).unmask(head + bytes([0b11111, 0]))
    dropped = game.restored(0, backup).unmask(head + bytes([0b01111, 0b10000]))
    assert (dropped[-33:] + survived[-33:]).hex() == pair


def test_a_store_that_is_rolled_back_complains_after_it_checked(play):
    game = play(**SIZES[True], signed=True).until(Stage.CHECK)
    backup = game.clients[0].snapshot()
    assert len(game.answer(0)) == 40 + 64
    spoilt = game.requests[0][:-1] + bytes([game.requests[0][-1] ^ 1])
    private = json.loads(backup)["keys"][1]
    assert private in game.restored(0, backup).check(spoilt).hex()


def test_last_round_keeps_a_restored_client_from_a_round_that_it_answered(play):
    game = play()
    game.finish()
    anew = MaskingClient(0, REQUIREMENTS, run=game.terms.run, last_round=game.terms.round)
    with pytest.raises(StaleMessage, match="takes part in rounds after 3"):
        anew.advertise(game.sent[Stage.INVITATION][0])
