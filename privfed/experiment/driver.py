"""`Experiment`: rounds, checkpoints and resumption of an assembled run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privfed.compute.devices import all_moved, all_on_host, moved
from privfed.compute.tiles import tile_size
from privfed.engines.checkpoint import Checkpoint
from privfed.engines.simulation import Costs, Simulation
from privfed.engines.transcript import Transcript
from privfed.engines.witness import Witness
from privfed.evaluation import UNCOUNTED, EvaluationResult, Part, RoundEvaluation
from privfed.experiment.evaluation import PrivateEvaluation
from privfed.experiment.result import RunResult
from privfed.federation import (
    Ranges,
    StatefulClients,
)
from privfed.federation.hosted_clients import HostedClients
from privfed.privacy import Guarantee, Ledger
from privfed.privacy.statements import CATALOGUE_WARNING, derived_catalogue
from privfed.setup.assembly import Assembly

_TILES_SCORED_AT_ONCE = 2

Progress = Callable[[int, RoundEvaluation | None], None]
"""Called after every round with its number and, where it was evaluated, its utility."""


@dataclass(slots=True, eq=False)
class Experiment(Assembly):
    """An assembled run that trains: build once, run, or score a device."""

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
        config, training, processes = self.config, self.registered.training, self.processes
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
        direction = self.registered.attack_surface.proximal_direction
        transcript = Transcript(self.audited(), places, rounds, direction, training.step, "raw" in config.taps.places)
        evaluation = PrivateEvaluation(self, parts)
        limit = None if config.memory_limit_gib is None else int(config.memory_limit_gib * 2**30)
        witness = self._witness()
        simulation = Simulation(
            self.clients if witness is None else witness.clients(self.clients),
            config.privacy,
            self.n_users,
            self.streams,
            ledger,
            chunk=config.chunk or training.preferred_chunk(),
            memory_limit=limit,
            fidelity=config.fidelity,
            support=self.support,
            transcript=transcript,
            processes=processes,
        )
        server = self.server if witness is None else witness.server(self.server)
        history: list[RoundEvaluation] = []
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
        bounded = self.config.privacy.mechanism.unbounded_reason is None
        return Witness(self.config.privacy, self.config.tapped_rounds() | {0, 1} if bounded else ())

    def _with_disclosures(self, guarantee: Guarantee, *, measured: bool) -> Guarantee:
        """The guarantee with what method, data and metrics show beside uploads in its statements and assumptions."""
        shown = [
            *([UNCOUNTED] if measured else []),
            *self.registered.disclosure.side_disclosures(self.config.settings()),
        ]
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
        self, next_round: int, simulation: Simulation, ledger: Ledger, history: Sequence[RoundEvaluation]
    ) -> Checkpoint:
        counts, costs = simulation.clip_counts(), simulation.total_costs()
        progress: dict[str, Any] = {
            "draws": simulation.cohorts,
            "ledger": ledger.state(),
            "clip": [counts.uploads, counts.clipped, simulation.server_guard.clip_norms],
            "costs": [costs.seconds, costs.up_bytes, costs.down_bytes, costs.client_rounds, costs.aborted_rounds],
            "history": [[e.round, {part: r.model_dump(mode="json") for part, r in e.results.items()}] for e in history],
        }
        return Checkpoint(next_round, all_on_host(self.server.state()), self._private_state(), progress)

    def _private_state(self) -> Mapping[str, Ranges]:
        """Committed private tensors; where they live in files, they stay there until they are written."""
        if self.client_state is not None and isinstance(self.clients, StatefulClients | HostedClients):
            return self.clients.ranges()
        return all_on_host(self.clients.state())

    def _restore(
        self, checkpoint: Checkpoint, simulation: Simulation, ledger: Ledger, history: list[RoundEvaluation]
    ) -> int:
        self._continue_from(checkpoint.server, checkpoint.clients)
        saved = checkpoint.progress
        ledger.load(saved["ledger"])
        simulation.cohorts = saved["draws"]
        counts = simulation.client_guard.counts
        uploads, clipped, simulation.server_guard.clip_norms = saved["clip"]
        costs = Costs(*saved["costs"])
        if self.processes.first:
            counts.uploads, counts.clipped, simulation.costs = uploads, clipped, costs
        simulation.costs.aborted_rounds = costs.aborted_rounds
        history.extend(
            RoundEvaluation(t, {part: EvaluationResult.model_validate(r) for part, r in results.items()})
            for t, results in saved["history"]
        )
        return checkpoint.next_round
