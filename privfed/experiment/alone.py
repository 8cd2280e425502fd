"""The control `no-communication`: every device is a federation of its own (`privfed.setup.controls`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from privfed.contracts import Schema
from privfed.evaluation import RoundEvaluation
from privfed.experiment.evaluation import ExactEvaluation
from privfed.federation import Call, Cohort, Individual, Message, Server, Total, begin_query, perform
from privfed.setup.assembly import Assembly
from privfed.updates import ClientUpdates

_OWN = 0
"""The only pseudonym in a federation of one."""

Observer = Callable[[Call, Message, ClientUpdates], None]


@dataclass(slots=True, eq=False)
class FederationOfOne:
    """A `Federation` whose only member is one device; its server is the device's own.

    Attributes:
        assembly: the assembled run.
        user: number of the device's user, shape `[1]`.
        observe: called with what a step made of a message, before it is committed.
    """

    assembly: Assembly
    user: Int64[Tensor, " 1"]
    observe: Observer
    _queries: int = 0

    def sample_cohort(self, round: int) -> Cohort:
        """The device alone."""
        self._queries = 0
        return Cohort(round, round, "all", 1.0)

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """What the device would have sent is the whole sum."""
        return Total({name: rows[0] for name, rows in self._own(step, cohort, message, schema).items()}, 1.0)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """What the device would have sent, under its only pseudonym."""
        return Individual(torch.tensor([_OWN]), self._own(step, cohort, message, schema))

    def _own(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> dict[str, Tensor]:
        clients, streams = self.assembly.clients, self.assembly.streams
        begin_query(clients, step, message)
        received = message.addressed_to(torch.tensor([_OWN]))
        call = Call(cohort.round, cohort.id, step, self._queries, self.user, streams, schema)
        updates = perform(clients, call, received)
        self.observe(call, received, updates)
        # Cloned: a server may work in place, and updates may share memory with the client's own tables.
        uploads = {name: rows.clone() for name, rows in updates.materialise(torch.tensor([0])).items()}
        clients.commit()
        self._queries += 1
        return uploads


def train_alone(assembly: Assembly, evaluation: ExactEvaluation, rounds: Sequence[int]) -> list[RoundEvaluation]:
    """Train every user with a held-out item alone, one after the other; the quality after each of `rounds`.

    A server is written for one federation and not for many at once, so here alone is a loop over users. Nothing is kept
    of them but what was measured: a user's server goes when the user is done.
    """
    step, measured = assembly.registered.training.step, _Measured(evaluation, rounds)
    for user in torch.split(evaluation.with_held_out(), 1):
        server = _own_server(assembly)

        def observe(call: Call, message: Message, updates: ClientUpdates) -> None:
            if evaluation.private and call.step == step:
                measured.score(call.round, call.clients, message, updates)

        device = FederationOfOne(assembly, user, observe)
        for t in range(assembly.config.rounds):
            server.round(device, t)
            if not evaluation.private:
                measured.score(t, user, server.public().addressed_to(torch.tensor([_OWN])), None)
    return measured.results()


def _own_server(assembly: Assembly) -> Server:
    """The method's server as everybody knows it before the first round, for a population of one."""
    public_info = replace(assembly.public_info, n_users=1)
    return assembly.registered.training.server(assembly.config.settings(), public_info, assembly.streams)


class _Measured:
    """What was measured of every user after every evaluated round, while users come one by one."""

    def __init__(self, evaluation: ExactEvaluation, rounds: Sequence[int]) -> None:
        self._evaluation, self._rounds = evaluation, tuple(rounds)
        # [rounds, statistics, users] of every part, NaN where nothing was measured yet
        self._values = {
            part: np.tile(np.full_like(evaluator.measured, np.nan), (len(self._rounds), 1, 1))
            for part, evaluator in evaluation.evaluators.items()
        }

    def score(self, t: int, user: Int64[Tensor, " 1"], message: Message, updates: ClientUpdates | None) -> None:
        """Measure a user after round `t`, where that is evaluated."""
        if t not in self._rounds:
            return
        self._evaluation.score(user, message, updates)
        at, who = self._rounds.index(t), int(user)
        for part, evaluator in self._evaluation.evaluators.items():
            self._values[part][at, :, who] = evaluator.measured[:, who]
            evaluator.reset()

    def results(self) -> list[RoundEvaluation]:
        """The quality after every evaluated round."""
        found = []
        for at, t in enumerate(self._rounds):
            for part, evaluator in self._evaluation.evaluators.items():
                evaluator.include(self._values[part][at])
            found.append(self._evaluation.summary(t))
        return found
