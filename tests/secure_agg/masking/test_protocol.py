"""The masked sum is the sum, for every ring, graph, suite and pattern of dropouts; else the round ends with no sum."""

import itertools
import secrets
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg.errors import ConfigurationError, RoundAborted, TooFewClients
from secure_agg.masking import ClientRequirements, Stage, Suite, Terms
from secure_agg.masking.messages import HEADER_BYTES
from secure_agg.masking.simulation import aggregate, modular_sum
from secure_agg.primitives.keys import KeyPair
from secure_agg.primitives.prg import random_uints

SENDING = (Stage.ADVERTISEMENT, Stage.SHARES, Stage.MASKED_INPUT, Stage.REVEAL)
SIGNED_SENDING = (
    Stage.ADVERTISEMENT, Stage.SHARES, Stage.CHECK, Stage.MASKED_INPUT, Stage.CONFIRMATION, Stage.REVEAL,
)  # fmt: skip
UNSIGNED = ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False)


def terms(threshold, neighbours=0, bits=32, length=7, **changes):
    return Terms(secrets.token_bytes(16), 3, bits, length, threshold, neighbours, **changes)


def vectors(clients, agreed):
    return {client: agreed.ring.reduce_(random_uints(agreed.length, agreed.ring.dtype)) for client in clients}


def integer_sum(given, survivors, bits):
    """The naive oracle: Python integers, one coordinate at a time."""
    length = len(next(iter(given.values())))
    return [sum(int(given[client][i]) for client in survivors) % 2**bits for i in range(length)]


def by_stage(pattern):
    """client -> stage (or None), as the driver wants it."""
    dropouts = {}
    for client, stage in pattern.items():
        if stage is not None:
            dropouts.setdefault(stage, []).append(client)
    return dropouts


def reaches(pattern, stage, order):
    """Clients whose reply of this stage arrives."""
    return {client for client, gone in pattern.items() if gone is None or order.index(gone) > order.index(stage)}


def check(given, agreed, pattern, order=SENDING, requirements=UNSIGNED):
    """Run; the survivors and the total, or an abort, follow from who answers at each stage (complete graph)."""
    alive = reaches(pattern, Stage.MASKED_INPUT, order)
    revealing = reaches(pattern, Stage.REVEAL, order)
    sharers = reaches(pattern, Stage.SHARES, order)
    enough = agreed.allows_roster_of(len(reaches(pattern, Stage.ADVERTISEMENT, order)))
    enough &= len(revealing) >= agreed.threshold
    enough &= all(len(revealing - {client}) >= agreed.threshold for client in sharers)
    if not enough:
        with pytest.raises(TooFewClients, match="nothing was unmasked"):
            aggregate(given, agreed, dropouts=by_stage(pattern), requirements=requirements)
        return
    outcome = aggregate(given, agreed, dropouts=by_stage(pattern), requirements=requirements)
    assert set(outcome.survivors) == alive
    assert outcome.total.tolist() == integer_sum(given, alive, agreed.bits)
    np.testing.assert_array_equal(outcome.total, modular_sum(given, outcome.survivors, agreed))
    assert not outcome.refusals


@pytest.mark.parametrize("first", [None, *SENDING])
def test_every_dropout_pattern_of_five_clients(first):
    agreed = terms(threshold=3, length=3)
    given = vectors(range(5), agreed)
    for rest in itertools.product((None, *SENDING), repeat=4):
        check(given, agreed, dict(enumerate((first, *rest))))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_complete_graph(data):
    ids = data.draw(st.lists(st.integers(0, 2**32 - 2), min_size=3, max_size=12, unique=True))
    n = len(ids)
    signed = data.draw(st.booleans())
    least = 2 * n // 3 + 1 if signed else n // 2 + 1
    if least > n - 1:
        signed, least = False, n // 2 + 1 if n > 3 else 2
    agreed = terms(
        threshold=data.draw(st.integers(least, n - 1)),
        bits=data.draw(st.integers(2, 64)),
        length=data.draw(st.integers(1, 40)),
        suite=data.draw(st.sampled_from(list(Suite))),
        signed=signed,
    )
    order = SIGNED_SENDING if signed else SENDING
    mostly_alive = st.sampled_from([None] * 12 + list(order))
    pattern = {client: data.draw(mostly_alive) for client in ids}
    check(vectors(ids, agreed), agreed, pattern, order)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_sparse_graph(data):
    n = data.draw(st.integers(6, 40))
    half = data.draw(st.integers(1, max(1, min(6, n // 4))))
    agreed = terms(data.draw(st.integers(half + 1, 2 * half)), 2 * half, data.draw(st.integers(2, 64)))
    given = vectors(range(n), agreed)
    pattern = {client: data.draw(st.sampled_from([None] * 30 + list(SENDING))) for client in range(n)}
    try:
        outcome = aggregate(given, agreed, dropouts=by_stage(pattern), requirements=UNSIGNED)
    except TooFewClients:
        return
    assert set(outcome.survivors) <= reaches(pattern, Stage.MASKED_INPUT, SENDING)
    assert outcome.total.tolist() == integer_sum(given, outcome.survivors, agreed.bits)


@pytest.mark.parametrize("bits", [5, 12, 20, 33])
def test_packed_sums_are_the_unpacked_ones_and_as_long_as_counted(bits):
    """The same numbers through a narrow ring and through the machine's, with dropouts at every stage."""
    clients, length, dropouts = 12, 1001, {Stage.SHARES: [1], Stage.MASKED_INPUT: [4, 7], Stage.REVEAL: [9]}
    narrow = terms(threshold=7, bits=bits, length=length)
    wide = terms(threshold=7, bits=8 * narrow.ring.dtype.itemsize, length=length)
    given = vectors(range(clients), wide)
    packed, whole = (aggregate(given, agreed, dropouts=dropouts, requirements=UNSIGNED) for agreed in (narrow, wide))
    assert packed.survivors == whole.survivors == (0, 2, 3, 5, 6, 8, 9, 10, 11)
    np.testing.assert_array_equal(packed.total, narrow.ring.reduce_(whole.total.copy()))
    sent = packed.traffic[Stage.MASKED_INPUT] - len(packed.survivors) * HEADER_BYTES
    assert (
        sent
        == len(packed.survivors) * narrow.ring.packed_bytes(length)
        == len(packed.survivors) * -(-length * bits // 8)
    )


def test_sparse_graph_without_dropouts_opens_everybody():
    agreed = terms(threshold=4, neighbours=6)
    given = vectors(range(50), agreed)
    outcome = aggregate(given, agreed, requirements=UNSIGNED)
    assert outcome.survivors == tuple(range(50))
    assert outcome.total.tolist() == integer_sum(given, range(50), 32)


def test_a_client_cut_off_from_its_neighbours_is_left_out_before_it_masks():
    agreed = terms(threshold=4, neighbours=4)
    given = vectors(range(12), agreed)
    silent = 5
    with pytest.raises(TooFewClients):
        aggregate(given, agreed, dropouts={Stage.SHARES: [silent]}, requirements=UNSIGNED)
    roomy = terms(threshold=3, neighbours=4)
    outcome = aggregate(given, roomy, dropouts={Stage.SHARES: [silent]}, requirements=UNSIGNED)
    assert outcome.survivors == tuple(client for client in range(12) if client != silent)


def test_the_result_does_not_depend_on_threads():
    agreed = terms(threshold=2, length=300_001)
    given = vectors(range(4), agreed)
    for threads in (1, 2, 3):
        outcome = aggregate(
            given,
            terms(threshold=3, length=300_001),
            threads=threads,
            dropouts={Stage.REVEAL: []},
            requirements=UNSIGNED,
        )
        np.testing.assert_array_equal(outcome.total, modular_sum(given, range(4), agreed))


def test_a_requirements_on_clients_is_a_requirements_on_survivors_where_all_are_neighbours():
    agreed = terms(threshold=3)
    given = vectors(range(5), agreed)
    with pytest.raises(RoundAborted):
        aggregate(
            given,
            agreed,
            requirements=ClientRequirements(min_clients=5, min_threshold=3, require_signatures=False),
            dropouts={Stage.MASKED_INPUT: [0]},
        )


def test_dropouts_name_messages_of_clients():
    agreed = terms(threshold=3)
    with pytest.raises(ConfigurationError, match="stages among: advertisement, shares"):
        aggregate(vectors(range(5), agreed), agreed, dropouts={Stage.ROSTER: [1]})


def test_modular_sum_needs_every_survivor():
    agreed = terms(threshold=3)
    with pytest.raises(ConfigurationError, match="survivor 9 has no vector"):
        modular_sum(vectors(range(5), agreed), [1, 9], agreed)


def test_a_simulation_agrees_on_the_key_of_a_pair_once(monkeypatch):
    asked = Counter()

    def counted(pair, public, agree=KeyPair.agree):
        asked[frozenset((pair.public, public))] += 1
        return agree(pair, public)

    monkeypatch.setattr(KeyPair, "agree", counted)
    agreed = terms(threshold=4)
    given = vectors(range(6), agreed)
    outcome = aggregate(given, agreed, requirements=UNSIGNED)
    assert outcome.total.tolist() == integer_sum(given, range(6), 32)
    # A pair for masks and one for shares.
    assert len(asked) == 2 * 15
    assert set(asked.values()) == {1}
