"""The federation of an experiment, to be run round by round outside of `Experiment.run`."""

import time
from typing import Any

from privfed.engines import Simulation
from privfed.experiment import Experiment
from privfed.privacy import Ledger


def simulation_of(experiment: Experiment, kind: type[Simulation] = Simulation, **changes: Any) -> Simulation:
    """A simulation as the configuration says, in chunks as the method prefers.

    Args:
        experiment: whose clients, plan and streams it takes.
        kind: class of the simulation.
        changes: keywords of the class that differ.
    """
    config, users = experiment.config, experiment.n_users
    usual = {"chunk": experiment.registered.training.chunk, "wire": config.fidelity, "support": experiment.support}
    ledger = changes.pop("ledger", None) or Ledger(config.privacy, users)
    return kind(experiment.clients, config.privacy, users, experiment.streams, ledger, **(usual | changes))


def round_seconds(simulation: Simulation, experiment: Experiment) -> list[float]:
    """CPU-seconds of every configured round, server and all clients."""
    seconds = []
    for t in range(experiment.config.rounds):
        started = time.process_time()
        simulation.run(experiment.server, t)
        seconds.append(time.process_time() - started)
    return seconds
