"""Popularity must rank by counts whatever a protocol does to scores."""

import torch

from privfed.evaluation import PAPER
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig


def test_popularity_keeps_its_order_under_a_sigmoid(small_split):
    config = ExperimentConfig(method={"name": "popularity"}, rounds=1, taps=TapConfig(places=()))
    experiment = Experiment(config, small_split)
    result = experiment.run()
    scores = result.clients.score(torch.arange(2), result.server.public(), None, None)
    counts = torch.from_numpy(small_split.train.popularity()).float()
    assert scores[0].equal(scores[1])
    assert scores[0].sigmoid().unique().numel() == counts.unique().numel()
    assert torch.equal(scores[0].argsort(stable=True), counts.argsort(stable=True))


def test_popularity_is_measured_under_the_published_protocol(small_split):
    protocol = PAPER.model_copy(update={"n_sampled": 10, "k": (3,)})
    config = ExperimentConfig(method={"name": "popularity"}, rounds=1, protocol=protocol, taps=TapConfig(places=()))
    assert Experiment(config, small_split).run().test.metric("hr", 3).value > 0
