"""`Experiment`: an assembled run that trains, is restored, and scores what a device would recommend."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from privfed.compute.devices import all_on_host, moved
from privfed.compute.tiles import tile_size
from privfed.engines.checkpoint import Checkpoint
from privfed.evaluation import Boost, Part
from privfed.experiment.result import RunResult
from privfed.experiment.training import Progress, TrainingRun
from privfed.setup.assembly import Assembly

_TILES_SCORED_AT_ONCE = 2


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
            self.storage.claim()
            training = TrainingRun(self, directory, parts, resume=resume)
            training.train(progress)
            return training.result()

    def restore(self, directory: Path) -> int:
        """Load the public and private tensors of a run directory's checkpoint; returns the next round."""
        checkpoint = Checkpoint.load(directory / "checkpoint")
        self.continue_from(checkpoint.server, checkpoint.clients)
        return checkpoint.next_round

    def on_host(self) -> "Experiment":
        """The same experiment, trained so far, on the processor: for whoever reads its tensors, as attacks do."""
        if self.config.device == "cpu":
            return self
        config = self.config.model_copy(update={"device": "cpu"})
        same = Experiment(config, self.given, self.streams, self.processes, self.hosted)
        with self.config.computing():
            states = all_on_host(self.server.state()), all_on_host(self.clients.state())
        same.continue_from(*states)
        return same

    def recommend(self, user: int, t: int) -> Tensor:
        """Scores `[items]` on one user's device after download and local training."""
        return self.recommend_each(torch.tensor([user]), t)[0]

    def recommend_each(self, users: Tensor, t: int) -> Tensor:
        """Scores `[users, items]` on the devices of `users`, as `recommend` gives those of one.

        Raises:
            ValueError: every device trained alone, and what it learned was measured and not kept.
        """
        if self.config.control == "no-communication":
            raise ValueError(
                "devices that train alone are measured and keep no model: recommend from a run without a control"
            )
        scores, boost = [], Boost(self.config.boost, self.parts, self.config.protocol.task)
        with self.config.computing():
            for some in torch.split(moved(users), _TILES_SCORED_AT_ONCE * tile_size()):
                message, updates = self.rehearse(some, t, self.server.schema)
                scores.append(boost.added(self.clients.score(some, message, updates, None), some, None))
                self.clients.discard()
        return torch.cat(scores).cpu()
