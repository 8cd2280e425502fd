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


TABLELESS = {"dcf", "dfmr", "feddae", "fedvae", "lightfr", "metamf", "private-autoencoder"}
"""Methods whose devices train on something else than tables of items."""
VARIANTS = {
    "fair, first columns": ("fair", {"variant": "heterofl"}),
    "fair, low rank": ("fair", {"variant": "fedhm"}),
    "gpfedrec, rebuilt vectors": ("gpfedrec", {"score_function": "fedrecon"}),
    "hetefedrec, item biases": ("hetefedrec", {"item_bias": True}),
}
"""Settings under which other code reads what a server sends."""
TRAINED = sorted(({*methods()} - COUNTED - CENTRAL) | {*VARIANTS})


def smaller(values, axis):
    """All but the last entry along an axis."""
    return values.narrow(axis, 0, values.shape[axis] - 1) if values.dim() > axis and values.shape[axis] > 1 else values


def cut(message, axis, which=""):
    """A message whose tensors, those with `which` in their name, lack their last entry along an axis."""
    shared = {key: smaller(values, axis) if which in key else values for key, values in message.shared.items()}
    personal = {key: smaller(values, axis + 1) if which in key else values for key, values in message.personal.items()}
    return replace(message, shared=shared, personal=personal)


@pytest.fixture
def experiment(small_split, name, monkeypatch):
    """One round of a method, without the checks of shapes that jaxtyping makes in tests alone."""
    name, settings = VARIANTS.get(name, (name, {}))
    task = method(name).training.task(method(name).config(**settings))
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": name, **settings}, protocol=Protocol(k=(5,), task=task), rounds=1,
        seed=3, taps=TapConfig(places=()),
    )  # fmt: skip
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    return Experiment(config, small_split)


CUT = [
    *(
        (name, which, axis)
        for name in TRAINED
        for which in ("", "items")[: 1 + (name not in TABLELESS)]
        for axis in (0, 1)
    ),
    *((name, "column", 0) for name in ("dcf", "dfmr", "lightfr")),
]


@pytest.mark.parametrize("name", ["feddae", "fedvae", "private-autoencoder"])
def test_a_decoder_of_fewer_items_is_refused_where_devices_train(experiment, monkeypatch):
    train = experiment.clients.train
    monkeypatch.setattr(experiment.clients, "train", lambda call, message: train(call, cut(message, 0, "decoder")))
    if "bias" in experiment.server.public().shared:
        whole = experiment.clients.train
        monkeypatch.setattr(experiment.clients, "train", lambda call, message: whole(call, cut(message, 0, "bias")))
    with pytest.raises(IndexError, match="drop the message"):
        experiment.run(parts=())


@pytest.mark.parametrize(("name", "which", "axis"), CUT)
def test_smaller_tensors_are_refused(experiment, axis, which, monkeypatch):
    def hostile(step):
        return lambda call, message: step(call, cut(message, axis, which))

    clients = experiment.clients
    for step in clients.steps:
        monkeypatch.setattr(clients, step, hostile(getattr(clients, step)))
    receive = clients.receive
    monkeypatch.setattr(clients, "receive", lambda step, message: receive(step, cut(message, axis, which)))
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


@pytest.mark.parametrize("name", ["fair", "fair, first columns", "fair, low rank"])
def test_layers_of_another_precision_than_the_tables_are_trained_in_that_of_tables(experiment, monkeypatch):
    train = experiment.clients.train

    def hostile(call, message):
        return train(call, replace(message, shared={**message.shared, "mlp.W0": message.shared["mlp.W0"].double()}))

    monkeypatch.setattr(experiment.clients, "train", hostile)
    experiment.run(parts=())
