"""One round of every registered method, behind nothing: that it trains, releases and ranks at all."""

import numpy as np
import pytest
import torch

from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.methods import method, methods
from privfed.setup.config import ExperimentConfig, TapConfig


@pytest.mark.parametrize("name", sorted(methods()))
def test_one_round_trains_releases_and_ranks(small_split, name):
    task = method(name).training.task(method(name).config())
    config = ExperimentConfig(
        data="synthetic-tests", method={"name": name}, protocol=Protocol(k=(5,), task=task), rounds=1, seed=3,
        taps=TapConfig(places=()),
    )  # fmt: skip
    experiment = Experiment(config, small_split)
    before = {key: value.clone() for key, value in experiment.server.state().items()}
    result = experiment.run()
    after = experiment.server.state()
    assert any(not torch.equal(before[key], after[key]) if key in before else True for key in after)
    assert all(torch.isfinite(value).all() for value in after.values() if value.is_floating_point())
    assert len(result.entries) > 0
    assert all(np.isfinite(metric.value) and 0 <= metric.value <= 1 for metric in result.test.metrics)
