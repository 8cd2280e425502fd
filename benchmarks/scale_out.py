"""Clients shared among processes: seconds a round, memory of each process, and whether the model is the same.

    python benchmarks/scale_out.py [--processes 1 2] [--rounds 3] [--only CASE ...]

Every case is trained by one process and by two, one thread each, started by torchrun. All clients take part, nothing
is evaluated, and the first round is left out of the times, because it fills caches (but where it is all there is).
Memory is the growth of a process's peak over what it had after its imports; CPU-seconds are those of all processes.
Nothing is asserted: compare rows of one run.
"""

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from privfed.compute.processes import Processes
from privfed.data import load, split
from privfed.experiment import Experiment
from privfed.methods import method
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

CASES: dict[str, dict[str, Any]] = {
    "HeteFedRec, ML-1M": {"data": "ml-1m", "method": {"name": "hetefedrec"}, "privacy": "secure-sum:clip_norm=1"},
    "FAIR, ML-1M": {"data": "ml-1m", "method": {"name": "fair"}, "privacy": "secure-sum:clip_norm=4"},
    "FedDAE, an encoder for each user, ML-100K": {
        "data": "ml-100k",
        "method": {"name": "feddae", "local_encoder": "full"},
        "privacy": "none",
    },
    "PFedRec, ML-1M": {
        "data": "ml-1m",
        "method": {"name": "pfedrec"},
        "privacy": "local-laplace:epsilon0=1,clip_norm=1",
    },
    "private-gram, ML-1M": {
        "data": "ml-1m",
        "method": {"name": "private-gram"},
        "privacy": "distributed-gaussian:noise_multiplier=2,clip_norm=1,n_min_honest=3000",
    },
    "GPFedRec, ML-100K": {"data": "ml-100k", "method": {"name": "gpfedrec"}, "privacy": "none"},
}  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "scale_out.json"


def measure(name: str, rounds: int) -> None:
    """One case in the processes that torchrun started; the first prints what was measured."""
    torch.set_num_threads(1)
    processes, case = Processes.launched(), CASES[name]
    imported = _peak_mb()
    config = ExperimentConfig(
        data=case["data"],
        method=case["method"],
        privacy=PrivacyPlan.parse(case["privacy"]),
        rounds=1 if method(case["method"]["name"]).uploads_once else rounds + 1,
        taps=TapConfig(places=()),
    )
    timed = slice(-1 - min(rounds, config.rounds), None)
    experiment = Experiment(config, split(load(case["data"]), config.split), processes=processes)
    walls, cpus = [time.perf_counter()], [time.process_time()]

    def note(t: int, evaluated: object) -> None:
        del t, evaluated
        processes.wait()
        walls.append(time.perf_counter())
        cpus.append(time.process_time())

    experiment.run(parts=(), progress=note)
    public = experiment.server.public().shared
    digest = hashlib.sha256(b"".join(public[key].contiguous().numpy().tobytes() for key in sorted(public))).hexdigest()
    state = sum(tensor.nbytes for tensor in experiment.clients.state().values())
    mine = {"cpu_s": _each(cpus[timed]), "mb": _peak_mb() - imported, "private_mb": state / 1e6}
    every = processes.every(mine)
    if processes.first:
        row = {
            "case": name,
            "privacy": config.privacy.name,
            "processes": processes.size,
            "rounds": len(walls[timed]) - 1,
            "wall_s": round(_each(walls[timed]), 3),
            "cpu_s": round(sum(one["cpu_s"] for one in every), 3),
            "mb_each": [round(one["mb"]) for one in every],
            "private_mb_each": [round(one["private_mb"], 1) for one in every],
            "model": digest[:16],
        }
        print("row " + json.dumps(row), flush=True)


def _each(marks: list[float]) -> float:
    return (marks[-1] - marks[0]) / (len(marks) - 1)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _row(name: str, processes: int, rounds: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    answer = subprocess.run(
        [*words, __file__, "--measure", name, "--rounds", str(rounds)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    (line,) = [line for line in answer.stdout.splitlines() if line.startswith("row ")]
    found: dict[str, Any] = json.loads(line.removeprefix("row "))
    return found


def main() -> None:
    """Measure every case with every number of processes; keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="how many processes, one run each")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that are timed, after one that is not")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="cases to run")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.rounds)
        return
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    for name in given.only:
        for count in given.processes:
            row = _row(name, count, given.rounds)
            row["load"] = round(os.getloadavg()[0], 1)
            print(json.dumps(row), flush=True)
            kept = [one for one in kept if (one["case"], one["processes"]) != (name, count)] + [row]
            machine = {"machine": platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__,
                       "taken": time.strftime("%Y-%m-%d")}  # fmt: skip
            RESULTS.write_text(json.dumps({"machine": machine, "rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
