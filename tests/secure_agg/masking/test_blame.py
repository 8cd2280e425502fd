"""Wrong shares in a reveal: corrected where enough are right, and traced to their dealer or holder."""

import numpy as np
import pytest

from secure_agg import shamir
from secure_agg.errors import SharesRefused
from secure_agg.masking import Stage, blame, messages
from secure_agg.masking import client as client_module

HEADER = messages.HEADER_BYTES
KINDS = {
    "complete": {"clients": 9, "threshold": 5},
    "sparse": {"clients": 14, "threshold": 5, "neighbours": 8},
    "signed": {"clients": 10, "threshold": 7, "signed": True},
    "signed, sparse": {"clients": 32, "threshold": 6, "neighbours": 8, "signed": True},
}


def spoil(game, one, owners):
    """The reveal of client `one`, with the shares of some owners replaced."""
    neighbours = game.clients[one]._state.neighbours
    reply = bytearray(game.answer(one))
    asked = [other for other in neighbours if other in game.server._sharers]
    for owner in owners:
        start = HEADER + asked.index(owner) * shamir.SHARE_BYTES
        reply[start + 20] ^= 1
    game.receive(one, bytes(reply))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gone", [[], [5]])
def test_a_holder_of_wrong_shares_only_is_corrected_and_named(play, kind, gone):
    game = play(**KINDS[kind]).until(Stage.MASKED_INPUT)
    game.until(Stage.REVEAL, silent=gone)
    spoil(game, 0, game.clients[0]._state.neighbours)
    np.testing.assert_array_equal(game.finish(silent=gone), game.expected([one for one in game.ids if one not in gone]))
    assert set(game.server.suspects) == {0}
    assert "shares between it and" in game.server.suspects[0]


def test_one_wrong_share_names_dealer_and_holder(play):
    game = play(**KINDS["signed"]).until(Stage.REVEAL)
    spoil(game, 2, [6])
    np.testing.assert_array_equal(game.finish(), game.expected())
    assert dict(game.server.suspects) == {
        2: "either it or client 6 sent a wrong share",
        6: "either it or client 2 sent a wrong share",
    }


def test_two_liars_who_disagree_are_both_corrected_and_named(play):
    game = play(13, 9, signed=True).until(Stage.REVEAL)
    for one in (1, 7):
        spoil(game, one, [other for other in game.ids if other != one])
    np.testing.assert_array_equal(game.finish(), game.expected())
    assert set(game.server.suspects) == {1, 7}


def test_a_dealer_of_a_few_wrong_shares_is_corrected_and_named_with_their_holders(play, monkeypatch):
    game = play(**KINDS["complete"]).until(Stage.SHARES)
    honest = shamir.split

    def split(secret, threshold, shares):
        dealt = honest(secret, threshold, shares)
        return [bytes(33), *dealt[1:6], bytes(33), *dealt[7:]]

    with monkeypatch.context() as patched:
        patched.setattr(client_module.shamir, "split", split)
        game.receive(4, game.answer(4))
    np.testing.assert_array_equal(game.finish(), game.expected())
    assert dict(game.server.suspects) == {
        0: "either it or client 4 sent a wrong share",
        4: "either it or client 0 and 7 sent a wrong share",
        7: "either it or client 4 sent a wrong share",
    }


def test_where_nothing_decodes_the_round_ends_with_the_suspects(play, monkeypatch):
    game = play(**KINDS["complete"]).until(Stage.SHARES)
    with monkeypatch.context() as patched:
        patched.setattr(
            client_module.shamir, "split", lambda *_: [bytes([0, number]) * 16 + b"\0" for number in range(8)]
        )
        game.receive(4, game.answer(4))
    game.until(Stage.REVEAL)
    spoil(game, 2, [1])
    game.answer_all()
    with pytest.raises(
        SharesRefused, match="client 4 do not rebuild the self mask it committed to; either it"
    ) as refused:
        game.server.advance()
    assert set(refused.value.suspects) == {1, 2, 4}
    assert refused.value.suspects == game.server.suspects
    assert game.server.suspects[4] == (
        "either it dealt wrong shares, or more than 1 of the 8 clients that revealed them lied"
    )


def test_no_wrong_share_names_nobody_and_decodes_nothing(play, monkeypatch):
    def never(*_):
        raise AssertionError("the happy path decodes nothing")

    monkeypatch.setattr(shamir, "decode", never)
    for kind in KINDS.values():
        game = play(**kind)
        game.finish(silent=[])
        assert dict(game.server.suspects) == {}


def test_one_liar_costs_one_decoding(play, monkeypatch):
    """Its shares of other secrets are left out from then on, and held against it by interpolation alone."""
    calls, honest = [], shamir.decode
    monkeypatch.setattr(shamir, "decode", lambda *given: calls.append(1) or honest(*given))
    game = play(**KINDS["signed"]).until(Stage.REVEAL)
    spoil(game, 0, game.ids[1:])
    game.finish()
    assert len(calls) == 1
    assert set(game.server.suspects) == {0}


def test_who_is_in_more_wrong_pairs_than_there_can_be_liars():
    holder = blame.suspects([(dealer, 9) for dealer in range(4)], max_liars=3)
    assert set(holder) == {9}
    dealer = blame.suspects([(9, other) for other in range(4)], max_liars=3)
    assert dealer == holder
    either = blame.suspects([(dealer, 9) for dealer in range(3)], max_liars=3)
    assert set(either) == {0, 1, 2, 9}
    mixed = blame.suspects([*((dealer, 9) for dealer in range(4)), (0, 5), (1, 9)], max_liars=3)
    assert mixed.keys() == {0, 5, 9}
    assert mixed[5] == "either it or client 0 sent a wrong share"
    assert blame.suspects([], max_liars=1) == {}
