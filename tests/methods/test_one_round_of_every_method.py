"""One round of every registered method, behind nothing: that it trains, releases and ranks at all, and on what."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.methods import method, methods
from privfed.setup.config import ExperimentConfig, TapConfig


def with_other_items_held_out(parts):
    """The same training part; every user holds out items instead that it has in no part, rated otherwise."""
    free, ratings = parts.seen.complement(), parts.ratings
    others = {part: free.first(getattr(parts, part).counts) for part in ("valid", "test")}
    if ratings is not None:
        ratings = replace(ratings, valid=6 - ratings.valid, test=6 - ratings.test)
    return replace(parts, **others, ratings=ratings)


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
    # Neither party saw a held-out item, and whether anybody looks at quality changes nothing.
    blind = Experiment(config, with_other_items_held_out(small_split))
    blind.run(parts=())
    for mine, theirs in ((experiment.server, blind.server), (experiment.clients, blind.clients)):
        states = mine.state(), theirs.state()
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(values, states[1][key]) for key, values in states[0].items())
