"""Domination against its definition, written out."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.audit.report.frontier import dominated

POINT = st.tuples(st.sampled_from([0.5, 1.0, 8.0, math.inf]), st.sampled_from([0.1, 0.2, 0.3]))


@given(st.lists(POINT, max_size=8))
@settings(max_examples=50, deadline=None)
def test_a_point_is_dominated_if_another_is_as_good_and_somewhere_better(points: list[tuple[float, float]]) -> None:
    naive = []
    for cost, gain in points:
        naive.append(False)
        for other_cost, other_gain in points:
            as_good = other_cost <= cost and other_gain >= gain
            better = other_cost < cost or other_gain > gain
            naive[-1] |= as_good and better
    assert dominated(points) == naive
    assert not points or not all(naive)
