"""What masked sums do not protect against: `docs/explanation/secure_aggregation.md` states it and names these tests."""

import json

import numpy as np
import pytest

from secure_agg.errors import ConfigurationError, MessageRefused, RosterRefused
from secure_agg.masking import SERVER, ClientRequirements, Stage, messages, signed_threshold

HEADER = messages.HEADER_BYTES
SHARE = 33


def test_a_server_that_invites_its_friends_and_one_other_reads_the_other(play):
    """9 colluding clients of 100 are few, and all of a sum of ten but one: whoever accepts sums of ten is read."""
    accepts_ten = ClientRequirements(min_clients=10, min_threshold=2)
    game = play(10, signed_threshold(10, 0), signed=True, requirements=accepts_ten)
    total, friends = game.finish(), [game.vectors[one] for one in game.ids[1:]]
    np.testing.assert_array_equal(total - np.sum(friends, axis=0, dtype=total.dtype), game.vectors[0])


def test_a_client_that_counts_those_friends_is_on_no_such_roster(play):
    counts_nine = ClientRequirements(min_clients=10, min_threshold=2, max_corrupt=9)
    with pytest.raises(ConfigurationError, match="10 clients of whom 9 may collude"):
        signed_threshold(10, 9)
    for threshold in range(5, 10):
        game = play(10, threshold, signed=True, requirements=counts_nine).until(Stage.SHARES)
        with pytest.raises(RosterRefused):
            game.answer(0)


def test_a_client_that_is_restored_from_a_backup_reveals_the_other_share_too(play):
    game = play(7, 4).until(Stage.REVEAL)
    client, backup = game.clients[0], game.clients[0].snapshot()
    others = frozenset(client._state.neighbours)
    held = dict(json.loads(backup)["held"])[1]

    def revealed(of, dropped):
        bits = [messages.membership_bits(client._state.neighbours, some) for some in (others - dropped, dropped)]
        request = messages.UnmaskRequest(*bits, np.zeros(0, bool), ()).encode()
        reply = of.unmask(messages.encode_header(Stage.REQUEST, game.terms, SERVER, 0) + request)
        at = HEADER + SHARE * client._state.neighbours.index(1)
        return reply[at : at + SHARE].hex()

    survived = revealed(client, frozenset())
    with pytest.raises(MessageRefused):
        revealed(client, frozenset({1}))
    dropped = revealed(game.restored(0, backup), frozenset({1}))
    assert {survived, dropped} == {held[: 2 * SHARE], held[2 * SHARE :]}
