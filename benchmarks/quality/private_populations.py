"""`private-gram` and its population: through a masked sum that loses clients, over cohorts, years and sizes.

    python -m benchmarks.quality.private_populations wire
    python -m benchmarks.quality.private_populations scaling
    python -m benchmarks.quality.private_populations larger
    python -m benchmarks.quality.private_populations cohorts
    python -m benchmarks.quality.private_populations devices
    python -m benchmarks.quality.private_populations refreshes
    python -m benchmarks.quality.private_populations canary
    python -m benchmarks.quality.private_populations audit

All on MovieLens-1M in its published split, fitted on training and validation items and ranked on test items (full
ranking, all items that the user has not trained on), unless a row names another data set; noise sized for a whole user
at delta = users^-1.1; nothing is tried. 95 % intervals over users (bootstrap, 1,000), noise seeds averaged per user.

`wire`: shares of noise in a masked sum, with clients that fall silent between the two queries, before they share keys,
before they send ring elements, and before they reveal; next to it central noise for the same epsilon, and central noise
of the same width. `scaling`: users drawn from the real ones. `larger`: a SIMULATION, as if there were more users with
the same data; noise shrinks, sampling error does not. `cohorts`: C disjoint cohorts each private by itself, which is
sqrt(C) times the noise on their total. `devices`: what a device pays for one sum over everybody, by masks and by shares
to two or three aggregators. `refreshes`: k releases a year on histories that grow from half to whole, alone and pooled.
`canary`: one person in or out of both sums, thousands of runs. `audit`: what `privfed audit` says of four plans.

One process, one thread; results go to `benchmarks/results/private_populations_<part>.json` after every row, and rows
found there are not repeated.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch

from attacks.empirical import epsilon_from_mu, gdp_epsilon
from benchmarks import harness
from benchmarks.quality.ranking import by_user, interval, with_validation
from benchmarks.running import AnySimulation, SimulationOptions, expect, simulation_of
from privfed.audit.epsilon.canaries import OtherUploads
from privfed.audit.grid import ExtraAudits, as_run
from privfed.contracts import Fidelity, NoisySums, Schema
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.engines.aggregation.base import Aggregation, BlockSums, QueryContext
from privfed.engines.aggregation.held_blocks import HeldBlocks
from privfed.engines.aggregation.masked_sum import MaskedSum
from privfed.engines.simulation import Simulation
from privfed.engines.transcript import NOBODY, Transcript
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Call, Clients, Cohort, Federation, Individual, Message, Streams, Total
from privfed.guards import ClientGuard, RingCode
from privfed.methods import PublicInfo
from privfed.methods.private_gram import PrivateGramConfig, PrivateGramConstants, PrivateGramServer
from privfed.methods.private_gram.queries import GRAM as GRAM_BLOCK
from privfed.methods.shared.popular_head import HEAD, POPULARITY, SCALE, SHARES
from privfed.privacy import Ledger, PrivacyPlan, forecast, plan_for_target
from privfed.privacy.gaussian_budget import solve_gaussian
from privfed.privacy.refreshes import Noise, running_total_factor, year
from privfed.setup.config import AuditTapConfig, ExperimentConfig, TapConfig
from privfed.updates import ClientUpdates
from secure_agg import choose_parameters, shamir
from secure_agg.encoding import Ring
from secure_agg.masking import ClientRequirements, MaskingClient, Stage, Terms, aggregate
from secure_agg.masking.graph import HararyGraph
from secure_agg.masking.messages import SERVER, Advertisement, Roster, encode_header
from secure_agg.primitives.keys import KeyPair
from secure_agg.primitives.prg import RingElements, StreamCipher, add_keystreams
from secure_agg.sparse import row_share_bytes

K = 20
PROTOCOL = Protocol(k=(K,), state="received")
EPSILONS = (1.0, 8.0)
SEEDS = 3
GRAM: dict[str, Any] = {"name": "private-gram"}
VARIANTS: dict[str, dict[str, Any]] = {"with metadata": {}, "no metadata": {"metadata": False}}
FIXED: dict[str, Any] = {"select": False, "min_items": 0}

Row = dict[str, Any]
Rows = Iterator[tuple[str, Callable[[], Row]]]


# ---- one run


def data(name: str = "ml-1m") -> Split:
    """The split, with validation items among the training items."""
    by_time = name == "ml-100k"
    parts = split(load(name), SplitSpec(kind="leave_one_out" if by_time else "published"))
    return with_validation(parts)


def some_users(parts: Split, n: int) -> Split:
    """The same for n users drawn once; the catalogue stays."""
    if n == parts.train.n_users:
        return parts
    users = np.sort(np.random.default_rng(0).choice(parts.train.n_users, n, replace=False))
    train, valid, test = (part.subset(users) for part in (parts.train, parts.valid, parts.test))
    return replace(parts, train=train, valid=valid, test=test, attributes=None)


def central(epsilon: float, users: int, wider: float = 1.0) -> PrivacyPlan:
    """Both queries of a run share one clip norm, so one release is what is sized; `wider` multiplies its noise."""
    start = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=users**-1.1)
    if wider == 1:
        return plan_for_target(start, epsilon, 1, users)
    return with_noise(
        start, wider * solve_gaussian(epsilon, 1, 1.0, users**-1.1, thorough=False).budget.noise_multiplier
    )


def with_noise(plan: PrivacyPlan, multiplier: float) -> PrivacyPlan:
    """The plan with this noise multiplier."""
    fields = plan.to_dict()
    fields["mechanism"] |= {"noise_multiplier": multiplier}
    return PrivacyPlan.from_dict(fields)


def set_up(
    parts: Split, method: Mapping[str, Any], plan: PrivacyPlan, seed: int, fidelity: Fidelity = "analytic"
) -> Experiment:
    """One run, its noise drawn under `seed`."""
    config = ExperimentConfig(
        data="ml-1m", split=SplitSpec(kind="published"), method=dict(method), privacy=plan, protocol=PROTOCOL, rounds=1,
        seed=seed, taps=TapConfig(places=()), fidelity=fidelity,
    )  # fmt: skip
    return Experiment(config, parts)


def simulate(e: Experiment, kind: type[AnySimulation]) -> AnySimulation:
    """Its round, through a simulation of this kind."""
    simulation = simulation_of(e, kind)
    e.server.round(simulation, 0)
    return simulation


def users_of(e: Experiment) -> dict[str, np.ndarray]:
    """Metrics of every user with a test item."""
    return by_user(e, PROTOCOL, ("ndcg", "recall"))


def averaged(found: list[dict[str, np.ndarray]]) -> Row:
    """Intervals of runs that differ in their noise, and each run's mean."""
    return {name: interval(np.mean([one[name] for one in found], 0)) for name in found[0]} | {
        "by_seed": [round(float(one["ndcg"].mean()), 5) for one in found]
    }


def trained(
    parts: Split,
    method: Mapping[str, Any],
    plan: PrivacyPlan,
    seeds: int = SEEDS,
    kind: type[Simulation] = Simulation,
) -> tuple[Row, Experiment]:
    """A row of runs, and the last of them."""
    found = []
    for seed in range(seeds):
        e = set_up(parts, method, plan, seed)
        simulate(e, kind)
        found.append(users_of(e))
    row = averaged(found)
    if isinstance(e.server, PrivateGramServer):
        row |= {"head": e.server.constants.head, "head_reach": head_reach(e), "decisions": e.server.decisions}
    return row, e


def head_reach(e: Experiment) -> float:
    """Share of test items that are on the head."""
    on_head = np.isin(e.parts.test.items, e.server.state()["head"].numpy())
    return round(float(on_head.mean()), 4)


# ---- wire


class Silent(Simulation):
    """A simulation whose clients fall silent.

    Attributes:
        between: share of the cohort that answers the first query and no later one.
        inside: by stage, share of those queried that send neither its message nor a later one.
        survivors: clients in every sum so far.
        traffic: bytes by stage of every masked sum so far, and of how many clients.
    """

    between = 0.03
    inside: Mapping[Stage, float] = {Stage.SHARES: 0.01, Stage.MASKED_INPUT: 0.04, Stage.REVEAL: 0.02}

    def __init__(self, *arguments: Any, **options: Unpack[SimulationOptions]) -> None:
        super().__init__(*arguments, **options)
        self.survivors: list[int] = []
        self.traffic: list[tuple[int, dict[str, int]]] = []
        self._rng = np.random.default_rng(17)

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """As it does, without those who are gone by then; `exact` leaves out whose inputs would not arrive."""
        queried = self._members
        if self.survivors:
            queried = queried[torch.from_numpy(self._kept(len(queried), self.between))]
        self._members = queried
        if self.fidelity != "protocol":
            gone = sum(share for stage, share in self.inside.items() if stage < Stage.REVEAL)
            self._members = queried[torch.from_numpy(self._kept(len(queried), gone))]
            self.survivors.append(len(self._members))
        total = super().aggregate(step, cohort, message, schema)
        self._members = queried
        return total

    def _kept(self, n: int, gone: float) -> np.ndarray:
        return np.sort(self._rng.choice(n, n - round(gone * n), replace=False))

    def _numbers_or_elements(
        self, query: QueryContext, code: RingCode | None, held: HeldBlocks | None
    ) -> Aggregation[BlockSums]:
        if code is not None and self.fidelity == "protocol":
            return SilentSum(self, query, code, self.client_guard, self._streams)
        return super()._numbers_or_elements(query, code, held)

    def silent(self, order: np.ndarray) -> dict[Stage, list[int]]:
        """Who falls silent at which stage."""
        order, dropouts, at = self._rng.permutation(order), {}, 0
        for stage, share in self.inside.items():
            some = round(share * len(order))
            dropouts[stage] = [int(user) for user in order[at : at + some]]
            at += some
        return dropouts


class SilentSum(MaskedSum):
    """The masked sum in which clients fall silent; fewer than the plan needs abort it."""

    def __init__(self, simulation: Silent, *parts: Any) -> None:
        super().__init__(*parts)
        self._simulation = simulation

    def _opened(self, elements: dict[int, RingElements], schema: Schema, number: int = 0) -> RingElements:
        needed = ClientRequirements(
            min_clients=self._simulation.plan.mechanism.min_clients, min_threshold=2, require_signatures=False
        )
        dropouts = self._simulation.silent(np.fromiter(elements, np.int64))
        terms = self.terms(schema, len(elements), number)
        outcome = aggregate(elements, terms, requirements=needed, dropouts=dropouts)
        self._simulation.survivors.append(len(outcome.survivors))
        traffic = {stage.name: size for stage, size in outcome.traffic.items()}
        self._simulation.traffic.append((len(elements), traffic))
        return outcome.total


def shares(parts: Split, epsilon: float, method: Mapping[str, Any], honest: float = 0.85) -> PrivacyPlan:
    """Noise in shares, sized for a share `honest` of the users."""
    n = parts.train.n_users
    first = set_up(parts, method, central(epsilon, n), 0)
    program = [query.schema for query in first.registered.training.program(first.server)]
    start = PrivacyPlan.named(
        "distributed-gaussian", clip_norm=1.0, noise_multiplier=1.0, n_min_honest=int(honest * n), delta=n**-1.1
    )
    return plan_for_target(start, epsilon, 1, n, program=program)


WIRED: tuple[tuple[str, int, float, Fidelity, dict[str, Any]], ...] = (
    # data, users, epsilon, fidelity, method
    ("ml-100k", 943, 1.0, "protocol", {}),
    ("ml-100k", 943, 8.0, "protocol", {"head": 180}),
    ("ml-1m", 1500, 8.0, "protocol", {"head": 250}),
    ("ml-1m", 6040, 1.0, "exact", {}),
    ("ml-1m", 6040, 8.0, "exact", {}),
    ("ml-1m", 6040, 1.0, "protocol", {"head": 300}),
)


def wire() -> Rows:
    """Masked sums with dropouts next to central noise."""
    for name, n, epsilon, how, settings in WIRED:

        def run(
            name: str = name, n: int = n, epsilon: float = epsilon, how: Fidelity = how, settings: Any = settings
        ) -> Row:
            parts, method = some_users(data(name), n), GRAM | settings
            plan = shares(parts, epsilon, method)
            started, e = time.process_time(), set_up(parts, method, plan, 0, how)
            simulation = simulate(e, Silent)
            seconds = time.process_time() - started
            schemas = [query.schema for query in e.registered.training.program(e.server)]
            foreseen = forecast(plan, rounds=1, population=n, up=schemas, down=0.0)
            z, honest = plan.to_dict()["mechanism"]["noise_multiplier"], plan.to_dict()["mechanism"]["n_min_honest"]
            realised = z * math.sqrt(np.mean(simulation.survivors) / honest)
            on_head = expect(e.server, PrivateGramServer).constants.head
            baseline, _ = trained(parts, method, central(epsilon, n))
            same, _ = trained(parts, GRAM | settings | {"head": on_head}, with_noise(central(epsilon, n), realised))
            sent = {
                stage: round(sum(traffic[stage] / invited for invited, traffic in simulation.traffic))
                for stage in (simulation.traffic[0][1] if simulation.traffic else ())
            }
            numbers = sum(block.size for schema in schemas for block in schema.values())
            return {
                "users": n,
                "epsilon": simulation.server_guard.ledger.guarantee().epsilon,
                "noise_multiplier": z,
                "n_min_honest": honest,
                "survivors": simulation.survivors,
                "head": on_head,
                "masked_sum": averaged([users_of(e)]),
                "central, same epsilon": baseline,
                "central, same noise": same,
                "ring_elements": numbers,
                "forecast_up_bytes": foreseen.up_bytes_per_client_round,
                "bytes_per_invited_client": sent,
                "cpu_s": round(seconds, 1),
            }

        def without(name: str = name, n: int = n, epsilon: float = epsilon, settings: Any = settings) -> Row:
            parts, method = some_users(data(name), n), GRAM | settings
            plan = shares(parts, epsilon, method).to_dict()["mechanism"]
            first = simulate(set_up(parts, method, central(epsilon, n), 0), Silent)
            wider = plan["noise_multiplier"] * math.sqrt(np.mean(first.survivors) / plan["n_min_honest"])
            server = set_up(parts, method, shares(parts, epsilon, method), 0).server
            head = expect(server, PrivateGramServer).constants.head
            row, _ = trained(parts, method | {"head": head}, with_noise(central(epsilon, n), wider), kind=Silent)
            return row | {"noise_multiplier": wider, "survivors": first.survivors}

        with_head = f", head {settings['head']}" if settings else ""
        yield f"{name}, {n} users, epsilon {epsilon:g}, {how}{with_head}", run
        yield f"{name}, {n} users, epsilon {epsilon:g}, central, same noise and losses{with_head}", without


# ---- population


def row_of(users: int, method: Mapping[str, Any]) -> Row:
    """One unprotected run on some of the users."""
    return trained(some_users(data(), users), method, PLAIN, 1)[0]


def ease(users: int) -> Row:
    """EASE, its strength in proportion to the root of the users: 1000 at all of MovieLens-1M, chosen there before."""
    strength = round(1000 * math.sqrt(users / 6040), 1)
    return row_of(users, {"name": "ease", "regularisation": strength}) | {"regularisation": strength}


PLAIN = PrivacyPlan.named("none")
SUMMED = PrivacyPlan.named("none", release="total")
SIZES = (750, 1500, 3000, 6040)
LARGER = (20_000, 100_000, 1_000_000)


def scaling() -> Rows:
    """Real users, fewer and more."""
    for n in SIZES:
        yield f"{n} users, popularity", partial(row_of, n, {"name": "popularity"})
        yield f"{n} users, EASE", partial(ease, n)
        for name, settings in VARIANTS.items():
            for epsilon in EPSILONS:

                def run(n: int = n, settings: Any = settings, epsilon: float = epsilon) -> Row:
                    plan = central(epsilon, n)
                    mu = 1 / plan.to_dict()["mechanism"]["noise_multiplier"]
                    row, _ = trained(some_users(data(), n), GRAM | settings, plan)
                    return row | {"mu": round(mu, 4), "n_mu": round(n * mu)}

                yield f"{n} users, {name}, epsilon {epsilon:g}", run


def unperturbed(settings: dict[str, Any]) -> Row:
    """A run with sums that carry no noise."""
    return trained(data(), GRAM | settings, SUMMED, 1)[0]


def larger() -> Rows:
    """SIMULATION of more users with the same data: the noise of a sum over so many, relative to it."""
    ranks: dict[str, dict[str, Any]] = {"": {}, ", rank 256": {"rank": 256}}
    for n in LARGER:
        for epsilon in EPSILONS:
            for name, settings in VARIANTS.items():
                for suffix, more in ranks.items() if n == LARGER[1] else [("", {})]:
                    if suffix and (name != "no metadata" or epsilon != 1):
                        continue

                    def run(n: int = n, epsilon: float = epsilon, settings: Any = settings | more) -> Row:
                        parts = data()
                        z = solve_gaussian(epsilon, 1, 1.0, n**-1.1, thorough=False).budget.noise_multiplier
                        config = PrivateGramConfig(**settings)
                        content = config.metadata and parts.item_info is not None
                        public = PrivateGramConstants.from_config(
                            config, NoisySums(n, 1.0, z), parts.train.n_items, content=content
                        )
                        fixed = {"popularity_share": public.share, "head": public.head, "damping": public.damping}
                        plan = with_noise(central(1.0, parts.train.n_users), z * parts.train.n_users / n)
                        row, _ = trained(parts, GRAM | settings | fixed, plan, 1)
                        return row | {"mu": round(1 / z, 4), "n_mu": round(n / z), "simulated": n}

                    yield f"SIMULATION of {n} users, {name}{suffix}, epsilon {epsilon:g}", run
    for name, settings in VARIANTS.items():
        yield f"no noise, {name}", partial(unperturbed, settings)


def cohorts() -> Rows:
    """C disjoint cohorts, each private by itself: their total has sqrt(C) times the noise of one sum."""
    for name, settings in VARIANTS.items():
        for epsilon in EPSILONS:
            for count in (1, 4, 9, 16):

                def run(settings: Any = settings, epsilon: float = epsilon, count: int = count) -> Row:
                    parts = data()
                    plan = central(epsilon, parts.train.n_users, math.sqrt(count))
                    mu = math.sqrt(count) / plan.to_dict()["mechanism"]["noise_multiplier"]
                    same = epsilon_from_mu(mu / math.sqrt(count), parts.train.n_users**-1.1)
                    row, _ = trained(parts, GRAM | settings, plan)
                    return row | {"cohorts": count, "as_good_as_one_sum_at_epsilon": round(same, 3)}

                yield f"{count} cohorts, {name}, epsilon {epsilon:g}", run


# ---- devices

LENGTHS = {"epsilon 1 (head 429)": 429 * 430 // 2, "epsilon 8 (head 1045)": 1045 * 1046 // 2}


def devices() -> Rows:
    """Bytes and CPU of one device in one sum over n clients, by pairwise masks and by shares."""
    for n in (6040, 100_000, 1_000_000):
        for name, elements in LENGTHS.items():
            yield f"masks, {n} clients, {name}", partial(masked_device, n, elements)
    for parties in (2, 3):
        for name, elements in LENGTHS.items():
            yield f"{parties} aggregators, {name}", partial(sharing_device, parties, elements)


def cpu(work: Callable[[], object], times: int = 5) -> float:
    """CPU-seconds, the smallest of some measurements."""
    found = []
    for _ in range(times):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def masked_device(n: int, elements: int) -> Row:
    """Placing (which is part of sharing), sharing and agreeing keys run as they are, masking as all its streams."""
    chosen = choose_parameters(n)
    k, run = chosen.neighbours or n - 1, bytes(16)
    terms = Terms.from_parameters(chosen, bits=32, length=elements, run=run)
    ids = np.arange(n, dtype=np.uint32)
    placing = cpu(lambda: HararyGraph(terms, ids), 3)
    neighbours = HararyGraph(terms, ids).neighbours(0)
    client = MaskingClient(0, ClientRequirements(min_clients=3, min_threshold=2, require_signatures=False), run=run)
    advertised = client.advertise(encode_header(Stage.INVITATION, terms, SERVER, 0) + terms.encode())
    pairs = [(KeyPair.generate(), KeyPair.generate()) for _ in neighbours]
    listed = tuple(Advertisement(mask.public, channel.public, b"") for mask, channel in pairs)
    roster = encode_header(Stage.ROSTER, terms, SERVER, 0) + Roster(ids, listed).encode()
    started = time.process_time()
    shares = client.share(roster)
    sharing = time.process_time() - started
    pair = KeyPair.generate()
    agreeing = cpu(lambda: [pair.agree(mask.public) for mask, _ in pairs], 3)
    keys = [bytes([number % 256]) * 32 for number in range(k + 1)]
    total = np.zeros(elements, np.uint32)
    masking = cpu(lambda: add_keystreams(total, keys, (), StreamCipher.AES256), 3)
    revealing = 40 + shamir.SHARE_BYTES * k
    delivered = 40 + -(-k // 8) + len(shares) - 40 - 32
    up = {"keys": len(advertised), "shares": len(shares), "ring elements": 40 + 4 * elements, "reveal": revealing}
    down = {
        "terms": 40 + len(terms.encode()),
        "roster": len(roster),
        "shares": delivered,
        "request": 40 + 2 * -(-k // 8),
    }
    one = cpu(lambda: add_keystreams(total, keys[:1], (), StreamCipher.AES256))
    return {
        "clients": n,
        "neighbours": k,
        "threshold": chosen.threshold,
        "up_bytes": up | {"all": sum(up.values())},
        "down_bytes": down | {"all": sum(down.values())},
        "cpu_ms": {
            "placing": round(1e3 * placing, 2),
            "sharing": round(1e3 * sharing, 2),
            "agreeing": round(1e3 * agreeing, 2),
            "masking": round(1e3 * masking, 2),
            "all": round(1e3 * (sharing + agreeing + masking), 1),
        },
        "server_cpu_s_taking_self_masks_off": round(n * one, 1),
        "sentence": chosen.summary,
    }


def sharing_device(parties: int, elements: int) -> Row:
    """Of additive shares: one stream for every aggregator but the first."""
    total, ring = np.zeros(elements, np.uint32), Ring(32)
    keys = [bytes([number]) * 32 for number in range(1, parties)]
    seconds = cpu(lambda: add_keystreams(total, (), keys, StreamCipher.AES256))
    one = cpu(lambda: add_keystreams(total, keys[:1], (), StreamCipher.AES256))
    return {
        "aggregators": parties,
        "up_bytes": row_share_bytes(elements, ring, parties),
        "cpu_ms": round(1e3 * seconds, 2),
        "aggregator_cpu_s_at": {str(n): round(n * one, 1) for n in (6040, 100_000, 1_000_000)},
    }


# ---- refreshes


def grown(parts: Split, share: float) -> Split:
    """Everybody's first items in an order drawn once: half of them at share 0, all at share 1."""
    train = parts.train
    order = np.random.default_rng(5).random(len(train))
    rank = np.argsort(np.lexsort((order, train.owners))) - train.indptr[train.owners]
    had = rank < np.ceil((0.5 + share / 2) * train.counts)[train.owners]
    return replace(parts, train=Histories.from_pairs(train.owners[had], train.items[had], train.n_users, train.n_items))


class ReleasedSums(Federation):
    """A federation that hands out sums that were released before: post-processing."""

    def __init__(self, clients: int, sums: Mapping[str, torch.Tensor]) -> None:
        self.clients, self.sums = clients, sums

    def sample_cohort(self, round: int) -> Cohort:
        """Everybody."""
        return Cohort(round, round, "all", float(self.clients))

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """The sums of that step, whatever is sent along."""
        del step, cohort, message
        return Total({name: self.sums[name] for name in schema}, float(self.clients), {})

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Refuse: only sums were released."""
        raise NotImplementedError


def refreshed(parts: Split, settings: dict[str, Any], epsilon: float, k: int, seed: int) -> dict[str, Any]:
    """A year in which popularity is queried once and the Gram matrix of its head k times, and pooled.

    The shares of the clip norm are .1 for popularity and .9 / k for every Gram matrix, so the year is one release of
    the plan.
    """
    plan = central(epsilon, parts.train.n_users)
    z, n = plan.to_dict()["mechanism"]["noise_multiplier"], parts.train.n_users
    method = GRAM | settings | {"popularity_share": 0.1, "histories": "long"}
    first = set_up(grown(parts, 1 / k), method, plan, seed)
    ledger = Ledger(plan, n)
    start = expect(first.server, PrivateGramServer)
    pool, sums = torch.zeros(start.schema[GRAM_BLOCK].size, dtype=torch.float64), dict[str, torch.Tensor]()
    found: dict[str, dict[str, np.ndarray]] = {}
    for number in range(1, k + 1):
        now = first if number == 1 else set_up(grown(parts, number / k), method, plan, seed)
        simulation = Simulation(
            now.clients, plan, n, now.streams, ledger, chunk=now.registered.training.chunk, fidelity="analytic"
        )
        simulation.cohorts = number - 1
        cohort = simulation.sample_cohort(number - 1)
        if number == 1:
            sums = dict(simulation.aggregate(POPULARITY, cohort, Message({}), start.schemas[0]).sums)
            nothing = torch.zeros_like(pool, dtype=torch.float32)
            start.round(ReleasedSums(n, sums | {GRAM_BLOCK: nothing}), 0)
        relation = Message({name: start.tensors[name] for name in (HEAD, SHARES, SCALE)})
        share = 0.9 / k
        schema = {GRAM_BLOCK: replace(start.schema[GRAM_BLOCK], weight=math.sqrt(share), share=share)}
        pool += simulation.aggregate("gram", cohort, relation, schema).sums[GRAM_BLOCK].double()
        if number in (1, k):
            precision = 0.1 + 0.9 * number / k
            fixed = {"popularity_share": 0.1 / precision, "head": start.constants.head}
            public_info = PublicInfo(
                n, parts.train.n_items, sums=NoisySums(n, 1.0, z / math.sqrt(precision)), item_info=parts.item_info
            )
            config = first.config.settings().model_copy(update=fixed)
            server = first.registered.training.server(config, public_info, now.streams)
            server.round(ReleasedSums(n, sums | {GRAM_BLOCK: (pool / number).float()}), 0)
            now.server = server
            now.parts = grown(parts, number / k)
            found["first" if number == 1 else "last"] = users_of(now)
    return {"last": found["first"], **found, "epsilon": ledger.guarantee().epsilon}


def refreshes() -> Rows:
    """Releases k times a year: each by itself, and pooled."""
    for epsilon in (8.0, 1.0):
        for k in (1, 4, 12, 52):
            yield f"year, epsilon {epsilon:g}, {k} refreshes", partial(a_year, epsilon, k)
            for name, settings in list(VARIANTS.items())[:1]:

                def fresh(epsilon: float = epsilon, k: int = k, settings: Any = settings) -> Row:
                    parts = data()
                    plan = central(epsilon, parts.train.n_users, math.sqrt(k))
                    row, _ = trained(parts, GRAM | settings, plan, 1)
                    start, _ = trained(grown(parts, 1 / k), GRAM | settings, plan, 1)
                    return {"last": row, "first": start}

                def pooled(epsilon: float = epsilon, k: int = k, settings: Any = settings) -> Row:
                    run = refreshed(data(), settings, epsilon, k, 0)
                    return {when: averaged([run[when]]) for when in ("first", "last")} | {"epsilon": run["epsilon"]}

                yield f"fresh, {name}, epsilon {epsilon:g}, {k} refreshes", fresh
                if k > 1:
                    yield f"pooled, {name}, epsilon {epsilon:g}, {k} refreshes", pooled


def a_year(epsilon: float, k: int) -> Row:
    """The ledger, and what running totals would have."""
    ledger = year(epsilon, 6040**-1.1, k)
    slow = year(epsilon, 6040**-1.1, k, kept=0.5 ** (1 / k))
    kinds: tuple[Noise, ...] = ("increments", "tree", "square_root")
    return {
        "mu_of_each": round(ledger[0].mu, 4),
        "epsilon_after": {str(r.number): round(r.epsilon, 3) for r in ledger if r.number in (1, 2, k // 2, k)},
        "pooled_mu_if_nothing_changes": round(ledger[-1].pooled_mu, 4),
        "pooled_mu_if_half_changes_in_a_year": round(slow[-1].pooled_mu, 4),
        "deviation_of_running_totals": {kind: round(running_total_factor(k, kind), 3) for kind in kinds},
    }


# ---- audit


class Person:
    """An observer that takes one person's uploads out of the sums, and keeps what they would have added.

    Attributes:
        user: who.
        present: whether the uploads stay.
        vectors: what they add to every query.
    """

    def __init__(self, guard: ClientGuard, user: int, *, present: bool) -> None:
        self.guard, self.user, self.present = guard, user, present
        self.vectors: dict[str, torch.Tensor] = {}

    def __call__(self, clients: Clients, call: Call, message: Message, updates: ClientUpdates) -> None:
        """See one chunk between the device's work and the guard."""
        del clients, message
        own = (call.clients == self.user).double()
        if not own.any():
            return
        alone = copy.deepcopy(updates)
        self.guard.clip_(alone, call.clip_norm)
        alone.scale_(own)
        sums = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in call.schema.items()}
        alone.add_to(sums)
        self.vectors |= {name: values.flatten() * call.schema[name].weight for name, values in sums.items()}
        if not self.present:
            updates.scale_(1 - own)


def filtered(e: Experiment, user: int, seed: int, *, present: bool) -> float:
    """One run of both queries, and the matched filter's output for that person, everybody else's uploads known."""
    plan, streams, n = e.config.privacy, Streams.from_seed(seed), e.n_users
    transcript, guard = Transcript(NOBODY, frozenset({"sum"})), ClientGuard(plan, streams)
    person, others = Person(guard, user, present=present), OtherUploads(guard, user, None)
    simulation = Simulation(
        e.clients, plan, n, streams, Ledger(plan, n), chunk=e.registered.training.chunk, fidelity=e.config.fidelity,
        transcript=transcript, observers=[others, person],
    )  # fmt: skip
    server = expect(e.server, PrivateGramServer)
    server.queried = torch.tensor(False)
    server.round(simulation, 0)
    found = 0.0
    for query, seen in enumerate(transcript.observations):
        for name, vector in person.vectors.items():
            if name in seen.tensors:
                block = server.schemas[query][name]
                left = (seen.tensors[name].double() - others.sums[query][name]).flatten() * block.weight
                found += float(vector @ left)
    return found


def canary() -> Rows:
    """The last of some users of MovieLens-100K in or out of both sums, the head chosen anew in every run."""
    delta = 943**-1.1
    for name, kind, n, trials, halved in (
        ("central", "central-gaussian", 100, 5000, False),
        ("central, epsilon 1", "central-gaussian", 100, 5000, False),
        ("shares", "distributed-gaussian", 30, 5000, False),
        ("central, half the noise", "central-gaussian", 100, 1000, True),
    ):
        for histories in ("long", "short") if name == "central" else ("long",):

            def run(
                name: str = name, kind: str = kind, n: int = n, trials: int = trials, halved: bool = halved,
                histories: str = histories,
            ) -> Row:  # fmt: skip
                epsilon = 1.0 if "epsilon 1" in name else 8.0
                z = solve_gaussian(epsilon, 1, 1.0, delta, thorough=False).budget.noise_multiplier
                fields = {"n_min_honest": n} if kind == "distributed-gaussian" else {}
                plan = PrivacyPlan.named(kind, clip_norm=1.0, noise_multiplier=z / (1 + halved), delta=delta, **fields)
                head = 60 if kind == "central-gaussian" else 25
                parts = some_users(data("ml-100k"), n)
                e = set_up(
                    parts,
                    GRAM | FIXED | {"head": head, "histories": histories},
                    plan,
                    0,
                    "exact" if fields else "analytic",
                )
                inside, outside = (
                    np.array([filtered(e, n - 1, 2 * trial + present, present=present) for trial in range(trials)])
                    for present in (True, False)
                )
                found = float((inside.mean() - outside.mean()) / math.sqrt((inside.var() + outside.var()) / 2))
                error = math.sqrt(2 / trials + found**2 / (4 * trials))
                bound = gdp_epsilon(inside, outside, delta=delta, threshold=0.5)
                return {
                    "trials_of_each": trials,
                    "users": n,
                    "mu_claimed": round(1 / z, 4),
                    "mu_found": round(found, 4),
                    "standard_error": round(error, 4),
                    "standard_errors_apart": round((found - 1 / z) / error, 2),
                    "epsilon_claimed": epsilon,
                    "epsilon_bound": round(bound.epsilon, 4),
                    "denied": bool(bound.rejects(epsilon)),
                }

            yield f"{name}, {histories} histories", run


def audit() -> Rows:
    """What an audit of MovieLens-100K says of private-gram behind four plans, canaries included."""
    n, delta = 943, 943**-1.1
    plans = {"none": SUMMED, "secure sum": PrivacyPlan.named("secure-sum", clip_norm=1.0)}
    for epsilon in EPSILONS:
        plans[f"central, epsilon {epsilon:g}"] = central(epsilon, n)
        z = solve_gaussian(epsilon, 1, 1.0, delta, thorough=False).budget.noise_multiplier
        plans[f"shares, epsilon {epsilon:g}"] = PrivacyPlan.named(
            "distributed-gaussian", clip_norm=1.0, noise_multiplier=z, n_min_honest=int(0.9 * n), delta=delta
        )
    for name, plan in plans.items():

        def run(plan: PrivacyPlan = plan) -> Row:
            config = ExperimentConfig(
                data="ml-100k", method=GRAM, privacy=plan, protocol=PROTOCOL, rounds=1,
                taps=AuditTapConfig().of_run(rounds=(0,)),
            )  # fmt: skip
            e = Experiment(config, split(load("ml-100k"), config.split))
            found = as_run(e, e.run(), "audit", ExtraAudits(canaries=300 if "gaussian" in plan.slug else 0))
            randomised = [row for row in found.attacks if row.membership == "randomised"]
            return {
                "epsilon": found.guarantee.epsilon,
                "neighbours": found.guarantee.neighbours,
                "attacks": [
                    {
                        "tap": row.tap,
                        "attack": row.attack,
                        "auc": [round(value, 4) for value in (row.auc.value, row.auc.lo, row.auc.hi)],
                        "pooled": round(row.auc_pooled.value, 4),
                        "ceiling": None if row.ceiling is None else row.ceiling.model_dump(mode="json"),
                    }
                    for row in randomised
                ],
                "empirical": [
                    {
                        name: getattr(row, name)
                        for name in ("estimator", "kind", "audited", "tap", "value", "lo", "hi", "placebo", "accounted")
                    }
                    | {"consistent": row.consistent}
                    for row in found.empirical
                ],
            }

        yield name, run


# ---- running

PARTS: Mapping[str, Callable[[], Rows]] = {
    "wire": wire,
    "scaling": scaling,
    "larger": larger,
    "cohorts": cohorts,
    "devices": devices,
    "refreshes": refreshes,
    "canary": canary,
    "audit": audit,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part, or what is missing of it."""
    parser = harness.parser(__file__, __doc__, parts=PARTS, only=[])
    options = harness.parse(parser, arguments)
    record = harness.Record(f"private_populations_{options.part}", options, [])
    for label, run in PARTS[options.part]():
        if harness.chosen(label, options.only) and not record.has(label=label):
            started = time.process_time()
            row = {"label": label} | run()
            record.add(row | {"all_cpu_s": round(time.process_time() - started, 2)})


if __name__ == "__main__":
    main()
