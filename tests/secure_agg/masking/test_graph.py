"""The circle that nobody picks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from secure_agg.masking import Suite, Terms
from secure_agg.masking.graph import HararyGraph, roster_context

RUN = bytes(range(16))


def terms(neighbours, threshold=None, number=0, run=RUN, **changes):
    return Terms(run, number, 32, 1, threshold or max(2, neighbours // 2 + 1), neighbours, **changes)


def circle(agreed, ids):
    return HararyGraph(agreed, np.array(ids, np.uint32))


def edges(one):
    return {(client, other) for client in one.ids.tolist() for other in one.neighbours(client)}


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_every_client_has_exactly_as_many_neighbours_and_they_have_it(data):
    half = data.draw(st.integers(1, 6))
    ids = sorted(data.draw(st.sets(st.integers(0, 2**32 - 2), min_size=2 * half + 1, max_size=4 * half + 4)))
    one = circle(terms(2 * half), ids)
    length_prefixed = edges(one)
    assert all((other, client) in length_prefixed for client, other in length_prefixed)
    assert all(client != other for client, other in length_prefixed)
    for client in ids:
        around = one.neighbours(client)
        assert len(around) == len(set(around)) == 2 * half
        assert list(around) == sorted(around)
        assert set(around) <= set(ids)


@pytest.mark.parametrize("extra", [1, 2, 3])
def test_rosters_that_barely_hold_the_neighbours(extra):
    """k + 1 clients are the complete graph; k + 2 and k + 3 lack one and two joins each."""
    ids = list(range(10, 10 + 6 + extra))
    one = circle(terms(6), ids)
    assert {len(one.neighbours(client)) for client in ids} == {6}
    assert all(len(set(ids) - {client} - set(one.neighbours(client))) == extra - 1 for client in ids)


def test_everybody_is_a_neighbour_where_all_are_asked_for_or_too_few_are_there():
    for agreed in (terms(0), terms(20)):
        one = circle(agreed, [3, 5, 8, 13])
        assert one.degree == 3
        assert one.neighbours(8) == (3, 5, 13)


def test_it_is_a_ring():
    """With two neighbours each, walking on meets everybody; with k, each is joined to the k/2 ahead and behind."""
    ids = list(range(0, 90, 3))
    ring = circle(terms(2, threshold=2), ids)
    seen, here, before = [], ids[0], None
    while here not in seen:
        seen.append(here)
        onward = [other for other in ring.neighbours(here) if other != before]
        here, before = onward[0], here
    assert sorted(seen) == ids
    wide = circle(terms(6), ids)
    order = [wide.ids[seat] for seat in wide._order]
    for position, client in enumerate(order):
        expected = {order[(position + step) % len(order)] for step in (-3, -2, -1, 1, 2, 3)}
        assert set(wide.neighbours(client)) == expected


def test_the_order_depends_on_run_round_terms_and_participants():
    ids = list(range(40))
    agreed = terms(4)
    others = [
        circle(terms(4, run=bytes(16)), ids),
        circle(terms(4, number=1), ids),
        circle(terms(4, threshold=4), ids),
        circle(terms(4, suite=Suite.CHACHA20), ids),
        circle(terms(4, layout=bytes(31) + b"\1"), ids),
        circle(agreed, [*ids[:-1], 40]),
    ]
    base = circle(agreed, ids)
    assert edges(base) == edges(circle(agreed, ids))
    everything = {one.context for one in others} | {base.context}
    assert len(everything) == len(others) + 1
    assert all(edges(one) != edges(base) for one in others)


def test_the_context_of_a_roster_is_of_its_ids_in_one_encoding():
    agreed = terms(4)
    assert roster_context(agreed, np.array([1, 2], np.uint32)) == roster_context(agreed, np.array([1, 2], np.uint64))
    assert roster_context(agreed, np.array([1, 2], np.uint32)) != roster_context(agreed, np.array([258], np.uint32))


def test_who_is_neighbour_of_whom_is_uniform_over_rounds():
    """Chi-square over how often each other client is a neighbour of client 0, and over its seat."""
    rounds, ids, half = 600, list(range(12)), 2
    met, seats = np.zeros(12), np.zeros(12)
    for number in range(rounds):
        one = circle(terms(2 * half, number=number), ids)
        met[list(one.neighbours(0))] += 1
        seats[one._position[0]] += 1
    assert met[0] == 0
    assert stats.chisquare(met[1:]).pvalue > 1e-6
    assert stats.chisquare(seats).pvalue > 1e-6
