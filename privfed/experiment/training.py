"""One training of an experiment: rounds, evaluation, checkpoints and resumption."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, JsonValue, ValidationError

from privfed.compute.devices import all_on_host
from privfed.engines.checkpoint import Checkpoint, CheckpointError, SavedEvaluation
from privfed.engines.final_queries import EvaluatingClients
from privfed.engines.simulation import Simulation, SimulationProgress
from privfed.engines.transcript import Transcript
from privfed.engines.witness import Witness
from privfed.evaluation import Part, RoundEvaluation, about_metrics
from privfed.experiment.alone import train_alone
from privfed.experiment.evaluation import ExactEvaluation
from privfed.experiment.gain import PopularityGain
from privfed.experiment.private_evaluation import FinalQueryRunner
from privfed.experiment.release_record import ReleaseRecord
from privfed.experiment.result import RunResult, selected
from privfed.federation import Ranges, StatefulClients
from privfed.federation.hosted_clients import HostedClients
from privfed.privacy import Guarantee, Ledger
from privfed.privacy.statements import CATALOGUE_WARNING, derived_catalogue
from privfed.setup.assembly import Assembly
from privfed.setup.controls import NOTHING_SENT, SILENT
from privfed.setup.donors import donors_warning

Progress = Callable[[int, RoundEvaluation | None], None]
"""Called after every round with its number and, where it was evaluated, its utility."""

BEFORE_TRAINING = -1
"""Number of the round after which a model is untrained."""
_LEDGER, _CHECKPOINT, _TAPS = "ledger.jsonl", "checkpoint", "taps"


class TrainingProgress(BaseModel):
    """What a checkpoint keeps besides tensors."""

    simulation: SimulationProgress
    ledger: dict[str, JsonValue]
    history: list[SavedEvaluation]

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, folder: Path) -> "TrainingProgress":
        """What the checkpoint in `folder` keeps.

        Raises:
            CheckpointError: values are missing or of another kind.
        """
        try:
            return cls.model_validate(checkpoint.progress)
        except ValidationError as error:
            raise CheckpointError(
                f"the checkpoint in {folder} is damaged ({error.error_count()} values); start again in another folder"
            ) from error


class TrainingRun:
    """A training from its first round, or from a checkpoint on.

    Args:
        assembly: the assembled run.
        directory: of the ledger and the checkpoints; None keeps everything in memory.
        parts: held-out parts to evaluate.
        resume: whether to continue from the directory's checkpoint, or from round 0 if none was reached.
    """

    def __init__(self, assembly: Assembly, directory: Path | None, parts: Sequence[Part], *, resume: bool) -> None:
        self._assembly, self._directory, self._parts = assembly, directory, parts
        (self._resumed, *_) = assembly.processes.every(resume and self._begun())
        self._ledger = self._opened_ledger()
        self._transcript = self._make_transcript()
        self._private = assembly.config.evaluation.private and bool(parts)
        self._evaluation = ExactEvaluation(assembly, () if self._private else parts)
        self._releases = ReleaseRecord() if self._private and assembly.config.evaluation.grid else None
        self._witness = self._make_witness()
        self._simulation = self._make_simulation()
        self._gain = PopularityGain(assembly)
        self._history: list[RoundEvaluation] = []
        self._cpu_seconds, self._wall_seconds = 0.0, 0.0

    def train(self, progress: Progress | None) -> None:
        """Train the rounds that are left."""
        cpu, wall = time.process_time(), time.perf_counter()
        first = self._first_round()
        if self._assembly.config.control in SILENT:
            self._control(first, progress)
        else:
            self._rounds(first, progress)
        self._cpu_seconds, self._wall_seconds = time.process_time() - cpu, time.perf_counter() - wall

    def _rounds(self, first: int, progress: Progress | None) -> None:
        """The rounds from `first` on."""
        config = self._assembly.config
        server = self._assembly.server if self._witness is None else self._witness.server(self._assembly.server)
        server = server if self._releases is None else self._releases.recording(server)
        for t in range(first, config.rounds):
            due = bool(self._parts) and not self._private and config.evaluated(t)
            self._evaluation.observe(self._simulation, t, due=due)
            self._simulation.run(server, t)
            evaluated = self._evaluation.result(t) if due else None
            if evaluated:
                self._history.append(evaluated)
            # A choice needs what was released, which no checkpoint keeps: it is made before the first one.
            if self._releases is None and ((t + 1) % config.checkpoint_every == 0 or t + 1 == config.rounds):
                self._save(t + 1)
            if progress is not None:
                progress(t, evaluated)
        if self._private and not self._history:
            self._measure(progress)

    def _measure(self, progress: Progress | None) -> None:
        """Choose and measure inside the budget, after the last round, each in a round of its own."""
        last = self._assembly.config.rounds - 1
        asking = FinalQueryRunner(self._assembly, self._simulation, self._witness)
        choice = None if self._releases is None else asking.chosen(self._releases, last + 1)
        result = asking.measured(last + 1 + (choice is not None)).model_copy(update={"choice": choice})
        self._history.append(RoundEvaluation(last, {"test": result}))
        self._save(last + 1)
        if progress is not None:
            progress(last, self._history[-1])

    def _control(self, first: int, progress: Progress | None) -> None:
        """A control without a federation; nothing is done where it is finished already."""
        config = self._assembly.config
        if first == config.rounds:
            return
        if config.control == "untrained":
            # Scored as received: a device that trains before it recommends has a trained model.
            self._evaluation.private = False
            self._history = [self._evaluation.result(BEFORE_TRAINING)] if self._parts else []
        else:
            due = [t for t in range(config.rounds) if self._parts and config.evaluated(t)]
            self._history = train_alone(self._assembly, self._evaluation, due)
        self._save(config.rounds)
        if progress is not None:
            for evaluated in self._history:
                progress(evaluated.round, evaluated)

    def result(self) -> RunResult:
        """What was measured."""
        ledger = self._ledger
        return RunResult(
            self._assembly.config,
            self._history,
            self._with_disclosures(ledger.guarantee()),
            ledger.composition(),
            self._simulation.total_costs(),
            self._simulation.clip_counts().fraction,
            self._transcript,
            self._assembly.server,
            self._assembly.clients,
            self._cpu_seconds,
            self._wall_seconds,
            ledger.entries,
            self._witness,
            ledger.notices,
        )

    # What a training is made of --------------------------------------------------------------------------------------

    def _begun(self) -> bool:
        path = self._directory
        return path is not None and ((path / _LEDGER).exists() or Checkpoint.exists(path / _CHECKPOINT))

    def _opened_ledger(self) -> Ledger:
        """The ledger, new or resumed; the first process alone writes it."""
        config, processes, users = self._assembly.config, self._assembly.processes, self._assembly.n_users
        path, run = None if self._directory is None else self._directory / _LEDGER, config.digest()
        with processes.in_turn():
            if self._resumed and path is not None:
                ledger = Ledger.resume(config.privacy, users, path, run=run)
            else:
                ledger = Ledger(config.privacy, users, path if processes.first else None, run=run)
        if not processes.first:
            ledger.path = None
        return ledger

    def _make_transcript(self) -> Transcript:
        assembly, registered = self._assembly, self._assembly.registered
        rounds, named = assembly.config.tapped_rounds(), "raw" in assembly.config.taps.places
        audited, places = assembly.audited(), assembly.tapped_places()
        return Transcript(
            audited, places, rounds, registered.attack_surface.proximal_direction, registered.training.step, named
        )

    def _make_witness(self) -> Witness | None:
        """Somebody who records every query, where raw uploads are tapped: an oracle of audits, like these."""
        config = self._assembly.config
        if "raw" not in config.taps.places or self._assembly.processes.size > 1:
            return None
        bounded = config.privacy.mechanism.unbounded_reason is None
        measured = {config.rounds, config.rounds + 1} if self._private else set()
        return Witness(config.privacy, config.tapped_rounds() | {0, 1} | measured if bounded else ())

    def _make_simulation(self) -> Simulation:
        assembly, config = self._assembly, self._assembly.config
        clients = EvaluatingClients(assembly) if self._private else assembly.clients
        return Simulation(
            clients if self._witness is None else self._witness.clients(clients),
            config.privacy,
            assembly.n_users,
            assembly.streams,
            self._ledger,
            chunk=config.chunk or assembly.registered.training.preferred_chunk(),
            memory_limit=None if config.memory_limit_gib is None else int(config.memory_limit_gib * 2**30),
            fidelity=config.fidelity,
            support=assembly.support,
            transcript=self._transcript,
            processes=assembly.processes,
        )

    def _with_disclosures(self, guarantee: Guarantee) -> Guarantee:
        """The guarantee with what method, data and metrics show besides uploads in its statements and assumptions."""
        assembly = self._assembly
        measured = [about_metrics(private=self._private)] if self._history else []
        if assembly.config.control in SILENT:
            about = [f"{NOTHING_SENT[0].upper()}{NOTHING_SENT[1:]}.", *measured]
            return guarantee.model_copy(update={"reason_if_inf": NOTHING_SENT, "statements": about, "assumptions": []})
        disclosed = assembly.registered.disclosure.side_disclosures(assembly.config.settings())
        statements, assumptions = [*measured, *disclosed], list[str]()
        if (donors := assembly.parts.donors) is not None:
            statements.insert(0, donors_warning(len(donors.users), assembly.n_users))
        if assembly.parts.catalogue_derived and guarantee.reason_if_inf is None:
            assumptions.append(derived_catalogue(assembly.parts.train.n_items))
            statements.append(CATALOGUE_WARNING)
        return guarantee.model_copy(
            update={
                "assumptions": [*guarantee.assumptions, *assumptions],
                "statements": [*guarantee.statements, *statements],
            }
        )

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def _save(self, next_round: int) -> None:
        if self._directory is None:
            return
        self._transcript.save(self._directory / _TAPS)
        self._keep_gain(next_round)
        progress = TrainingProgress(
            simulation=self._simulation.progress(),
            ledger=self._ledger.state(),
            history=SavedEvaluation.from_history(self._history),
        )
        state = all_on_host(self._assembly.server.state())
        saved = Checkpoint(next_round, state, self._private_state(), progress.model_dump(mode="json"))
        saved.save(self._directory / _CHECKPOINT, self._assembly.processes)

    def _keep_gain(self, next_round: int) -> None:
        """Note what the round gains that would be reported: a checkpoint keeps no value of a single user."""
        config, history = self._assembly.config, self._history
        decided = next_round == config.rounds if config.protocol.select == "last" else "valid" in self._parts
        if history and decided:
            best = selected(config, history)
            at = next(place for place, one in enumerate(history) if one is best)
            history[at] = replace(best, gain=self._gain.paired(best))

    def _private_state(self) -> Mapping[str, Ranges]:
        """Committed private tensors; where they live in files, they stay there until they are written."""
        clients = self._assembly.clients
        if self._assembly.client_state is not None and isinstance(clients, StatefulClients | HostedClients):
            return clients.ranges()
        return all_on_host(clients.state())

    def _first_round(self) -> int:
        """The round to begin with, with everything as it was saved before it."""
        if not self._resumed or self._directory is None or not Checkpoint.exists(self._directory / _CHECKPOINT):
            return 0
        assembly, folder = self._assembly, self._directory / _CHECKPOINT
        checkpoint = Checkpoint.load(folder, assembly.processes, ranged=assembly.client_state is not None)
        saved = TrainingProgress.from_checkpoint(checkpoint, folder)
        assembly.continue_from(checkpoint.server, checkpoint.clients)
        self._ledger.load(saved.ledger)
        self._simulation.restore(saved.simulation)
        self._history.extend(one.evaluation() for one in saved.history)
        self._transcript.load(self._directory / _TAPS, before=checkpoint.next_round)
        if assembly.processes.first:
            Checkpoint.remove_former(folder)
        return checkpoint.next_round
