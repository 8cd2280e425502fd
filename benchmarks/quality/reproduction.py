"""The runs behind docs/results/papers/gpfedrec.md: PFedRec and GPFedRec on MovieLens-100K, both protocols, several seeds.

    python -m benchmarks.quality.reproduction [--seeds 3] [--rounds 100] [--only NAME]

Three minutes a run and core for GPFedRec. Finished runs are kept, so it may be stopped and started. The file order of
u.data decides equal times (the earlier row is newer), as in the released code.
"""

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

from rich.progress import Progress

from benchmarks import harness
from privfed.data import Interactions, SplitSpec, load
from privfed.evaluation import HONEST, PAPER
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

PROTOCOLS = {
    "paper": PAPER,
    "sampled, honest negatives": HONEST.model_copy(update={"candidates": "sampled", "select": "best_valid"}),
    "full ranking, honest": HONEST,
}
VARIANTS = {
    "popularity": {"name": "popularity"},
    "fedmf": {"name": "fedmf"},
    "fedncf": {"name": "fedncf"},
    "pfedrec": {"name": "pfedrec"},
    "gpfedrec similarity, k = 5": {"name": "gpfedrec"},
    "gpfedrec similarity, k = 0": {"name": "gpfedrec", "min_neighbours": 0},
    "gpfedrec distance (released)": {"name": "gpfedrec", "graph": "distance", "gamma": 0.5, "min_neighbours": 0},
    "gpfedrec plain mean": {"name": "gpfedrec", "graph": None},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing and print one line per run."""
    parser = harness.parser(__file__, __doc__, data="ml-100k", seeds=3, rounds=100, only=[])
    options = harness.parse(parser, arguments)
    interactions = load(options.data)
    record = harness.Record("reproduction", options, [])
    for protocol, variant, seed in itertools.product(PROTOCOLS, VARIANTS, range(options.seeds)):
        key = {"variant": variant, "protocol": protocol, "seed": seed}
        if harness.chosen(variant, options.only) and not record.has(**key):
            record.add(key | one_run(options, interactions, variant, protocol, seed))


def one_run(
    options: argparse.Namespace, interactions: Interactions, variant: str, protocol: str, seed: int
) -> dict[str, Any]:
    """Train once; the numbers of the round that the protocol selects."""
    rounds = 1 if variant == "popularity" else options.rounds
    config = ExperimentConfig(
        data=options.data,
        method=VARIANTS[variant],
        protocol=PROTOCOLS[protocol],
        rounds=rounds,
        seed=seed,
        split=SplitSpec(ties="earlier_row_is_newer"),
        taps=TapConfig(places=()),
    )
    with Progress(transient=True) as bar:
        task = bar.add_task(f"{variant}, {protocol}, seed {seed}", total=rounds)
        result = Experiment.on(config, interactions).run(progress=lambda *_: bar.advance(task))
    metrics = {f"{m.name}@{m.k}": m.value for m in result.test.metrics}
    return metrics | {"selected_round": result.selected.round, "cpu_s_per_round": result.cpu_seconds / rounds}


if __name__ == "__main__":
    main()
