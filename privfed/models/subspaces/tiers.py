"""No small sums: who trains in which tier when a round has few members of one.

A sum per tier shows the server one sum for each, over that tier's members only; a tier of one member would show that
member's update. Levels nest, so members of two tiers can meet in one: a larger device can train in the smaller subspace
(`demote`: the sum loses what the larger one could have learnt, and costs nothing), or a smaller device trains where it
does and sends its update in the larger basis (`lift`: nothing is lost, the upload grows to the larger size, and a
device that cannot hold that much at once makes it piece by piece).

Decide before keys are agreed, from announced counts, which the server sees, and check each sum again after devices drop
out: the masking protocol's own minimum does that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from privfed.models.subspaces.errors import CapacityError

Short = Literal["demote", "lift", "skip"]


@dataclass(frozen=True, slots=True)
class Grouping:
    """In which tier's basis the members of each tier are summed.

    Attributes:
        basis: tier -> the tier whose basis its members send in, None where they sit this round out. With `demote` they
            also train there; with `lift` they train in their own.
        counts: members of each tier that was asked about.
    """

    basis: Mapping[int, int | None]
    counts: Mapping[int, int]

    @property
    def sums(self) -> dict[int, int]:
        """How many members meet in each tier that is summed, the largest subspace first."""
        found = dict.fromkeys(sorted(tier for tier in self.basis.values() if tier is not None), 0)
        for tier, basis in self.basis.items():
            if basis is not None:
                found[basis] += self.counts[tier]
        return found

    @property
    def below(self) -> bool:
        """The round has members, but nothing of it can be summed."""
        return any(self.counts.values()) and not any(self.sums.values())


def group_tiers(counts: Mapping[int, int], minimum: int, short: Short = "demote") -> Grouping:
    """Decide where each tier is summed.

    Every sum has at least `minimum` members, or none. Proof. With `skip`, only tiers with `minimum` members keep a
    basis. Else walk over the tiers that have members, smallest subspace first, and gather them into a group; when a
    group has `minimum` members it is closed and the next begins. Every closed group has `minimum` members. At the end
    at most one group is open, that of the largest devices; it joins the group closed last. If none was closed, the
    whole round was gathered and is below `minimum`: then nobody takes part, and `Grouping.below` says so. A group meets
    in one basis, its smallest subspace (`demote`) or its largest (`lift`), and no two groups share a tier, so a sum is
    over exactly one group. A tier without members keeps its own basis and is in no group, and is nobody else's basis,
    because a group's basis is a tier with members. Groups are runs of neighbours: `demote` moves nobody into a larger
    subspace than the device's own, `lift` nobody into a smaller one.

    Args:
        counts: tier -> members of this round; a tier is a level, 0 the whole table.
        minimum: fewest members of a sum.
        short: what happens to a tier with fewer.

    Raises:
        CapacityError: a count is negative or the minimum below 1.
    """
    if minimum < 1 or min(counts.values(), default=0) < 0:
        raise CapacityError(
            f"tiers with {dict(counts)} members and a minimum of {minimum} were given: counts are at least 0 and the "
            f"minimum is at least 1"
        )
    basis: dict[int, int | None] = {tier: None if count else tier for tier, count in sorted(counts.items())}
    if short == "skip":
        return Grouping(basis | {tier: tier for tier, count in counts.items() if count >= minimum}, dict(counts))
    for group in _groups(counts, minimum):
        basis |= dict.fromkeys(group, max(group) if short == "demote" else min(group))
    return Grouping(basis, dict(counts))


def _groups(counts: Mapping[int, int], minimum: int) -> list[list[int]]:
    """Runs of tiers that have members, each with at least `minimum`; none if there are not as many in all."""
    closed: list[list[int]] = []
    group: list[int] = []
    for tier in sorted((tier for tier, count in counts.items() if count), reverse=True):
        group.append(tier)
        if sum(counts[t] for t in group) >= minimum:
            closed.append(group)
            group = []
    if closed:
        closed[-1].extend(group)
    return closed
