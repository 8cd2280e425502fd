"""Faults that an audit has to find: each is planted into the running code and taken out again.

A fault says where it sits (engine, guards, ledger, sampling, methods, data), which run shows it, and which words of a
contradiction name it. `benchmarks/privacy/planted_faults.py` writes a table of the same registry.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import privfed.engines.simulation
import privfed.evaluation.ranked_items
import privfed.experiment.gain
import privfed.guards.client_guard
import privfed.guards.server_guard
import privfed.methods.shared.interaction_dp
import privfed.privacy.accounting
import privfed.privacy.composition
import privfed.privacy.ledger
import privfed.setup.assembly
from attacks import Targets
from privfed.audit.attack_runs import attack_run
from privfed.data import Histories
from privfed.engines import device_training
from privfed.engines.aggregation.announced_rows import AnnouncedRows
from privfed.engines.aggregation.share_sum import ShareSum
from privfed.engines.simulation import Simulation
from privfed.evaluation import MetricVector
from privfed.experiment import Experiment
from privfed.experiment.training import TrainingRun
from privfed.federation import FederationError, Message, Purpose, Streams, Total, perform
from privfed.federation.grid import NoisedSum
from privfed.guards import ClientGuard, ServerGuard
from privfed.methods import ClientData
from privfed.methods.shared.interaction_dp import InteractionTrainer
from privfed.privacy import Ledger
from privfed.privacy.composition import ParticipationCounts
from privfed.privacy.events import Gaussian, SchemaSummary
from privfed.privacy.mechanisms.clipping import AdaptiveClip
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from privfed.privacy.mechanisms.local_laplace import LocalLaplace
from privfed.privacy.mechanisms.masking import NoiseShares
from privfed.privacy.padding.fake_items import FakeItems
from privfed.privacy.padding.randomised_response import RandomisedResponse
from privfed.setup.assembly import Assembly
from privfed.setup.evaluation_query import METRICS, STEP
from privfed.setup.inclusion import InclusionBits
from privfed.updates import ClientUpdates, Dense
from secure_agg.masking import MaskingClient
from secure_agg.primitives.keys import KeyPair
from secure_agg.sparse import KeyStreams

CENTRAL = "central-gaussian:noise_multiplier=2,clip_norm=1"
SAMPLED = f"{CENTRAL},sampling.kind=poisson,sampling.rate=0.5"
ADAPTIVE = f"{CENTRAL},adaptive.count_noise=5"
LAPLACE = "local-laplace:epsilon0=1,clip_norm=1"
LOCAL = "local-gaussian:noise_multiplier=2,clip_norm=1"
PER_INTERACTION = "interaction-dpsgd:noise_multiplier=1,clip_norm=1"
TIERS = "tiers.careful.epsilon=3,tiers.careful.share=0.7,tiers.careful.weight=0.5"
TIERED = f"{CENTRAL},{TIERS},tiers.generous.epsilon=6,tiers.generous.share=0.3,tiers.generous.weight=1"
DISTRIBUTED = "distributed-gaussian:noise_multiplier=2,clip_norm=1,n_min_honest=60"
COLLUDING = "distributed-gaussian:noise_multiplier=2,clip_norm=1,n_min_honest=50,colluding=30"
FIXED = f"{LAPLACE},sampling.kind=fixed,sampling.size=30"
EVERY_ROW = "shared-sum:padding.kind=full_support,clip_norm=1"
LIKE_PUBLIC = "shared-sum:padding.kind=fake_items,padding.rho=1,padding.drawn=popularity"
FAKES = "shared-sum:padding.kind=fake_items,padding.rho=1,padding.drawn=uniform,clip_norm=1"
RESPONSE = "shared-sum:padding.kind=randomised_response,padding.epsilon=1,clip_norm=1"

Plant = Callable[[ExitStack], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault.

    Attributes:
        name: in a few words.
        where: part of the package that it sits in.
        method, privacy: a run that shows it.
        plant: puts it in, and registers its removal.
        says: words that the contradiction has, in lower case.
        rounds: of the run.
        derived: whether the data have no item list of their own.
        settings: of the method, where they are not the defaults.
        measured: whether quality is measured by a noisy sum.
    """

    name: str
    where: str
    method: str
    privacy: str
    plant: Plant
    says: str
    rounds: int = 6
    derived: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    measured: bool = False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The package with the fault in it."""
        with ExitStack() as stack:
            self.plant(stack)
            yield


FAULTS: dict[str, Fault] = {}


def fault(name: str, where: str, method: str, privacy: str, says: str, **more: Any) -> Callable[[Plant], Plant]:
    """Register the decorated function as a fault."""

    def register(plant: Plant) -> Plant:
        FAULTS[name] = Fault(name, where, method, privacy, plant, says, **more)
        return plant

    return register


def put(stack: ExitStack, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    """Replace an attribute by what `made` makes of it, until the stack closes."""
    former = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    plain = former.__func__ if isinstance(former, classmethod | staticmethod) else former
    new = made(plain)
    setattr(owner, name, classmethod(new) if isinstance(former, classmethod) else new)
    stack.callback(setattr, owner, name, former)


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing, whatever it is given."""


def words_with(stack: ExitStack, change: Callable[..., tuple[Any, ...]]) -> None:
    """Noise from other addresses than its own."""

    def made(former: Any) -> Any:
        def words(self: Streams, purpose: Purpose, round: int, ask: int, users: Any, count: int) -> Any:
            at = (round, ask, users) if purpose != Purpose.NOISE else change(round, ask, users)
            return former(self, purpose, *at, count)

        return words

    put(stack, Streams, "words", made)


def after_set_up(stack: ExitStack, change: Callable[[Experiment], None]) -> None:
    """Do something to every experiment once it is assembled."""

    def made(former: Any) -> Any:
        def set_up(self: Experiment, keys: Any) -> None:
            former(self, keys)
            change(self)

        return set_up

    put(stack, Assembly, "_set_up", made)


# The eight of the issue.


@fault("central noise left out in the engine", "engine", "fedmf", CENTRAL, "no noise was added")
def _(stack: ExitStack) -> None:
    put(stack, ServerGuard, "add_noise_", lambda _: nothing)


@fault("a local plan that adds nothing over six rounds", "guards", "gpfedrec", LAPLACE, "no noise was added")
def _(stack: ExitStack) -> None:
    put(stack, ClientGuard, "_add_noise_", lambda _: nothing)


@fault("the same noise every round", "guards", "gpfedrec", LAPLACE, "repeats that of")
def _(stack: ExitStack) -> None:
    words_with(stack, lambda _, ask, users: (0, ask, users))


@fault("the same noise on the sum every round", "guards", "fedmf", CENTRAL, "repeats that of")
def _(stack: ExitStack) -> None:
    words_with(stack, lambda _, ask, users: (0, ask, users))


@fault("the same noise for every client", "guards", "gpfedrec", LAPLACE, "repeats that of")
def _(stack: ExitStack) -> None:
    words_with(stack, lambda round, ask, users: (round, ask, [0] * len(users)))


def _bound(guard: ClientGuard, announced: float | None) -> float:
    clip = guard.plan.mechanism.clip
    return announced or (1.0 if clip is None else clip.norm)


def _row_clip(former: Any) -> Any:
    def clip_(self: ClientGuard, updates: ClientUpdates, clip_norm: float | None = None) -> int:
        clip, everybody = self.plan.mechanism.clip, torch.arange(len(updates))
        if clip is None:
            return int(former(self, updates, clip_norm))
        parts = []
        for name, values in updates.materialise(everybody).items():
            norms = values.norm(p=clip.order, dim=-1, keepdim=True)
            scaled = values * (clip.norm / norms.clamp(min=1e-30)).clamp(max=1)
            parts.append(Dense(name, everybody, scaled))
        updates.parts = tuple(parts)
        return len(updates)

    return clip_


@fault("a clip per row instead of per user", "guards", "fedmf", CENTRAL, "is paid for")
def _(stack: ExitStack) -> None:
    put(stack, ClientGuard, "clip_", _row_clip)


@fault("a clip per row of a single upload", "guards", "gpfedrec", LOCAL, "is paid for")
def _(stack: ExitStack) -> None:
    put(stack, ClientGuard, "clip_", _row_clip)


@fault("fresh fake items every round", "engine", "fedmf", FAKES, "padding is drawn anew")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def pattern(self: AnnouncedRows, support: Histories, draw: int, clients: Any, rows: int) -> Any:
            fresh = np.random.default_rng(draw).random((support.n_users, rows)) < 0.05
            user, item = fresh.nonzero()
            more = support.union(Histories.from_pairs(user, item, support.n_users, rows))
            self._patterns, self._earlier = {}, {}
            return former(self, more, draw, clients, rows)

        return pattern

    put(stack, AnnouncedRows, "_pattern", made)


@fault(
    "rounds completed below the honest minimum",
    "engine",
    "fedmf",
    f"{DISTRIBUTED},sampling.kind=poisson,sampling.rate=0.4",
    "was completed, and the plan needs 60",
)
def _(stack: ExitStack) -> None:
    put(stack, ServerGuard, "reveals", lambda _: lambda self, members: True)


@fault("training items made public", "methods", "fedmf", CENTRAL, "as public")
def _(stack: ExitStack) -> None:
    held: list[Histories] = []

    def reading(former: Any) -> Any:
        def from_split(cls: Any, split: Any, negatives: str) -> ClientData:
            held.append(split.train)
            return former(cls, split, negatives)

        return from_split

    put(stack, ClientData, "from_split", reading)
    put(
        stack,
        privfed.setup.assembly,
        "PublicInfo",
        lambda former: lambda users, items, _, *rest: former(users, items, held[-1], *rest),
    )


@fault("training items copied into the first message", "engine", "fedmf", CENTRAL, "what clients receive")
def _(stack: ExitStack) -> None:
    after_set_up(stack, lambda e: setattr(e.clients, "everybodys", torch.from_numpy(e.trained.train.items.copy())))

    def made(former: Any) -> Any:
        def aggregate(self: Simulation, step: str, cohort: Any, message: Message, schema: Any) -> Any:
            everybodys = getattr(self.clients, "everybodys", None)
            more = {"items of everybody": everybodys} if cohort.round == 0 and everybodys is not None else {}
            return former(self, step, cohort, replace(message, shared=dict(message.shared) | more), schema)

        return aggregate

    put(stack, Simulation, "aggregate", made)


# Guards.


@fault("half the noise on single uploads", "guards", "gpfedrec", LOCAL, "% of the noise was added")
def _(stack: ExitStack) -> None:
    put(
        stack,
        ClientGuard,
        "_add_noise_",
        lambda former: (
            lambda self, uploads, updates, call, positions, noise: former(
                self, uploads, updates, call, positions, replace(noise, scale=noise.scale / 2)
            )
        ),
    )


@fault("noise on touched rows only", "guards", "fedmf", LAPLACE, "of the noise was added")
def _(stack: ExitStack) -> None:
    put(
        stack,
        ClientGuard,
        "_add_noise_",
        lambda former: (
            lambda self, uploads, updates, call, positions, noise: former(
                self, uploads, updates, call, positions, replace(noise, coordinates="touched")
            )
        ),
    )


@fault("every second client forgets its noise", "guards", "gpfedrec", LAPLACE, "of the noise was added")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def add(self: ClientGuard, uploads: Any, updates: Any, call: Any, positions: Any, noise: Any) -> None:
            before = {name: values.clone() for name, values in uploads.items()}
            former(self, uploads, updates, call, positions, noise)
            odd = call.clients[positions] % 2 == 1
            for name, values in uploads.items():
                values[odd] = before[name][odd]

        return add

    put(stack, ClientGuard, "_add_noise_", made)


@fault("one block left without noise", "guards", "fedncf", CENTRAL, "no noise was added")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def add(self: ServerGuard, sums: Any, *rest: Any, **more: Any) -> None:
            first = next(iter(sums))
            kept = sums[first].clone()
            former(self, sums, *rest, **more)
            sums[first].copy_(kept)

        return add

    put(stack, ServerGuard, "add_noise_", made)


@fault("rows of one item left without noise", "guards", "fedmf", CENTRAL, "rows carry less noise")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def add(self: ServerGuard, sums: Any, *rest: Any, **more: Any) -> None:
            kept = {name: values[7].clone() for name, values in sums.items()}
            former(self, sums, *rest, **more)
            for name, values in sums.items():
                values[7] = kept[name]

        return add

    put(stack, ServerGuard, "add_noise_", made)


@fault("a clip norm twice the recorded one", "guards", "fedmf", CENTRAL, "is paid for")
def _(stack: ExitStack) -> None:
    put(
        stack,
        ClientGuard,
        "clip_",
        lambda former: lambda self, updates, clip_norm=None: former(self, updates, 2 * _bound(self, clip_norm)),
    )


@fault("a clip 10 % too long on single uploads", "guards", "gpfedrec", LAPLACE, "is paid for")
def _(stack: ExitStack) -> None:
    put(
        stack,
        ClientGuard,
        "clip_",
        lambda former: lambda self, updates, clip_norm=None: former(self, updates, 1.1 * _bound(self, clip_norm)),
    )


@fault("the clip skips the last client of a chunk", "guards", "fedmf", CENTRAL, "beside clipped uploads")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def clip_(self: ClientGuard, updates: ClientUpdates, clip_norm: float | None = None) -> int:
            norms = updates.norms(2)
            within = int(former(self, updates, clip_norm))
            back = torch.ones(len(updates), dtype=torch.float64)
            back[-1] = max(float(norms[-1]), 1e-9) / max(float(updates.norms(2)[-1]), 1e-9)
            updates.scale_(back)
            return within

        return clip_

    put(stack, ClientGuard, "clip_", made)


@fault("noise divided by the weight of a block twice", "guards", "private-gram", CENTRAL, "noise")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def add(self: ServerGuard, sums: Any, *rest: Any, **more: Any) -> None:
            schema = rest[3]
            before = {name: values.clone() for name, values in sums.items()}
            former(self, sums, *rest, **more)
            for name, values in sums.items():
                values.sub_(before[name]).div_(schema[name].weight).add_(before[name])

        return add

    put(stack, ServerGuard, "add_noise_", made)


@fault("noise keyed by the round only", "guards", "fedncf", CENTRAL, "repeats that of")
def _(stack: ExitStack) -> None:
    words_with(stack, lambda round, _, users: (round, 0, users))


@fault("an adaptive clip whose count has no noise", "guards", "fedmf", ADAPTIVE, "has no noise of its own")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def add(self: ServerGuard, sums: Any, cohort: Any, step: str, *rest: Any, **more: Any) -> None:
            now = self.clip_norm(step)
            former(self, sums, cohort, step, *rest, **more)
            adaptive = getattr(self.plan.mechanism, "adaptive", None)
            if adaptive is None:
                return
            share = (more["within"] - more["members"] / 2) / cohort.expected + 0.5
            self.clip_norms[step] = adaptive.follow(now, share, cohort.round)

        return add

    put(stack, ServerGuard, "add_noise_", made)


@fault("means divide by those who took part", "guards", "fedmf", SAMPLED, "shows how many took part")
def _(stack: ExitStack) -> None:
    put(
        stack,
        ServerGuard,
        "total",
        lambda former: lambda self, sums, cohort, members, schema, revealed={}: Total(sums, float(members), revealed),
    )


@fault("noise inside training left out", "methods", "pfedrec", PER_INTERACTION, "noise")
def _(stack: ExitStack) -> None:
    from privfed.methods.shared.interaction_dp import RowNoise

    put(stack, RowNoise, "_noise", lambda _: lambda self, slot, users, ratios: torch.zeros_like(ratios))


# Private evaluation.


@fault("a measurement that is not charged", "ledger", "private-gram", CENTRAL, "has no entry for", measured=True)
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def record(self: Ledger, **more: Any) -> Any:
            return None if more["step"] == STEP else former(self, **more)

        return record

    put(stack, Ledger, "record", made)


@fault(
    "vectors of metrics that nobody clips", "guards", "private-gram", CENTRAL, "times the claimed noise", measured=True
)
def _(stack: ExitStack) -> None:
    put(stack, MetricVector, "vectors", lambda former: lambda self, *measured: 3 * former(self, *measured))

    def made(former: Any) -> Any:
        def clip_(self: ClientGuard, updates: ClientUpdates, clip_norm: float | None = None) -> int:
            return len(updates) if METRICS in updates.schema else int(former(self, updates, clip_norm))

        return clip_

    put(stack, ClientGuard, "clip_", made)


# Personal budgets.


def _unweighted(former: Any) -> Any:
    def clip_(self: ClientGuard, updates: ClientUpdates, clip_norm: float | None = None) -> int:
        plan, self.plan = self.plan, self.plan.model_copy(update={"tiers": None})
        try:
            return int(former(self, updates, clip_norm))
        finally:
            self.plan = plan

    return clip_


@fault("the weight of a careful tier ignored", "guards", "fedmf", TIERED, "is paid for")
def _(stack: ExitStack) -> None:
    put(stack, ClientGuard, "clip_", _unweighted)


@fault("the weight of a tier applied before the clip", "guards", "fedmf", TIERED, "is paid for")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def clip_(self: ClientGuard, updates: ClientUpdates, clip_norm: float | None = None) -> int:
            updates.scale_(self.weights(updates.clients))
            return int(_unweighted(former)(self, updates, clip_norm))

        return clip_

    put(stack, ClientGuard, "clip_", made)


@fault("means divide by what those who took part count", "guards", "fedmf", TIERED, "shows how many took part")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def total(self: ServerGuard, sums: Any, cohort: Any, members: int, *_: Any) -> Any:
            counted = ClientGuard(self.plan, self._streams).weights(torch.arange(members)).sum()
            return Total(sums, float(counted), {})

        return total

    put(stack, ServerGuard, "total", made)


@fault("a careful tier claimed at half its weight", "ledger", "fedmf", TIERED, "what was released costs")
def _(stack: ExitStack) -> None:
    put(stack, Ledger, "composition_of", lambda former: lambda self, weight: former(self, weight / 2))


# Ledger.


@fault("the ledger records half the queries", "ledger", "fedmf", CENTRAL, "has no entry for")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def record(self: Ledger, **asked: Any) -> Any:
            return former(self, **asked) if asked["round"] % 2 == 0 else None

        return record

    put(stack, Ledger, "record", made)


@fault("the ledger records twice the noise", "ledger", "fedmf", CENTRAL, "the ledger records noise")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def mechanism(*asked: Any) -> Any:
            found = former(*asked)
            return Gaussian(noise_multiplier=2 * found.noise_multiplier) if isinstance(found, Gaussian) else found

        return mechanism

    put(stack, privfed.privacy.ledger, "event_for", made)


@fault("the composition counts half the rounds", "ledger", "fedmf", SAMPLED, "is composed of 3 releases")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def composition(self: Ledger) -> Any:
            found = former(self)
            return replace(found, releases=tuple(replace(r, count=-(-r.count // 2)) for r in found.releases))

        return composition

    put(stack, Ledger, "composition", made)


@fault("the ledger leaves out a participant", "ledger", "gpfedrec", LAPLACE, "took part and the ledger")
def _(stack: ExitStack) -> None:
    put(
        stack,
        Ledger,
        "record",
        lambda former: lambda self, **asked: former(self, **(asked | {"participants": asked["participants"][1:]})),
    )


# Sampling.


def _members(stack: ExitStack, change: Callable[..., Any]) -> None:
    put(
        stack,
        privfed.engines.simulation,
        "members",
        lambda former: (
            lambda sampling, streams, population, round: change(former, sampling, streams, population, round)
        ),
    )


@fault("the same cohort every round", "sampling", "fedmf", SAMPLED, "take part")
def _(stack: ExitStack) -> None:
    _members(stack, lambda former, *asked: former(*asked[:-1], 0))


@fault("cohorts of a fixed size where Poisson sampling is claimed", "sampling", "fedmf", SAMPLED, "clients", rounds=12)
def _(stack: ExitStack) -> None:
    def half(former: Any, sampling: Any, streams: Any, population: int, round: int) -> Any:
        drawn = np.random.default_rng(round).permutation(population)[: population // 2]
        return torch.from_numpy(np.sort(drawn))

    _members(stack, half)


@fault("some users never take part", "sampling", "fedmf", SAMPLED, "take part", rounds=12)
def _(stack: ExitStack) -> None:
    def some(former: Any, *asked: Any) -> Any:
        drawn = former(*asked)
        return drawn[drawn >= 20]

    _members(stack, some)


_COUNTS: list[np.ndarray] = []


def _knowing_counts(stack: ExitStack, change: Callable[[Any, np.ndarray], Any]) -> None:
    """Cohorts that are chosen knowing how many items everybody has."""

    def made(former: Any) -> Any:
        def members(self: Simulation, round: int) -> Any:
            counts = getattr(self.clients, "counts_of_items", None)
            known = counts is not None and len(counts) == self.population
            return change(former(self, round), counts) if known else former(self, round)

        return members

    after_set_up(stack, lambda e: setattr(e.clients, "counts_of_items", e.trained.train.counts))
    put(stack, Simulation, "members", made)


@fault("a cohort chosen from the data", "sampling", "fedmf", CENTRAL, "take part")
def _(stack: ExitStack) -> None:
    _knowing_counts(stack, lambda members, counts: members[torch.from_numpy(counts)[members] > np.median(counts)])


@fault("users without history send nothing", "sampling", "fedmf", CENTRAL, "who takes part")
def _(stack: ExitStack) -> None:
    _knowing_counts(stack, lambda members, counts: members[torch.from_numpy(counts)[members] > 0])


# Methods and data.


@fault("the server's message shows popularity", "methods", "fedmf", CENTRAL, "depends on the data of user")
def _(stack: ExitStack) -> None:
    def change(experiment: Experiment) -> None:
        public, popular = experiment.server.public, torch.from_numpy(experiment.trained.train.popularity())

        def shown() -> Message:
            message = public()
            return replace(message, shared=dict(message.shared) | {"popularity": popular})

        experiment.server.public = shown  # type: ignore[method-assign]

    after_set_up(stack, change)


@fault("a message with one user's history", "methods", "gpfedrec", LAPLACE, "depends on the data of user")
def _(stack: ExitStack) -> None:
    def change(experiment: Experiment) -> None:
        public, longest = experiment.server.public, int(experiment.trained.train.counts.argmax())
        own = torch.from_numpy(experiment.trained.train.items_of(longest).copy())

        def shown() -> Message:
            message = public()
            return replace(message, shared=dict(message.shared) | {"example": own})

        experiment.server.public = shown  # type: ignore[method-assign]

    after_set_up(stack, change)


@fault("initial parameters from everybody's items", "methods", "fedmf", CENTRAL, "depends on the data of user")
def _(stack: ExitStack) -> None:
    def change(experiment: Experiment) -> None:
        popular = torch.from_numpy(experiment.trained.train.popularity()).float()
        for values in experiment.server.public().shared.values():
            if values.dim() == 2 and len(values) == len(popular):
                values.add_(1e-3 * popular.unsqueeze(1))

    after_set_up(stack, change)


@fault("a client sends its neighbour's update", "methods", "gpfedrec", LAPLACE, "what other users upload")
def _(stack: ExitStack) -> None:
    def change(experiment: Experiment) -> None:
        if experiment.registered.training.step is None:
            return
        train, last = experiment.clients.train, experiment.n_users - 1

        def shifted(call: Any, message: Message) -> ClientUpdates:
            others = torch.where(call.clients < last, call.clients + 1, 0)
            found = train(replace(call, clients=others), message)
            return ClientUpdates(call.clients, found.schema, found.parts)

        experiment.clients.train = shifted

    after_set_up(stack, change)


@fault("clients leave out their neighbour's items", "methods", "fedmf", CENTRAL, "what other users upload")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def from_split(cls: Any, split: Any, negatives: str) -> ClientData:
            found = former(cls, split, negatives)
            shifted = found.excluded.subset(np.roll(np.arange(found.n_users), 1))
            return replace(found, excluded=found.excluded.union(shifted))

        return from_split

    put(stack, ClientData, "from_split", made)


@fault("a schema that depends on the data", "methods", "fedmf", CENTRAL, "schema of uploads")
def _(stack: ExitStack) -> None:
    def change(experiment: Experiment) -> None:
        weight = 1 + len(experiment.trained.train) / 1e6
        schema = experiment.server.schema
        experiment.server.schema = {name: replace(block, weight=weight) for name, block in schema.items()}

    after_set_up(stack, change)


@fault("a catalogue from the interactions that nobody names", "data", "fedmf", CENTRAL, "catalogue", derived=True)
def _(stack: ExitStack) -> None:
    put(stack, TrainingRun, "_with_disclosures", lambda _: lambda self, guarantee: guarantee)


@fault(
    "integer blocks that the ledger does not see",
    "ledger",
    "fair",
    CENTRAL,
    "left exactly",
    settings=(("min_tier", 3),),
)
def _(stack: ExitStack) -> None:
    put(
        stack,
        SchemaSummary,
        "from_schema",
        lambda former: (
            lambda cls, schema: former(cls, {name: block for name, block in schema.items() if block.kind == "real"})
        ),
    )
    for module in (privfed.setup.assembly, __import__("privfed.guards.server_guard", fromlist=["x"])):
        put(stack, module, "refuse_unprotected_blocks", lambda _: nothing)


@fault(
    "rows revealed that too few clients sent",
    "engine",
    "fedmf",
    f"{FAKES},min_cohort=40",
    "were revealed that fewer than",
)
def _(stack: ExitStack) -> None:
    put(stack, ShareSum, "_opened", lambda former: lambda self, held, fewest: former(self, held, 1))


@fault("randomised response that only drops", "guards", "fedmf", RESPONSE, "randomised response with")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def answers(padding: Any, own: Any, known: Any, words: Any, popularity: Any) -> Any:
            kept, fakes = former(padding, own, known, words, popularity)
            return kept, fakes & (np.arange(fakes.shape[1]) % 3 > 0)

        return answers

    put(stack, RandomisedResponse, "sample", made)


# Rounds that nobody taps, and keys.


@fault("no noise in a round that is not tapped", "guards", "gpfedrec", LAPLACE, "no noise was added")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def add(self: ClientGuard, uploads: Any, updates: Any, call: Any, *rest: Any) -> None:
            if call.round != 4:
                former(self, uploads, updates, call, *rest)

        return add

    put(stack, ClientGuard, "_add_noise_", made)


@fault("noise under the public key", "engine", "fedmf", CENTRAL, "follows from what is public")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def words(self: Streams, purpose: Purpose, round: int, ask: int, users: Any, count: int) -> Any:
            if purpose == Purpose.NOISE:
                return former(self, Purpose.DROPOUT, round, ask, [-2] * len(users), count)
            return former(self, purpose, round, ask, users, count)

        return words

    put(stack, Streams, "words", made)


@fault("noise by the seed alone", "engine", "fedmf", CENTRAL, "with the same seed has the same noise")
def _(stack: ExitStack) -> None:
    put(stack, Streams, "from_seed", lambda former: lambda cls, seed, run="": former(cls, seed, ""))


@fault("keys of masks kept for the next round", "engine", "fedmf", DISTRIBUTED, "makes the same key for its masks")
def _(stack: ExitStack) -> None:
    kept: dict[tuple[int, int], KeyPair] = {}

    def made(former: Any) -> Any:
        def init(self: MaskingClient, client: int, *rest: Any, **more: Any) -> None:
            made_so_far = iter(range(10))
            former(
                self,
                client,
                *rest,
                **more | {"key_pair": lambda: kept.setdefault((client, next(made_so_far)), KeyPair.generate())},
            )

        return init

    put(stack, MaskingClient, "__init__", made)


@fault("shares of so few values", "engine", "fedmf", EVERY_ROW, "is not uniform")
def _(stack: ExitStack) -> None:
    put(stack, KeyStreams, "take", lambda former: lambda self, *asked: former(self, *asked) % 256)


@fault("the same share in every cohort", "engine", "fedmf", EVERY_ROW, "so subtracting removes it")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def take(self: KeyStreams, _: int, *rest: Any) -> Any:
            self._last[:] = -1
            self._buffers.clear()
            return former(self, 0, *rest)

        return take

    put(stack, KeyStreams, "take", made)


# Sensitivity, and what is paid for.


@fault("an L2 clip under Laplace noise", "guards", "gpfedrec", LAPLACE, "is paid for")
def _(stack: ExitStack) -> None:
    put(stack, LocalLaplace, "clip", lambda former: property(lambda self: replace(former.fget(self), order=2)))


@fault("a coarse grid that noise is not widened for", "guards", "fedmf", CENTRAL, "the rounding of a released sum")
def _(stack: ExitStack) -> None:
    put(stack, NoisedSum, "step", lambda former: property(lambda self: 256 * former.fget(self)))
    put(stack, NoisedSum, "widening", lambda _: property(lambda self: 1.0))


@fault("colluding clients counted as honest", "guards", "fedmf", COLLUDING, "% of the noise was added")
def _(stack: ExitStack) -> None:
    def shares(self: DistributedGaussian) -> NoiseShares:
        return NoiseShares(self.noise_multiplier, self.n_min_honest + self.colluding, 0, self.law)

    put(stack, DistributedGaussian, "noise_shares", lambda _: property(shares))


@fault("a tenth of the noise on an adaptive count", "guards", "fedmf", ADAPTIVE, "of the deviation that is paid for")
def _(stack: ExitStack) -> None:
    put(stack, privfed.guards.server_guard, "device_grid", lambda former: lambda scale: former(scale / 10))


@fault("an adaptive count that nobody pays for", "ledger", "fedmf", ADAPTIVE, "the ledger records noise")
def _(stack: ExitStack) -> None:
    put(stack, AdaptiveClip, "sum_multiplier", lambda _: lambda self, noise_multiplier: noise_multiplier)


# Accounting.


def _of_one_round(stack: ExitStack) -> None:
    """Releases that repeat count once."""

    def made(former: Any) -> Any:
        def flatten(event: Any, count: int, leaves: Any) -> None:
            repeats = type(event).__name__ == "SelfComposedDpEvent"
            former(event.event if repeats else event, 1 if repeats else count, leaves)

        return flatten

    put(stack, privfed.privacy.accounting, "_flatten", made)


@fault("Laplace releases of one round", "ledger", "gpfedrec", LAPLACE, "what was released costs at least")
def _(stack: ExitStack) -> None:
    _of_one_round(stack)


@fault("sampled releases of one round", "ledger", "fedmf", SAMPLED, "what was released costs at least")
def _(stack: ExitStack) -> None:
    _of_one_round(stack)


@fault("shares of noise of one round", "ledger", "fedmf", DISTRIBUTED, "what was released costs at least")
def _(stack: ExitStack) -> None:
    _of_one_round(stack)


@fault("noisy steps of one round", "ledger", "pfedrec", PER_INTERACTION, "what was released costs at least")
def _(stack: ExitStack) -> None:
    _of_one_round(stack)


@fault("queries of a sampled cohort counted once", "ledger", "private-gram", SAMPLED, "costs at least")
def _(stack: ExitStack) -> None:
    put(
        stack,
        privfed.privacy.composition,
        "fuse",
        lambda _: lambda gaussians: max(gaussians, key=lambda one: one.noise_multiplier),
    )


@fault("the mean user in place of the worst-off", "ledger", "gpfedrec", FIXED, "costs at least", rounds=12)
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def composition(self: ParticipationCounts, *asked: Any) -> Any:
            found = former(self, *asked)
            mean = {event: max(1, int(counts.mean())) for event, counts in self.uploads.items()}
            return replace(found, releases=tuple(replace(r, count=mean[r.event]) for r in found.releases))

        return composition

    put(stack, ParticipationCounts, "composition", made)


def _stated(stack: ExitStack, **fields: Any) -> None:
    """A guarantee that says something else."""

    def made(former: Any) -> Any:
        def guarantee(self: Ledger, *, seeded: bool = True) -> Any:
            return former(self, seeded=seeded).model_copy(update=fields)

        return guarantee

    put(stack, Ledger, "guarantee", made)


@fault("a trusted server that is not named", "ledger", "fedmf", CENTRAL, "noise is added by the server")
def _(stack: ExitStack) -> None:
    _stated(stack, trust="local")


@fault("a smaller delta than was accounted", "ledger", "fedmf", CENTRAL, "the guarantee names delta")
def _(stack: ExitStack) -> None:
    _stated(stack, delta=1e-9)


# Sampling beyond what a few rounds show.


@fault("neighbouring users who join together", "sampling", "fedmf", SAMPLED, "agree in")
def _(stack: ExitStack) -> None:
    def pairs(former: Any, *asked: Any) -> Any:
        drawn, population = former(*asked), asked[2]
        even = drawn[drawn % 2 == 0]
        both = torch.cat([even, even + 1]).sort().values
        return both[both < population]

    _members(stack, pairs)


@fault("a rate a fifth above the claimed one", "sampling", "fedmf", SAMPLED, "0.5 are claimed")
def _(stack: ExitStack) -> None:
    def more(former: Any, sampling: Any, *asked: Any) -> Any:
        rate = {"rate": 1.2 * sampling.rate} if sampling.kind == "poisson" else {}
        return former(sampling.model_copy(update=rate), *asked)

    _members(stack, more)


# Padding.


@fault("the same fake items for everybody", "data", "fedmf", FAKES, "can be told from true ones")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def words(self: Streams, purpose: Purpose, round: int, ask: int, users: Any, count: int) -> Any:
            whose = [0] * len(users) if purpose == Purpose.PADDING else users
            return former(self, purpose, round, ask, whose, count)

        return words

    put(stack, Streams, "words", made)


@fault("fake items that follow no popularity", "data", "dfmr", LIKE_PUBLIC, "can be told from true ones")
def _(stack: ExitStack) -> None:
    put(
        stack,
        FakeItems,
        "sample",
        lambda former: lambda self, own, known, words, weights: former(self, own, known, words, np.ones_like(weights)),
    )


# Training data, games, and what quality is compared with.


@fault("clients train on held-out items", "data", "gpfedrec", LAPLACE, "depends on their held-out items")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def from_split(cls: Any, split: Any, negatives: str) -> ClientData:
            found = former(cls, split, negatives)
            return replace(found, positives=found.positives.union(split.test), ratings=None)

        return from_split

    put(stack, ClientData, "from_split", made)


@fault("held-out items are never negatives", "data", "fedmf", CENTRAL, "depends on their held-out items")
def _(stack: ExitStack) -> None:
    put(stack, ClientData, "from_split", lambda former: lambda cls, split, _: former(cls, split, "all"))


@fault("dropped items stay in training", "data", "gpfedrec", LAPLACE, "say something else than what was trained on")
def _(stack: ExitStack) -> None:
    put(stack, InclusionBits, "applied_to", lambda _: lambda self, split: split)


@fault("clients hold what inclusion bits dropped", "data", "gpfedrec", LAPLACE, "that inclusion bits dropped")
def _(stack: ExitStack) -> None:
    whole: dict[int, tuple[Any, Any]] = {}

    def kept(former: Any) -> Any:
        def applied_to(self: InclusionBits, split: Any) -> Any:
            left = former(self, split)
            whole[id(left)] = left, split
            return left

        return applied_to

    def made(former: Any) -> Any:
        def from_split(cls: Any, split: Any, negatives: str) -> ClientData:
            return former(cls, whole.get(id(split), (split, split))[1], negatives)  # type: ignore[no-any-return]

        return from_split

    put(stack, InclusionBits, "applied_to", kept)
    put(stack, ClientData, "from_split", made)


@fault("non-members of another law", "attacks", "gpfedrec", LAPLACE, "the other side of the game")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def game(cls: Any, train: np.ndarray, seen: np.ndarray) -> Targets:
            found = former(cls, train, seen)
            some = found.members | (np.arange(train.shape[1]) % 3 == 0)
            return replace(found, candidates=found.candidates & some)

        return game

    put(stack, Targets, "trained_vs_never_seen", made)


@fault("held-out items among the members", "attacks", "gpfedrec", LAPLACE, "are not what was trained on")
def _(stack: ExitStack) -> None:
    put(stack, Targets, "trained_vs_never_seen", lambda former: lambda cls, _, seen: former(cls, seen, seen))


@fault("a popularity guesser that knows nothing", "attacks", "gpfedrec", LAPLACE, "the popularity that the adversary")
def _(stack: ExitStack) -> None:
    put(
        stack,
        attack_run,
        "Knowledge",
        lambda former: lambda popularity, *rest, **more: former(np.zeros_like(popularity), *rest, **more),
    )


@fault("training items among the candidates", "evaluation", "gpfedrec", LAPLACE, "the gain is over a popularity")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def ranked(self: Any, split: Any, *rest: Any) -> None:
            nobody = split.train.first(np.zeros(split.train.n_users, dtype=np.int64))
            former(self, replace(split, train=nobody, ratings=None), *rest)

        return ranked

    put(stack, privfed.evaluation.ranked_items.RankedItems, "__init__", made)


@fault("popularity measured on the validation part", "evaluation", "gpfedrec", LAPLACE, "the gain is over a popularity")
def _(stack: ExitStack) -> None:
    put(
        stack,
        privfed.experiment.gain,
        "Evaluator",
        lambda former: lambda parts, protocol, _: former(parts, protocol, "valid"),
    )


@fault("a control whose histories are not shuffled", "evaluation", "gpfedrec", LAPLACE, "that their users really have")
def _(stack: ExitStack) -> None:
    put(stack, privfed.setup.assembly, "shuffled_histories", lambda _: lambda parts, seed: parts)


@fault("an untrained control that trains", "evaluation", "gpfedrec", LAPLACE, "in which nothing is sent")
def _(stack: ExitStack) -> None:
    put(stack, TrainingRun, "_control", lambda _: lambda self, *asked: self._rounds(*asked))


# What only a server shows that sends what no honest one would.


@fault("a norm that overflows counts as short", "guards", "fedrap", CENTRAL, "as long as the clip allows")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def factors(norms: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
            return torch.where(norms.float().square().isinf(), 1.0, former(norms, bound))

        return factors

    put(stack, privfed.guards.client_guard, "shrink_factors", made)


@fault("a clip that shortens no more than a millionfold", "guards", "fedrap", LAPLACE, "as long as the clip allows")
def _(stack: ExitStack) -> None:
    put(
        stack,
        privfed.guards.client_guard,
        "shrink_factors",
        lambda former: lambda norms, bound: former(norms, bound).clamp(min=1e-6),
    )


@fault("NaN passes for an upload", "engine", "fedmf", CENTRAL, "as long as the clip allows")
def _(stack: ExitStack) -> None:
    put(stack, ClientGuard, "refuse_broken", lambda _: nothing)
    put(stack, device_training, "trained", lambda _: perform)


def _refuses(updates: ClientUpdates) -> ClientUpdates:
    if not updates.finite():
        raise FederationError("training diverged: send another model")
    return updates


@fault("a refusal of whoever's training fails", "engine", "fedmf", CENTRAL, "devices refuse to answer")
def _(stack: ExitStack) -> None:
    put(stack, device_training, "trained", lambda _: lambda *asked: _refuses(perform(*asked)))


@fault("less noise for whoever is clipped hard", "guards", "fedrap", LOCAL, "hostile server: models in the order")
def _(stack: ExitStack) -> None:
    def clipping(former: Any) -> Any:
        def clip_(self: ClientGuard, updates: ClientUpdates, clip_norm: float | None = None) -> int:
            self.hard = updates.norms(2) > 1e6 * _bound(self, clip_norm)
            return int(former(self, updates, clip_norm))

        return clip_

    def noising(former: Any) -> Any:
        def add(self: ClientGuard, uploads: Any, updates: Any, call: Any, positions: Any, noise: Any) -> None:
            halved = bool(self.hard[positions].any())
            former(self, uploads, updates, call, positions, replace(noise, scale=noise.scale / (2 if halved else 1)))

        return add

    put(stack, ClientGuard, "clip_", clipping)
    put(stack, ClientGuard, "_add_noise_", noising)


@fault("large parameters absorb noise on unread rows", "methods", "pfedrec", PER_INTERACTION, "tells the items of")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def train(self: Any, call: Any, parameters: Any, items: torch.Tensor) -> Any:
            new, changes = former(self, call, parameters, items)
            own = torch.zeros(changes.shape[:2], dtype=torch.bool)
            for at, user in enumerate(call.clients.tolist()):
                own[at, self._items[self._start[user] :][: self._counts[user]]] = True
            return new, torch.where(own.unsqueeze(2), changes, (items + changes) - items)

        return train

    put(stack, InteractionTrainer, "train", made)


@fault("no noise on a table of zeros", "methods", "pfedrec", PER_INTERACTION, "carry no noise")
def _(stack: ExitStack) -> None:
    def made(former: Any) -> Any:
        def train(self: Any, call: Any, parameters: Any, items: torch.Tensor) -> Any:
            new, changes = former(self, call, parameters, items)
            return new, torch.zeros_like(changes) if not items.any() else changes

        return train

    put(stack, InteractionTrainer, "train", made)


@fault("NaN silences those who hold an item", "methods", "pfedrec", PER_INTERACTION, "whose silence no noise hides")
def _(stack: ExitStack) -> None:
    put(stack, privfed.methods.shared.interaction_dp, "largest", lambda _: lambda values: 0.0)
