"""No small sums: who trains in which tier when a round has few members of one.

A sum per tier shows the server one sum for each, over that tier's members only; a tier of one member would show that
member's update. Levels nest, so members of two tiers can meet in one: a larger device can train in the smaller subspace
(`demote`: the sum loses what the larger one could have learnt, and costs nothing), or a smaller device trains where it
does and sends its update in the larger basis (`lift`: nothing is lost, the upload grows to the larger size, and a
device that cannot hold that much at once makes it piece by piece).

A lifted update hides nobody larger. It lies in the small subspace, and the server knows which that is: it projects the
sum off it, and what remains are the larger devices alone, (I - P_small) of their sum. So what must not be small is the
number of members whose training subspace is the sum's own: only devices smaller than enough others are lifted, and a
large tier that is short is demoted in any case.

Decide before keys are agreed, from announced counts, which the server sees, and check each sum again after devices drop
out: the masking protocol's own minimum does that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from privfed.methods.fair.subspaces.errors import CapacityError

Short = Literal["demote", "lift", "skip"]


@dataclass(frozen=True, slots=True)
class Grouping:
    """The tier in whose basis the members of each tier are summed.

    Attributes:
        basis: tier -> the tier whose basis its members send in, None where they sit this round out. They train in the
            smaller of the two subspaces: those demoted in that one, those lifted in their own.
        counts: members of each tier in question.
    """

    basis: Mapping[int, int | None]
    counts: Mapping[int, int]

    @property
    def sums(self) -> dict[int, int]:
        """Number of members summed in each tier's basis, the largest subspace first."""
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

    Every sum has at least `minimum` members who train in its own subspace, or no member at all. Proof. With `skip`,
    only tiers with `minimum` members keep a basis. Else tiers that have members are gathered into runs of neighbours,
    and a run is closed when it has `minimum` members. All members of a closed run train in its smallest subspace, where
    they are summed. At the end at most one run is open, the last; if none was closed, the whole round was gathered and
    is below `minimum`: then nobody takes part, and `Grouping.below` says so. With `demote` the walk begins at the
    smallest subspace and the open run, that of the largest devices, joins the run closed last and trains there too.
    With `lift` it begins at the largest, a run takes in a tier only while it is short itself, and every short tier
    behind it joins it lifted: it trains in a smaller subspace than the sum's, so it counts for nothing above. No two
    runs share a tier. A tier without members keeps its own basis and is nobody else's, because a basis is a tier with
    members.

    Args:
        counts: tier -> members of this round; a tier is a level, 0 the whole table.
        minimum: smallest number of members of a sum.
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
    runs = _demoted(counts, minimum) if short == "demote" else _lifted(counts, minimum)
    for own, run in runs.items():
        basis |= dict.fromkeys(run, own)
    return Grouping(basis, dict(counts))


def _demoted(counts: Mapping[int, int], minimum: int) -> dict[int, list[int]]:
    """Smallest subspace -> the tiers that meet in it; smallest devices first, the largest join when they are short."""
    closed: list[list[int]] = []
    run: list[int] = []
    for tier in sorted((tier for tier, count in counts.items() if count), reverse=True):
        run.append(tier)
        if sum(counts[t] for t in run) >= minimum:
            closed.append(run)
            run = []
    if closed:
        closed[-1].extend(run)
    return {max(tiers): tiers for tiers in closed}


def _lifted(counts: Mapping[int, int], minimum: int) -> dict[int, list[int]]:
    """Basis -> the tiers that meet in it; largest devices first, demoted while they are short, then lifted to them."""
    closed: dict[int, list[int]] = {}
    run: list[int] = []
    for tier in sorted(tier for tier, count in counts.items() if count):
        if closed and counts[tier] < minimum:
            next(reversed(closed.values())).append(tier)
            continue
        run.append(tier)
        if sum(counts[t] for t in run) >= minimum:
            closed[tier] = run
            run = []
    return closed
