"""What the processes of `test_workers.py` do: every case of a file, and the first process keeps what came out."""

import gc
import sys
from pathlib import Path
from typing import Any

import torch

from privfed.compute.processes import Processes
from privfed.data import Split, SplitSpec, SyntheticSpec, generate, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

ROUNDS = 3
KILLED_AFTER = 1


class KilledError(Exception):
    """Stands for the processes being gone."""


def small() -> Split:
    """45 users, 70 items; views besides, for methods that learn from examinations."""
    spec = SyntheticSpec(
        name="synthetic-tests", n_users=45, n_items=70, mean_per_user=12, min_per_user=5, rank=4, seed=1
    )
    return split(generate(spec), SplitSpec())


def config(case: dict[str, Any]) -> ExperimentConfig:
    """The experiment of a case."""
    return ExperimentConfig(
        data="synthetic-tests",
        method=case["method"],
        privacy=PrivacyPlan.parse(case.get("plan", "none")),
        protocol=Protocol(k=(5,), state=case.get("state", "private")),
        rounds=ROUNDS,
        seed=4,
        evaluate_every=1,
        checkpoint_every=1,
        taps=TapConfig(places=()),
        fidelity=case.get("fidelity", "exact"),
        chunk=16,
    )


def outcome(case: dict[str, Any], folder: Path, processes: Processes) -> dict[str, Any]:
    """What one process has after a case, in a folder that all of them use."""

    def die(t: int, evaluated: object) -> None:
        del evaluated
        if t == KILLED_AFTER:
            raise KilledError

    kept = folder / "client-state" if case.get("in files") else None
    if case.get("killed"):
        try:
            Experiment(config(case), small(), processes=processes, client_state=kept).run(folder, progress=die)
        except KilledError:
            processes.wait()
        gc.collect()
    experiment = Experiment(config(case), small(), processes=processes, client_state=kept)
    result = experiment.run(folder, resume=bool(case.get("killed")))
    parts = processes.every(experiment.clients.state())
    return {
        "public": experiment.server.public().shared,
        "personal": experiment.server.public().personal,
        "private": {name: torch.cat([part[name] for part in parts]) for name in parts[0]},
        "tallest": max([0, *(len(tensor) for tensor in experiment.clients.state().values())]),
        "metrics": [e.results[part].model_dump() for e in result.history for part in ("valid", "test")],
        "guarantee": result.guarantee.model_dump(),
        "ledger": (folder / "ledger.jsonl").read_text(),
        "costs": [
            result.costs.up_bytes,
            result.costs.down_bytes,
            result.costs.client_rounds,
            result.costs.aborted_rounds,
        ],
        "clipped": result.clipped_fraction,
    }


def main(cases: Path, folder: Path) -> None:
    """Run the cases of a file that torch has written; the first process writes what came out."""
    torch.set_num_threads(1)
    processes = Processes.launched()
    found = {}
    for name, case in torch.load(cases).items():
        place = folder / str(len(found))
        if processes.first:
            place.mkdir()
        processes.wait()
        found[name] = outcome(case, place, processes)
    if processes.first:
        torch.save(found, folder / "found.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
