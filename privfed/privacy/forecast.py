"""Before a run: what it will cost in privacy, bytes and seconds.

Bytes follow the mechanism as well as the model: a client that touches 70 of 1,682 rows may send 70 rows, but
noise on every coordinate makes its upload dense.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import scipy
from pydantic import BaseModel, ConfigDict

from privfed.contracts import Schema, upload_bytes
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.epsilon import Epsilon
from privfed.privacy.errors import PlanError
from privfed.privacy.events import (
    Bounded,
    Empty,
    Event,
    Exact,
    Gaussian,
    SchemaSummary,
    SharedAccount,
    Unbounded,
    fuse,
    reason_of,
)
from privfed.privacy.guarantee import Guarantee, guarantee_for
from privfed.privacy.plan import PrivacyPlan, event_for
from privfed.privacy.sampling import Poisson


@dataclass(frozen=True, slots=True)
class FinalQuery:
    """A query that comes in a round of its own, after those of training.

    Attributes:
        schema: its blocks.
        count: how often it comes in that round.
    """

    schema: Schema
    count: int = 1


FinalQueries = Callable[[PrivacyPlan], Sequence[FinalQuery]]
"""The final queries under a plan, whose noise decides how much of a clip norm each takes."""


class Forecast(BaseModel):
    """What a run is expected to cost.

    Attributes:
        rounds: rounds of the run.
        population: number of users.
        participants_per_round: mean number of users in a round.
        uploads_bound: uploads that no user can exceed.
        uploads_likely: uploads that, with probability 0.99, no user exceeds.
        guarantee: the claim if a user made `uploads_bound` uploads.
        epsilon_likely: epsilon of `uploads_likely` uploads; what a run claims is counted, not forecast.
        up_bytes_per_client_round: bytes one participant uploads in one round.
        down_bytes_per_client_round: bytes one participant downloads in one round.
        up_bytes: bytes all participants upload in the run, on average.
        down_bytes: bytes all participants download in the run, on average.
        aborted_share: chance that a round has too few clients to be opened.
        seconds: computing time of the run; None where no cost per round was given.
    """

    model_config = ConfigDict(frozen=True)
    rounds: int
    population: int
    participants_per_round: float
    uploads_bound: int
    uploads_likely: int
    guarantee: Guarantee
    epsilon_likely: Epsilon
    up_bytes_per_client_round: float
    down_bytes_per_client_round: float
    up_bytes: float
    down_bytes: float
    aborted_share: float
    seconds: float | None


def forecast(
    plan: PrivacyPlan,
    *,
    rounds: int,
    population: int,
    up: Schema | Sequence[Schema],
    down: Schema | float,
    touched_rows: Mapping[str, float] | None = None,
    queries_per_round: int = 1,
    extra_queries: int = 0,
    final: Sequence[FinalQuery] = (),
    seconds_per_round: float | None = None,
) -> Forecast:
    """Forecast a run under `plan`.

    Args:
        plan: the run's privacy plan.
        rounds: rounds of the run.
        population: number of users.
        up: blocks that one query uploads; where the queries of a round differ, those of each.
        down: blocks that one query downloads, of 4-byte numbers; or the bytes of these queries together.
        touched_rows: for uploaded blocks that are sent as rows, how many rows a client touches on average;
            blocks not named are dense. Noise on every coordinate makes all of them dense.
        queries_per_round: number of times that these queries come in a round, each with this download.
        extra_queries: number of further queries of the first round, taken to upload as much as the others.
        final: queries after all rounds; their bytes are not counted, as they upload a few numbers.
        seconds_per_round: measured or guessed computing time of one round.

    Raises:
        PlanError: a number out of range, rows of an unknown block, or a sampling rule that does not fit.
        AccountingError: accountants disagree.
    """
    if rounds < 1 or queries_per_round < 1:
        raise PlanError(f"rounds = {rounds} and queries_per_round = {queries_per_round} must both be at least 1")
    plan.check(population)
    sampling = plan.sampling
    bound = sampling.worst(rounds, population)
    likely = bound if plan.amplifies else sampling.likely_worst(rounds, population)
    per_round = sampling.expected(population)
    queries = [up] if isinstance(up, Mapping) else list(up)
    tables = {name for query in queries for name, block in query.items() if len(block.shape) == 2}
    if unknown := [name for name in touched_rows or () if name not in tables]:
        raise PlanError(f"touched_rows names {unknown[0]!r}, which is not a table among the blocks {list(tables)}")
    of_rounds = partial(
        planned,
        plan,
        queries,
        population,
        queries_per_round=queries_per_round,
        extra_queries=extra_queries,
        final=final,
    )
    client_bytes = [plan.mechanism.upload_bytes(query, touched_rows or {}, plan.upload_bits) for query in queries]
    up_bytes = sum(client_bytes) * queries_per_round
    one_time = upload_bytes(down) * len(queries) if isinstance(down, Mapping) else down
    down_bytes = float(one_time * queries_per_round)
    finals = sum(query.count for query in final)
    return Forecast(
        rounds=rounds,
        population=population,
        participants_per_round=per_round,
        uploads_bound=bound * queries_per_round * len(queries) + extra_queries + finals,
        uploads_likely=likely * queries_per_round * len(queries) + extra_queries + finals,
        guarantee=guarantee_for(
            plan, of_rounds(bound), population, of_weight=lambda weight: of_rounds(bound, weight=weight)
        ),
        epsilon_likely=guarantee_for(plan, of_rounds(likely), population).epsilon,
        up_bytes_per_client_round=up_bytes,
        down_bytes_per_client_round=down_bytes,
        up_bytes=up_bytes * per_round * rounds,
        down_bytes=down_bytes * per_round * rounds,
        aborted_share=_aborted_share(plan, population),
        seconds=None if seconds_per_round is None else seconds_per_round * rounds,
    )


def _aborted_share(plan: PrivacyPlan, population: int) -> float:
    """Chance that sampling leaves a round with fewer clients than the plan opens."""
    if plan.mechanism.min_clients == 0:
        return 0.0
    short = plan.mechanism.min_clients - 1
    if isinstance(plan.sampling, Poisson):
        return float(scipy.special.bdtr(short, population, plan.sampling.rate))
    return float(plan.sampling.max_cohort(population) <= short)


def planned(
    plan: PrivacyPlan,
    queries: Sequence[Schema],
    population: int,
    rounds: int,
    queries_per_round: int = 1,
    extra_queries: int = 0,
    final: Sequence[FinalQuery] = (),
    weight: float = 1.0,
) -> Composition:
    """The composition of a user who takes part in `rounds` rounds (who might, where participation is secret).

    Args:
        plan: the run's privacy plan.
        queries: blocks of each query, one after the other.
        population: number of users.
        rounds: number of rounds that the user takes part in.
        queries_per_round: number of times that these queries come in a round.
        extra_queries: number of further queries of the first round, each like the first of `queries`.
        final: queries after all rounds, each in a round of its own.
        weight: of that user's tier.
    """
    if final:
        *others, last = final
        trained = planned(plan, queries, population, rounds, queries_per_round, extra_queries, others, weight)
        return _joined(trained, planned(plan, [last.schema], population, 1, last.count, weight=weight))
    events = [event_for(plan, SchemaSummary.from_schema(query), population, weight) for query in queries]
    spending = [event for event in events if not isinstance(event, Empty)]
    if not spending or rounds == 0:
        return Composition()
    uploads = rounds * queries_per_round * len(spending) + extra_queries
    if reasons := _reasons(spending):
        return Composition(reasons=reasons, uploads=uploads, rounds=rounds)
    bounded = [event for event in spending if not isinstance(event, Exact | Unbounded)]
    releases = _amplified(plan, bounded, rounds, queries_per_round, extra_queries)
    if releases is None:
        counts = Counter[Bounded]()
        for event in bounded:
            counts[event] += rounds * queries_per_round
        counts[bounded[0]] += extra_queries
        releases = tuple(
            Releases(event, 1 if isinstance(event, SharedAccount) else count) for event, count in counts.items()
        )
    return Composition(releases, uploads=uploads, rounds=rounds)


def _joined(trained: Composition, final: Composition) -> Composition:
    """Both, equal releases counted together."""
    counts = Counter[tuple[Bounded, float | None]]()
    for release in (*trained.releases, *final.releases):
        counts[release.event, release.rate] += release.count
    return replace(
        trained,
        releases=tuple(Releases(event, count, rate) for (event, rate), count in counts.items()),
        reasons=tuple(dict.fromkeys(trained.reasons + final.reasons)),
        uploads=trained.uploads + final.uploads,
        rounds=trained.rounds + final.rounds,
    )


def _reasons(events: Sequence[Event]) -> tuple[str, ...]:
    """Why epsilon of these events together is infinite, exact blocks of all queries first; empty where it is finite."""
    exact = tuple(dict.fromkeys(name for event in events if isinstance(event, Exact) for name in event.blocks))
    endless: list[Exact | Unbounded] = [Exact(blocks=exact)] if exact else []
    endless += [event for event in events if isinstance(event, Unbounded)]
    return tuple(dict.fromkeys(reason_of(event) for event in endless))


def _amplified(
    plan: PrivacyPlan, events: Sequence[Bounded], rounds: int, queries_per_round: int, extra_queries: int
) -> tuple[Releases, ...] | None:
    """The queries of each cohort fused to one sampled release; None where sampling amplifies nothing."""
    gaussians = [event for event in events if isinstance(event, Gaussian)]
    if len(gaussians) < len(events) or not isinstance(plan.sampling, Poisson) or not plan.amplifies:
        return None
    usual = gaussians * queries_per_round
    cohorts = Counter({fuse(usual): rounds - (extra_queries > 0)})
    cohorts += Counter({fuse(usual + gaussians[:1] * extra_queries): int(extra_queries > 0)})
    return tuple(Releases(event, count, plan.sampling.rate) for event, count in cohorts.items())
