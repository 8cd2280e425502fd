"""Clients shared among processes: seconds a round, memory of each process, and whether the model is the same.

    python -m benchmarks.speed.scale_out [--processes 1 2] [--rounds 3] [--only CASE ...]

Every case is trained by one process and by two, one thread each, started by torchrun. All clients take part, nothing
is evaluated, and the first round is left out of the times, because it fills caches (but where it is all there is).
Memory is the growth of a process's peak over what it had after its imports; CPU-seconds are those of all processes.
Nothing is asserted: compare rows of one run.
"""

import argparse
import hashlib
import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks import harness
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


def measure(name: str, rounds: int) -> None:
    """One case in the processes that torchrun started; the first prints what was measured."""
    torch.set_num_threads(1)
    processes, case = Processes.launched(), CASES[name]
    imported = harness.peak_mib()
    config = ExperimentConfig(
        data=case["data"],
        method=case["method"],
        privacy=PrivacyPlan.parse(case["privacy"]),
        rounds=1 if method(case["method"]["name"]).traits.uploads_once else rounds + 1,
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
    mine = {"cpu_s": _each(cpus[timed]), "mb": harness.peak_mib() - imported, "private_mb": state / 1e6}
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
        print(json.dumps(row), flush=True)


def _each(marks: list[float]) -> float:
    return (marks[-1] - marks[0]) / (len(marks) - 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case with every number of processes; keep the table."""
    parser = harness.parser(__file__, __doc__, rounds=3, only=[])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="how many processes, one run each")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    given = harness.parse(parser, arguments)
    if given.measure:
        measure(given.measure, given.rounds)
        return
    record = harness.Record("scale_out", given, [])
    for name, count in itertools.product(CASES, given.processes):
        if not harness.chosen(name, given.only):
            continue
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone")
        words = ("--measure", name, "--rounds", given.rounds)
        row = harness.succeeded(harness.child("benchmarks.speed.scale_out", *words, launcher=torchrun))
        others = [one for one in record.results if (one["case"], one["processes"]) != (name, count)]
        record.results[:] = others
        record.save()
        record.add(row | {"load": harness.load_average()[0]})


if __name__ == "__main__":
    main()
