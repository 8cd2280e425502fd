"""Models that score a history alone give the scores of the devices whose histories they are."""

from typing import Any

import pytest
import torch

from privfed.data import SplitSpec, SyntheticSpec, generate, split
from privfed.experiment import Experiment
from privfed.methods import method, methods
from privfed.setup.config import ExperimentConfig, TapConfig

PORTABLE = [name for name in methods() if method(name).history_model is not None]
PARTS = split(generate(SyntheticSpec(n_users=60, n_items=40, seed=3)), SplitSpec())
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "private-gram": [{}, {"beyond_head": "content", "head": 20}, {"min_items": 1000}, {"popularity_share": 1.0}]
}


@pytest.mark.parametrize(
    ("name", "settings"), [(name, settings) for name in PORTABLE for settings in SETTINGS.get(name, [{}])], ids=str
)
def test_a_history_model_scores_as_devices_do(name: str, settings: dict[str, Any]) -> None:
    config = ExperimentConfig(method={"name": name} | settings, rounds=1, taps=TapConfig(places=()))
    experiment = Experiment(config, PARTS)
    experiment.run(parts=())
    message = experiment.server.public()
    make = method(name).history_model
    assert make is not None
    histories = torch.zeros(experiment.n_users, PARTS.train.n_items)
    histories[torch.from_numpy(PARTS.train.owners), torch.from_numpy(PARTS.train.items)] = 1
    expected = experiment.clients.score(torch.arange(experiment.n_users), message, None, None)
    torch.testing.assert_close(make(message.shared)(histories), expected, rtol=1e-5, atol=1e-5)


def test_a_history_model_ranks_for_somebody_without_any_item() -> None:
    config = ExperimentConfig(method={"name": "private-gram"}, rounds=1, taps=TapConfig(places=()))
    experiment = Experiment(config, PARTS)
    experiment.run(parts=())
    shared = experiment.server.public().shared
    make = method("private-gram").history_model
    assert make is not None
    scores = make(shared)(torch.zeros(1, PARTS.train.n_items))
    assert scores[0].argsort(descending=True).tolist() == shared["order"].argsort(descending=True).tolist()
