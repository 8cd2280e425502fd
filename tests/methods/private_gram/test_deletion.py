"""Deleting a person: the published model and one trained again without the person are as near as the guarantee says.

Whoever holds the person's whole history asks the model how well it ranks that history, which is the best such question
that we know. Its answers, over the noise of many trainings, must not tell the two apart by more than epsilon allows.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks.empirical import epsilon_from_mu, gdp_epsilon
from privfed.data import Histories
from privfed.engines.simulation import Simulation
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.federation import Streams
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

pytestmark = pytest.mark.usefixtures("unchecked")
"""Checking every signature of so many trainings would take most of the time."""

PERSON, TRAININGS, DELTA = 7, 60, 1e-3


def answers(split, multiplier, *, without, seeds):
    """How far the person's own items stand out among the scores of models, each trained under its own noise."""
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": "private-gram", "head": 24, "min_items": 0, "select": False},
        privacy=PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=multiplier, delta=DELTA),
        protocol=Protocol(k=(5,), state="received"), rounds=1, taps=TapConfig(places=()),
    )  # fmt: skip
    train, person = split.train, torch.tensor([PERSON])
    others = train.owners != PERSON
    rest = Histories.from_pairs(train.owners[others], train.items[others], train.n_users, train.n_items)
    e, asking = (
        Experiment(config, replace(split, train=rest, ratings=None) if without else split),
        Experiment(config, split),
    )
    own = torch.from_numpy(train.mask(np.array([PERSON]))[0])
    found = []
    for seed in seeds:
        streams = Streams.from_seed(seed)
        simulation = Simulation(
            e.clients, e.config.privacy, e.n_users, streams, Ledger(e.config.privacy, e.n_users),
            chunk=e.registered.training.chunk, fidelity="analytic",
        )  # fmt: skip
        e.server.queried = torch.tensor(False)
        e.server.round(simulation, 0)
        scores = asking.clients.score(person, e.server.public().addressed_to(person), None, None)[0]
        found.append(float(scores[own].mean() - scores[~own].mean()))
    return np.array(found)


def told_apart(split, multiplier):
    """Lower bound on epsilon, at 95 %, from the published models with the person and without."""
    trained = answers(split, multiplier, without=False, seeds=range(TRAININGS))
    again = answers(split, multiplier, without=True, seeds=range(TRAININGS, 2 * TRAININGS))
    return gdp_epsilon(trained, again, delta=DELTA, threshold=0.5).epsilon


def test_a_model_trained_again_without_a_person_is_as_near_as_epsilon_says(small_split):
    assert told_apart(small_split, 1.0) <= epsilon_from_mu(1.0, DELTA)


def test_less_noise_than_claimed_is_told(small_split):
    assert told_apart(small_split, 0.02) > epsilon_from_mu(1.0, DELTA)
