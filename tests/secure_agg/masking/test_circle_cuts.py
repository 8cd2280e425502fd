"""What a server that lies opens on a circle under signed terms: a model of who reveals what, and the proof's bounds.

The model has no cryptography: who is told which lists decides who reveals, whose secrets are known by it, and which
sums have no unknown mask. It stands apart from the code of the protocol.
"""

import contextlib
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_agg import shamir
from secure_agg.errors import RoundAborted, ShareError
from secure_agg.masking import SERVER, Stage, key_derivation, messages
from secure_agg.masking.graph import HararyGraph
from secure_agg.masking.parameters import MIN_CIRCLE, log2_insecure
from secure_agg.primitives.keys import KeyPair
from secure_agg.primitives.prg import add_keystreams

HEADER = messages.HEADER_BYTES


@dataclass
class Circle:
    """Clients at their positions; `told` is what each honest one was told: who checked, and who survived (or None)."""

    clients: int
    neighbours: int
    threshold: int
    corrupt: frozenset[int]
    told: dict[int, tuple[frozenset[int], frozenset[int] | None]]

    def around(self, one):
        steps = [step for step in range(-self.neighbours // 2, self.neighbours // 2 + 1) if step]
        return [(one + step) % self.clients for step in steps]

    def honest(self):
        return [one for one in range(self.clients) if one not in self.corrupt]

    def reveals(self, compare):
        """Honest clients that answer the request, after they confirmed and saw a threshold confirm the same."""
        confirmed = {}
        for one in self.honest():
            checked, alive = self.told[one]
            if alive is None or one not in alive or not alive <= checked or one not in checked:
                continue
            near = [other for other in self.around(one) if other in alive]
            if len(near) < self.threshold or len(set(self.around(one)) & checked) < self.threshold:
                continue
            # The signed inputs: every surviving neighbour masked under the same list.
            if compare and any(self.told[other][0] != checked for other in near if other not in self.corrupt):
                continue
            confirmed[one] = (checked, alive)
        return {
            one: lists
            for one, lists in confirmed.items()
            if sum(other in self.corrupt or confirmed.get(other) == lists for other in self.around(one))
            >= self.threshold
        }

    def sums(self, compare=True):
        """The sets of honest clients whose sum the server learns, and of no part of which it learns it."""
        revealing = self.reveals(compare)
        keys, seeds = set(), set()
        for one in self.honest():
            bad = sum(other in self.corrupt for other in self.around(one))
            lists = [revealing[other] for other in self.around(one) if other in revealing]
            if bad + sum(one in checked - alive for checked, alive in lists) >= self.threshold:
                keys.add(one)
            if bad + sum(one in alive for _, alive in lists) >= self.threshold:
                seeds.add(one)
        result = []
        for start in sorted(seeds - keys):
            component, waiting, closed = set(), [start], True
            while waiting:
                one = waiting.pop()
                if one in component:
                    continue
                component.add(one)
                for other in self.around(one):
                    if other in self.corrupt or other in keys:
                        continue
                    if other in self.told[one][0]:
                        closed &= one in self.told[other][0]
                        waiting.append(other)
            if closed and component <= seeds and component not in result:
                result.append(component)
        both = [{one} for one in keys & seeds]
        return result + both

    def is_bounded(self):
        """Whether conditions 2 and 3 hold at these positions: counted, not estimated."""
        half, n = self.neighbours // 2, self.clients
        if any(
            sum(other in self.corrupt for other in self.around(one)) >= 2 * self.threshold - self.neighbours
            for one in range(n)
        ):
            return False
        bad = [
            start
            for start in range(n)
            if sum((start + step) % n in self.corrupt for step in range(half)) >= self.threshold - half
        ]
        return not any((other - one) % n >= half and (one - other) % n >= half for one in bad for other in bad)

    def gaps(self, members):
        """Lengths of the stretches of at least half the neighbours without a member."""
        positions = np.array(sorted(members))
        lengths = np.diff(positions, append=positions[0] + self.clients) - 1
        return [int(length) for length in lengths if length >= self.neighbours // 2]


def cut(clients, neighbours, threshold, segment, corrupt=()):
    """A segment is told to mask with itself and a few beyond either end, who are then called dropped by all.

    Everybody else is told that all checked, so that their answers give the seeds of the segment's ends.
    """
    beyond = threshold - neighbours // 2
    lost = {(0 - step) % clients for step in range(1, beyond + 1)} | {
        (segment - 1 + step) % clients for step in range(1, beyond + 1)
    }
    everybody = frozenset(range(clients))
    inside = frozenset(range(segment)) | lost
    near = {one % clients for one in range(-neighbours, segment + neighbours)}
    told = dict.fromkeys(everybody, (everybody, everybody - lost))
    for one in range(segment):
        told[one] = (everybody - (near - inside), everybody - near | set(range(segment)))
    told |= dict.fromkeys(lost, (everybody, None))
    return Circle(clients, neighbours, threshold, frozenset(corrupt), told)


@pytest.mark.parametrize(("neighbours", "threshold"), [(20, 11), (20, 12), (22, 12), (40, 23)])
def test_without_signed_inputs_honest_clients_alone_cut_off_a_segment(neighbours, threshold):
    """Why inputs are signed: nobody is corrupt here, and the sum over the segment comes out."""
    segment = 2 * neighbours
    game = cut(5 * neighbours, neighbours, threshold, segment)
    assert game.is_bounded()
    assert set(range(segment)) in game.sums(compare=False)
    assert not game.sums()


def test_honest_lists_open_one_sum_over_all_survivors():
    everybody = frozenset(range(40))
    alive = everybody - {3, 17, 29}
    told = {one: (everybody, alive if one in alive else None) for one in everybody}
    game = Circle(40, 8, 5, frozenset({11}), told)
    assert game.sums() == [set(alive - {11})]


def test_the_bound_is_counted_right_where_it_fails():
    """As many corrupt at both ends as the bound says, and the segment between is cut off: it is not too cautious."""
    everybody, half, threshold = frozenset(range(40)), 4, 6
    gap = {*range(half), *range(20, 20 + half)}
    corrupt = frozenset({0, 1, 20, 21})
    alive = everybody - (gap - corrupt)
    told = {one: (everybody, alive if one in alive else None) for one in everybody}
    game = Circle(40, 2 * half, threshold, corrupt, told)
    assert not game.is_bounded()
    assert sorted(map(len, game.sums())) == [16, 16]
    fewer = Circle(40, 2 * half, threshold, corrupt - {0}, told)
    assert fewer.is_bounded()
    assert len(fewer.sums()) <= 1


@st.composite
def lies(draw):
    """Arcs of the circle that are told different things, with single clients told otherwise."""
    half = draw(st.integers(2, 3))
    neighbours = 2 * half
    clients = draw(st.integers(MIN_CIRCLE * neighbours, MIN_CIRCLE * neighbours + 9))
    threshold = draw(st.integers(half + 1, neighbours))
    corrupt = frozenset(draw(st.sets(st.integers(0, clients - 1), max_size=4)))
    everybody = frozenset(range(clients))

    def some():
        """All but some stretches, and but some single ones."""
        left_out = set(draw(st.sets(st.integers(0, clients - 1), max_size=4)))
        for _ in range(draw(st.integers(0, 2))):
            start, length = draw(st.integers(0, clients - 1)), draw(st.integers(1, 2 * neighbours))
            left_out |= {(start + step) % clients for step in range(length)}
        return everybody - left_out

    checked = [some() for _ in range(draw(st.integers(1, 3)))]
    lists = [(one, one & some()) for one in checked for _ in range(2)]
    ends = sorted(draw(st.sets(st.integers(0, clients - 1), min_size=1, max_size=4)))
    choices = [draw(st.integers(0, len(lists) - 1)) for _ in ends]
    told = {}
    for one in everybody:
        checked_by_one, alive = lists[choices[sum(end <= one for end in ends) - 1]]
        told[one] = (checked_by_one | {one}, alive) if one in alive else (checked_by_one | {one}, None)
    for one in draw(st.sets(st.integers(0, clients - 1), max_size=3)):
        checked_by_one, alive = lists[draw(st.integers(0, len(lists) - 1))]
        told[one] = (checked_by_one | {one}, (alive | {one}) if draw(st.booleans()) else None)
    return Circle(clients, neighbours, threshold, corrupt, told)


@given(lies())
@settings(max_examples=400, deadline=None)
def test_no_lie_opens_a_part_where_conditions_2_and_3_hold(game):
    """One sum at most, and none of it is missing but one stretch shorter than the neighbours."""
    if not game.is_bounded():
        return
    sums = game.sums()
    assert len(sums) <= 1
    for one in sums:
        gaps = game.gaps(one)
        assert len(gaps) <= 1
        assert all(length < game.neighbours for length in gaps)


@pytest.mark.parametrize(("clients", "neighbours", "threshold", "corrupt"), [(40, 8, 6, 2), (60, 10, 8, 3)])
def test_the_estimate_is_above_the_fraction_of_circles_that_fail(clients, neighbours, threshold, corrupt):
    random = np.random.default_rng(11)
    rounds, failed = 1500, 0
    for _ in range(rounds):
        chosen = frozenset(random.permutation(clients)[:corrupt].tolist())
        failed += not Circle(clients, neighbours, threshold, chosen, {}).is_bounded()
    assert failed / rounds <= 2 ** log2_insecure(clients, neighbours, threshold, corrupt) + 3 / math.sqrt(rounds)


def test_a_short_circle_fails_for_certain():
    assert log2_insecure(4 * 20 - 1, 20, 15, 0) == 0.0
    assert log2_insecure(4 * 20, 20, 15, 0) == -math.inf
    assert log2_insecure(100, 20, 15, 1000) == 0.0


def open_segment(game, model, order, length):
    """What a server gets that tells each client at its seat what the model says: the sum over the first seats, or None.

    Everything it uses was sent to it.
    """
    lists = {
        order[seat]: tuple(one if one is None else frozenset(order[other] for other in one) for one in told)
        for seat, told in model.told.items()
    }
    uploads, signatures, confirmed, pool = {}, {}, {}, defaultdict(dict)
    around = {one: game.clients[one]._state.neighbours for one in game.ids}
    key_of = {one: game.replies[Stage.ADVERTISEMENT][one][HEADER : HEADER + 32] for one in game.ids}
    known = {chosen for told in lists.values() for chosen in told if chosen is not None}
    flags = {chosen: messages.membership_bits(game.ids, chosen) for chosen in known}
    for one in game.ids:
        header = messages.encode_header(Stage.GO_AHEAD, game.terms, SERVER, one)
        reply = game.clients[one].mask(header + messages.GoAhead(flags[lists[one][0]], ()).encode(), game.vectors[one])
        uploads[one], signatures[one] = np.frombuffer(reply[HEADER:-64], "<u4"), reply[-64:]
    for one, (_, alive) in lists.items():
        if alive is not None:
            pieces = tuple(signatures[other] for other in around[one] if other in alive)
            header = messages.encode_header(Stage.SURVIVORS, game.terms, SERVER, one)
            with contextlib.suppress(RoundAborted):
                message = header + messages.Survivors(flags[alive], pieces).encode()
                confirmed[one] = game.clients[one].confirm(message)[HEADER:]
    for one in confirmed:
        checked, alive = lists[one]
        agreeing = {other for other in around[one] if other in confirmed and lists[other] == lists[one]}
        near = [frozenset(around[one]) & chosen for chosen in (alive, checked - alive, agreeing)]
        body = messages.UnmaskRequest(
            *(messages.membership_bits(around[one], chosen) for chosen in near),
            tuple(confirmed[other] for other in around[one] if other in agreeing),
        ).encode()
        with contextlib.suppress(RoundAborted):
            header = messages.encode_header(Stage.REQUEST, game.terms, SERVER, one)
            shares = game.clients[one].unmask(header + body)[HEADER:]
            for at, owner in enumerate(sorted(near[0] | near[1])):
                kind = "seed" if owner in alive else "key"
                pool[kind, owner][around[owner].index(one) + 1] = shares[33 * at : 33 * (at + 1)]
    segment = {order[seat] for seat in range(length)}
    total, plus, minus = game.terms.ring.zeros(game.terms.length), [], []
    try:
        for one in segment:
            seed = shamir.reconstruct(pool["seed", one], game.terms.threshold)
            total = total + uploads[one]
            context = game.server._context
            minus.append(key_derivation.self_mask_key(game.terms, context, seed, one, bytes(32)))
            for other in lists[one][0] & frozenset(around[one]) - segment:
                pair = KeyPair.from_private(shamir.reconstruct(pool["key", other], game.terms.threshold))
                mask = key_derivation.pairwise_mask_key(
                    game.terms, context, pair, ours=other, theirs=one, their_key=key_of[one], bound=bytes(32)
                )
                (minus if one < other else plus).append(mask)
    except ShareError:
        return None
    add_keystreams(total, plus, minus, game.terms.suite.stream)
    return segment, total


@pytest.mark.parametrize("compared", [False, True])
def test_the_same_lie_in_the_protocol_itself(play, monkeypatch, compared):
    """With signatures over inputs that say nothing of the list, the sum over a segment is opened; as it is, nothing."""
    neighbours, threshold = 20, 11
    model = cut(5 * neighbours, neighbours, threshold, 2 * neighbours)
    game = play(model.clients, threshold, neighbours=neighbours, signed=True).until(Stage.MASKED_INPUT)
    graph = HararyGraph(game.terms, np.array(game.ids, np.uint32))
    if not compared:
        monkeypatch.setattr(key_derivation, "input_message", lambda *_: b"an input")
    opened = open_segment(game, model, [game.ids[seat] for seat in graph._order], 2 * neighbours)
    if compared:
        assert opened is None
        return
    segment, total = opened
    np.testing.assert_array_equal(total, game.expected(segment))
