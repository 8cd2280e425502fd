"""The federation of an experiment, to be run round by round outside of `Experiment.run`."""

import time
from collections.abc import Sequence
from typing import TypedDict, TypeVar, Unpack

from privfed.contracts import Fidelity, Schema
from privfed.data import Histories
from privfed.engines.simulation import Observer, Simulation
from privfed.engines.transcript import Transcript
from privfed.experiment import Experiment
from privfed.federation import Cohort, Federation, Individual, Message, Total
from privfed.privacy import Ledger
from privfed.updates import Chunk

AnySimulation = TypeVar("AnySimulation", bound=Simulation)
Kind = TypeVar("Kind")


class SimulationOptions(TypedDict, total=False):
    """Keywords of `Simulation`."""

    chunk: Chunk | None
    memory_limit: int | None
    fidelity: Fidelity
    support: Histories | None
    transcript: Transcript | None
    observers: Sequence[Observer]


def simulation_of(
    experiment: Experiment,
    kind: type[AnySimulation],
    *,
    ledger: Ledger | None = None,
    **changes: Unpack[SimulationOptions],
) -> AnySimulation:
    """A simulation as the configuration says, in chunks as the method prefers.

    Args:
        experiment: whose clients, plan and streams it takes.
        kind: class of the simulation.
        ledger: of the simulation; a new one by default.
        changes: keywords of the class that differ.
    """
    config, users = experiment.config, experiment.n_users
    usual: SimulationOptions = {
        "chunk": experiment.registered.training.chunk,
        "fidelity": config.fidelity,
        "support": experiment.support,
    }
    options: SimulationOptions = {**usual, **changes}
    ledger = ledger or Ledger(config.privacy, users)
    return kind(experiment.clients, config.privacy, users, experiment.streams, ledger, **options)


def round_seconds(simulation: Simulation, experiment: Experiment) -> list[float]:
    """CPU-seconds of every configured round, server and all clients."""
    seconds = []
    for t in range(experiment.config.rounds):
        started = time.process_time()
        simulation.run(experiment.server, t)
        seconds.append(time.process_time() - started)
    return seconds


class ForwardingFederation(Federation):
    """A federation that passes every call on to another; subclasses watch what they need to."""

    def __init__(self, inner: Federation) -> None:
        self.inner = inner

    def sample_cohort(self, round: int) -> Cohort:
        """Sample the cohort."""
        return self.inner.sample_cohort(round)

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Release a sum."""
        return self.inner.aggregate(step, cohort, message, schema)

    def collect(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Individual:
        """Release single uploads."""
        return self.inner.collect(step, cohort, message, schema)


def expect(value: object, kind: type[Kind]) -> Kind:
    """The value, which is of this class: what a benchmark knows of a party beyond its protocol.

    Raises:
        TypeError: It is of another class.
    """
    if not isinstance(value, kind):
        raise TypeError(f"the benchmark is about {kind.__name__} and was given {type(value).__name__}")
    return value
