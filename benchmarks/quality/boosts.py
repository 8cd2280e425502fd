"""What a device gains by ranking with what it alone knows: own viewed, carted or favoured items lifted, nothing sent.

    python -m benchmarks.quality.boosts --data jd-dfmr --seeds 3

Every method is trained as it is by default and scored once; the sizes of `SIZES` (standard deviations of a user's
scores) are then compared by NDCG@10 on the validation part, and the best is tested, next to none, in the same run.
Differences are paired by user, means over seeds first. Splits are those of `dfmr.py`; the held-out set of behaviours is
RetailRocket, where views are recommended to nobody and the purchase to come is. Results go to
`benchmarks/results/boosts_<data>.json`. One process, one thread.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.paired_runs import PairedRuns
from privfed.data import Split, SplitSpec, load, split
from privfed.evaluation import Boost, Evaluator, Part, Protocol
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

K, USERS_AT_ONCE = 10, 256
PURCHASES = SplitSpec(kind="published", target="buy")
DATA: dict[str, tuple[SplitSpec, str]] = {
    "jd-dfmr": (PURCHASES, "view"),
    "tmall-dfmr": (PURCHASES, "fav"),
    "ub-dfmr": (PURCHASES, "cart"),
    "ml-100k-behaviours": (SplitSpec(kind="user_time", target="buy", valid_fraction=0.1, test_fraction=0.1), "view"),
    "retailrocket-small": (SplitSpec(kind="ratio", target="buy", valid_fraction=0.2, test_fraction=0.2), "view"),
}
"""Data set -> its split, and the behaviour whose items are lifted."""
METHODS: dict[str, tuple[dict[str, Any], int]] = {
    "popularity": ({"name": "popularity"}, 1),
    "DCF": ({"name": "dcf"}, 8),
    "DFMR": ({"name": "dfmr"}, 8),
    "FedMF": ({"name": "fedmf"}, 100),
    "private-gram, no noise": ({"name": "private-gram"}, 1),
    "eALS": ({"name": "eals"}, 15),
}
SIZES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
EXAMINED = {"tmall-dfmr": ["fav"], "ub-dfmr": ["cart"]}


def trained(parts: Split, method: dict[str, Any], rounds: int, seed: int) -> Experiment:
    """A trained experiment."""
    config = ExperimentConfig(
        data=parts.source, split=parts.spec, method=method, rounds=rounds, seed=seed, taps=TapConfig(places=()),
        protocol=Protocol(k=(K,), state="received"),
    )  # fmt: skip
    experiment = Experiment(config, parts)
    experiment.run(parts=())
    return experiment


def by_user(experiment: Experiment, behaviour: str, sizes: Sequence[float], part: Part) -> dict[float, np.ndarray]:
    """NDCG@10 of every user with a held-out item, under each size; scored once."""
    protocol, message = experiment.config.protocol, experiment.server.public()
    evaluators = {size: Evaluator(experiment.parts, protocol, part) for size in sizes}
    boosts = {size: Boost({behaviour: size}, experiment.parts) for size in sizes}
    for users in torch.split(torch.from_numpy(next(iter(evaluators.values())).users), USERS_AT_ONCE):
        scores = experiment.clients.score(users, message.addressed_to(users), None, None)
        for size, evaluator in evaluators.items():
            evaluator.add(users.numpy(), boosts[size].added(scores, users, None).numpy())
    return {size: evaluator.by_user("ndcg", K) for size, evaluator in evaluators.items()}


def measure(parts: Split, options: argparse.Namespace) -> None:
    """Every method and seed, without a boost and with the one that validation chose."""
    done, behaviour = PairedRuns(f"boosts_{options.data}", options), DATA[options.data][1]
    for label, (method, rounds) in METHODS.items():
        views = {"examinations": EXAMINED[options.data]} if label == "DFMR" and options.data in EXAMINED else {}
        for seed in range(options.seeds):
            if not harness.chosen(label, options.only) or done.has(label, seed):
                continue
            started = time.process_time()
            experiment = trained(parts, method | views, rounds, seed)
            valid = {size: float(v.mean()) for size, v in by_user(experiment, behaviour, SIZES, "valid").items()}
            best = max(valid, key=valid.__getitem__)
            test = by_user(experiment, behaviour, (0.0, best), "test")
            row = {"seed": seed, "rounds": rounds, "method": method | views, "cpu_s": time.process_time() - started}
            for name, size in ((label, 0.0), (f"{label}, boosted", best)):
                found = {"ndcg": float(test[size].mean()), "valid": valid, "size": size, "behaviour": behaviour}
                done.add({"variant": name} | row | found, test[size])
    done.compare((f"{label}, boosted", label) for label in METHODS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one data set."""
    parser = harness.parser(__file__, __doc__, data={"default": "jd-dfmr", "choices": DATA}, seeds=3, only=[])
    options = harness.parse(parser, arguments)
    measure(split(load(options.data), DATA[options.data][0]), options)


if __name__ == "__main__":
    main()
