"""Evaluation while training."""

import numpy as np
import torch
from torch import Tensor

from privfed.compute.devices import placed
from privfed.compute.tiles import tile_size
from privfed.engines.device_evaluation import DeviceEvaluation
from privfed.engines.simulation import Simulation
from privfed.evaluation import MetricName, RoundEvaluation
from privfed.federation import (
    Call,
    Clients,
    Message,
)
from privfed.updates import ClientUpdates

_TILES_SCORED_AT_ONCE = 2


class ExactEvaluation(DeviceEvaluation):
    """Utility in the protocol's state: on the device's own tuned model, or on what it received.

    The experimenter's view: it is outside the ledger, and no deployment could look there.
    """

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
            self.score(users, message, updates)
            e.clients.discard()

    def result(self, t: int) -> RoundEvaluation:
        """After round `t`: score what was received, where that is the state, and sum up."""
        if not self.private:
            message = self.experiment.server.public()
            for users in torch.split(self.with_held_out(), _TILES_SCORED_AT_ONCE * tile_size()):
                self.score(users, message.addressed_to(users), None)
        return self.summary(t)

    def summary(self, t: int) -> RoundEvaluation:
        """Sum up what was scored, as the quality after round `t`, and forget it."""
        e = self.experiment
        for evaluator in self.evaluators.values():
            for measured in e.processes.every(evaluator.measured):
                evaluator.include(measured)
        results = {part: evaluator.result() for part, evaluator in self.evaluators.items()}
        test, k = self.evaluators.get("test"), min(e.config.protocol.k, default=0)
        ranked = test is not None and e.config.protocol.task == "ranking"
        name: MetricName = "ndcg"
        by_user = (name, k, test.by_user(name, k)) if test is not None and ranked else None
        for evaluator in self.evaluators.values():
            evaluator.reset()
        return RoundEvaluation(t, results, by_user)

    def with_held_out(self) -> Tensor:
        """Users of this process with a held-out item in any evaluated part, ascending."""
        users = placed(np.unique(np.concatenate([one.users for one in self.evaluators.values()])))
        return self.experiment.processes.own(users, self.experiment.n_users)

    def _observe_chunk(self, clients: Clients, call: Call, message: Message, updates: ClientUpdates) -> None:
        del clients
        if call.step == self.experiment.registered.training.step:
            self.score(call.clients, message, updates)
