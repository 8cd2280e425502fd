"""Popularity with the whole budget does not beat it: small populations, small epsilons.

Where people have no tastes at all, the query that finds this out costs popularity a little of its exactness.
"""

import numpy as np
import pytest

from privfed.data import SplitSpec, SyntheticSpec, generate, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

SEEDS = 4
COST = 0.02
"""Share of popularity's NDCG that the second query may cost where there is nothing to learn from it."""
POPULATIONS = {
    "few people": {"n_users": 60, "n_items": 80},
    "popularity alone": {"n_users": 400, "n_items": 100, "sharpness": 0.0},
    "long tail": {"n_users": 300, "n_items": 600, "mean_per_user": 10},
    "tastes": {"n_users": 500, "n_items": 60, "sharpness": 3.0, "popularity": 0.5},
}


@pytest.fixture(scope="module")
def parts():
    fields = {"mean_per_user": 15, "min_per_user": 5, "seed": 3}
    return {
        name: split(generate(SyntheticSpec(name="synthetic-floor", **(fields | one))), SplitSpec())
        for name, one in POPULATIONS.items()
    }


def ndcg(data, epsilon, seed, **settings):
    users = data.train.n_users
    wanted = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1.0, delta=users**-1.1)
    config = ExperimentConfig(
        data="synthetic-floor", method={"name": "private-gram", **settings}, rounds=1, seed=seed,
        privacy=plan_for_target(wanted, epsilon, 1, users), protocol=Protocol(k=(10,), state="received"),
        taps=TapConfig(places=()), fidelity="analytic",
    )  # fmt: skip
    return next(m.value for m in Experiment(config, data).run(parts=("test",)).test.metrics if m.name == "ndcg")


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
@pytest.mark.parametrize("name", POPULATIONS)
def test_popularity_with_the_whole_budget_does_not_beat_it(parts, name, epsilon):
    gram = np.array([ndcg(parts[name], epsilon, seed) for seed in range(SEEDS)])
    popularity = np.array([ndcg(parts[name], epsilon, seed, popularity_share=1.0) for seed in range(SEEDS)])
    # Both have noise of their own, so means of few seeds differ by chance.
    chance = np.sqrt((gram.var(ddof=1) + popularity.var(ddof=1)) / SEEDS)
    assert gram.mean() > (1 - COST) * popularity.mean() - 2 * chance
