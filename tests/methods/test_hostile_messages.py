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


TRAINED = sorted({*methods()} - COUNTED - CENTRAL)


def smaller(values, axis):
    """All but the last entry along an axis."""
    return values.narrow(axis, 0, values.shape[axis] - 1) if values.dim() > axis and values.shape[axis] > 1 else values


def cut(message, axis):
    """A message whose tensors lack their last entry along an axis."""
    shared = {key: smaller(values, axis) for key, values in message.shared.items()}
    personal = {key: smaller(values, axis + 1) for key, values in message.personal.items()}
    return replace(message, shared=shared, personal=personal)


@pytest.fixture
def experiment(small_split, name, monkeypatch):
    """One round of a method, without the checks of shapes that jaxtyping makes in tests alone."""
    task = method(name).training.task(method(name).config())
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": name}, protocol=Protocol(k=(5,), task=task), rounds=1, seed=3,
        taps=TapConfig(places=()),
    )  # fmt: skip
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    return Experiment(config, small_split)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", TRAINED)
def test_smaller_tensors_are_refused(experiment, axis, monkeypatch):
    def hostile(step):
        return lambda call, message: step(call, cut(message, axis))

    clients = experiment.clients
    for step in clients.steps:
        monkeypatch.setattr(clients, step, hostile(getattr(clients, step)))
    receive = clients.receive
    monkeypatch.setattr(clients, "receive", lambda step, message: receive(step, cut(message, axis)))
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        experiment.run(parts=())


# A narrower autoencoder is an autoencoder, and no compiled loop reads it.
SCORED = [(name, axis) for name in TRAINED for axis in (0, 1) if (name, axis) != ("private-autoencoder", 1)]


@pytest.mark.parametrize(("name", "axis"), SCORED)
def test_smaller_tensors_are_refused_where_devices_score(experiment, axis, monkeypatch):
    score = experiment.clients.score

    def hostile(users, message, updates, candidates):
        return score(users, cut(message, axis), updates, candidates)

    monkeypatch.setattr(experiment.clients, "score", hostile)
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        experiment.run(parts=("valid",))


@pytest.mark.parametrize("name", ["dpals", "ials"])
def test_fewer_factors_than_items_are_refused_where_devices_solve(experiment, monkeypatch):
    score = experiment.clients.score

    def hostile(users, message, updates, candidates):
        shared = {**message.shared, "items": smaller(message.shared["items"], 0)}
        return score(users, replace(message, shared=shared), updates, candidates)

    monkeypatch.setattr(experiment.clients, "score", hostile)
    with pytest.raises(IndexError, match="drop the message"):
        experiment.run(parts=("valid",))
