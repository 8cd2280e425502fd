"""Private recommenders side by side: what each recommends at the same epsilon, between popularity and no privacy.

    python benchmarks/private_field.py --data ml-1m --on valid --seeds 1
    python benchmarks/private_field.py --data ml-1m
    python benchmarks/private_field.py --data ml-100k --epsilons 1 8

One table per data set: references without privacy (popularity, PureSVD, iALS, EASE, with the settings that stand in
`references.py`), and for every epsilon DP popularity with the whole budget, public metadata alone, the private Gram
with and without metadata, DPALS, DPALS with a Gram matrix per item as published, and an autoencoder trained by
DP-FedAvg. All of them are methods under their defaults, which were chosen on validation items of MovieLens-1M. Data,
splits, ranking, noise and intervals are those of `private_gram.py`: every run is sized as one release of a whole user's
data at delta = users^-1.1, noise seeds are averaged per user, and 95 % intervals are over users (bootstrap, 1,000).

One process, one thread; results go to `benchmarks/results/private_field_<data>.json` after every row, and rows found
there are not repeated.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from private_gram import EPSILONS, GRAM, METRICS, RESULTS, Fitted, configured, interval, parts_of, plan, show
from references import PASSES, TEST

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


def main() -> None:
    """Run what is missing of a table, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-1m", choices=TEST)
    parser.add_argument("--on", default="test", choices=("valid", "test"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--only", default="", help="rows whose label contains this")
    options = parser.parse_args()

    torch.set_num_threads(1)
    interactions = load(options.data)
    parts = parts_of(options.data, interactions, options.on)
    file = RESULTS / f"private_field_{options.data}.json"
    done = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    for label, configs in rows(options.data, options.epsilons, options.seeds, interactions.n_users):
        known = any((row["label"], row["on"]) == (label, options.on) for row in done)
        if known or options.only not in label:
            continue
        done.append(measured(label, configs, parts, options.on))
        file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        show(done[-1])


if __name__ == "__main__":
    main()
