"""What noise on a grid costs: CPU-seconds of a round of six private methods, in this checkout and in an older one.

    python benchmarks/grid_noise_cost.py --before FOLDER [--repeats 3]

FOLDER is a checkout of the library as it was; the same case runs in a process of its own in either, in turns, one
thread each (`suite_rounds.py`, MovieLens-100K). The least of the repeats is kept, with the load average before each
pair: a row whose load was above 2 should be taken again. Results go to `benchmarks/results/grid_noise_cost.json`.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "grid_noise_cost.json"
CASES = {
    "PFedRec, local Laplace": {"method": "pfedrec", "privacy": "local-laplace:epsilon0=1,clip_norm=1"},
    "PFedRec, local Gaussian": {"method": "pfedrec", "privacy": "local-gaussian:noise_multiplier=5,clip_norm=1"},
    "PFedRec, DP-SGD over interactions": {
        "method": "pfedrec",
        "privacy": "interaction-dpsgd:clip_norm=0.5,noise_multiplier=1",
    },
    "GPFedRec, local Laplace": {"method": "gpfedrec", "privacy": "local-laplace:epsilon0=1,clip_norm=1"},
    "FedVAE, central Gaussian": {"method": "fedvae", "privacy": "central-gaussian:clip_norm=1,noise_multiplier=5"},
    "private-gram": {"method": "private-gram", "privacy": "central-gaussian:clip_norm=1,noise_multiplier=4.6"},
    "dpals": {"method": "dpals", "privacy": "central-gaussian:clip_norm=1,noise_multiplier=4.6"},
    "private-autoencoder": {
        "method": "private-autoencoder",
        "privacy": "central-gaussian:clip_norm=1,noise_multiplier=4.6",
    },
}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def seconds(checkout: Path, case: dict[str, str]) -> float:
    """CPU-seconds of the least round of a case."""
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(checkout)}
    words = [sys.executable, "benchmarks/suite_rounds.py", json.dumps(case | {"data": "ml-100k"})]
    out = subprocess.run(words, cwd=checkout, env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(out.stdout.splitlines()[-1])["cpu_s_least"])


def commit(checkout: Path) -> str:
    """Commit that a checkout stands at."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()


def measured(name: str, before: Path, repeats: int) -> dict[str, Any]:
    """One row."""
    rows = []
    for _ in range(repeats):
        load = os.getloadavg()[0]
        rows.append((seconds(before, CASES[name]), seconds(HERE.parent, CASES[name]), load))
    old, new, loads = (list(column) for column in zip(*rows, strict=True))
    return {"case": name, "before_s": min(old), "after_s": min(new), "load": loads}


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/grid_noise_cost.py", "--before", "OLDER", *sys.argv[3:]]),
        "commits": {"before": commit(options.before), "after": commit(HERE.parent)},
        "machine": {"system": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "rows": [],
    }
    for name in CASES:
        found["rows"].append(measured(name, options.before, options.repeats))
        print(json.dumps(found["rows"][-1]), flush=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
