"""CPU-seconds and peak memory per round of every method, one thread, each in a fresh process.

    python benchmarks/rounds.py [--data ml-100k] [--rounds 5] [--out benchmarks/results]

All clients take part; every other round also evaluates validation and test against 99 sampled items, as the papers
do every round. The first two rounds are left out (they fill caches and buffers). Nothing here is asserted: compare
rows of one run, on one machine.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch

from privfed.data import load
from privfed.evaluation import PAPER
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

CASES = [
    ("popularity", "none"),
    ("fedmf", "none"),
    ("fedncf", "none"),
    ("pfedrec", "none"),
    ("gpfedrec", "none"),
    ("gpfedrec, no graph", "none"),
    ("gpfedrec, light (every 10)", "none"),
    ("gpfedrec", "published-noise"),
    ("gpfedrec", "local-laplace:epsilon0=1,clip_norm=1"),
    ("pfedrec", "local-laplace:epsilon0=1,clip_norm=1"),
]
LINE = (
    "{method:28} {privacy:40} {cpu_s_per_round:6.2f} CPU-s, {cpu_s_with_evaluation:5.2f} with evaluation, "
    "{peak_rss_mb:6} MB"
)
SETTINGS = {"gpfedrec, no graph": {"graph": None}, "gpfedrec, light (every 10)": {"refresh_every": 10}}


def measure(case: int, data: str, rounds: int) -> dict[str, object]:
    """One case in this process."""
    torch.set_num_threads(1)
    label, words = CASES[case]
    config = ExperimentConfig(
        data=data,
        method={"name": label.split(",")[0], **SETTINGS.get(label, {})},
        privacy=PrivacyPlan.parse(words),
        protocol=PAPER,
        rounds=2 * rounds + 2,
        evaluate_every=2,
        taps=TapConfig(places=()),
    )
    experiment = Experiment.on(config, load(data))
    clock = [time.process_time()]
    result = experiment.run(progress=lambda t, evaluated: clock.append(time.process_time()))  # noqa: ARG005
    per_round = [after - before for before, after in pairwise(clock[2:])]
    asked = max(result.costs.client_rounds, 1)
    return {
        "method": label,
        "privacy": words,
        "cpu_s_per_round": round(statistics.median(per_round[::2]), 3),
        "cpu_s_with_evaluation": round(statistics.median(per_round[1::2]), 3),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "up_kb_per_client": round(result.costs.up_bytes / asked / 1000, 1),
    }


def main() -> None:
    """Run every case in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(options.case, options.data, options.rounds)))
        return
    rows = []
    for case in range(len(CASES)):
        command = [sys.executable, __file__, "--case", str(case), "--data", options.data]
        command += ["--rounds", str(options.rounds)]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(LINE.format(**rows[-1]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"data": options.data, "python": platform.python_version(), "load_average": os.getloadavg(), "rows": rows}
    (options.out / "rounds.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
