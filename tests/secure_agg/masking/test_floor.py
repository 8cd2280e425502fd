"""What a client insists on holds on every field, and one step below it nothing goes."""

import pytest

from secure_agg.errors import ConfigurationError, RosterRefused, TermsRefused, TooFewClients
from secure_agg.masking import Floor, Stage, Suite, Terms

RUN = bytes(16)


def terms(threshold=6, neighbours=8, bits=32, **changes):
    return Terms(RUN, 0, bits, 1, threshold, neighbours, **changes)


@pytest.mark.parametrize(
    ("floor", "at_least", "below", "match"),
    [
        ({"threshold": 6}, terms(6), terms(5), "a threshold of 5; this client's floor is 6"),
        ({"neighbours": 8}, terms(), terms(neighbours=6), "neighbours of 6; this client's floor is 8"),
        ({"neighbours": 8}, terms(neighbours=0), terms(neighbours=6), "neighbours of 6"),
        ({"bits": 32}, terms(bits=32), terms(bits=16), "words of 16; this client's floor is 32"),
        ({"bits": 64}, terms(bits=64), terms(bits=32), "words of 32"),
        ({"signed": True}, terms(neighbours=0, signed=True), terms(), "insists on signatures"),
        (
            {"suites": frozenset({Suite.CHACHA20})},
            terms(suite=Suite.CHACHA20), terms(suite=Suite.AES128), "AES128 suite; this client does not accept",
        ),
    ],
)  # fmt: skip
def test_terms_below_the_floor(floor, at_least, below, match):
    floor = Floor(**({"clients": 3, "threshold": 2} | floor))
    floor.accept_terms(at_least)
    with pytest.raises(TermsRefused, match=match):
        floor.accept_terms(below)


def test_rosters_below_the_floor():
    floor = Floor(clients=10, threshold=2, neighbours=8)
    floor.accept_roster(terms(), 10)
    with pytest.raises(RosterRefused, match="9 clients are on the roster; this client's floor is 10"):
        floor.accept_roster(terms(), 9)
    loose = Floor(clients=3, threshold=2, neighbours=8)
    loose.accept_roster(terms(), 9)
    with pytest.raises(RosterRefused, match="gives 7 neighbours; this client's floor is 8"):
        loose.accept_roster(terms(), 8)
    bare = Floor(clients=3, threshold=2)
    with pytest.raises(RosterRefused, match=r"threshold of 6 does not keep .* in a roster of 6 with 5 neighbours"):
        bare.accept_roster(terms(), 6)
    with pytest.raises(RosterRefused, match="threshold of 6 does not keep"):
        bare.accept_roster(terms(neighbours=0), 13)
    with pytest.raises(RosterRefused, match="threshold of 6 does not keep"):
        bare.accept_roster(terms(neighbours=0, signed=True), 9)


@pytest.mark.parametrize("given", [{"clients": 2}, {"threshold": 1}, {"neighbours": 1}])
def test_floors_that_hide_nobody(given):
    with pytest.raises(ConfigurationError, match="hides nobody"):
        Floor(**({"clients": 3, "threshold": 2} | given))


@pytest.mark.parametrize(
    "insists",
    [{"threshold": 4}, {"neighbours": 6}, {"bits": 64}, {"signed": True}, {"suites": frozenset({Suite.AES128})}],
)
def test_a_server_below_the_floor_gets_nothing(play, insists):
    game = play(5, 3, floor=Floor(**({"clients": 3, "threshold": 2} | insists)))
    if "neighbours" in insists:
        game.until(Stage.SHARES)
    with pytest.raises((TermsRefused, RosterRefused)):
        game.answer(0)
    assert game.clients[0].ended == "aborted"


@pytest.mark.parametrize("signed", [False, True])
def test_a_floor_on_clients_holds_for_the_survivors_of_a_complete_graph(play, signed):
    size, threshold = (7, 5) if signed else (5, 3)
    game = play(size, threshold, floor=Floor(clients=size, threshold=2), signed=signed)
    game.until(Stage.MASKED_INPUT).answer_all(but=[0])
    game.advance()
    with pytest.raises(TooFewClients, match=f"{size - 1} clients survive; this client's floor is {size}"):
        game.answer(1)
    assert game.clients[1].ended == "aborted"


def test_in_a_sparse_graph_the_floor_on_clients_is_held_against_the_roster_only(play):
    game = play(12, 4, neighbours=6, floor=Floor(clients=12, threshold=2))
    game.until(Stage.MASKED_INPUT).answer_all(but=[0])
    game.advance()
    game.finish()
    assert len(game.server.survivors) == 11
