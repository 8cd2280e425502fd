"""The check of signed rounds: shares are known to be right, by everybody who goes on, before anybody masks an input."""

import numpy as np
import pytest

from secure_agg import shamir
from secure_agg.errors import (
    MalformedMessage,
    PartiesAccused,
    ShareError,
    SharesRefused,
    SignatureRefused,
    TooFewClients,
    UnexpectedStage,
)
from secure_agg.masking import SERVER, ClientRequirements, Stage, key_derivation, messages, sealed_pairs
from secure_agg.masking import client as client_module
from secure_agg.masking.graph import HararyGraph
from secure_agg.primitives.keys import KeyPair, seal

HEADER = messages.HEADER_BYTES
SIGNED = {"clients": 7, "threshold": 5, "signed": True}


def with_body(message, body):
    return message[:HEADER] + body


def seal_rubbish(game, one, receivers, monkeypatch, pair=b"\xff" * 66):
    """Client `one` seals something else than a pair of shares for some of its neighbours."""
    graph = HararyGraph(game.terms, np.array(game.ids, np.uint32))
    neighbours, sealed = iter(graph.neighbours(one)), []

    def sealing(aead, key, honest, associated):
        sealed.append(next(neighbours))
        return seal(aead, key, pair if sealed[-1] in receivers else honest, associated)

    with monkeypatch.context() as patched:
        patched.setattr(client_module, "seal", sealing)
        game.receive(one, game.answer(one))


def complaint(game, one, accused, *, channel_pair=None, signer=None):
    """A complaint of client `one`, as it would be encoded."""
    neighbours = game.clients[one]._state.neighbours
    flags = messages.membership_bits(neighbours, frozenset(accused))
    private = b"" if game.terms.neighbours else (channel_pair or game.clients[one]._keys[1]).private_bytes()
    signed = key_derivation.complaint_message(game.server._context, one, flags, private)
    body = messages.Complaint(flags, private, (signer or game.identities[one]).sign(signed)).encode()
    return messages.encode_header(Stage.CHECK, game.terms, one, SERVER) + body


def go_ahead(game, one, checked, signatures=None):
    """The go-ahead to client `one`, cut to itself and these neighbours."""
    held = {other: reply[HEADER:] for other, reply in game.replies[Stage.CHECK].items()} | (signatures or {})
    flags = messages.membership_bits(game.ids, frozenset(checked) | {one})
    body = messages.GoAhead(flags, tuple(held[other] for other in sorted(set(checked) - {one}))).encode()
    return messages.encode_header(Stage.GO_AHEAD, game.terms, SERVER, one) + body


def accused_at_the_check(game):
    game.answer_all()
    with pytest.raises(PartiesAccused, match="nobody masked an input") as refused:
        game.server.advance()
    assert not game.server.finished
    return refused.value.clients


@pytest.mark.parametrize("receivers", [{2}, {0, 2, 3}, {0, 1, 2, 3, 4, 6}])
@pytest.mark.parametrize("pair", [b"\xff" * 66, bytes(33) + b"\xff" * 33])
def test_who_seals_rubbish_is_named_and_the_round_works_without_it(play, monkeypatch, receivers, pair):
    game = play(**SIGNED).until(Stage.SHARES)
    seal_rubbish(game, 5, receivers, monkeypatch, pair)
    game.until(Stage.CHECK)
    assert accused_at_the_check(game) == {5}
    again = play([0, 1, 2, 3, 4, 6], 5, signed=True, number=4)
    np.testing.assert_array_equal(again.finish(), again.expected())


def test_who_complains_has_left_with_its_secrets_deleted(play, monkeypatch):
    game = play(**SIGNED).until(Stage.SHARES)
    seal_rubbish(game, 5, {2}, monkeypatch)
    game.until(Stage.CHECK)
    game.note_secrets(2)
    reply = game.answer(2)
    assert len(reply) > HEADER + 64
    game.secrets[2] = [secret for secret in game.secrets[2] if secret not in reply]
    game.must_be_over(2)


@pytest.mark.parametrize("accused", [{4}, {4, 5}, {0, 1, 3, 4, 5, 6}])
def test_an_unfounded_complaint_names_the_complainer(play, accused):
    game = play(**SIGNED).until(Stage.CHECK)
    game.receive(2, complaint(game, 2, accused))
    assert accused_at_the_check(game) == {2}


def test_a_complaint_that_mixes_a_liar_with_an_honest_client_names_both_sides_that_lied(play, monkeypatch):
    game = play(**SIGNED).until(Stage.SHARES)
    seal_rubbish(game, 5, {2, 3}, monkeypatch)
    game.until(Stage.CHECK)
    game.receive(2, complaint(game, 2, {4, 5}))
    assert accused_at_the_check(game) == {2, 5}


def test_evidence_that_is_not_the_advertised_key_names_the_complainer(play, monkeypatch):
    game = play(**SIGNED).until(Stage.SHARES)
    seal_rubbish(game, 5, {2}, monkeypatch)
    game.until(Stage.CHECK)
    game.receive(2, complaint(game, 2, {5}, channel_pair=KeyPair.generate()))
    assert accused_at_the_check(game) == {2}


def test_nobody_complains_in_the_name_of_another(play):
    game = play(**SIGNED).until(Stage.CHECK)
    before = game.server_state()
    with pytest.raises(SignatureRefused, match="not one of identity"):
        game.receive(2, complaint(game, 2, {4}, signer=game.identities[3]))
    assert game.server_state() == before
    np.testing.assert_array_equal(game.finish(), game.expected())


def test_complaints_about_nobody_or_about_who_was_not_delivered_are_dropped(play):
    game = play(8, 6, signed=True).until(Stage.SHARES).until(Stage.CHECK, silent=[7])
    before = game.server_state()
    for accused, match in ((set(), "about nobody"), ({7}, "whose shares it was not sent")):
        with pytest.raises(MalformedMessage, match=match):
            game.receive(2, complaint(game, 2, accused))
    assert game.server_state() == before
    np.testing.assert_array_equal(game.finish(), game.expected())


@pytest.mark.parametrize("silent", [[6], [0]])
def test_who_does_not_check_has_dropped_out_before_anybody_masks(play, silent):
    game = play(**SIGNED).until(Stage.CHECK).until(Stage.MASKED_INPUT, silent=silent)
    for one in game.requests:
        game.answer_all(but=[other for other in game.ids if other != one])
        assert set(game.clients[one]._state.held_shares) == set(game.ids) - {one, *silent}
    game.finish()
    assert game.server.survivors == tuple(one for one in game.ids if one not in silent)
    np.testing.assert_array_equal(game.server.total, game.expected())


def test_too_few_who_checked_end_the_round(play):
    game = play(**SIGNED).until(Stage.CHECK)
    game.answer_all(but=[5, 6])
    with pytest.raises(TooFewClients, match="5 of 7 clients checked the shares"):
        game.server.advance()


@pytest.mark.parametrize("made", ["too few", "exchanged", "zeros", "of another round", "over another set"])
def test_a_go_ahead_without_everybodys_check_gets_no_input(play, made):
    game = play(**SIGNED).until(Stage.MASKED_INPUT)
    game.note_secrets(2)
    others, error, given = {0, 1, 3, 4, 5, 6}, SignatureRefused, {}
    match made:
        case "too few":
            others, error = {0, 1, 3, 4}, TooFewClients
        case "exchanged":
            checks = game.replies[Stage.CHECK]
            given = {0: checks[1][HEADER:], 1: checks[0][HEADER:]}
        case "zeros":
            given = {6: bytes(64)}
        case "of another round":
            context = key_derivation.check_message(bytes(32), np.ones(7, bool))
            given = {6: game.identities[6].sign(context)}
        case _:
            fewer = messages.membership_bits(game.ids, frozenset({1, 2, 3, 4, 5, 6}))
            given = {6: game.identities[6].sign(key_derivation.check_message(game.server._context, fewer))}
    with pytest.raises(error):
        game.answer(2, go_ahead(game, 2, others, given))
    game.must_be_over(2)


def test_clients_that_were_delivered_different_sets_do_not_mask_with_one_another(play):
    """Client 2 is told that 0 never shared; whoever signed the whole set is no partner for it."""
    game = play(**SIGNED).until(Stage.CHECK)
    whole = messages.Delivery.decode(memoryview(game.requests[2])[HEADER:], np.arange(7) != 2)
    cut = messages.Delivery(np.array([False, *[True] * 6]), whole.sealed[1:])
    reply = game.answer(2, with_body(game.requests[2], cut.encode()))
    with pytest.raises(SignatureRefused):
        game.receive(2, reply)
    game.answer_all(but=[2])
    game.note_secrets(2)
    with pytest.raises(SignatureRefused):
        game.clients[2].mask(go_ahead(game, 2, {1, 3, 4, 5, 6}), game.vectors[2])
    game.must_be_over(2)
    game.advance()
    np.testing.assert_array_equal(game.finish(), game.expected([0, 1, 3, 4, 5, 6]))


def test_a_go_ahead_naming_who_never_shared(play):
    game = play(8, 6, signed=True).until(Stage.SHARES).until(Stage.MASKED_INPUT, silent=[7])
    game.note_secrets(2)
    with pytest.raises(SharesRefused, match="names client 7, which never shared"):
        game.answer(2, go_ahead(game, 2, {0, 1, 3, 4, 5, 6, 7}, {7: bytes(64)}))
    game.must_be_over(2)


def test_the_requirement_on_clients_holds_at_the_check_and_at_the_go_ahead(play):
    floor = ClientRequirements(min_clients=7, min_threshold=5)
    game = play(**SIGNED, requirements=floor).until(Stage.CHECK)
    whole = messages.Delivery.decode(memoryview(game.requests[2])[HEADER:], np.arange(7) != 2)
    cut = messages.Delivery(np.array([False, *[True] * 6]), whole.sealed[1:])
    with pytest.raises(TooFewClients, match="6 clients shared; this client requires 7"):
        game.fork().answer(2, with_body(game.requests[2], cut.encode()))
    game.until(Stage.MASKED_INPUT)
    with pytest.raises(TooFewClients, match="6 clients checked; this client requires 7"):
        game.answer(2, go_ahead(game, 2, {0, 1, 3, 4, 5}))


def test_unsigned_terms_have_no_check(play):
    game = play(5, 3).until(Stage.MASKED_INPUT)
    before = game.clients[1].snapshot()
    with pytest.raises(UnexpectedStage, match="unsigned and have no check"):
        game.clients[1].check(game.requests[1])
    assert game.clients[1].snapshot() == before


@pytest.mark.parametrize("friends", [3, 4])
def test_provoked_complaints_give_a_lying_server_what_the_parameters_allow_for(play, friends):
    """n = 7, t = 5: with 2 t - n friends it rebuilds no secret, whomever it makes complain; with one more it does.

    The server spoils the delivery of as many as it can do without, learns from their channel keys a share of both
    secrets of everybody, and goes on without them. `choose_parameters` counts the same number of friends.
    """
    game = play(**SIGNED).until(Stage.CHECK)
    allies, victim = set(game.ids[7 - friends :]), 0
    seeds, pool = bytes(game.clients[victim]._state.self_seed), {}
    for one in sorted(set(game.ids) - allies - {victim})[-1:]:
        body = bytearray(game.requests[one][HEADER:])
        body[-1] ^= 1
        reply = memoryview(game.answer(one, with_body(game.requests[one], body)))[HEADER:]
        evidence = messages.decode_check(reply, 6, evidence=True)
        pool[one] = opened(game, one, KeyPair.from_private(evidence.channel_private), victim)
        left = one
    for one in allies:
        pool[one] = opened(game, one, game.clients[one]._keys[1], victim)
    game.answer_all(but=[left])
    game.advance()
    assert len(game.requests) == game.terms.threshold + 1
    game.answer(victim)
    shares = {[one for one in game.ids if one != victim].index(one) + 1: pair[33:] for one, pair in pool.items()}
    if friends == 2 * 5 - 7:
        with pytest.raises(ShareError, match="4 shares were given for a threshold of 5"):
            shamir.reconstruct(shares, 5)
    else:
        assert shamir.reconstruct(shares, 5) == seeds


def opened(game, one, channel_pair, owner):
    """The owner's pair of shares for client `one`, opened with its channel key."""
    members = game.server._members
    theirs = members[owner].advertisement
    _, inbound = key_derivation.channel_keys(
        game.server._context, channel_pair.agree(theirs.channel_key),
        ours=(one, channel_pair.public), theirs=(owner, theirs.channel_key),
    )  # fmt: skip
    return sealed_pairs.open_pair(
        game.terms.suite.aead, inbound, game.server._context, members[owner].sealed[one],
        sender=(owner, theirs.mask_key), receiver=(one, members[one].advertisement.mask_key),
    )  # fmt: skip


def test_a_check_of_another_round_is_no_check(play):
    game, other = play(**SIGNED).until(Stage.CHECK), play(**SIGNED, number=4).until(Stage.CHECK)
    game.directory[2] = other.directory[2]
    with pytest.raises(SignatureRefused):
        game.receive(2, with_body(game.answer(2), other.answer(2)[HEADER:]))
