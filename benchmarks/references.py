"""What lists are worth without privacy: popularity, PureSVD, iALS and EASE, trained centrally, on real data.

    python benchmarks/references.py choose --data ml-1m
    python benchmarks/references.py test --data ml-1m

`choose` fits on training items and ranks the validation items, for every setting of a small grid. `test` fits on
training and validation items together and ranks the test items, once, under the settings that stand in this file.
EASE's l and PureSVD's k are constants of an earlier study, set before any test run here. The settings of iALS and the
weight of EASE's tags are the best of `choose` on MovieLens-1M, and MovieLens-100K takes them as they are. Full ranking,
all items that the user has not trained on. One process, one thread; results go to `benchmarks/results/references.json`
after every run, and runs found there are not repeated.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.evaluation import EvaluationResult, Protocol
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

FILE = Path(__file__).parent / "results" / "references.json"
PROTOCOL = Protocol(k=(20,), state="received")
SPLITS = {
    "ml-1m": SplitSpec(kind="published"),
    "ml-100k": SplitSpec(kind="leave_one_out"),
}
POPULARITY = {"name": "popularity"}
PASSES = 16
TEST: dict[str, list[dict[str, Any]]] = {
    "ml-1m": [
        POPULARITY,
        {"name": "puresvd", "dim": 32},
        {"name": "ials", "dim": 64, "unobserved": 0.5, "regularisation": 0.005},
        {"name": "ease", "regularisation": 1000.0},
        {"name": "ease", "regularisation": 1000.0, "tag_weight": 3.0},
    ],
    "ml-100k": [
        POPULARITY,
        {"name": "puresvd", "dim": 32},
        {"name": "ials", "dim": 64, "unobserved": 0.5, "regularisation": 0.005},
        {"name": "ease", "regularisation": 300.0},
        {"name": "ease", "regularisation": 300.0, "tag_weight": 3.0},
    ],
}
DIMS = (16, 32, 64)
REGULARISATIONS, TAG_WEIGHTS = (300.0, 1000.0, 2000.0), (1.0, 3.0, 10.0, 30.0)
UNOBSERVED, PER_INTERACTION = (0.03, 0.1, 0.3, 1.0), (0.001, 0.003, 0.01, 0.03)
BETWEEN = ((0.2, 0.01), (0.5, 0.005), (2.0, 0.001))
"""Further settings of iALS, along the ridge of that grid."""


def grid() -> Iterator[dict[str, Any]]:
    """Settings to choose from."""
    yield POPULARITY
    yield from ({"name": "puresvd", "dim": dim} for dim in DIMS)
    yield from ({"name": "ease", "regularisation": strength} for strength in REGULARISATIONS)
    yield from ({"name": "ease", "regularisation": 1000.0, "tag_weight": weight} for weight in TAG_WEIGHTS)
    for unobserved, strength in (*itertools.product(UNOBSERVED, PER_INTERACTION), *BETWEEN):
        yield {"name": "ials", "dim": 64, "unobserved": unobserved, "regularisation": strength}


def with_validation(parts: Split) -> Split:
    """The same test part, with the validation items among the training items."""
    nothing = np.empty(0, np.int64)
    empty = Histories.from_pairs(nothing, nothing, parts.train.n_users, parts.train.n_items)
    return replace(parts, train=parts.train.union(parts.valid), valid=empty, ratings=None)


def measure(part: str, data: str, method: dict[str, Any], parts: Split) -> dict[str, Any]:
    """Train one method and rank the held-out items once, after the last round."""
    rounds = PASSES if method["name"] == "ials" else 1
    config = ExperimentConfig(
        data=data,
        split=parts.spec,
        method=method,
        protocol=PROTOCOL,
        rounds=rounds,
        evaluate_every=rounds,
        taps=TapConfig(places=()),
    )
    started = time.process_time()
    experiment = Experiment(config, parts)
    if part == "choose":
        result = experiment.run(parts=("valid",)).history[-1].results["valid"]
    else:
        result = experiment.run(parts=("test",)).test
    return {
        "part": part,
        "data": data,
        "method": method,
        "rounds": rounds,
        "fitted_on": "train" if part == "choose" else "train and validation",
        "users": result.n_users,
        "metrics": metrics(result),
        "cpu_s": round(time.process_time() - started, 1),
    }


def metrics(result: EvaluationResult) -> dict[str, list[float]]:
    """Value and ends of the 95 % interval by user, of every metric."""
    return {m.slug: [round(number, 4) for number in (m.value, m.lo, m.hi)] for m in result.metrics}


def show(done: dict[str, Any]) -> None:
    """Print one run."""
    settings = ", ".join(f"{key} {value}" for key, value in done["method"].items() if key != "name")
    numbers = ", ".join(f"{name} {value[0]:.4f}" for name, value in done["metrics"].items() if name != "mrr@20")
    print(f"{done['part']:6} {done['data']:8} {done['method']['name']:10} {settings:40} {numbers}", flush=True)


def main() -> None:
    """Run a part on a data set, or what is missing of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("choose", "test"))
    parser.add_argument("--data", choices=tuple(SPLITS), default="ml-1m")
    options = parser.parse_args()

    torch.set_num_threads(1)
    parts = split(load(options.data), SPLITS[options.data])
    if options.part == "test":
        parts = with_validation(parts)
    done = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    for method in grid() if options.part == "choose" else TEST[options.data]:
        wanted = (options.part, options.data, method)
        if all((run["part"], run["data"], run["method"]) != wanted for run in done):
            done.append(measure(*wanted, parts))
            FILE.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            show(done[-1])


if __name__ == "__main__":
    main()
