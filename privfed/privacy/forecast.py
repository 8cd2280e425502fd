"""Before a run: what it will cost in privacy, bytes and seconds.

Bytes follow the protection as well as the model: a client that touches 70 of 1,682 rows may send 70 rows, but
noise on every coordinate makes its upload dense.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict
from scipy.special import bdtr

from privfed.contracts import Block, Schema, upload_bytes
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.epsilon import Epsilon
from privfed.privacy.errors import PlanError
from privfed.privacy.events import (
    Bounded,
    Empty,
    Exact,
    Gaussian,
    SchemaSummary,
    Unbounded,
    event_for,
    fuse,
    reason_of,
)
from privfed.privacy.guarantee import Guarantee, guarantee_for
from privfed.privacy.mechanisms.secure import DistributedGaussian, SecureSum, SharedSum, ring_bytes
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.sampling import Poisson
from privfed.privacy.upload_bits import coded_bytes

_ROW_ID_BYTES = 4


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
    seconds_per_round: float | None = None,
) -> Forecast:
    """Forecast a run under `plan`.

    Args:
        plan: the run's privacy plan.
        rounds: rounds of the run.
        population: number of users.
        up: blocks that one ask uploads; where the asks of a round differ, those of each.
        down: blocks that one ask downloads, of 4-byte numbers; or the bytes of these asks together.
        touched_rows: for uploaded blocks that are sent as rows, how many rows a client touches on average;
            blocks not named are dense. Noise on every coordinate makes all of them dense.
        queries_per_round: times that these asks come in one draw, each with this download.
        extra_queries: asks of the first round besides; taken to upload as much as the others.
        seconds_per_round: measured or guessed computing time of one round.

    Raises:
        PlanError: a number out of range, rows of an unknown block, or a sampling rule that does not fit.
        AccountingError: accountants disagree.
    """
    if rounds < 1 or queries_per_round < 1:
        raise PlanError(f"rounds = {rounds} and asks_per_round = {queries_per_round} must both be at least 1")
    plan.check(population)
    sampling = plan.sampling
    bound = sampling.worst(rounds, population)
    likely = bound if plan.amplifies else sampling.likely_worst(rounds, population)
    per_round = sampling.expected(population)
    queries = [up] if isinstance(up, Mapping) else list(up)
    tables = {name for ask in queries for name, block in ask.items() if len(block.shape) == 2}
    if unknown := [name for name in touched_rows or () if name not in tables]:
        raise PlanError(f"touched_rows names {unknown[0]!r}, which is not a table among the blocks {list(tables)}")
    up_bytes = sum(_upload_bytes(plan, ask, touched_rows or {}) for ask in queries) * queries_per_round
    one_time = upload_bytes(down) * len(queries) if isinstance(down, Mapping) else down
    down_bytes = float(one_time * queries_per_round)
    return Forecast(
        rounds=rounds,
        population=population,
        participants_per_round=per_round,
        uploads_bound=bound * queries_per_round * len(queries) + extra_queries,
        uploads_likely=likely * queries_per_round * len(queries) + extra_queries,
        guarantee=guarantee_for(
            plan, planned(plan, queries, population, bound, queries_per_round, extra_queries), population
        ),
        epsilon_likely=guarantee_for(
            plan, planned(plan, queries, population, likely, queries_per_round, extra_queries), population
        ).epsilon,
        up_bytes_per_client_round=up_bytes,
        down_bytes_per_client_round=down_bytes,
        up_bytes=up_bytes * per_round * rounds,
        down_bytes=down_bytes * per_round * rounds,
        aborted_share=_lost_share(plan, population),
        seconds=None if seconds_per_round is None else seconds_per_round * rounds,
    )


def _lost_share(plan: PrivacyPlan, population: int) -> float:
    """Chance that a secret coin per user leaves a round with fewer clients than the plan opens."""
    if not isinstance(plan.mechanism, SecureSum | SharedSum | DistributedGaussian):
        return 0.0
    short = plan.mechanism.min_clients - 1
    if isinstance(plan.sampling, Poisson):
        return float(bdtr(short, population, plan.sampling.rate))
    return float(plan.sampling.max_cohort(population) <= short)


def planned(
    plan: PrivacyPlan,
    queries: Sequence[Schema],
    population: int,
    rounds: int,
    queries_per_round: int = 1,
    extra_queries: int = 0,
) -> Composition:
    """The composition of a user who takes part in `rounds` rounds (who might, where participation is secret).

    Args:
        plan: the run's privacy plan.
        queries: blocks of each ask, one after the other.
        population: number of users.
        rounds: rounds that the user takes part in.
        queries_per_round: times that these asks come in a round.
        extra_queries: asks of the first round besides, each like the first of `asks`.
    """
    events = [event_for(plan, SchemaSummary.of(ask), population) for ask in queries]
    spending = [m for m in events if not isinstance(m, Empty)]
    if not spending or rounds == 0:
        return Composition()
    uploads = rounds * queries_per_round * len(spending) + extra_queries
    bounded = [m for m in spending if not isinstance(m, Exact | Unbounded)]
    exact = tuple(dict.fromkeys(name for m in spending if isinstance(m, Exact) for name in m.blocks))
    endless: list[Exact | Unbounded] = [Exact(blocks=exact)] if exact else []
    endless += [m for m in spending if isinstance(m, Unbounded)]
    if reasons := tuple(dict.fromkeys(reason_of(m) for m in endless)):
        return Composition(reasons=reasons, uploads=uploads, rounds=rounds)
    gaussians = [m for m in bounded if isinstance(m, Gaussian)]
    if len(gaussians) == len(bounded) and isinstance(plan.sampling, Poisson) and plan.amplifies:
        usual = gaussians * queries_per_round
        cohorts = Counter({fuse(usual): rounds - (extra_queries > 0)})
        cohorts += Counter({fuse(usual + gaussians[:1] * extra_queries): int(extra_queries > 0)})
        releases = tuple(Releases(event, count, plan.sampling.rate) for event, count in cohorts.items())
        return Composition(releases, uploads=uploads, rounds=rounds)
    counts = Counter[Bounded]()
    for event in bounded:
        counts[event] += rounds * queries_per_round
    counts[bounded[0]] += extra_queries
    return Composition(tuple(Releases(m, count) for m, count in counts.items()), uploads=uploads, rounds=rounds)


def _upload_bytes(plan: PrivacyPlan, up: Schema, touched_rows: Mapping[str, float]) -> float:
    """Bytes of one client's upload of one ask: dense, or rows with a 32-bit id each."""
    if isinstance(plan.mechanism, SecureSum | DistributedGaussian):
        return float(ring_bytes(plan.mechanism, up))
    if isinstance(plan.mechanism, SharedSum):
        return plan.mechanism.upload_bytes(up, touched_rows)
    if plan.upload_bits is not None:
        return sum(_coded_bytes(plan, block, plan.upload_bits, touched_rows.get(name)) for name, block in up.items())
    if plan.mechanism.dense:
        return float(upload_bytes(up))
    dense = upload_bytes({name: block for name, block in up.items() if name not in touched_rows})
    return dense + sum(
        min(rows, up[name].shape[0]) * (upload_bytes({name: up[name]}) / up[name].shape[0] + _ROW_ID_BYTES)
        for name, rows in touched_rows.items()
        if name in up
    )


def _coded_bytes(plan: PrivacyPlan, block: Block, bits: int, rows: float | None) -> float:
    """Bytes of one block of a rounded upload; integer blocks are not rounded."""
    sparse = rows is not None and not plan.mechanism.dense
    sent = min(rows, block.shape[0]) if rows is not None and sparse else 0.0
    size = sent * block.size / block.shape[0] if sparse else block.size
    return (8 * size if block.kind == "integer" else coded_bytes(size, bits)) + _ROW_ID_BYTES * sent
