"""Methods beside their controls, under both choices of training negatives (`privfed.setup.controls`).

Every row is a method under the evaluation of PFedRec's and GPFedRec's released code, with held-out items kept from the
training negatives (`all`, as released) or not (`train`), after the last round: the method as it is, popularity, and
every control, with what the method gains over it in NDCG@10, paired by user. Devices that train alone are trained one
after the other, at 5 to 15 ms for a user and a round on one core.

    python -m benchmarks.quality.controls --data ml-100k --rounds 100
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attacks.metrics import user_mean
from benchmarks import harness
from privfed.data import Split, load, split
from privfed.evaluation import PAPER, RoundEvaluation
from privfed.experiment import Experiment
from privfed.experiment.baseline import popularity
from privfed.privacy import configure
from privfed.setup.config import ExperimentConfig
from privfed.setup.controls import CONTROLS

METHODS = tuple(
    f"{name}:published"
    for name in ("pfedrec", "fedmf", "gpfedrec", "fedncf", "fedrecon", "metamf", "fedlightgcn", "colr")
)
NEGATIVES = ("all", "train")
K = 10


def config_of(name: str, negatives: str, control: str | None, options: Any) -> ExperimentConfig:
    """The run of a method or of one of its controls."""
    protocol = PAPER.model_copy(update={"negatives": negatives, "select": "last", "k": (K,)})
    fields = {
        "data": options.data,
        "split": {"ties": "earlier_row_is_newer"},
        "method": {"name": name},
        "protocol": protocol,
        "rounds": options.rounds,
        "seed": options.seed,
        "evaluate_every": options.rounds,
        "taps": {"places": ()},
        "control": control,
    }
    return configure(ExperimentConfig, fields)


def measured(evaluated: RoundEvaluation) -> dict[str, list[float]]:
    """HR and NDCG on the test part, each with its interval over people."""
    return {m.slug: [m.value, m.lo, m.hi] for m in evaluated.results["test"].metrics if m.name in {"hr", "ndcg"}}


def gain(method: RoundEvaluation, control: RoundEvaluation) -> Mapping[str, float]:
    """NDCG of the method less that of the control, paired by user."""
    if method.by_user is None or control.by_user is None:
        raise ValueError("rankings are compared here, and one of the runs predicts ratings")
    return asdict(user_mean(method.by_user[2] - control.by_user[2], resamples=1000))


def beside_controls(name: str, negatives: str, parts: Split, options: Any) -> dict[str, Any]:
    """A method, popularity and all controls."""
    started = time.process_time()
    method = Experiment(config_of(name, negatives, None, options), parts).run().selected
    popular = popularity(config_of(name, negatives, None, options), parts, method.results["test"])
    row: dict[str, Any] = {"method itself": measured(method) | {"cpu_seconds": time.process_time() - started}}
    if popular is not None:
        row["popularity"] = {m.slug: [m.value, m.lo, m.hi] for m in popular.metrics if m.name in {"hr", "ndcg"}}
    for control in CONTROLS:
        started = time.process_time()
        run = Experiment(config_of(name, negatives, control, options), parts).run().selected
        row[control] = measured(run) | {"gain": gain(method, run), "cpu_seconds": time.process_time() - started}
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing."""
    parser = harness.parser(__file__, __doc__, data="ml-100k", rounds=100, seed=0, only=None)
    options = harness.parse(parser, arguments)
    record, interactions = harness.Record("controls", options, []), load(options.data)
    parts = split(interactions, config_of(METHODS[0], "all", None, options).split)
    for name in METHODS:
        for negatives in NEGATIVES:
            key = {"data": options.data, "method": name, "negatives": negatives} | {
                field: getattr(options, field) for field in ("rounds", "seed")
            }
            if harness.chosen(f"{name}/{negatives}", options.only) and not record.has(**key):
                record.add(key | beside_controls(name, negatives, parts, options))


if __name__ == "__main__":
    main()
