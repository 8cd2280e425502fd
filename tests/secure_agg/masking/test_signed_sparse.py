"""Signed terms on a sparse graph: honest rounds, and servers that tell neighbours different things."""

import itertools
from functools import partial

import numpy as np
import pytest

from secure_agg import shamir
from secure_agg.errors import (
    MalformedMessage,
    PartiesAccused,
    RosterRefused,
    SharesRefused,
    SignatureRefused,
    TooFewClients,
    UnmaskRefused,
)
from secure_agg.masking import SERVER, ClientRequirements, Stage, Terms, choose_parameters, key_derivation, messages
from secure_agg.masking import client as client_module
from secure_agg.masking.graph import HararyGraph
from secure_agg.primitives.keys import seal

HEADER = messages.HEADER_BYTES
SPARSE = {"clients": 30, "threshold": 4, "neighbours": 6, "signed": True}
"""Around any one client 2 t - k - 1 = 1 may lie."""
ORDER = (Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL)


def with_body(message, body):
    return message[:HEADER] + body


def flags(game, chosen):
    return messages.membership_bits(game.ids, frozenset(chosen))


def circle(game):
    """Everybody in the order of the circle."""
    graph = HararyGraph(game.terms, np.array(game.ids, np.uint32))
    return [game.ids[seat] for seat in graph._order]


def around(game, one):
    return HararyGraph(game.terms, np.array(game.ids, np.uint32)).neighbours(one)


def delivery(game, one, shared):
    """The delivery to `one` that says these shared."""
    sealed = [game.replies[Stage.SHARES][other] for other in around(game, one) if other in shared]
    pieces = []
    for other, reply in zip([other for other in around(game, one) if other in shared], sealed, strict=True):
        start = HEADER + 32 + around(game, other).index(one) * messages.SEALED_BYTES
        pieces.append(reply[start : start + messages.SEALED_BYTES])
    return with_body(game.requests[one], messages.Delivery(flags(game, shared), tuple(pieces)).encode())


def go_ahead(game, one, checked):
    return with_body(game.requests[one], messages.GoAhead(flags(game, checked), ()).encode())


def survivors(game, one, alive, signatures=None):
    """The survivors for `one`, with the signatures that came with the inputs."""
    header = messages.encode_header(Stage.SURVIVORS, game.terms, SERVER, one)
    signed = game.input_signatures | (signatures or {})
    pieces = tuple(signed[other] for other in around(game, one) if other in alive)
    return header + messages.Survivors(flags(game, alive), pieces).encode()


def request(game, one, survived, dropped, confirmations):
    near = around(game, one)
    body = messages.UnmaskRequest(
        *(messages.membership_bits(near, frozenset(chosen)) for chosen in (survived, dropped, confirmations)),
        tuple(confirmations[other] for other in near if other in confirmations),
    ).encode()
    return messages.encode_header(Stage.REQUEST, game.terms, SERVER, one) + body


def mask_under(game, told, bound=None):
    """Everybody masks under the list that it is told (or the honest one), for whom the server keeps no account."""
    game.until(Stage.MASKED_INPUT)
    game.input_signatures = {}
    for one in game.ids:
        message = go_ahead(game, one, told[one]) if one in told else game.requests[one]
        reply = game.clients[one].mask(message, game.vectors[one], bound=(bound or {}).get(one, bytes(32)))
        game.input_signatures[one] = reply[-64:]
    return game


def test_honest_rounds_with_dropouts_at_every_stage_are_the_sums_of_integers(play):
    for count, gone in ((0, ()), (1, ORDER), (2, ORDER[1:4])):
        game = play(45, 6, neighbours=10, signed=True, min_clients=20)
        silent, first = set(), iter(game.ids)
        while game.server.awaits is not None:
            if game.server.awaits in gone:
                silent |= set(itertools.islice(first, count))
            game.answer_all(but=silent)
            game.advance()
        before = ORDER.index(Stage.MASKED_INPUT) + 1
        lost = count * len([stage for stage in gone if ORDER.index(stage) < before])
        assert game.server.survivors == tuple(game.ids[lost:])
        np.testing.assert_array_equal(game.server.total, game.expected())
        assert not game.refusals
        assert not game.server.suspects


def test_parameters_that_are_chosen_are_accepted_and_one_less_is_refused():
    chosen = choose_parameters(600, corrupt=0.05, server="active")
    assert (chosen.neighbours > 0, chosen.corrupt) == (True, 30)
    terms = Terms.from_parameters(chosen, bits=32, length=1, run=bytes(16))
    assert (terms.signed, terms.signs_inputs) == (True, True)
    lower = Terms(bytes(16), 0, 32, 1, terms.threshold - 1, terms.neighbours, signed=True)

    def requires(corrupt, bits=40):
        return ClientRequirements(min_clients=500, min_threshold=40, max_corrupt=corrupt, security_bits=bits)

    requires(30).check_roster(terms, 600)
    requires(32, 21).check_roster(terms, 600)
    for wrong, requirements in ((lower, requires(30)), (terms, requires(32)), (terms, requires(32, 22))):
        with pytest.raises(RosterRefused, match="colluding clients of 600, 82 neighbours"):
            requirements.check_roster(wrong, 600)


def test_a_roster_that_is_chosen_for_those_who_collude(play):
    """One colluding client of 30 is one too many at this threshold; its client refuses before it shares anything."""
    floor = ClientRequirements(min_clients=3, min_threshold=2, max_corrupt=2)
    game = play(**SPARSE, requirements=floor).until(Stage.SHARES)
    game.note_secrets(2)
    with pytest.raises(RosterRefused, match="with 2 colluding clients of 30, 6 neighbours"):
        game.answer(2)
    game.must_be_over(2)


def test_a_circle_that_is_too_short_for_its_neighbours(play):
    game = play(**SPARSE).until(Stage.SHARES)
    few = messages.Roster.decode(memoryview(game.requests[2])[HEADER:], game.terms)
    short = messages.Roster(few.ids[:23], few.advertisements)
    with pytest.raises(RosterRefused, match="roster of 23 with 6 neighbours each"):
        game.answer(2, with_body(game.requests[2], short.encode()))


@pytest.mark.parametrize("near", [True, False])
def test_an_invented_client_on_the_roster(play, near):
    """Wherever it stands: whoever is on a roster is in the client's directory."""
    game = play(**SPARSE)
    others = set(around(game, 2))
    missing = next(one for one in game.ids if one != 2 and (one in others) == near)
    game.clients[2]._directory = {one: key for one, key in game.directory.items() if one != missing}
    game.until(Stage.SHARES)
    game.note_secrets(2)
    with pytest.raises(SignatureRefused, match=f"directory knows no client {missing}"):
        game.answer(2)
    game.must_be_over(2)


def test_clients_of_different_rosters_share_nothing(play):
    """Client 2 is told of one participant less: no pair of shares that it seals, or is sealed for it, opens."""
    game = play(**SPARSE).until(Stage.SHARES)
    ids = np.array([one for one in game.ids if one != 29], np.uint32)
    near = HararyGraph(game.terms, ids).neighbours(2)
    adverts = tuple(
        messages.Advertisement.decode(memoryview(game.replies[Stage.ADVERTISEMENT][one])[HEADER:], game.terms)
        for one in near
    )
    game.receive(2, game.answer(2, with_body(game.requests[2], messages.Roster(ids, adverts).encode())))
    game.answer_all(but=[2])
    game.advance()
    complaining = {one for one in game.ids if one != 2 and len(game.fork().answer(one)) != HEADER + 64}
    assert complaining == set(around(game, 2))
    with pytest.raises(MalformedMessage):
        game.answer(2)


@pytest.mark.parametrize("left_out", ["itself", "neighbours"])
def test_a_delivery_without_oneself_or_with_too_few_neighbours(play, left_out):
    game = play(**SPARSE).until(Stage.CHECK)
    near, everybody = around(game, 2), set(game.ids)
    game.note_secrets(2)
    shared, error = (
        (everybody - {2}, SharesRefused) if left_out == "itself" else (everybody - {*near[:3]}, TooFewClients)
    )
    with pytest.raises(error):
        game.answer(2, delivery(game, 2, shared))
    game.must_be_over(2)


def test_a_client_masks_with_nobody_who_did_not_share_as_far_as_it_was_told(play):
    """The server tells client 2 that 5, which may be far away, did not share, and then that it checked."""
    game = play(**SPARSE).until(Stage.CHECK)
    game.answer(2, delivery(game, 2, set(game.ids) - {5}))
    for checked, match in ((set(game.ids), "names client 5, which never shared"), (set(game.ids) - {2, 5}, "client 2")):
        other = game.fork()
        other.note_secrets(2)
        header = messages.encode_header(Stage.GO_AHEAD, game.terms, SERVER, 2)
        with pytest.raises(SharesRefused, match=match):
            other.clients[2].mask(header + messages.GoAhead(flags(game, checked), ()).encode(), game.vectors[2])
        other.must_be_over(2)


def test_the_server_refuses_an_input_under_another_list_or_digest(play):
    game = play(**SPARSE).until(Stage.MASKED_INPUT)
    before, far = game.server_state(), next(one for one in game.ids if one != 2 and one not in around(game, 2))
    for wrong in (
        game.fork().answer(2, go_ahead(game, 2, set(game.ids) - {far})),
        game.fork().clients[2].mask(game.requests[2], game.vectors[2], bound=b"\1" * 32),
        game.fork().answer(2)[:-64] + bytes(64),
        game.fork().answer(2)[:-64] + game.fork().answer(3)[-64:],
    ):
        with pytest.raises(SignatureRefused, match="not one of identity"):
            game.receive(2, wrong)
    assert game.server_state() == before
    game.finish(silent=[2])
    np.testing.assert_array_equal(game.server.total, game.expected([one for one in game.ids if one != 2]))


@pytest.mark.parametrize("difference", ["checked lists", "a far client", "digests"])
def test_neighbours_that_were_told_different_things_do_not_confirm(play, difference):
    game = play(**SPARSE)
    everybody, near = set(game.ids), around(game, 2)
    far = next(one for one in game.ids if one != 2 and one not in near)
    match difference:
        case "checked lists":
            mask_under(game, {2: everybody - {near[0]}})
        case "a far client":
            mask_under(game, {2: everybody - {far}})
        case _:
            mask_under(game, {}, {2: b"\1" * 32})
    listed = {2: everybody - {near[0]}, far: everybody}[2] if difference == "checked lists" else everybody
    for one in near:
        game.note_secrets(one)
        with pytest.raises(SignatureRefused, match="not one of identity"):
            game.clients[one].confirm(survivors(game, one, everybody))
        game.must_be_over(one)
    game.note_secrets(2)
    alive = listed - {far} if difference == "a far client" else listed
    with pytest.raises(SignatureRefused):
        game.clients[2].confirm(survivors(game, 2, alive))
    game.must_be_over(2)
    assert len(game.clients[far].confirm(survivors(game, far, everybody))) == HEADER + 64


def test_a_segment_of_the_circle_is_not_cut_off(play):
    """What honest clients alone would open without signed inputs (`test_circle_cuts`): both sides of the cut refuse."""
    game = play(**SPARSE)
    order = circle(game)
    segment, lost = order[:10], {order[10], order[29]}
    beyond = {order[seat] for seat in (11, 12, 13, 26, 27, 28)}
    mask_under(game, dict.fromkeys(segment, set(game.ids) - beyond))
    inside, outside = set(game.ids) - beyond - lost, set(game.ids) - lost
    refused = set()
    for one in sorted(set(game.ids) - lost):
        try:
            game.clients[one].confirm(survivors(game, one, inside if one in segment else outside))
        except (SignatureRefused, TooFewClients):
            refused.add(one)
    # Three seats on either side see an input of the other side; those in the segment see too few survivors.
    assert {order[seat] for seat in (0, 9, 11, 12, 27, 28)} <= refused
    assert not refused & {*order[3:7], *order[15:25]}
    for one in (order[0], order[9]):
        givers = [other for other in around(game, one) if other not in refused and other not in lost]
        assert len(givers) < game.terms.threshold


def test_a_single_client_is_not_isolated(play):
    """Client 2 masks with a threshold of neighbours only; nobody reveals its seed, whichever list is confirmed."""
    game = play(**SPARSE)
    near, everybody = around(game, 2), set(game.ids)
    told = everybody - set(near[4:])
    mask_under(game, {2: told})
    for one in near:
        with pytest.raises(SignatureRefused):
            game.fork().clients[one].confirm(survivors(game, one, everybody))
    confirmed = {
        one: game.clients[one].confirm(survivors(game, one, everybody - {2}))[HEADER:] for one in game.ids if one != 2
    }
    for one in near:
        others, signed = set(around(game, one)), {other: confirmed[other] for other in around(game, one) if other != 2}
        with pytest.raises(UnmaskRefused, match="contradicts the list"):
            game.fork().clients[one].unmask(request(game, one, others, set(), signed))
        with pytest.raises(UnmaskRefused, match="client 2 is named as survived and as dropped"):
            game.fork().clients[one].unmask(request(game, one, others, {2}, signed))


def test_confirmations_of_another_list_reveal_nothing(play):
    """Half of the circle is told that one client dropped out, the other half that another did."""
    game = mask_under(play(**SPARSE), {})
    order, everybody = circle(game), set(game.ids)
    lists = {one: everybody - {order[29 if seat < 15 else 14]} for seat, one in enumerate(order)}
    confirmed = {}
    for one in order:
        if one in lists[one]:
            confirmed[one] = game.clients[one].confirm(survivors(game, one, lists[one]))[HEADER:]
    for seat, error in ((13, SignatureRefused), (16, SignatureRefused), (7, None)):
        one = order[seat]
        others = set(around(game, one))
        signed = {other: confirmed[other] for other in others & lists[one] if other in confirmed}
        asked = request(game, one, others & lists[one], others - lists[one], signed)
        if error is None:
            assert len(game.clients[one].unmask(asked)) == HEADER + 6 * shamir.SHARE_BYTES
            continue
        game.note_secrets(one)
        with pytest.raises(error):
            game.clients[one].unmask(asked)
        game.must_be_over(one)


@pytest.mark.parametrize("stage", ["shared", "checked", "survive"])
def test_the_requirement_on_clients_holds_for_whole_lists(play, stage):
    floor = ClientRequirements(min_clients=30, min_threshold=2)
    game = play(**SPARSE, requirements=floor)
    far = next(one for one in game.ids if one != 2 and one not in around(game, 2))
    fewer = set(game.ids) - {far}
    match stage:
        case "shared":
            game.until(Stage.CHECK)
            step, message = game.clients[2].check, delivery(game, 2, fewer)
        case "checked":
            game.until(Stage.MASKED_INPUT)
            step, message = partial(game.answer, 2), go_ahead(game, 2, fewer)
        case _:
            mask_under(game, {})
            step, message = game.clients[2].confirm, survivors(game, 2, fewer)
    with pytest.raises(TooFewClients, match=f"29 clients {stage}; this client requires 30"):
        step(message)


def test_messages_of_the_complete_graph_are_malformed_here(play):
    game = play(**SPARSE).until(Stage.MASKED_INPUT)
    checks = tuple(game.replies[Stage.CHECK][other][HEADER:] for other in around(game, 2))
    with pytest.raises(MalformedMessage, match="go ahead"):
        game.answer(2, with_body(game.requests[2], messages.GoAhead(flags(game, game.ids), checks).encode()))
    reply = game.answer(2)
    with pytest.raises(MalformedMessage, match="masked input"):
        game.server.receive(2, reply[:-64])
    game.receive(2, reply)
    game.answer_all()
    game.advance()
    with pytest.raises(MalformedMessage, match="survivors"):
        game.answer(2, with_body(game.requests[2], messages.Survivors(flags(game, game.ids)).encode()))
    np.testing.assert_array_equal(game.finish(), game.expected())


def complain(game, one, accused, private=b""):
    near = around(game, one)
    flagged = messages.membership_bits(near, frozenset(accused))
    signed = key_derivation.complaint_message(game.server._context, one, flagged, private)
    body = messages.Complaint(flagged, private, game.identities[one].sign(signed)).encode()
    return messages.encode_header(Stage.CHECK, game.terms, one, SERVER) + body


def seal_rubbish(game, one, receivers, monkeypatch):
    near, pair = iter(around(game, one)), b"\xff" * 66

    def sealing(aead, key, honest, associated):
        return seal(aead, key, pair if next(near) in receivers else honest, associated)

    with monkeypatch.context() as patched:
        patched.setattr(client_module, "seal", sealing)
        game.receive(one, game.answer(one))


def test_a_complaint_carries_no_key_and_costs_the_round_nothing_but_its_sender(play, monkeypatch):
    game = play(**SPARSE).until(Stage.SHARES)
    victim = around(game, 5)[0]
    seal_rubbish(game, 5, {victim}, monkeypatch)
    game.until(Stage.CHECK)
    keys = [pair.private_bytes() for pair in game.clients[victim]._keys]
    reply = game.answer(victim)
    assert len(reply) == HEADER + len(b"complaint") + 1 + 64
    assert not any(key in reply for key in keys)
    game.receive(victim, reply)
    game.finish()
    assert game.server.survivors == tuple(one for one in game.ids if one != victim)
    np.testing.assert_array_equal(game.server.total, game.expected())
    assert dict(game.server.suspects) == {
        5: f"either it or client {victim} lied about a share",
        victim: "either it or client 5 lied about a share",
    }


def test_a_complaint_with_a_key_is_malformed(play):
    game = play(**SPARSE).until(Stage.CHECK)
    before = game.server_state()
    with pytest.raises(MalformedMessage, match="check carries"):
        game.receive(2, complain(game, 2, around(game, 2)[:1], bytes(32)))
    assert game.server_state() == before


def test_who_seals_rubbish_for_more_than_can_lie_is_named(play, monkeypatch):
    game = play(**SPARSE).until(Stage.SHARES)
    seal_rubbish(game, 5, set(around(game, 5)[:2]), monkeypatch)
    game.until(Stage.CHECK).answer_all()
    with pytest.raises(PartiesAccused, match="more than can be lies concern clients 5; nobody") as refused:
        game.advance()
    assert refused.value.clients == {5}


def test_who_accuses_more_than_can_lie_is_named(play):
    game = play(**SPARSE).until(Stage.CHECK)
    game.receive(2, complain(game, 2, around(game, 2)[:2]))
    game.answer_all()
    with pytest.raises(PartiesAccused) as refused:
        game.advance()
    assert refused.value.clients == {2}


def test_a_confirmation_of_something_else_costs_its_sender_only(play):
    game = play(**SPARSE).until(Stage.CONFIRMATION)
    with pytest.raises(SignatureRefused):
        game.receive(2, with_body(game.answer(2), bytes(64)))
    np.testing.assert_array_equal(game.finish(silent=[2]), game.expected(game.ids))


def test_silent_neighbours_at_the_check_end_the_round_before_anybody_masks(play):
    """A client loses three of six neighbours, and so its neighbours lose it: a threshold of four is left to nobody."""
    game = play(**SPARSE).until(Stage.CHECK)
    order = circle(game)
    game.answer_all(but={order[2], order[3], order[5]})
    with pytest.raises(TooFewClients, match=r"27 of 30 clients checked .* nothing was unmasked"):
        game.advance()
