"""Private recommenders side by side: what each recommends at the same epsilon, between popularity and no privacy.

    python -m benchmarks.quality.private_field --data ml-1m --on valid --seeds 1
    python -m benchmarks.quality.private_field --data ml-1m
    python -m benchmarks.quality.private_field --data ml-100k --epsilons 1 8

One table per data set: references without privacy (popularity, PureSVD, iALS, EASE, with the settings that stand in
`references.py`), and for every epsilon DP popularity with the whole budget, public metadata alone, the private Gram
with and without metadata, DPALS, DPALS with a Gram matrix per item as published, and an autoencoder trained by
DP-FedAvg. All of them are methods under their defaults, which were chosen on validation items of MovieLens-1M. Data,
splits, ranking, noise and intervals are those of `private_gram.py`: every run is sized as one release of a whole user's
data at delta = users^-1.1, noise seeds are averaged per user, and 95 % intervals are over users (bootstrap, 1,000).

One process, one thread; results go to `benchmarks/results/private_field_<data>.json` after every row, and rows found
there are not repeated.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.quality.private_gram import GRAM, METRICS, Fitted, add_arguments, configured, parts_of, plan
from benchmarks.quality.ranking import interval
from benchmarks.quality.references import PASSES, TEST
from privfed.data import Split, load
from privfed.evaluation import Part
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig

PRIVATE: dict[str, dict[str, Any]] = {
    "DP popularity": {**GRAM, "popularity_share": 1.0},
    "metadata only": {**GRAM, "rank": 0, "select": False},
    "private Gram, with metadata": GRAM,
    "private Gram": {**GRAM, "metadata": False},
    "DPALS": {"name": "dpals"},
    "DPALS, a Gram matrix per item": {"name": "dpals", "dim": 16, "item_gram_share": 0.1},
    "autoencoder, DP-FedAvg": {"name": "private-autoencoder"},
}
WITHOUT_NOISE = ("private Gram, with metadata", "private Gram", "DPALS", "autoencoder, DP-FedAvg")


class Reference(Fitted):
    """A reference, fitted by as many passes as it was chosen with."""

    def __init__(self, config: ExperimentConfig, parts: Split) -> None:
        self.experiment = Experiment(config, parts)
        ran = self.experiment.run(parts=())
        self.guarantee, self.server_seconds = ran.guarantee, ran.cpu_seconds
        self.up_bytes = ran.costs.up_bytes / self.experiment.n_users


def rows(data: str, epsilons: list[float], seeds: int, users: int) -> Iterator[tuple[str, list[ExperimentConfig]]]:
    """Label of every row, and its runs."""
    for method in TEST[data]:
        label = method["name"] + (" with metadata" if "tag_weight" in method else "")
        passes = PASSES if method["name"] == "ials" else 1
        open_plan = PrivacyPlan.named("none")
        yield label, [configured(data, method, open_plan, 0).model_copy(update={"rounds": passes})]
    for epsilon in epsilons:
        for name, method in PRIVATE.items():
            yield (
                f"{name}, epsilon {epsilon:g}",
                [configured(data, method, plan(epsilon, users), seed) for seed in range(seeds)],
            )
    for name in WITHOUT_NOISE:
        yield f"{name}, no noise", [configured(data, PRIVATE[name], plan(None, users), 0)]


def measured(label: str, configs: list[ExperimentConfig], parts: Split, on: Part) -> dict[str, Any]:
    """A row: runs that differ in their noise, averaged per user."""
    started, runs, found = time.process_time(), [], []
    for config in configs:
        sums_only = config.privacy.mechanism.release == "total"
        runs.append(Fitted(config, parts) if sums_only else Reference(config, parts))
        found.append(runs[-1].by_user(on))
    guarantee, constants = runs[0].guarantee, getattr(runs[0].experiment.server, "constants", None)
    heads = [run.head(on) for run in runs]
    return {
        "label": label,
        "on": on,
        "seeds": len(configs),
        "method": configs[0].method,
        "guarantee": {key: getattr(guarantee, key) for key in ("epsilon", "delta", "trust", "neighbours")},
        "constants": {} if constants is None else {"head": constants.head},
        "metrics": {name: interval(np.mean([f[name] for f in found], 0)) for name in METRICS},
        "by_seed": {name: [round(float(f[name].mean()), 5) for f in found] for name in METRICS},
        "items_listed": round(float(np.mean([np.count_nonzero(run.recommended) for run in runs]))),
        "ndcg_by_length": runs[0].groups(np.mean([f["ndcg"] for f in found], 0)),
        "head": {name: round(float(np.mean([h[name] for h in heads])), 4) for name in heads[0]},
        "up_bytes": runs[0].up_bytes,
        "cpu_s": round(time.process_time() - started, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of a table, and print it."""
    parser = harness.parser(__file__, __doc__, data={"default": "ml-1m", "choices": TEST}, seeds=3, only=[])
    add_arguments(parser)
    options = harness.parse(parser, arguments)

    interactions = load(options.data)
    parts = parts_of(options.data, interactions, options.on)
    record = harness.Record(f"private_field_{options.data}", options, [])
    for label, configs in rows(options.data, options.epsilons, options.seeds, interactions.n_users):
        if harness.chosen(label, options.only) and not record.has(label=label, on=options.on):
            record.add(measured(label, configs, parts, options.on))


if __name__ == "__main__":
    main()
