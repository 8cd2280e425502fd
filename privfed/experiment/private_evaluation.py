"""Quality measured inside the budget: every device measures itself, and one noisy sum tells the mean.

After the last round devices download the model as before any recommendation, bring it up to date, rank their own
held-out items, and send a clipped vector of metrics (`privfed.evaluation.metric_vector`) as one more query of the run.
Nothing else of it leaves a device, and the experimenter sees no more than the server does.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.engines.simulation import Simulation
from privfed.engines.witness import Witness
from privfed.evaluation import EvaluationResult
from privfed.evaluation.beyond_accuracy import exposure, tenths_of
from privfed.experiment.evaluation import ExactEvaluation
from privfed.federation import Call, Federation, Message, Server, begin_query, perform
from privfed.privacy import PlanError
from privfed.setup.assembly import Assembly
from privfed.setup.evaluation_query import METRICS, STEP, evaluation_query, metric_vector
from privfed.updates import ClientUpdates, Dense

_AGAIN = "measured before"
"""Tells devices how many sums of the same vectors have been asked for already."""


class EvaluatingClients:
    """The clients of a run, who besides their own steps answer `evaluate`.

    Args:
        assembly: the assembled run, whose held-out items these devices hold.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._real, self._assembly = assembly.clients, assembly
        self._vector = metric_vector(assembly.config)
        self._sent: Float32[Tensor, "users size"] = torch.zeros(0, 0)
        self._known: set[int] = set()
        self._device: ExactEvaluation | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "_real":
            raise AttributeError(name)
        return getattr(self._real, name)

    @property
    def steps(self) -> frozenset[str]:
        """Steps of the method, and the measurement."""
        return self._real.steps | {STEP}

    def receive(self, step: str, message: Message) -> None:
        """A query begins; a new measurement forgets what was measured before."""
        if step != STEP:
            self._real.receive(step, message)
        elif not message.config[_AGAIN]:
            order = self._assembly.registered.training.popularity_order
            popularity = None if order is None else on_host(message.shared[order].float())
            self._device = ExactEvaluation(self._assembly, ("test",), popularity)
            self._tenths = None if popularity is None else tenths_of(popularity)
            self._sent = torch.zeros(self._assembly.n_users, self._vector.size)
            self._known = set()

    def evaluate(self, call: Call, message: Message) -> ClientUpdates:
        """The vector of every device."""
        who = on_host(call.clients)
        if not self._known.issuperset(who.tolist()):
            self._measure(call, message)
            self._known.update(who.tolist())
        rows = self._sent[torch.from_numpy(who)]
        part = Dense(METRICS, torch.arange(len(who)), placed(rows.numpy()))
        return ClientUpdates(call.clients, call.schema, [part])

    def _measure(self, call: Call, message: Message) -> None:
        """Measure the devices of a call that hold something out, as each would do alone."""
        device = self._device
        assert device is not None, "a measurement begins with a query"
        evaluator = device.evaluators["test"]
        held_out = call.clients[torch.isin(call.clients, placed(evaluator.users))]
        if not len(held_out):
            return
        updates = self._tuned(replace(call, clients=held_out), message) if device.private else None
        device.score(held_out, message, updates)
        self._real.discard()
        users, keys = on_host(held_out), self._vector.keys
        rows = [*evaluator.rows(keys), *(evaluator.rows(keys, of_popularity=True) if self._vector.compared else [])]
        metrics: Float64[np.ndarray, "metrics people"] = evaluator.measured[rows][:, users]
        shares = np.empty((0, len(users)))
        if self._tenths is not None:
            shares = exposure(evaluator.lists(users), self._tenths)
        self._sent[torch.from_numpy(users)] = torch.from_numpy(self._vector.vectors(metrics, shares)).float()

    def _tuned(self, call: Call, message: Message) -> ClientUpdates:
        """Local training before a recommendation; it is staged, and forgotten once the device has measured."""
        assembly = self._assembly
        step = assembly.registered.training.step or ""
        begin_query(self._real, step, message)
        return perform(self._real, replace(call, step=step, schema=assembly.server.schema, clip_norm=None), message)


class MeasuringServer:
    """Asks for the vectors of metrics of everybody, as a server of one round.

    Args:
        assembly: the assembled run.

    Attributes:
        schema: blocks of its query.
        result: what the noisy sum says; None before the round, and where too few clients answered.
    """

    def __init__(self, assembly: Assembly) -> None:
        config = assembly.config
        self._assembly, self._vector = assembly, metric_vector(config)
        self._query = evaluation_query(config.evaluation, self._vector, config.privacy)
        self.schema = self._query.schema
        self.result: EvaluationResult | None = None

    def round(self, federation: Federation, t: int) -> None:
        """Ask, average the sums, and read the metrics off."""
        cohort, message, count = federation.sample_cohort(t), self.public(), self._query.count
        sums = torch.zeros(self._vector.size, dtype=torch.float64)
        for again in range(count):
            asked = replace(message, config={**message.config, _AGAIN: again})
            sums += federation.aggregate(STEP, cohort, asked, self.schema).sums[METRICS].double().cpu() / count
        config, users = self._assembly.config, self._assembly.n_users
        noise = config.privacy.noisy_sums(users).deviation / self.schema[METRICS].weight / count**0.5
        self.result = self._vector.result(
            sums.numpy(), noise, mu=config.evaluation.mu, population=max(cohort.expected, 1.0)
        )

    def public(self) -> Message:
        """What a device downloads to recommend with."""
        return self._assembly.server.public()

    def state(self) -> dict[str, Tensor]:
        """Nothing is kept."""
        return {}

    def load(self, state: Any) -> None:
        """Nothing was kept."""


def measure_privately(
    assembly: Assembly, simulation: Simulation, witness: Witness | None, round: int
) -> EvaluationResult:
    """One measurement, in a round of its own.

    Raises:
        PlanError: too few clients took part in it.
    """
    measuring = MeasuringServer(assembly)
    server: Server = measuring if witness is None else witness.server(measuring)
    simulation.observers.clear()
    simulation.run(server, round)
    if measuring.result is None:
        raise PlanError(
            f"the round that measures quality had too few clients for the plan {assembly.config.privacy.name!r}, so "
            "nothing was measured: sample more clients a round, or set evaluation.private = false"
        )
    return measuring.result
