"""Which settings are worth having: a setting is dominated where another is at least as good both ways.

Points are compared within one panel only, that is among equal trust and equal units; an epsilon of one kind says
nothing about an epsilon of another.
"""

from collections.abc import Sequence


def dominated(points: Sequence[tuple[float, float]]) -> list[bool]:
    """For each (cost, gain), whether another point costs no more and gains no less, and is better in one of them.

    Args:
        points: Cost (epsilon, or what an attack recovers; infinity is allowed) and gain (utility).
    """
    return [
        any(cost <= own_cost and gain >= own_gain and (cost, gain) != (own_cost, own_gain) for cost, gain in points)
        for own_cost, own_gain in points
    ]
