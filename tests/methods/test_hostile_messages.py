"""A server that sends smaller tables than it should is refused by every method's clients, and read nowhere else."""

from dataclasses import replace

import jaxtyping
import pytest

from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.methods import method, methods
from privfed.setup.config import ExperimentConfig, TapConfig

COUNTED = {"popularity", "fedcia", "dpals", "private-gram", "private-gram-year"}
"""Methods whose devices train on no table of a server; a head of fewer items is a head."""
CENTRAL = {
    "centdae",
    "eals",
    "ease",
    "ials",
    "lightgcn",
    "logmf",
    "mf",
    "multvae",
    "neumf",
    "puresvd",
    "recvae",
    "sgl",
    "vals",
}
"""Methods that collect histories."""


def smaller(values, axis):
    """All but the last entry along an axis."""
    return values.narrow(axis, 0, values.shape[axis] - 1) if values.dim() > axis and values.shape[axis] > 1 else values


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", sorted({*methods()} - COUNTED - CENTRAL))
def test_smaller_tensors_are_refused(small_split, name, axis, monkeypatch):
    task = method(name).training.task(method(name).config())
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": name}, protocol=Protocol(k=(5,), task=task), rounds=1, seed=3,
        taps=TapConfig(places=()),
    )  # fmt: skip
    experiment = Experiment(config, small_split)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)

    def less(message):
        shared = {key: smaller(values, axis) for key, values in message.shared.items()}
        personal = {key: smaller(values, axis + 1) for key, values in message.personal.items()}
        return replace(message, shared=shared, personal=personal)

    def hostile(step):
        return lambda call, message: step(call, less(message))

    for step in experiment.clients.steps:
        monkeypatch.setattr(experiment.clients, step, hostile(getattr(experiment.clients, step)))
    receive = experiment.clients.receive
    monkeypatch.setattr(experiment.clients, "receive", lambda step, message: receive(step, less(message)))
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        experiment.run(parts=())
