"""The runs behind docs/reproduction.md: PFedRec and GPFedRec on MovieLens-100K, both protocols, several seeds.

    python benchmarks/reproduction.py [--seeds 3] [--rounds 100] [--only NAME] [--out benchmarks/results]

Three minutes a run and core for GPFedRec. Finished runs are kept, so it may be stopped and started. The file order of
u.data decides equal times (the earlier row is newer), as in the released code.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.progress import Progress

from privfed.data import SplitSpec, load
from privfed.evaluation import HONEST, PAPER
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

PROTOCOLS = {
    "paper": PAPER,
    "sampled, honest negatives": HONEST.model_copy(update={"candidates": "sampled", "select": "best_valid"}),
    "full ranking, honest": HONEST,
}
ARMS = {
    "popularity": {"name": "popularity"},
    "fedmf": {"name": "fedmf"},
    "fedncf": {"name": "fedncf"},
    "pfedrec": {"name": "pfedrec"},
    "gpfedrec similarity, k = 5": {"name": "gpfedrec"},
    "gpfedrec similarity, k = 0": {"name": "gpfedrec", "min_neighbours": 0},
    "gpfedrec distance (released)": {"name": "gpfedrec", "graph": "distance", "gamma": 0.5, "min_neighbours": 0},
    "gpfedrec plain mean": {"name": "gpfedrec", "graph": None},
}


def main() -> None:
    """Run what is missing and print one line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default="", help="arms whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    interactions = load(options.data)
    for protocol in PROTOCOLS:
        for arm in (name for name in ARMS if options.only in name):
            for seed in range(options.seeds):
                path = options.out / "reproduction" / f"{arm}-{protocol}-{seed}.json".replace(" ", "_").replace(",", "")
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(one_run(options, interactions, arm, protocol, seed), indent=1) + "\n")
                row = json.loads(path.read_text())
                print(
                    f"{arm:30} {protocol:28} seed {seed}: HR@10 {row['hr@10']:.4f} NDCG@10 {row['ndcg@10']:.4f}",
                    flush=True,
                )


def one_run(options, interactions, arm, protocol, seed):
    """Train once; the numbers of the round that the protocol selects."""
    rounds = 1 if arm == "popularity" else options.rounds
    config = ExperimentConfig(
        data=options.data,
        method=ARMS[arm],
        protocol=PROTOCOLS[protocol],
        rounds=rounds,
        seed=seed,
        split=SplitSpec(ties="earlier_row_is_newer"),
        taps=TapConfig(places=()),
    )
    with Progress(transient=True) as bar:
        task = bar.add_task(f"{arm}, {protocol}, seed {seed}", total=rounds)
        result = Experiment.on(config, interactions).run(progress=lambda *_: bar.advance(task))
    metrics = {f"{m.name}@{m.k}": m.value for m in result.test.metrics}
    return metrics | {"selected_round": result.selected.round, "cpu_s_per_round": result.cpu_seconds / rounds}


if __name__ == "__main__":
    main()
