"""How well a noisy sum measures quality: its error at three prices, against the exact metrics of the same model.

    python -m benchmarks.quality.private_evaluation --data ml-1m --seeds 20

`private-gram` is trained once at epsilon 2. Its devices then measure themselves once, and the sum of their vectors is
released under fresh noise of the real guards, so many times for every price, which no deployment would do. A row holds,
for every metric, the exact value, the mean and the largest error over these draws, their standard deviation beside the
one that is claimed, and how many of the intervals of noise and people hold the exact value. The same for the difference
from popularity. Results go to `benchmarks/results/private_evaluation_<data>.json`. One process, one thread.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.running import simulation_of
from privfed.compute.devices import on_host
from privfed.contracts import Schema
from privfed.data import SplitSpec, load, split
from privfed.engines.final_queries import AGAIN, EvaluatingClients
from privfed.engines.simulation import Simulation
from privfed.evaluation import EvaluationResult, Metric, difference
from privfed.experiment import ExactEvaluation, Experiment
from privfed.federation import Federation, Message
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.setup.evaluation_query import METRICS, STEP, metric_vector, vector_query
from privfed.setup.sizing import size
from privfed.setup.target_plan import plan_for_epsilon

EPSILON, PRICES = 2.0, (0.02, 0.05, 0.1)


class RepeatedMeasurement:
    """A server that has the same vectors summed under fresh noise, many times at each price."""

    def __init__(self, experiment: Experiment, draws: int) -> None:
        self.experiment, self.draws = experiment, draws
        self.vector = metric_vector(experiment.config)
        self.found: dict[float, list[EvaluationResult]] = {mu: [] for mu in PRICES}
        self.schema: Schema = self._query(PRICES[0])

    def _query(self, mu: float) -> Schema:
        query = vector_query(self.vector, mu, self.experiment.config.privacy)
        if query.count > 1:
            raise ValueError(f"mu = {mu} takes several sums at epsilon {EPSILON}: measure at a smaller one")
        return query.schema

    def round(self, federation: Federation, t: int) -> None:
        """All draws in one round, so that devices measure themselves once."""
        cohort, message, asked = federation.sample_cohort(t), self.public(), 0
        noisy = self.experiment.config.privacy.noisy_sums(self.experiment.n_users)
        for mu in PRICES:
            schema = self._query(mu)
            for _ in range(self.draws):
                sent = replace(message, config={**message.config, AGAIN: asked})
                sums = on_host(federation.aggregate(STEP, cohort, sent, schema).sums[METRICS].double())
                noise = noisy.deviation / schema[METRICS].weight
                self.found[mu].append(self.vector.result(sums, noise, mu=mu, population=cohort.expected))
                asked += 1

    def public(self) -> Message:
        """What a device downloads to recommend with."""
        return self.experiment.server.public()

    def state(self) -> dict[str, Any]:
        """Nothing is kept."""
        return {}

    def load(self, state: Any) -> None:
        """Nothing was kept."""


def trained(data: str) -> Experiment:
    """`private-gram` behind a plan of epsilon 2, trained."""
    parts = split(load(data), SplitSpec())
    config = ExperimentConfig(
        data=data, method={"name": "private-gram"}, rounds=1, taps=TapConfig(places=()),
        evaluation={"private": True, "mu": max(PRICES)},
    )  # fmt: skip
    plan = plan_for_epsilon(EPSILON, config.registered(), parts.train.n_users)
    experiment = Experiment(size(config.model_copy(update={"privacy": plan}), parts).config, parts)
    experiment.run(parts=())
    return experiment


def exact_metrics(experiment: Experiment) -> tuple[EvaluationResult, float]:
    """Exact metrics of the trained model, and the exact main metric of ranking by the popularity that it publishes."""
    order = on_host(experiment.server.public().shared["order"].float())
    evaluation = ExactEvaluation(experiment, ("test",), order)
    result = evaluation.result(0).results["test"]
    assert result.popularity is not None
    k = experiment.config.protocol.k[0]
    popular = next(metric.value for metric in result.popularity if (metric.name, metric.k) == ("ndcg", k))
    return result, popular


def errors(found: Sequence[Metric | None], exact: float) -> dict[str, float]:
    """Of one metric over all draws."""
    there = [metric for metric in found if metric is not None]
    values = np.array([metric.value for metric in there])
    return {
        "exact": exact,
        "mean_error": float(values.mean() - exact),
        "largest_error": float(np.abs(values - exact).max()),
        "deviation": float(values.std(ddof=1)),
        "claimed_deviation": float(np.mean([metric.noise for metric in there if metric.noise is not None])),
        "half_interval": float(np.mean([(metric.hi - metric.lo) / 2 for metric in there])),
        "covered": float(np.mean([metric.lo <= exact <= metric.hi for metric in there])),
    }


def measure(options: argparse.Namespace) -> None:
    """One data set."""
    record = harness.Record(f"private_evaluation_{options.data}", options, [], anew=True)
    experiment = trained(options.data)
    measuring = RepeatedMeasurement(experiment, options.seeds)
    simulation = simulation_of(experiment, Simulation)
    simulation.clients = EvaluatingClients(experiment)
    simulation.run(measuring, 1)
    exact, popular = exact_metrics(experiment)
    for mu, found in measuring.found.items():
        row: dict[str, Any] = {"mu": mu, "people": experiment.n_users, "epsilon": EPSILON, "draws": options.seeds}
        for place, metric in enumerate(found[0].metrics):
            truth = exact.metric(metric.name, metric.k).value
            row[metric.slug] = errors([one.metrics[place] for one in found], truth)
        main = exact.metric("ndcg", experiment.config.protocol.k[0]).value
        row["above popularity"] = errors([difference(one) for one in found], main - popular)
        record.add(row)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one data set."""
    measure(harness.parse(harness.parser(__file__, __doc__, data="ml-100k", seeds=20), arguments))


if __name__ == "__main__":
    main()
