"""What the server sends with a round is bound into the masks: clients that were sent different things open nothing."""

import numpy as np
import pytest

from secure_agg.errors import ConfigurationError, PartiesAccused, SignatureRefused, UnexpectedStage
from secure_agg.masking import Stage

SIZES = {False: {"clients": 5, "threshold": 3}, True: {"clients": 7, "threshold": 5, "signed": True}}
ONE, OTHER = b"\1" * 32, b"\2" * 32


def mask(game, digests):
    """Everybody sends its masked input, each bound to its digest."""
    game.until(Stage.MASKED_INPUT)
    for one, digest in digests.items():
        game.receive(one, game.clients[one].mask(game.requests[one], game.vectors[one], bound=digest))
    game.advance()
    return game


def of_all(game, digest, but=None):
    return dict.fromkeys(game.ids, digest) | (but or {})


@pytest.mark.parametrize("signed", [False, True])
def test_a_round_bound_to_one_digest_opens_its_sum(play, signed):
    game = play(**SIZES[signed])
    game.server.bind(ONE)
    mask(game, of_all(game, ONE))
    np.testing.assert_array_equal(game.finish(silent=[1]), game.expected())


@pytest.mark.parametrize("signed", [False, True])
def test_the_digest_may_be_bound_until_the_first_input(play, signed):
    game = play(**SIZES[signed]).until(Stage.MASKED_INPUT)
    game.server.bind(OTHER)
    game.server.bind(ONE)
    game.receive(2, game.clients[2].mask(game.requests[2], game.vectors[2], bound=ONE))
    with pytest.raises(UnexpectedStage, match="a masked input has arrived"):
        game.server.bind(ONE)
    for one in sorted(game.server.pending_clients):
        game.receive(one, game.clients[one].mask(game.requests[one], game.vectors[one], bound=ONE))
    while game.server.awaits is not None:
        game.advance()
        with pytest.raises(UnexpectedStage, match="or the round is over"):
            game.server.bind(ONE)
        game.answer_all()
    np.testing.assert_array_equal(game.server.total, game.expected())


@pytest.mark.parametrize("size", [0, 31, 33])
def test_digests_of_another_length(play, size):
    game = play().until(Stage.MASKED_INPUT)
    before = game.clients[1].snapshot()
    with pytest.raises(ConfigurationError, match=f"bound has {size} bytes; give a digest of 32"):
        game.clients[1].mask(game.requests[1], game.vectors[1], bound=bytes(size))
    assert game.clients[1].snapshot() == before
    with pytest.raises(ConfigurationError, match=f"the digest has {size} bytes; give 32"):
        game.server.bind(bytes(size))


def test_unsigned_masks_of_unequal_digests_do_not_cancel(play):
    """Whichever digest the server unmasks with: neither the sum over all nor over either group comes out."""
    for digest in (ONE, OTHER):
        game = play(6, 4, length=64)
        game.server.bind(digest)
        mask(game, of_all(game, ONE, but={1: OTHER, 4: OTHER}))
        total = game.finish()
        for some in (game.ids, [0, 2, 3, 5], [1, 4], *([one] for one in game.ids)):
            assert np.count_nonzero(total == game.expected(some)) < 8


def test_a_signed_client_of_another_digest_is_named_by_the_server(play):
    game = play(**SIZES[True])
    game.server.bind(ONE)
    mask(game, of_all(game, ONE, but={4: OTHER}))
    with pytest.raises(SignatureRefused, match="not one of identity"):
        game.receive(4, game.answer(4))
    game.answer_all(but=[4])
    with pytest.raises(PartiesAccused, match="clients 4 confirmed other survivors, or another digest") as refused:
        game.advance()
    assert refused.value.clients == {4}
    assert not game.server.finished


@pytest.mark.parametrize("group", [{4}, {1, 4, 6}])
def test_signed_clients_of_unequal_digests_reveal_nothing(play, group):
    """A server that sent different things hands on the confirmations all the same: every client leaves."""
    game = mask_unequally(play, group)
    replies = {one: game.answer(one)[40:] for one in game.ids}
    for one in game.ids:
        game.server._members[one].confirmation = replies[one]
    game.keep(game.server._request(frozenset(game.ids)))
    for one in game.ids:
        with pytest.raises(SignatureRefused, match="not one of identity"):
            game.answer(one)
        assert game.clients[one].ended == "aborted"


def mask_unequally(play, group):
    game = play(**SIZES[True])
    return mask(game, of_all(game, ONE, but=dict.fromkeys(group, OTHER)))


def test_a_restored_client_confirms_the_digest_that_it_masked_with(play):
    game = play(**SIZES[True])
    game.server.bind(ONE)
    mask(game, of_all(game, ONE))
    again = game.restored(3)
    assert again.snapshot() == game.clients[3].snapshot()
    confirmation = again.confirm(game.requests[3])
    assert confirmation == game.answer(3)
    game.receive(3, confirmation)
    np.testing.assert_array_equal(game.finish(), game.expected())
