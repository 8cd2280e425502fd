"""The calculator of neighbours and thresholds, against scipy, exact fractions, brute force and simulated circles."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_flow
from scipy.stats import hypergeom

from secure_agg.errors import ConfigurationError, RosterRefused
from secure_agg.masking import ClientRequirements, Terms, parameters, signed_threshold
from secure_agg.masking.parameters import (
    MaskingParameters,
    ServerAdversary,
    assess_parameters,
    choose_parameters,
)

CURIOUS, ACTIVE = ServerAdversary.CURIOUS, ServerAdversary.ACTIVE
SHARES = ((0.05, 0.1), (0.1, 0.1), (0.2, 0.3))

PUBLISHED = {
    50: ((10, 6), (10, 6), (30, 16)),
    100: ((20, 11), (20, 11), (58, 30)),
    943: ((36, 19), (46, 26), (170, 86)),
    10000: ((42, 22), (54, 30), (232, 117)),
}
"""(k, t) for each of SHARES as the project's notes had them: C and D were requirements of the n - 1 others."""

CHOSEN = {
    50: ((12, 7), (12, 7), (32, 17)),
    100: ((22, 12), (22, 12), (60, 31)),
    943: ((36, 19), (46, 26), (170, 86)),
    10000: ((42, 22), (54, 30), (232, 117)),
}
"""The same with requirements of all n clients, which is one more for 50 and 100."""


def exact_tail(population, marked, drawn, minimum):
    ways = sum(
        math.comb(marked, i) * math.comb(population - marked, drawn - i)
        for i in range(max(minimum, 0), min(drawn, marked) + 1)
        if drawn - i <= population - marked
    )
    return Fraction(ways, math.comb(population, drawn))


def log2(fraction):
    return math.log2(fraction.numerator) - math.log2(fraction.denominator) if fraction else -math.inf


def honest_pieces(clients, neighbours, good):
    """Pieces that the good positions of a circle fall into."""
    positions = np.flatnonzero(good)
    away = np.abs(positions[:, None] - positions)
    length_prefixed = np.minimum(away, clients - away) <= neighbours // 2
    return connected_components(csr_array(length_prefixed))[0]


def can_cut(clients, neighbours, threshold, dropped):
    """Whether honest clients who are each told that `neighbours - threshold` others dropped, and compare nothing, can
    hand out a threshold of key shares of every client in `dropped`: a flow from holders to owners."""
    source, sink = 2 * clients, 2 * clients + 1
    edges = [(source, holder, neighbours - threshold) for holder in range(clients)]
    for owner in {position % clients for position in dropped}:
        edges.append((clients + owner, sink, threshold))
        for step in range(1, neighbours // 2 + 1):
            edges += [((owner + step) % clients, clients + owner, 1), ((owner - step) % clients, clients + owner, 1)]
    tails, heads, capacities = (np.array(column, np.int32) for column in zip(*edges, strict=True))
    graph = csr_array((capacities, (tails, heads)), shape=(sink + 1, sink + 1))
    return maximum_flow(graph, source, sink).flow_value == threshold * len(set(dropped))


@pytest.mark.parametrize("clients", CHOSEN)
def test_the_table(clients):
    for (corrupt, dropout), expected in zip(SHARES, CHOSEN[clients], strict=True):
        chosen = choose_parameters(clients, corrupt=corrupt, dropout=dropout, complete_graph_max_clients=0)
        assert (chosen.neighbours, chosen.threshold) == expected
        assert max(chosen.log2_exposed, chosen.log2_disconnected) <= -40
        assert chosen.log2_aborted <= -20


@pytest.mark.parametrize("clients", PUBLISHED)
def test_the_notes_table_follows_from_counting_among_the_others(clients):
    for (corrupt, dropout), expected in zip(SHARES, PUBLISHED[clients], strict=True):
        counts = (parameters._decimal_floor(share * (clients - 1)) for share in (corrupt, dropout))
        assert parameters._Round(clients, *counts, CURIOUS).smallest_sparse_graph(-40, -20) == expected


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_tail_is_exact(data):
    population = data.draw(st.integers(1, 400))
    marked, drawn = (data.draw(st.integers(0, population)) for _ in range(2))
    for minimum in range(-1, drawn + 2):
        expected = exact_tail(population, marked, drawn, minimum)
        assert parameters._log2_tail(population, marked, drawn, minimum) == pytest.approx(log2(expected), abs=1e-9)


@pytest.mark.parametrize(
    ("population", "marked", "drawn", "minimum"),
    [
        (9999, 1000, 54, 30),
        (942, 94, 134, 60),
        (999_999, 100_000, 218, 102),
        (999_999, 300_000, 3000, 1400),
        (999_999, 490_000, 100_000, 51_000),
        (10**7, 10**6, 70, 40),
    ],
)
def test_deep_tails_agree_with_scipy_and_with_exact_integers(population, marked, drawn, minimum):
    ours = parameters._log2_tail(population, marked, drawn, minimum)
    theirs = hypergeom.logsf(minimum - 1, population, marked, drawn) / math.log(2)
    assert ours == pytest.approx(theirs, abs=1e-5)
    if drawn <= 3000:
        first = math.comb(marked, minimum) * math.comb(population - marked, drawn - minimum)
        total = term = first
        for i in range(minimum, min(drawn, minimum + 400)):
            term = term * (marked - i) * (drawn - i) // ((i + 1) * (population - marked - drawn + i + 1))
            total += term
        assert ours == pytest.approx(math.log2(total) - math.log2(math.comb(population, drawn)), abs=1e-6)


@pytest.mark.parametrize("server", ServerAdversary)
def test_logs_are_the_conditions_of_the_module(server):
    clients, k, t, corrupt, dropped = 400, 30, 22, 40, 20
    got = assess_parameters(clients, k, t, 0.1, 0.05, server)
    assert (got.clients, got.neighbours, got.threshold, got.server) == (clients, k, t, server)
    assert (got.corrupt, got.dropouts) == (corrupt, dropped)
    to_expose = t if server is CURIOUS else 2 * t - k
    exposed = clients * exact_tail(clients - 1, corrupt, k, to_expose)
    unfinished = clients * exact_tail(clients - 1, dropped, k, k - t + 1)
    run = k // 2
    if server is CURIOUS:
        cut = Fraction(math.comb(corrupt + dropped, k), math.comb(clients, k))
    else:
        cut = exact_tail(clients, corrupt, run, t - run) * exact_tail(clients - run, corrupt - (t - run), run, t - run)
    assert got.log2_exposed == pytest.approx(log2(exposed), abs=1e-9)
    assert got.log2_aborted == pytest.approx(log2(unfinished), abs=1e-9)
    assert got.log2_disconnected == pytest.approx(log2(math.comb(clients, 2) * cut), abs=1e-9)


def test_the_bound_on_two_runs_is_above_their_joint_probability():
    population, marked, run, minimum = 60, 25, 6, 3
    joint = Fraction(0)
    for one in range(minimum, run + 1):
        for other in range(minimum, run + 1):
            rest = marked - one - other
            ways = math.comb(run, one) * math.comb(run, other) * math.comb(population - 2 * run, rest)
            joint += Fraction(ways, math.comb(population, marked))
    bound = exact_tail(population, marked, run, minimum) * exact_tail(population - run, marked - minimum, run, minimum)
    assert joint < bound < exact_tail(population, marked, run, minimum)


@settings(max_examples=50, deadline=None)
@given(st.integers(8, 60), st.data())
def test_a_circle_falls_apart_exactly_when_it_is_cut_twice(clients, data):
    half = data.draw(st.integers(1, (clients - 2) // 2))
    good = np.array(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    positions = np.flatnonzero(good)
    gaps = np.diff(positions, append=positions[:1] + clients) - 1
    assert (honest_pieces(clients, 2 * half, good) > 1) == ((gaps >= half).sum() >= 2)


def test_simulated_circles_stay_below_the_bounds():
    """Fractions of 4000 random circles, where the bounds are large enough to be seen."""
    clients, k, t, corrupt, dropped = 60, 8, 5, 12, 12
    random = np.random.default_rng(7)
    counts = dict.fromkeys(("exposed", "disconnected", "unfinished"), 0)
    rounds = 4000
    for _ in range(rounds):
        order = random.permutation(clients)
        bad, gone = np.zeros((2, clients), bool)
        bad[order[:corrupt]] = True
        gone[order[corrupt : corrupt + dropped]] = True
        steps = [step for step in range(-k // 2, k // 2 + 1) if step]
        counts["exposed"] += bool((sum(np.roll(bad, step).astype(int) for step in steps) >= t).any())
        counts["unfinished"] += bool((sum(np.roll(~gone, step).astype(int) for step in steps) < t).any())
        counts["disconnected"] += honest_pieces(clients, k, ~(bad | gone)) > 1
    got = parameters._Round(clients, corrupt, dropped, CURIOUS).parameters(k, t)
    assert counts["exposed"] > 20
    assert counts["unfinished"] > 20
    assert counts["disconnected"] > 20
    sure = 3 / math.sqrt(rounds)
    assert counts["exposed"] / rounds <= 2**got.log2_exposed + sure
    assert counts["unfinished"] / rounds <= 2**got.log2_aborted + sure
    assert counts["disconnected"] / rounds <= 2**got.log2_disconnected + sure


@settings(max_examples=25, deadline=None)
@given(
    st.integers(5, 160),
    st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.33]),
    st.sampled_from([0.0, 0.05, 0.1, 0.3]),
    st.sampled_from(list(ServerAdversary)),
    st.sampled_from([(10, 5), (40, 20)]),
)
def test_nothing_smaller_would_do(clients, corrupt, dropout, server, bits):
    """The search that leaps finds what trying every k and t finds."""
    security, finish = bits
    model = parameters._Round.from_fractions(clients, corrupt, dropout, server)
    result = None
    for k in range(2, clients - 1, 2):
        for t in range(k // 2 + 1, k + 1):
            fine = (
                model.log2_exposed(k, t) <= -security
                and model.log2_disconnected(k, t) <= -security
                and model.log2_aborted(k, t) <= -finish
            )
            if fine and result is None:
                result = (k, t)
    assert model.smallest_sparse_graph(-security, -finish) == result


@pytest.mark.parametrize(("corrupt", "dropout"), [(0.0, 0.0), (0.1, 0.1), (0.3, 0.15), (0.45, 0.05)])
@pytest.mark.parametrize("clients", [8, 9, 31, 60])
@pytest.mark.parametrize("server", ServerAdversary)
def test_the_complete_graph_is_certain(clients, corrupt, dropout, server):
    others, bad, gone = clients - 1, math.floor(corrupt * clients), math.floor(dropout * clients)

    def works(t):
        if server is CURIOUS:
            return t > others / 2 and t > bad and others - gone >= t
        return 2 * t >= clients + bad and others - gone >= t

    working = [t for t in range(1, others + 1) if works(t)]
    if not working:
        with pytest.raises(ConfigurationError, match="even the complete graph"):
            choose_parameters(clients, corrupt=corrupt, dropout=dropout, server=server)
        return
    got = choose_parameters(clients, corrupt=corrupt, dropout=dropout, server=server)
    assert got == MaskingParameters(clients, 0, working[0], server, bad, gone, -math.inf, -math.inf, -math.inf)
    assert got == assess_parameters(clients, 0, working[0], corrupt, dropout, server)
    assert got == assess_parameters(clients, others, working[0], corrupt, dropout, server)


def test_the_complete_graph_is_the_default_where_it_is_needed():
    assert choose_parameters(60).neighbours == 0
    assert choose_parameters(61).neighbours > 0
    assert choose_parameters(61, complete_graph_max_clients=61).neighbours == 0
    assert choose_parameters(943, server=ACTIVE).neighbours == 134
    assert choose_parameters(943, server=ACTIVE, complete_graph_max_clients=943).neighbours == 0


def test_where_no_sparse_graph_will_do_the_complete_one_is_taken():
    got = choose_parameters(41, corrupt=0.5, dropout=0.45, complete_graph_max_clients=0)
    assert (got.neighbours, got.threshold) == (0, 21)


def test_grinding_asks_for_more():
    plain = choose_parameters(943, server=ACTIVE, complete_graph_max_clients=0, grinding_bits=0)
    ground = choose_parameters(943, server=ACTIVE, complete_graph_max_clients=0)
    assert plain.neighbours < ground.neighbours
    assert max(ground.log2_exposed, ground.log2_disconnected) <= -104
    assert choose_parameters(943, security_bits=104) == choose_parameters(943, grinding_bits=64)


def test_thresholds_that_fail_are_assessed():
    curious = assess_parameters(50, 0, 25, 0.6, 0.6, CURIOUS)
    assert (curious.log2_exposed, curious.log2_disconnected, curious.log2_aborted) == (0.0, -math.inf, 0.0)
    active = assess_parameters(50, 0, 29, 0.2, 0.1, ACTIVE)
    assert active.log2_exposed == 0.0
    assert assess_parameters(50, 0, 30, 0.2, 0.1, ACTIVE).log2_exposed == -math.inf
    assert assess_parameters(100, 4, 3, 0.5, 0.4, CURIOUS).log2_exposed == 0.0


def test_without_comparing_lists_honest_clients_alone_cut_others_out():
    """Why bounds against an active server presume signed terms: here nobody is corrupt."""
    k = 100
    one_client = [position for step in range(1, k // 2 + 1) for position in (step, -step)]
    end_of_a_stretch = list(range(k // 2))
    assert can_cut(600, k, 62, one_client)
    assert not can_cut(600, k, 63, one_client)
    assert can_cut(600, k, 70, end_of_a_stretch)
    assert not can_cut(600, k, 71, end_of_a_stretch)


@settings(max_examples=50, deadline=None)
@given(st.integers(7, 9), st.integers(2, 3), st.data())
def test_runs_that_cut_a_confirmed_list_hold_corrupt_clients(clients, half, data):
    """Under one list, whoever answers has t live neighbours, so a run beside it holds t - k/2 corrupt."""
    k = 2 * half
    t = data.draw(st.integers(half + 1, k))
    for corrupt in combinations(range(clients), 2):
        listed = np.array(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
        steps = [step for step in range(-half, half + 1) if step]
        bad = np.isin(np.arange(clients), corrupt)
        live = listed | bad
        answers = listed & ~bad & (sum(np.roll(live, step).astype(int) for step in steps) >= t)
        honest = listed & ~bad
        for position in np.flatnonzero(answers):
            run = (position + 1 + np.arange(half)) % clients
            if k + 1 <= clients and not honest[run].any():
                assert bad[run].sum() >= t - half


def test_shares_are_floored_as_decimals():
    got = choose_parameters(100, corrupt=0.07, dropout=0.29)
    assert (got.corrupt, got.dropouts) == (7, 29)
    got = choose_parameters(99, corrupt=0.1, dropout=1 / 3)
    assert (got.corrupt, got.dropouts) == (9, 33)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": 2}, "fewer than 3"),
        ({"corrupt": 1.0}, "corrupt is 1.0"),
        ({"corrupt": -0.1}, "corrupt is -0.1"),
        ({"dropout": math.nan}, "dropout is nan"),
        ({"security_bits": -1}, "security_bits is -1"),
        ({"dropout_bits": -1}, "dropout_bits is -1"),
        ({"grinding_bits": -1}, "grinding_bits is -1"),
    ],
)
def test_arguments_out_of_range_are_refused(changed, message):
    with pytest.raises(ConfigurationError, match=message):
        choose_parameters(**{"clients": 100, **changed})


@pytest.mark.parametrize(
    ("neighbours", "threshold", "message"),
    [
        (21, 12, "neighbours is 21"),
        (-2, 1, "neighbours is -2"),
        (100, 60, "neighbours is 100"),
        (20, 10, "threshold is 10 of 20"),
        (20, 21, "threshold is 21 of 20"),
        (0, 49, "threshold is 49 of 99"),
        (0, 100, "threshold is 100 of 99"),
    ],
)
def test_impossible_graphs_are_refused(neighbours, threshold, message):
    with pytest.raises(ConfigurationError, match=message):
        assess_parameters(100, neighbours, threshold, 0.1, 0.1, CURIOUS)


@pytest.mark.parametrize(
    ("clients", "corrupt", "dropout", "server", "remedy"),
    [
        (943, 0.2, 0.5, CURIOUS, "plan for at most 470 dropouts"),
        (20, 0.95, 0.0, CURIOUS, "leave a client 19 neighbours; lower the corrupt fraction"),
        (3, 0.7, 0.0, ACTIVE, "leave a client 2 neighbours; lower the corrupt fraction"),
        (9, 0.0, 0.5, ACTIVE, "plan for at most 3 dropouts"),
        (20, 0.6, 0.5, CURIOUS, "plan for at most 6 dropouts or lower the corrupt fraction"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(clients, corrupt, dropout, server, remedy):
    with pytest.raises(ConfigurationError) as refused:
        choose_parameters(clients, corrupt=corrupt, dropout=dropout, server=server, complete_graph_max_clients=0)
    assert str(refused.value).endswith(remedy)


def test_the_sentence():
    sparse = choose_parameters(943).summary
    assert sparse.startswith(
        "Each of 943 clients shares masks with 46 others, and any 26 of those can rebuild its secrets."
    )
    assert "follows the protocol and knows all that 94 of the clients know" in sparse
    assert "unmasks a single client is at most 2^-41.3, " in sparse
    assert "try" not in sparse
    complete = choose_parameters(50).summary
    assert "all 49 others" in complete
    assert "unmasks a single client is 0," in complete
    assert "up to 1" in assess_parameters(50, 0, 25, 0.6, 0.1, CURIOUS).summary
    active = choose_parameters(943, server=ACTIVE, complete_graph_max_clients=0).summary
    assert "deviates, under signed terms," in active
    assert active.count("for each graph it can try") == 2
    assert "try" not in choose_parameters(60, server=ACTIVE).summary


def test_sentences_never_promise_more_than_the_numbers():
    got = replace(choose_parameters(943), log2_exposed=-40.04)
    assert "2^-40.0," in got.summary


def test_a_server_may_be_named():
    assert choose_parameters(100, server="curious") == choose_parameters(100, server=CURIOUS)
    assert assess_parameters(100, 0, 70, 0.1, 0.1, "active") == assess_parameters(100, 0, 70, 0.1, 0.1, ACTIVE)


@pytest.mark.parametrize("server", ServerAdversary)
def test_a_million_clients_find_parameters(server):
    got = choose_parameters(10**6, server=server, complete_graph_max_clients=0)
    choose_parameters(10**6, corrupt=0.2, dropout=0.3, server=server, complete_graph_max_clients=0)
    assert (got.neighbours, got.threshold) == {CURIOUS: (64, 35), ACTIVE: (218, 160)}[server]


@pytest.mark.parametrize("clients", [*range(3, 40), 100, 333])
def test_signed_terms_let_as_many_collude_as_the_complete_graph_hides_from(clients):
    """Against the guarantees of the complete graph, which are derived apart from this."""
    for threshold in range(clients // 2 + 1, clients):
        allowed = Terms(bytes(16), 0, 32, 1, threshold, signed=True).max_corrupt(clients)
        for corrupt in range(clients - 1):
            share = (corrupt + 0.5) / clients
            found = assess_parameters(clients, 0, threshold, share, 0.0, ServerAdversary.ACTIVE)
            assert found.corrupt == corrupt
            assert (found.log2_exposed == -math.inf) == (corrupt <= allowed)
        if clients > 40:
            break


@pytest.mark.parametrize("corrupt", [0, 1, 5, 9])
def test_the_signed_threshold_is_the_smallest(corrupt):
    for clients in range(corrupt + 3, 60):
        threshold = signed_threshold(clients, corrupt)
        assert Terms(bytes(16), 0, 32, 1, threshold, signed=True).max_corrupt(clients) >= corrupt
        below = max(threshold - 1, 2)
        assert threshold == 2 or Terms(bytes(16), 0, 32, 1, below, signed=True).max_corrupt(clients) < corrupt
    with pytest.raises(ConfigurationError, match="more clients take part"):
        signed_threshold(corrupt + 1, corrupt)


def test_nine_of_ten_open_the_tenth():
    """Nine of 100 are few, and all that a roster of ten needs, unless the client counts them."""
    nine = assess_parameters(10, 0, 7, 0.9, 0.0, ServerAdversary.ACTIVE)
    assert (nine.corrupt, nine.log2_exposed) == (9, 0.0)
    terms = Terms(bytes(16), 0, 32, 1, 7, signed=True)
    ClientRequirements(min_clients=10, min_threshold=7).check_roster(terms, 10)
    with pytest.raises(RosterRefused, match="this client requires 9"):
        ClientRequirements(min_clients=10, min_threshold=7, max_corrupt=9).check_roster(terms, 10)
