"""One experiment: a method on a data set behind a privacy plan, measured under a protocol.

`ExperimentConfig` is everything that decides the result; `run` trains, evaluates, taps and returns a `RunResult`.
With a run directory it also writes metrics as they come, the ledger before every release, and checkpoints from
which a killed run continues to the same bits.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from torch import Tensor

from privfed.coins import Coins
from privfed.covered import under_cover
from privfed.data import Histories, Interactions, Split, SplitSpec, split
from privfed.devices import DeviceError, all_moved, all_on_host, computing_on, moved, on_host, placed, usable
from privfed.engines.checkpoint import Checkpoint
from privfed.engines.hosted_clients import HostedClients
from privfed.engines.processes import ALONE, Processes
from privfed.engines.simulation import Costs, Simulation, Wire, refuse_shared
from privfed.engines.transcript import Tap, Transcript
from privfed.engines.witness import Witness
from privfed.evaluation import UNCOUNTED, EvaluationResult, Evaluator, Protocol
from privfed.federation import (
    MEMORY,
    Call,
    Clients,
    Message,
    PrivateHalves,
    Ranges,
    Server,
    ShardFolder,
    Storage,
    Streams,
    perform,
)
from privfed.methods import ClientData, Facts, Method, MethodConfig, method
from privfed.methods.method import ItemBlocks
from privfed.privacy import Guarantee, Ledger, PlanError, PrivacyPlan, configure
from privfed.privacy.events import Composition
from privfed.privacy.interaction import NO_RECORDS
from privfed.privacy.ledger import Entry
from privfed.privacy.protections import NO_INTEGERS
from privfed.privacy.server_guard import refuse_uncovered
from privfed.privacy.statements import CATALOGUE_WARNING, derived_catalogue
from privfed.updates import ClientUpdates, Schema, tile_size

Part = Literal["valid", "test"]
Place = Literal["raw", "wire", "sum", "model"]
_TILES_SCORED_AT_ONCE = 2


def _gpfedrec() -> dict[str, JsonValue]:
    return {"name": "gpfedrec"}


class TapConfig(BaseModel):
    """What to copy for attacks, and what is arranged before training so that they can be measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: tuple[Place, ...] = Field(
        ("wire",),
        description="raw, wire, sum, model; empty taps nothing, and wire is the sum where a plan hides single uploads",
    )
    users: int = Field(100, ge=1, description="audited users, drawn by the seed")
    rounds: tuple[int, ...] | None = Field(
        None, description="rounds to tap, from 0; null taps four rounds spread over the run"
    )
    coins: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the audited users' training items that a fair coin keeps or drops before training, so "
        "that attacks can be held against epsilon",
    )
    recipes: bool = Field(
        default=False,
        description="copy what the server sent, too, so that attacks can repeat local training with guessed histories",
    )
    shadows: int = Field(
        0,
        ge=0,
        description="further trainings with other coins, from which attacks learn how members score; 0 does without",
    )

    def of_run(self, **changes: Any) -> "TapConfig":
        """As one run of an audit has it, with some fields changed."""
        return TapConfig.model_validate(self.model_dump() | changes)

    @model_validator(mode="after")
    def _shadows_have_coins(self) -> Self:
        if self.shadows and not self.coins:
            raise ValueError(
                f"shadows = {self.shadows} trains with other coins, and coins = 0 tosses none: set coins, such as 0.2, "
                "or shadows = 0"
            )
        return self


class AuditTapConfig(TapConfig):
    """The same as an audit has it where it is not told otherwise: every place, and coins."""

    places: tuple[Place, ...] = Field(
        ("raw", "wire", "sum", "model"), description=TapConfig.model_fields["places"].description
    )
    coins: float = Field(0.2, ge=0, lt=1, description=TapConfig.model_fields["coins"].description)


class ExperimentConfig(BaseModel):
    """Everything that decides a run's result.

    Attributes:
        data: name of a data set or path.
        split: how held-out items are chosen.
        method: name of the method and its settings, in one table.
        privacy: the privacy plan.
        protocol: how utility is measured.
        rounds: rounds to train.
        seed: seed of the simulation: initial parameters, sampling, noise (a simulation's noise is seeded).
        evaluate_every: rounds between evaluations; null evaluates ten times, or every round where the protocol
            selects by validation.
        checkpoint_every: rounds between checkpoints of a run directory.
        taps: what to copy for attacks.
        chunk: clients trained together; null chooses.
        memory_limit_gib: bound on update buffers; null sets none.
        wire: how closely the wire is simulated: `law` draws all Gaussian noise at once, `exact` every client's
            own, `protocol` runs the real masking protocol too.
        device: where tensors live: `cpu`, `cuda`, `cuda:1`, ... (docs/performance.md, "On a GPU").
        deterministic: on a GPU, take only kernels that give the same bits every time; the CPU's always do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = "ml-100k"
    split: SplitSpec = SplitSpec()
    method: dict[str, JsonValue] = Field(default_factory=_gpfedrec)
    privacy: PrivacyPlan = Field(default_factory=lambda: PrivacyPlan.named("none"))
    protocol: Protocol = Protocol()
    rounds: int = Field(100, ge=1)
    seed: int = Field(0, ge=0)
    evaluate_every: int | None = Field(None, ge=1)
    checkpoint_every: int = Field(10, ge=1)
    taps: TapConfig = TapConfig()
    chunk: int | None = Field(None, ge=1)
    memory_limit_gib: float | None = Field(None, gt=0)
    wire: Wire = "exact"
    device: str = "cpu"
    deterministic: bool = True

    @property
    def method_name(self) -> str:
        """The method's registered name."""
        return str(self.method.get("name", ""))

    def decides(self) -> dict[str, JsonValue]:
        """Everything that decides the result; the processor is no choice, an accelerator's arithmetic is another."""
        return self.model_dump(mode="json", exclude={"device", "deterministic"} if self.device == "cpu" else None)

    def digest(self) -> str:
        """SHA-256 of everything that decides the result: the ledger's name for this run's noise."""
        canonical = json.dumps(self.decides(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def streams(self) -> Streams:
        """Keys of the simulation, from its seed; those of noise also from everything else that decides its releases.

        How many rounds there are, how they are chunked, watched and evaluated decides no release. What an audit drops
        by inclusion bits does.
        """
        released = self.model_dump(mode="json", include={"data", "split", "method", "privacy"})
        released["negatives"] = self.protocol.model_dump(mode="json")["negatives"]
        released["dropped"] = [self.taps.coins, self.taps.users] if self.taps.coins else None
        return Streams.from_seed(self.seed, json.dumps(released, sort_keys=True))

    def computing(self) -> AbstractContextManager[None]:
        """Make tensors on the run's device. Raises DeviceError where it cannot be used."""
        return computing_on(usable(self.device), deterministic=self.deterministic)

    def registered(self) -> Method:
        """The method. Raises UnknownMethodError when there is none of that name."""
        return method(self.method_name)

    def settings(self) -> MethodConfig:
        """The method's settings, validated."""
        fields = {key: value for key, value in self.method.items() if key != "name"}
        return configure(self.registered().config, fields)

    def evaluated(self, t: int) -> bool:
        """Whether round `t` is evaluated; the last round always is."""
        every = self.evaluate_every
        if every is None:
            every = 1 if self.protocol.select == "best_valid" else max(1, self.rounds // 10)
        return (t + 1) % every == 0 or t + 1 == self.rounds

    def tapped_rounds(self) -> frozenset[int]:
        """Rounds to tap: those asked for, or four spread over the run (round 0 of a method that uploads but once)."""
        if self.taps.rounds is not None:
            return frozenset(self.taps.rounds)
        if self.registered().uploads_once:
            return frozenset({0})
        return frozenset(max(0, round(self.rounds * share) - 1) for share in (0.25, 0.5, 0.75, 1.0))


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Utility after one round."""

    round: int
    results: dict[Part, EvaluationResult]


@dataclass(slots=True, eq=False)
class RunResult:
    """What a run measured.

    Attributes:
        config: of the run.
        history: utility at every evaluated round.
        guarantee: what the ledger can claim.
        composition: what it claims that from.
        costs: seconds by stage and bytes on the wire.
        clipped_fraction: share of uploads that the clip changed; None without a clip.
        transcript: what was tapped.
        server, clients: the trained halves.
        cpu_seconds, wall_seconds: of training and evaluation.
        entries: what the ledger holds.
        witness: what crossed the border of the privacy layer; None where raw uploads are not tapped, as audits do.
        notices: what the ledger had to drop when the run was resumed, a sentence each.
    """

    config: ExperimentConfig
    history: list[Evaluated]
    guarantee: Guarantee
    composition: Composition
    costs: Costs
    clipped_fraction: float | None
    transcript: Transcript
    server: Server
    clients: Clients
    cpu_seconds: float
    wall_seconds: float
    entries: Sequence[Entry]
    witness: Witness | None
    notices: tuple[str, ...] = ()

    @property
    def decisions(self) -> dict[str, float]:
        """What the method decided by what had been released to it, so that no privacy was spent on choosing."""
        return dict(getattr(self.server, "decisions", {}))

    @property
    def selected(self) -> Evaluated:
        """The round the protocol reports: the last, or the best on validation by `merit` (the later of equals)."""
        if self.config.protocol.select == "last":
            return self.history[-1]
        return max(self.history, key=lambda e: (e.results["valid"].merit, e.round))

    @property
    def test(self) -> EvaluationResult:
        """Test utility at the selected round."""
        return self.selected.results["test"]


Progress = Callable[[int, "Evaluated | None"], None]
"""Called after every round with its number and, where it was evaluated, its utility."""


@dataclass(slots=True, eq=False)
class Experiment:
    """A configured run over loaded data: build once, run, or score a device.

    Attributes:
        config: everything that decides the result.
        parts: train, validation and test, before any coin: what is evaluated, and what an adversary may know of
            popularity.
        registered: the method.
        streams: keys of all parties; from the seed, unless `keys` gives others (a process of a deployment has its own).
        processes: processes that share the clients; this one hosts a range of them.
        hosted: numbers of the users whose private halves are here, ascending; None where it is everybody.
        client_state: folder whose files keep the private state of clients, which disk then bounds and not memory; None
            keeps it in memory. It decides nothing of the result.
        coins: training items of audited users that a coin decided; None where none were put to one.
        trained: `parts` without what the coin dropped: what clients hold.
        facts: all that the server was built from.
        server, clients: both halves.
        support: rows that every user announced under the plan's cover; None where there is no drawn cover.
        storage: where private state is kept.

    Raises:
        ValueError: the configuration or data cannot be used, in one sentence.
    """

    config: ExperimentConfig
    parts: Split
    keys: InitVar[Streams | None] = None
    processes: Processes = ALONE
    hosted: Int64[np.ndarray, " hosted"] | None = None
    client_state: Path | None = None
    registered: Method = field(init=False)
    streams: Streams = field(init=False)
    coins: Coins | None = field(init=False)
    trained: Split = field(init=False)
    facts: Facts = field(init=False)
    server: Server = field(init=False)
    clients: Clients = field(init=False)
    support: Histories | None = field(init=False)
    storage: Storage = field(init=False)

    def __post_init__(self, keys: Streams | None) -> None:
        with self.config.computing():
            self._set_up(keys)

    def _set_up(self, keys: Streams | None) -> None:
        self.registered = self.config.registered()
        settings = self.config.settings()
        if self.registered.release == "individual" and self.config.privacy.protection.release == "total":
            raise PlanError(
                f"{self.registered.name} cannot run behind the plan {self.config.privacy.name!r}: its server needs "
                f"{self.registered.reads}, and would see only a sum"
            )
        if self.config.privacy.protection.noisy_steps is not None and not self.registered.interaction_level:
            raise PlanError(
                f"{self.registered.name} cannot run behind the plan {self.config.privacy.name!r}: {NO_RECORDS}"
            )
        if self.registered.integers and not self.config.privacy.protection.covers_integers:
            raise PlanError(
                f"{self.registered.name} cannot run behind the plan {self.config.privacy.name!r}: {NO_INTEGERS}"
            )
        entangled = self.registered.entangles(settings)
        if entangled is not None and self.config.privacy.protection.unbounded_reason is None:
            raise PlanError(
                f"{self.registered.name} cannot run as it is set behind the plan {self.config.privacy.name!r}, which "
                f"bounds what a user's own upload changes: {entangled}"
            )
        if (task := self.registered.task(settings)) != self.config.protocol.task:
            does = "ranks items" if task == "ranking" else "predicts ratings"
            raise PlanError(
                f"{self.registered.name} {does}, and protocol.task is {self.config.protocol.task}: set "
                f"protocol.task={task}, or choose a method or a task of the method that fits"
            )
        self.streams = keys or self.config.streams()
        self.coins = self._tossed()
        self.trained = self.parts if self.coins is None else self.coins.applied_to(self.parts)
        data = ClientData.from_split(self.trained, self.config.protocol.negatives)
        public = data.positives if self.registered.public_target else None
        covered = under_cover(data, self.config.privacy, self.registered, settings)
        self.support = covered.support
        sums = self.config.privacy.noisy_sums(data.n_users)
        self.facts = Facts(data.n_users, data.n_items, public, sums, self.parts.item_info)
        self.server = self.registered.server(settings, self.facts, self.streams)
        for ask in self.registered.program(self.server):
            refuse_uncovered(self.config.privacy, ask.schema)
        refuse_shared(self.processes, self.config.wire, self._tapped_places())
        if self.hosted is None and self.processes.size > 1:
            self.hosted = self.processes.hosted(self.n_users)
        if self.hosted is not None and self.config.device != "cpu":
            raise DeviceError(
                f"device = {self.config.device!r} needs all users in one process, and this one hosts a part of them: "
                f"set device = 'cpu', or start one process"
            )
        self.storage = self._stored()
        self.clients = self._halves(settings, replace(covered.data, storage=self.storage))

    def _stored(self) -> Storage:
        """Memory, or a folder; every process has one of its own."""
        if self.client_state is None:
            return MEMORY
        if self.config.device != "cpu":
            raise DeviceError(
                f"client state in {self.client_state} is read by the processor, and device is {self.config.device!r}: "
                f"keep it in memory, or set device = 'cpu'"
            )
        rank, size = self.processes.rank, self.processes.size
        own = self.client_state if size == 1 else self.client_state / f"{rank + 1:05d}-of-{size:05d}"
        return ShardFolder(own, self.config.digest())

    def _halves(self, settings: MethodConfig, data: ClientData) -> Clients:
        """Private halves of the users who are hosted here."""
        make = self.registered.clients
        if self.hosted is None:
            return make(settings, data, self.streams)
        return HostedClients(make(settings, data.hosting(self.hosted), self.streams.numbered(self.hosted)), self.hosted)

    @classmethod
    def on(cls, config: ExperimentConfig, interactions: Interactions) -> "Experiment":
        """Split the interactions as configured."""
        return cls(config, split(interactions, config.split))

    @property
    def n_users(self) -> int:
        """Size of the population."""
        return self.parts.train.n_users

    @property
    def item_blocks(self) -> ItemBlocks | None:
        """What uploads of the training step say about single items; None where they say nothing."""
        return self.registered.item_blocks(self.server.schema, self.config.settings())

    def audited(self) -> Tensor:
        """Audited users: a seeded draw among users with training items, ascending."""
        active = np.flatnonzero(self.parts.train.counts)
        count = min(self.config.taps.users, len(active))
        chosen = np.random.default_rng(self.config.seed).choice(active, count, replace=False)
        return placed(np.sort(chosen))

    def _tossed(self) -> Coins | None:
        """Coins on the audited users' training items, where they are private: what is public is no secret to find."""
        share = self.config.taps.coins
        if not share or self.registered.public_target:
            return None
        return Coins.toss(self.parts, on_host(self.audited()), share, self.config.seed)

    def run(
        self,
        directory: Path | None = None,
        *,
        resume: bool = False,
        progress: Progress | None = None,
        parts: Sequence[Part] = ("valid", "test"),
    ) -> RunResult:
        """Train for the configured rounds.

        Args:
            directory: where the ledger and checkpoints go; None keeps everything in memory.
            resume: continue from the directory's checkpoint, or from round 0 if none was reached.
            progress: called after every round.
            parts: held-out parts to evaluate; none leaves evaluation out.
        """
        with self.config.computing():
            return self._run(directory, progress, parts, resume=resume)

    def _run(
        self, directory: Path | None, progress: Progress | None, parts: Sequence[Part], *, resume: bool
    ) -> RunResult:
        config, reg, processes = self.config, self.registered, self.processes
        self.storage.claim()
        run, path = config.digest(), directory / "ledger.jsonl" if directory else None
        begun = path is not None and (path.exists() or Checkpoint.exists(path.with_name("checkpoint")))
        (resumed, *_) = processes.every(resume and begun)
        with processes.in_turn():
            ledger = (
                Ledger.resume(config.privacy, self.n_users, path, run=run)
                if resumed and path is not None
                else Ledger(config.privacy, self.n_users, path if processes.first else None, run=run)
            )
        if not processes.first:
            ledger.path = None
        places, rounds = self._tapped_places(), config.tapped_rounds()
        transcript = Transcript(self.audited(), places, rounds, reg.pull, reg.step, "raw" in config.taps.places)
        evaluation = PrivateEvaluation(self, parts)
        limit = None if config.memory_limit_gib is None else int(config.memory_limit_gib * 2**30)
        witness = self._witness()
        simulation = Simulation(
            self.clients if witness is None else witness.clients(self.clients),
            config.privacy,
            self.n_users,
            self.streams,
            ledger,
            chunk=config.chunk or reg.chunk_here(),
            memory_limit=limit,
            wire=config.wire,
            support=self.support,
            transcript=transcript,
            processes=processes,
        )
        server = self.server if witness is None else witness.server(self.server)
        history: list[Evaluated] = []
        first, cpu, wall = 0, -time.process_time(), -time.perf_counter()
        if resumed and directory is not None and Checkpoint.exists(directory / "checkpoint"):
            saved = Checkpoint.load(directory / "checkpoint", processes, ranged=self.client_state is not None)
            first = self._restore(saved, simulation, ledger, history)
            transcript.load(directory / "taps", before=first)
        for t in range(first, config.rounds):
            due = bool(parts) and config.evaluated(t)
            evaluation.observe(simulation, t, due=due)
            simulation.run(server, t)
            evaluated = evaluation.result(t) if due else None
            if evaluated:
                history.append(evaluated)
            if directory is not None and ((t + 1) % config.checkpoint_every == 0 or t + 1 == config.rounds):
                transcript.save(directory / "taps")
                self._checkpoint(t + 1, simulation, ledger, history).save(directory / "checkpoint", processes)
            if progress is not None:
                progress(t, evaluated)
        return RunResult(
            config,
            history,
            self._with_disclosures(ledger.guarantee(), measured=bool(history)),
            ledger.composition(),
            simulation.total_costs(),
            simulation.clip_counts().fraction,
            transcript,
            self.server,
            self.clients,
            cpu + time.process_time(),
            wall + time.perf_counter(),
            ledger.entries,
            witness,
            ledger.notices,
        )

    def _witness(self) -> Witness | None:
        """Somebody who records every query, where raw uploads are tapped: an oracle of audits, like these."""
        if "raw" not in self.config.taps.places or self.processes.size > 1:
            return None
        bounded = self.config.privacy.protection.unbounded_reason is None
        return Witness(self.config.privacy, self.config.tapped_rounds() | {0, 1} if bounded else ())

    def _tapped_places(self) -> frozenset[Tap]:
        """Places to tap: those asked for, as far as there is something for an attack to read.

        Behind a plan that hides single uploads, what is on the wire for the server is their sum.
        """
        places: frozenset[Tap] = frozenset(self.config.taps.places)
        if not self.registered.has_item_rows:
            return places - {"raw", "wire"}
        hidden = self.config.privacy.protection.release == "total"
        seen: frozenset[Tap] = places - {"wire"} if hidden else places
        if self.config.taps.recipes and self.registered.step is not None and seen & {"raw", "wire"}:
            places |= {"message"}
        return places | {"sum"} if hidden and "wire" in places else places

    def _with_disclosures(self, guarantee: Guarantee, *, measured: bool) -> Guarantee:
        """The guarantee with what method, data and metrics show beside uploads in its statements and assumptions."""
        shown = [*([UNCOUNTED] if measured else []), *self.registered.discloses(self.config.settings())]
        assumed = list[str]()
        if self.parts.catalogue_derived and guarantee.reason_if_inf is None:
            assumed = [derived_catalogue(self.parts.train.n_items)]
            shown.append(CATALOGUE_WARNING)
        return guarantee.model_copy(
            update={
                "assumptions": [*guarantee.assumptions, *assumed],
                "statements": [*guarantee.statements, *shown],
            }
        )

    def restore(self, directory: Path) -> int:
        """Load the public and private tensors of a run directory's checkpoint; returns the next round."""
        checkpoint = Checkpoint.load(directory / "checkpoint")
        self._continue_from(checkpoint.server, checkpoint.clients)
        return checkpoint.next_round

    def on_host(self) -> "Experiment":
        """The same experiment, trained so far, on the processor: for whoever reads its tensors, as attacks do."""
        if self.config.device == "cpu":
            return self
        config = self.config.model_copy(update={"device": "cpu"})
        same = Experiment(config, self.parts, self.streams, self.processes, self.hosted)
        with self.config.computing():
            states = all_on_host(self.server.state()), all_on_host(self.clients.state())
        same._continue_from(*states)
        return same

    def _continue_from(self, server: Mapping[str, Tensor], clients: Mapping[str, Ranges]) -> None:
        with self.config.computing():
            self.server.load(all_moved(server))
            self.clients.load(clients)

    def rehearse(self, users: Tensor, t: int, schema: Schema) -> tuple[Message, ClientUpdates | None]:
        """Let `users` download and train alone, as a device does before it recommends; nothing is sent.

        The staged private state must be discarded afterwards.
        """
        message = self.server.public().addressed_to(users)
        if self.registered.step is None:
            return message, None
        noisy_steps = self.config.privacy.protection.noisy_steps
        call = Call(t, -1, self.registered.step, 0, users, self.streams, schema, noisy_steps=noisy_steps)
        return message, perform(self.clients, call, message)

    def recommend(self, user: int, t: int) -> Tensor:
        """Scores `[items]` on one user's device after download and local training."""
        return self.shown(torch.tensor([user]), t)[0]

    def shown(self, users: Tensor, t: int) -> Tensor:
        """Scores `[users, items]` on the devices of `users`, as `recommend` gives those of one."""
        scores = []
        with self.config.computing():
            for some in torch.split(moved(users), _TILES_SCORED_AT_ONCE * tile_size()):
                message, updates = self.rehearse(some, t, self.server.schema)
                scores.append(self.clients.score(some, message, updates, None))
                self.clients.discard()
        return torch.cat(scores).cpu()

    def _checkpoint(
        self, next_round: int, simulation: Simulation, ledger: Ledger, history: Sequence[Evaluated]
    ) -> Checkpoint:
        counts, costs = simulation.clip_counts(), simulation.total_costs()
        progress: dict[str, Any] = {
            "draws": simulation.draws,
            "ledger": ledger.state(),
            "clip": [counts.uploads, counts.clipped, simulation.server_guard.clip_norms],
            "costs": [costs.seconds, costs.up_bytes, costs.down_bytes, costs.client_rounds, costs.lost_rounds],
            "history": [[e.round, {part: r.model_dump(mode="json") for part, r in e.results.items()}] for e in history],
        }
        return Checkpoint(next_round, all_on_host(self.server.state()), self._private_state(), progress)

    def _private_state(self) -> Mapping[str, Ranges]:
        """Committed private tensors; where they live in files, they stay there until they are written."""
        if self.client_state is not None and isinstance(self.clients, PrivateHalves | HostedClients):
            return self.clients.ranges()
        return all_on_host(self.clients.state())

    def _restore(self, checkpoint: Checkpoint, simulation: Simulation, ledger: Ledger, history: list[Evaluated]) -> int:
        self._continue_from(checkpoint.server, checkpoint.clients)
        saved = checkpoint.progress
        ledger.load(saved["ledger"])
        simulation.draws = saved["draws"]
        counts = simulation.client_guard.counts
        uploads, clipped, simulation.server_guard.clip_norms = saved["clip"]
        costs = Costs(*saved["costs"])
        if self.processes.first:
            counts.uploads, counts.clipped, simulation.costs = uploads, clipped, costs
        simulation.costs.lost_rounds = costs.lost_rounds
        history.extend(
            Evaluated(t, {part: EvaluationResult.model_validate(r) for part, r in results.items()})
            for t, results in saved["history"]
        )
        return checkpoint.next_round


class PrivateEvaluation:
    """Utility as the protocol's state asks: on the device's own tuned model, or on what it received.

    The experimenter's view: it is outside the ledger, and no deployment could look there.
    """

    def __init__(self, experiment: Experiment, parts: Sequence[Part]) -> None:
        self.experiment = experiment
        protocol = experiment.config.protocol
        self.evaluators: dict[Part, Evaluator] = {part: Evaluator(experiment.parts, protocol, part) for part in parts}
        trains = experiment.registered.step is not None
        self.private = protocol.state == "private" and trains

    def observe(self, simulation: Simulation, t: int, *, due: bool) -> None:
        """Before round `t`: arrange to see the devices' own models in it."""
        simulation.observers.clear()
        if not due or not self.private:
            return
        if simulation.plan.sampling.kind == "all":
            simulation.observers.append(self._observe_chunk)
            return
        e = self.experiment
        hosted = placed(e.processes.hosted(e.n_users))
        for users in torch.split(hosted, simulation.chunk_size(e.server.schema)):
            message, updates = e.rehearse(users, t, e.server.schema)
            self._score(users, message, updates)
            e.clients.discard()

    def result(self, t: int) -> Evaluated:
        """After round `t`: score what was received, where the protocol asks for it, and sum up."""
        e = self.experiment
        if not self.private:
            message = e.server.public()
            for users in torch.split(self._with_held_out(), _TILES_SCORED_AT_ONCE * tile_size()):
                self._score(users, message.addressed_to(users), None)
        for evaluator in self.evaluators.values():
            for measured in e.processes.every(evaluator.measured):
                evaluator.include(measured)
        results = {part: evaluator.result() for part, evaluator in self.evaluators.items()}
        for evaluator in self.evaluators.values():
            evaluator.reset()
        return Evaluated(t, results)

    def _with_held_out(self) -> Tensor:
        """Users of this process with a held-out item in any evaluated part, ascending."""
        users = placed(np.unique(np.concatenate([one.users for one in self.evaluators.values()])))
        return self.experiment.processes.own(users, self.experiment.n_users)

    def _observe_chunk(self, clients: Clients, call: Call, message: Message, updates: ClientUpdates) -> None:
        del clients
        if call.step == self.experiment.registered.step:
            self._score(call.clients, message, updates)

    def _score(self, users: Tensor, message: Message, updates: ClientUpdates | None) -> None:
        who, whole = on_host(users), None
        for evaluator in self.evaluators.values():
            candidates = evaluator.candidates(who)
            if candidates is not None:
                evaluator.add(who, self._scores(users, message, updates, placed(candidates)))
                continue
            if whole is None:
                whole = self._scores(users, message, updates, None)
            evaluator.add(who, whole)

    def _scores(
        self, users: Tensor, message: Message, updates: ClientUpdates | None, candidates: Tensor | None
    ) -> np.ndarray:
        scores = self.experiment.clients.score(users, message, updates, candidates)
        squashed = self.experiment.config.protocol.scores == "probability"
        return on_host(scores.sigmoid() if squashed else scores)
