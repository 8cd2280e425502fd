"""Checks of cohorts: who took part, round by round, against the claimed sampling rule.

Read from who trained, not from who was meant to, and, because a few rounds cannot deny much, from whom the engine of
the run draws for some hundred rounds beyond. Each test has the exact law of an honest run or a union bound over exact
ones, and all of a run together fail an honest one with probability below one in a million.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool
from scipy import stats

from privfed.audit.report.records import Check
from privfed.engines.simulation import Simulation
from privfed.engines.witness import Exchange
from privfed.experiment import Experiment, RunResult
from privfed.privacy import Ledger, PrivacyPlan
from privfed.privacy.sampling import Epoch, Fixed, Poisson

P_VALUE = 1e-8
"""Of each of at most two dozen tests."""
_PAIRS = 400
_BEYOND, _DRAWS, _TOGETHER = 256, 1 << 19, 1024
"""Rounds beyond a run, members drawn for them at most, and users whose pairs are looked at."""

Cohorts = Bool[np.ndarray, "rounds users"]


def check_cohorts(experiment: Experiment, result: RunResult) -> Iterable[Check]:
    """Cohorts of the whole run against the plan's sampling."""
    if result.witness is None or not result.witness.exchanges:
        return
    plan, population = experiment.config.privacy, experiment.n_users
    faults = [*_one_cohort_a_round(result.witness.exchanges)]
    rounds = {e.cohort.round: e for e in reversed(result.witness.exchanges) if e.trained or e.answered}
    cohorts = np.zeros((len(rounds), population), dtype=bool)
    for row, t in enumerate(sorted(rounds)):
        cohorts[row, rounds[t].members.numpy()] = True
    faults += [*cohort_faults(plan, cohorts, sorted(rounds), everything=len(rounds) == experiment.config.rounds)]
    faults += [*_beyond(experiment)]
    yield Check(
        name="cohort sampling",
        passed=not faults,
        detail=faults[0]
        if faults
        else f"who took part in {len(rounds)} rounds fits the sampling '{plan.sampling.label}'; what "
        f"{len(rounds)} rounds of {population} users cannot tell from chance is not denied",
    )


def _beyond(experiment: Experiment) -> Iterator[str]:
    """What does not fit the rule in rounds that the engine draws members for after the run."""
    plan, population, first = experiment.config.privacy, experiment.n_users, experiment.config.rounds
    rounds = min(_BEYOND, _DRAWS // population)
    if not isinstance(plan.sampling, Poisson) or plan.sampling.rate == 1 or rounds < 2 or population < 2:
        return
    engine = Simulation(experiment.clients, plan, population, experiment.streams, Ledger(plan, population))
    cohorts = np.zeros((rounds, population), dtype=bool)
    for row in range(rounds):
        cohorts[row, engine.members(first + row).numpy()] = True
    asked = [first + row for row in range(rounds)]
    for fault in (*cohort_faults(plan, cohorts, asked), *_together(cohorts, plan.sampling.rate)):
        yield f"of {rounds} rounds that the engine was asked for beyond the run, {fault}"


def _together(cohorts: Cohorts, rate: float) -> Iterator[str]:
    """Users who take part together, or only without each other, where each has a bit of its own."""
    rounds, users = cohorts.shape
    agree = rate**2 + (1 - rate) ** 2
    pairings = {"next to each other": (0, 1), "one further": (1, 1), "half the numbers apart": (0, users // 2)}
    for name, (first, apart) in pairings.items():
        one = np.arange(first, users - apart)
        one = one[(one - first) // apart % 2 == 0]
        same = int((cohorts[:, one] == cohorts[:, one + apart]).sum())
        if _two_sided(stats.binom, same, rounds * len(one), agree) < P_VALUE:
            yield (
                f"users whose numbers are {name} agree in {same / (rounds * len(one)):.3f} of all cases about taking "
                f"part, where bits of their own agree in {agree:.3f}"
            )
            return
    some = cohorts[:, :_TOGETHER].astype(np.float32)
    both = some.T @ some
    both[np.diag_indices(len(both))] = rounds * rate**2
    user, other = divmod(int(both.argmax()), len(both))
    pairs = len(both) * (len(both) - 1) / 2
    if stats.binom.sf(both.max() - 1, rounds, rate**2) * pairs < P_VALUE:
        yield f"users {user} and {other} take part together in {int(both.max())} rounds, which bits of their own do not"


def _one_cohort_a_round(exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Queries of one round that were put to different clients."""
    for earlier, later in pairwise(e for e in exchanges if e.answered):
        same = earlier.cohort.round == later.cohort.round
        if same and sorted(earlier.members.tolist()) != sorted(later.members.tolist()):
            yield f"round {later.cohort.round + 1} has other clients in query {later.index + 1} than in the one before"
            return


def cohort_faults(
    plan: PrivacyPlan, cohorts: Cohorts, rounds: Sequence[int], *, everything: bool = True
) -> Iterator[str]:
    """What does not fit the sampling rule, in one sentence each.

    Args:
        plan: with the rule.
        cohorts: who took part.
        rounds: number of each row.
        everything: whether no round is left out; rounds that were too small to open bend the law of the others.
    """
    sampling, users = plan.sampling, cohorts.shape[1]
    if not len(cohorts):
        return
    if isinstance(sampling, Poisson) and sampling.rate < 1:
        if everything:
            yield from _poisson(cohorts, sampling.rate)
        yield from _overlaps(cohorts, rounds)
    elif isinstance(sampling, Fixed):
        yield from _sizes(cohorts, [min(sampling.size, users)] * len(cohorts), rounds)
        yield from _fixed(cohorts, min(sampling.size, users), rounds)
    elif isinstance(sampling, Epoch):
        yield from _epochs(cohorts, sampling, rounds)
    elif not cohorts.all():
        row = int(np.flatnonzero(~cohorts.all(1))[0])
        missing = int((~cohorts[row]).sum())
        yield f"round {rounds[row] + 1}: everybody is to take part, and {missing} of {users} users did not"


def _sizes(cohorts: Cohorts, wanted: Sequence[int], rounds: Sequence[int]) -> Iterator[str]:
    for t, size, want in zip(rounds, cohorts.sum(1), wanted, strict=True):
        if size != want:
            yield f"round {t + 1} has {size} clients, and the sampling draws {want}"
            return


def _poisson(cohorts: Cohorts, rate: float) -> Iterator[str]:
    """Independent participation at one rate: their number, each user's, and their scatter."""
    count, users = cohorts.shape
    total = int(cohorts.sum())
    if _two_sided(stats.binom, total, count * users, rate) < P_VALUE:
        yield f"{total / (count * users):.3f} of all users take part in a round, and {rate:g} are claimed"
    yield from _participations(cohorts, rate)
    sizes = cohorts.sum(1)
    if count > 1 and (sizes == sizes[0]).all():
        same = float((stats.binom.pmf(np.arange(users + 1), users, rate) ** count).sum())
        if same < P_VALUE:
            yield (
                f"all {count} rounds have exactly {sizes[0]} clients, which independent participation at rate {rate:g} "
                "does not give"
            )


def _participations(cohorts: Cohorts, rate: float) -> Iterator[str]:
    """How many users take part how often, against independent participation."""
    count, users = cohorts.shape
    often = np.bincount(cohorts.sum(0), minlength=count + 1).cumsum()
    for times, few in enumerate(often[:-1].tolist()):
        seldom = float(stats.binom.cdf(times, count, rate))
        if stats.binom.sf(few - 1, users, seldom) * 2 * count < P_VALUE:
            yield (
                f"{few} of {users} users take part in {times} of {count} rounds or fewer, where independent "
                f"participation at rate "
                f"{rate:g} give about {users * seldom:.1f}"
            )
            return
        if stats.binom.sf(users - few - 1, users, 1 - seldom) * 2 * count < P_VALUE:
            yield (
                f"{users - few} of {users} users take part in more than {times} of {count} rounds, where independent "
                f"{rate:g} gives about {users * (1 - seldom):.1f}"
            )
            return


def _overlaps(cohorts: Cohorts, rounds: Sequence[int]) -> Iterator[str]:
    """Rounds that share more or fewer clients than cohorts of these sizes that are drawn independently."""
    count, users = cohorts.shape
    pairs, sizes = _pairs(count), cohorts.sum(1)
    for first, second in pairs:
        both = int((cohorts[first] & cohorts[second]).sum())
        if _two_sided(stats.hypergeom, both, users, int(sizes[first]), int(sizes[second])) * len(pairs) < P_VALUE:
            yield (
                f"the cohorts of rounds {rounds[first] + 1} and {rounds[second] + 1} share {both} of {sizes[first]} "
                f"and {sizes[second]} clients, which cohorts that are drawn independently do not"
            )
            return


def _fixed(cohorts: Cohorts, size: int, rounds: Sequence[int]) -> Iterator[str]:
    """Cohorts of one size drawn afresh: overlaps, and how often each user is in one."""
    yield from _overlaps(cohorts, rounds)
    count, users = cohorts.shape
    often, rate = cohorts.sum(0), size / users
    high, low = stats.binom.sf(often.max() - 1, count, rate), stats.binom.cdf(often.min(), count, rate)
    if users * min(high, low) < P_VALUE:
        yield (
            f"users took part between {often.min()} and {often.max()} times in {count} rounds, which fresh draws "
            f"do not give"
        )


def _epochs(cohorts: Cohorts, sampling: Epoch, rounds: Sequence[int]) -> Iterator[str]:
    """Everybody once per epoch, in another order each time."""
    users = cohorts.shape[1]
    per_epoch = sampling.rounds_per_epoch(users)
    epochs = np.array([t // per_epoch for t in rounds])
    for epoch in np.unique(epochs):
        often = cohorts[epochs == epoch].sum(0)
        whole = int((epochs == epoch).sum()) == per_epoch
        if often.max() > 1 or (whole and often.min() < 1):
            yield f"epoch {epoch + 1} has some users {often.max()} times and others {often.min()} times, not once each"
            return
    turns = np.array([t % per_epoch for t in rounds])
    for turn in np.unique(turns) if per_epoch > 1 else ():
        rows = np.flatnonzero(turns == turn)
        for first, second in pairwise(rows.tolist()):
            sizes = int(cohorts[first].sum()), int(cohorts[second].sum())
            both = int((cohorts[first] & cohorts[second]).sum())
            if stats.hypergeom.sf(both - 1, users, *sizes) * len(rounds) < P_VALUE:
                yield (
                    f"rounds {rounds[first] + 1} and {rounds[second] + 1} share {both} clients: the order is not "
                    "drawn afresh"
                )
                return


def _pairs(count: int) -> list[tuple[int, int]]:
    """Neighbouring rounds first, then others, up to a bound."""
    near = [(at, at + 1) for at in range(count - 1)]
    far = [(a, b) for a in range(count) for b in range(a + 2, count)]
    return (near + far)[:_PAIRS]


def _two_sided(law: "stats.rv_discrete", value: int, *parameters: float) -> float:
    return min(1.0, 2 * float(min(law.cdf(value, *parameters), law.sf(value - 1, *parameters))))
