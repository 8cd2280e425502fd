"""What lists are worth without privacy: popularity, PureSVD, iALS and EASE, trained centrally, on real data.

    python -m benchmarks.quality.references choose --data ml-1m
    python -m benchmarks.quality.references test --data ml-1m

`choose` fits on training items and ranks the validation items, for every setting of a small grid. `test` fits on
training and validation items together and ranks the test items, once, under the settings that stand in this file.
EASE's l and PureSVD's k are constants of an earlier study, set before any test run here. The settings of iALS and the
weight of EASE's tags are the best of `choose` on MovieLens-1M, and MovieLens-100K takes them as they are. Full ranking,
all items that the user has not trained on. One process, one thread; results go to `benchmarks/results/references.json`
after every run, and runs found there are not repeated.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import harness
from benchmarks.quality.ranking import with_validation
from privfed.data import Split, SplitSpec, load, split
from privfed.evaluation import EvaluationResult, Protocol
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part on a data set, or what is missing of it."""
    data = {"default": "ml-1m", "choices": SPLITS}
    parser = harness.parser(__file__, __doc__, parts=("choose", "test"), data=data)
    options = harness.parse(parser, arguments)

    parts = split(load(options.data), SPLITS[options.data])
    if options.part == "test":
        parts = with_validation(parts)
    record = harness.Record("references", options, [])
    for method in grid() if options.part == "choose" else TEST[options.data]:
        if not record.has(part=options.part, data=options.data, method=method):
            record.add(measure(options.part, options.data, method, parts))


if __name__ == "__main__":
    main()
