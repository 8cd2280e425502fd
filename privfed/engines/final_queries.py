"""Quality measured inside the budget: every device measures itself, and one noisy sum tells the mean.

After the last round devices download the model as before any recommendation, bring it up to date, rank their own
held-out items, and send a clipped vector of metrics (`privfed.evaluation.metric_vector`) as one more query of the run.
Nothing else of it leaves a device, and the experimenter sees no more than the server does.

What a device sends follows from its own data and from what it was sent. What the server sends is looked at before any
device measures, so that no refusal and no failure that all share says anything about anybody.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from privfed.compute.devices import on_host, placed
from privfed.engines.device_evaluation import DeviceEvaluation
from privfed.evaluation import ChoiceVector, EvaluationResult, MetricVector
from privfed.evaluation.beyond_accuracy import exposure, tenths_of
from privfed.federation import Call, Federation, FederationError, Message, begin_query, perform
from privfed.privacy.forecast import FinalQuery
from privfed.setup.assembly import Assembly
from privfed.setup.evaluation_query import CHOICE, METRICS, STEP, choice_vector, final_queries, metric_vector
from privfed.updates import ClientUpdates, Dense

AGAIN = "measured before"
"""Tells devices how many sums of the same vectors have been asked for already."""


class EvaluatingClients:
    """The clients of a run, who besides their own steps answer `evaluate` and `choose`.

    Args:
        assembly: the assembled run, whose held-out items these devices hold.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._real, self._assembly = assembly.clients, assembly
        self._own: _OwnMeasurement | None = None
        self._sent: Float32[Tensor, "users size"] = torch.zeros(0, 0)
        self._known: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        if name == "_real":
            raise AttributeError(name)
        return getattr(self._real, name)

    @property
    def steps(self) -> frozenset[str]:
        """Steps of the method, and both measurements."""
        return self._real.steps | {STEP, CHOICE}

    def receive(self, step: str, message: Message) -> None:
        """A query begins; a new measurement forgets what was measured before.

        Raises:
            FederationError: the message does not say which sum of the same vectors it asks for, or not how popularity
                orders all items.
        """
        if step not in {STEP, CHOICE}:
            self._real.receive(step, message)
        elif AGAIN not in message.config:
            raise FederationError(f"a query of step {step!r} does not say whether it was {AGAIN}: it is not answered")
        elif not message.config[AGAIN]:
            own: _OwnMeasurement = (_OfTheModel if step == STEP else _OfCandidates)(self._assembly, message)
            self._own, self._sent = own, torch.zeros(self._assembly.n_users, len(own.vector.weights))
            self._known = set()

    def evaluate(self, call: Call, message: Message) -> ClientUpdates:
        """The vector of metrics of every device, on the test part."""
        who = on_host(call.clients)
        if self._own is None:
            raise FederationError("a measurement begins with its first sum, and none was asked for")
        if not self._known.issuperset(who.tolist()):
            held_out = call.clients[torch.isin(call.clients, placed(self._own.users))]
            if len(held_out):
                vectors = self._own.vectors(replace(call, clients=held_out), message)
                self._sent[torch.from_numpy(on_host(held_out))] = torch.from_numpy(vectors).float()
            self._known.update(who.tolist())
        rows = self._sent[torch.from_numpy(who)]
        return ClientUpdates(call.clients, call.schema, [Dense(METRICS, torch.arange(len(who)), placed(rows.numpy()))])

    choose = evaluate


class _OwnMeasurement(Protocol):
    """What devices measure of themselves."""

    @property
    def vector(self) -> MetricVector | ChoiceVector:
        """Layout of what they send."""

    @property
    def users(self) -> Int64[np.ndarray, " users"]:
        """Who hold something out, ascending."""

    def vectors(self, call: Call, message: Message) -> Float64[np.ndarray, "people size"]:
        """Vectors of the called clients, who all hold something out."""


class _OfTheModel:
    """The metrics of the model, beside popularity where the message has an order of items."""

    def __init__(self, assembly: Assembly, message: Message) -> None:
        self.vector, self._assembly = metric_vector(assembly.config), assembly
        self._popularity = _order_of_items(assembly, message)
        self._tenths = None if self._popularity is None else tenths_of(self._popularity)
        self.users = np.flatnonzero(assembly.parts.test.counts)

    @cached_property
    def _device(self) -> DeviceEvaluation:
        """Made for those who hold something out: where nobody does, there is nothing to measure, and zeros are sent."""
        return DeviceEvaluation(self._assembly, ("test",), self._popularity)

    def vectors(self, call: Call, message: Message) -> Float64[np.ndarray, "people size"]:
        """Score, rank, and leave what was trained for it."""
        score_on_devices(self._assembly, self._device, call, message)
        users, keys, evaluator = on_host(call.clients), self.vector.keys, self._device.evaluators["test"]
        rows = [*evaluator.rows(keys), *(evaluator.rows(keys, of_popularity=True) if self.vector.compared else [])]
        shares = np.empty((0, len(users))) if self._tenths is None else exposure(evaluator.lists(users), self._tenths)
        return self.vector.vectors(evaluator.measured[rows][:, users], shares)


class _OfCandidates:
    """The main metric of several models on the validation part."""

    def __init__(self, assembly: Assembly, message: Message) -> None:
        del message
        self.vector, self._assembly = choice_vector(assembly.config), assembly
        self.users = np.flatnonzero(assembly.parts.valid.counts)

    @cached_property
    def _devices(self) -> list[DeviceEvaluation]:
        return [DeviceEvaluation(self._assembly, ("valid",)) for _ in range(self.vector.candidates)]

    def vectors(self, call: Call, message: Message) -> Float64[np.ndarray, "people size"]:
        """Score and rank with every candidate."""
        users, metrics = on_host(call.clients), []
        for number, device in enumerate(self._devices):
            score_on_devices(self._assembly, device, call, of_candidate(message, number))
            evaluator = device.evaluators["valid"]
            metrics.append(evaluator.measured[evaluator.rows([("ndcg", self.vector.k)])][:, users])
        return self.vector.vectors(np.concatenate(metrics))


def _order_of_items(assembly: Assembly, message: Message) -> Float32[np.ndarray, " items"] | None:
    """The numbers by which the method publishes popularity; None where it publishes none.

    Raises:
        FederationError: they are not one finite number for each item.
    """
    order = assembly.registered.training.popularity_order
    if order is None:
        return None
    numbers = message.shared.get(order)
    if numbers is None or numbers.shape != (assembly.parts.train.n_items,) or not bool(numbers.isfinite().all()):
        raise FederationError(f"the message of a measurement has no finite number {order!r} for each item: send one")
    return on_host(numbers.float())


def score_on_devices(assembly: Assembly, device: DeviceEvaluation, call: Call, message: Message) -> None:
    """Let devices bring themselves up to date as before a recommendation, score what they hold out, and forget both."""
    clients, step, updates = assembly.clients, assembly.registered.training.step, None
    try:
        if device.private and step is not None:
            begin_query(clients, step, message)
            updates = perform(clients, replace(call, step=step, schema=assembly.server.schema, clip_norm=None), message)
        device.score(call.clients, message, updates)
    finally:
        clients.discard()


def of_candidate(message: Message, number: int) -> Message:
    """The model of one candidate, out of a message with those of all."""
    mark = f"{number}:"
    shared = {name.removeprefix(mark): values for name, values in message.shared.items() if name.startswith(mark)}
    return Message(shared, config=message.config)


def with_candidates(messages: Sequence[Message]) -> Message:
    """One message with the models of all candidates."""
    shared = {f"{number}:{name}": values for number, one in enumerate(messages) for name, values in one.shared.items()}
    return Message(shared, config=messages[0].config)


class FinalQueryServer:
    """Asks everybody for a vector, as a server of one round, and averages the sums where it takes several.

    Args:
        assembly: the assembled run.
        step: of the clients.
        query: blocks, and how often they are asked for.
        message: what devices measure themselves with.

    Attributes:
        schema: blocks of its query.
        sums: noisy sum of all vectors; None before the round, and where too few clients answered.
        expected: people in the sum, as far as that is public.
    """

    def __init__(self, assembly: Assembly, step: str, query: FinalQuery, message: Message) -> None:
        self._assembly, self._step, self._count, self._message = assembly, step, query.count, message
        self.schema = query.schema
        self.sums: Float64[np.ndarray, " size"] | None = None
        self.expected = 1.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on every coordinate of `sums`."""
        noisy = self._assembly.config.privacy.noisy_sums(self._assembly.n_users)
        return float(noisy.deviation / self.schema[METRICS].weight / self._count**0.5)

    def round(self, federation: Federation, t: int) -> None:
        """Ask as often as it takes."""
        cohort = federation.sample_cohort(t)
        total = np.zeros(self.schema[METRICS].size)
        for again in range(self._count):
            asked = replace(self._message, config={**self._message.config, AGAIN: again})
            total += on_host(federation.aggregate(self._step, cohort, asked, self.schema).sums[METRICS].double())
        self.sums, self.expected = total / self._count, max(cohort.expected, 1.0)

    def public(self) -> Message:
        """What a device downloads to recommend with."""
        return self._assembly.server.public()

    def state(self) -> dict[str, Tensor]:
        """Nothing is kept."""
        return {}

    def load(self, state: Any) -> None:
        """Nothing was kept."""

    def result(self) -> EvaluationResult | None:
        """Quality of the trained model, of a server that asked for it; None where no sum was released."""
        if self.sums is None:
            return None
        mu = self._assembly.config.evaluation.mu
        return metric_vector(self._assembly.config).result(self.sums, self.deviation, mu=mu, population=self.expected)


def measurement(assembly: Assembly) -> FinalQueryServer:
    """The server of the round that measures the trained model."""
    query = final_queries(assembly.config, assembly.config.privacy)[-1]
    return FinalQueryServer(assembly, STEP, query, assembly.server.public())
