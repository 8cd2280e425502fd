"""Utility of devices in the protocol's state: on the model that each tuned for itself, or on what it received."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.evaluation import Boost, Evaluator, Part
from privfed.federation import Message
from privfed.setup.assembly import Assembly
from privfed.updates import ClientUpdates


class DeviceEvaluation:
    """Scores devices of a run and measures what they hold out.

    Args:
        experiment: the assembled run.
        parts: held-out parts to measure.
        popularity: numbers that order all items; popularity is measured beside, where they are given.

    Attributes:
        evaluators: by part.
        private: whether devices train before they are scored.
    """

    def __init__(
        self, experiment: Assembly, parts: Sequence[Part], popularity: Float32[np.ndarray, " items"] | None = None
    ) -> None:
        self.experiment = experiment
        protocol = experiment.config.protocol
        self.evaluators: dict[Part, Evaluator] = {
            part: Evaluator(experiment.parts, protocol, part, popularity) for part in parts
        }
        self.boost = Boost(experiment.config.boost, experiment.parts, protocol.task)
        trains = experiment.registered.training.step is not None
        self.private = protocol.state == "private" and trains

    def score(self, users: Tensor, message: Message, updates: ClientUpdates | None) -> None:
        """Score users on their own tuned models, or, without updates, on what they received."""
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
        scores = self.boost.added(scores, users, candidates)
        squashed = self.experiment.config.protocol.scores == "probability"
        return on_host(scores.sigmoid() if squashed else scores)
