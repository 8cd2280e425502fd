"""What a client changes on holds on every field, and one step below it nothing goes."""

import pytest

from secure_agg.errors import ConfigurationError, RosterRefused, TermsRefused, TooFewClients
from secure_agg.masking import ClientRequirements, Stage, Suite, Terms

RUN = bytes(16)


def terms(threshold=6, neighbours=8, bits=32, **changes):
    return Terms(RUN, 0, bits, 1, threshold, neighbours, **changes)


@pytest.mark.parametrize(
    ("changes", "meets", "below", "match"),
    [
        ({"min_threshold": 6}, terms(6), terms(5), "a threshold of 5; this client requires 6"),
        ({"min_neighbours": 8}, terms(), terms(neighbours=6), "neighbours of 6; this client requires 8"),
        ({"min_neighbours": 8}, terms(neighbours=0), terms(neighbours=6), "neighbours of 6"),
        ({"min_bits": 32}, terms(bits=32), terms(bits=16), "elements of 16; this client requires 32"),
        ({"min_bits": 64}, terms(bits=64), terms(bits=32), "elements of 32"),
        ({"require_signatures": True}, terms(neighbours=0, signed=True), terms(), "requires signatures"),
        (
            {"suites": frozenset({Suite.CHACHA20})},
            terms(suite=Suite.CHACHA20), terms(suite=Suite.AES128), "AES128 suite; this client does not accept",
        ),
    ],
)  # fmt: skip
def test_terms_below_the_requirements(changes, meets, below, match):
    requirements = ClientRequirements(**({"min_clients": 3, "min_threshold": 2, "require_signatures": False} | changes))
    requirements.check_terms(meets)
    with pytest.raises(TermsRefused, match=match):
        requirements.check_terms(below)


def test_rosters_below_the_requirements():
    requirements = ClientRequirements(min_clients=10, min_threshold=2, min_neighbours=8, require_signatures=False)
    requirements.check_roster(terms(), 10)
    with pytest.raises(RosterRefused, match="9 clients are on the roster; this client requires 10"):
        requirements.check_roster(terms(), 9)
    loose = ClientRequirements(min_clients=3, min_threshold=2, min_neighbours=8, require_signatures=False)
    loose.check_roster(terms(), 9)
    with pytest.raises(RosterRefused, match="gives 7 neighbours; this client requires 8"):
        loose.check_roster(terms(), 8)
    minimal = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)
    with pytest.raises(RosterRefused, match=r"threshold of 6 does not keep .* in a roster of 6 with 5 neighbours"):
        minimal.check_roster(terms(), 6)
    with pytest.raises(RosterRefused, match="threshold of 6 does not keep"):
        minimal.check_roster(terms(neighbours=0), 13)
    with pytest.raises(RosterRefused, match="threshold of 6 does not keep"):
        minimal.check_roster(terms(neighbours=0, signed=True), 13)
    wary = ClientRequirements(min_clients=3, min_threshold=2, max_corrupt=4)
    wary.check_roster(terms(neighbours=0, signed=True), 8)
    with pytest.raises(RosterRefused, match="lets 3 clients collude with the server; this client requires 4"):
        wary.check_roster(terms(neighbours=0, signed=True), 9)


@pytest.mark.parametrize(
    "given", [{"min_clients": 2}, {"min_threshold": 1}, {"min_neighbours": 1}, {"security_bits": 0}]
)
def test_requirements_that_hide_nobody(given):
    with pytest.raises(ConfigurationError, match="hides nobody"):
        ClientRequirements(**({"min_clients": 3, "min_threshold": 2} | given))


@pytest.mark.parametrize(
    "changes",
    [
        {"min_threshold": 4},
        {"min_neighbours": 6},
        {"min_bits": 64},
        {"require_signatures": True},
        {"suites": frozenset({Suite.AES128})},
    ],
)
def test_a_server_below_the_requirements_gets_nothing(play, changes):
    game = play(
        5,
        3,
        requirements=ClientRequirements(
            **({"min_clients": 3, "min_threshold": 2, "require_signatures": False} | changes)
        ),
    )
    if "min_neighbours" in changes:
        game.until(Stage.SHARES)
    with pytest.raises((TermsRefused, RosterRefused)):
        game.answer(0)
    assert game.clients[0].ended == "aborted"


@pytest.mark.parametrize("signed", [False, True])
def test_a_requirements_on_clients_holds_for_the_survivors_of_a_complete_graph(play, signed):
    size, threshold = (7, 5) if signed else (5, 3)
    game = play(
        size,
        threshold,
        requirements=ClientRequirements(min_clients=size, min_threshold=2, require_signatures=signed),
        signed=signed,
    )
    game.until(Stage.MASKED_INPUT).answer_all(but=[0])
    game.advance()
    with pytest.raises(TooFewClients, match=f"{size - 1} clients survive; this client requires {size}"):
        game.answer(1)
    assert game.clients[1].ended == "aborted"


def test_in_a_sparse_graph_the_requirements_on_clients_is_held_against_the_roster_only(play):
    game = play(
        12, 4, neighbours=6, requirements=ClientRequirements(min_clients=12, min_threshold=2, require_signatures=False)
    )
    game.until(Stage.MASKED_INPUT).answer_all(but=[0])
    game.advance()
    game.finish()
    assert len(game.server.survivors) == 11
