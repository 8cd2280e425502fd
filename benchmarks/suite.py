"""The performance suite: every method's round on four data sets, its limits, its growth, and its peers.

    python benchmarks/suite.py [rates rounds peers growth million page] [--data ml-100k ml-1m] [--only fedvae] [--again]

Without a part all of them run. Every case has a process of its own, one thread, a limit of CPU-seconds and a limit of
memory. Results lie in `benchmarks/results/suite.json`, written after every case: a suite that was stopped goes on where
it was, and `--again` measures what is chosen once more. From that file the same command writes tables and charts into
`docs/performance.md` and `docs/performance/`. Real data are found as `privfed` finds them (`PRIVFED_DATA`).

    rates    what the machine can do: products, memory, cipher
    rounds   one round of every registered method on every data set (`suite_rounds.py`), with its counted work
    peers    the same FedNCF in Flower's simulation and in pfl, Opacus, Flower's SecAgg+ (`peers.py`)
    growth   clients, items and dimension, on made-up lists
    million  one round of a million FedVAE clients over 10,000 items
    page     only tables and charts, from what is there

Peers need environments of their own: `python benchmarks/peers.py --prepare FOLDER`, then `--peers FOLDER` here (or
`PRIVFED_PEERS`). Nothing is asserted: compare rows of one run, on one machine. This process imports no library, so
that what it measures starts small.
"""

import argparse
import fcntl
import json
import math
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import peers
import suite_cases

HERE = Path(__file__).parent
ROOT = HERE.parent
PARTS = ("rates", "rounds", "peers", "growth", "million", "page")
PATIENCE = 10
"""Wall seconds for every CPU-second of a limit: the machine may do other things besides."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Results:
    """What has been measured, in one file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.kept: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}

    def has(self, part: str, key: str) -> bool:
        """Whether the case is there."""
        return key in self.kept.get(part, {})

    def keep(self, part: str, key: str, row: dict[str, Any]) -> None:
        """Keep a row, print it and write the file, with what another suite wrote meanwhile."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            self.kept = json.loads(file.read() or "{}")
            self.kept.setdefault(part, {})[key] = row | {
                "at": time.strftime("%Y-%m-%d %H:%M"),
                "load": [round(load, 1) for load in os.getloadavg()],
            }
            self.kept["machine"] = machine()
            file.truncate(0)
            file.write(json.dumps(self.kept, indent=1) + "\n")
        shown = {name: row[name] for name in ("cpu_s", "wall_s", "peak_bytes", "failed") if name in row}
        print(f"{part}: {key}: {json.dumps(shown)}", flush=True)


def machine() -> dict[str, Any]:
    """Processor, memory and versions."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
    }


def child(command: list[str], threads: int, limit: float, **environment: str) -> dict[str, Any]:
    """The last line of a process as JSON, or how it failed."""
    env = os.environ | dict.fromkeys(THREADS, str(threads)) | environment
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        printed, said = run.communicate(timeout=PATIENCE * limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {PATIENCE * limit:g} s of wall"}
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if run.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failed": f"took more than {limit:g} CPU-s, or was ended for its memory"}
    if run.returncode or not lines:
        last = (said.strip().splitlines() or ["nothing"])[-1][:300]
        return {"failed": f"ended with {run.returncode} and said: {last}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def run_cases(part: str, cases: dict[str, suite_cases.Case], options: argparse.Namespace, results: Results) -> None:
    """Every case that is not there yet."""
    for key, case in cases.items():
        if options.only not in key or (results.has(part, key) and not options.again):
            continue
        bounds = {"memory": int(options.memory * 2**30), "limit": math.ceil(options.limit)}
        if options.device != "cpu":
            bounds = {"limit": bounds["limit"]}
        spec = case | {"threads": options.threads, "device": options.device} | bounds
        command = [sys.executable, str(HERE / "suite_rounds.py"), json.dumps(spec)]
        measured = child(command, options.threads, options.limit)
        chosen = {name: case[name] for name in ("label", "method", "axis", "size", "privacy", "wire") if name in case}
        results.keep(part, key, chosen | {"threads": options.threads} | measured)


def run_peers(options: argparse.Namespace, results: Results) -> None:
    """Every peer whose environment is there; ours beside them."""
    environment = peers.ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    chosen = {
        key: command
        for key, command in peers.commands(options.peers).items()
        if options.only in key and (options.again or not results.has("peers", key))
    }
    if chosen:
        child(peers.writing(), 1, options.limit, **environment)
    for key, command in chosen.items():
        results.keep("peers", key, child(command, 1, options.peer_limit / PATIENCE, **environment))


def main() -> None:
    """Run the parts that were asked for, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; all where none is named")
    parser.add_argument("--data", nargs="+", default=list(suite_cases.DATA), help="data sets of `rounds`")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--again", action="store_true", help="measure cases that are there already")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="of `rounds`; kept as a part of its own where it is no cpu")
    parser.add_argument("--limit", type=float, default=600.0, help="CPU-seconds a case may take")
    parser.add_argument("--peer-limit", type=float, default=3600.0, help="seconds of wall a peer may take")
    parser.add_argument("--memory", type=float, default=16.0, help="GiB of data a case may hold")
    parser.add_argument("--peers", type=Path, default=os.environ.get("PRIVFED_PEERS"), help="folder made by peers.py")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "suite.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    results, parts = Results(options.out), options.parts or PARTS
    if "rates" in parts and (options.again or not results.has("rates", "one thread")):
        rates = child([sys.executable, str(HERE / "suite_rates.py")], 1, options.limit)
        results.keep("rates", "one thread", rates)
    if "rounds" in parts:
        part = "rounds" if options.device == "cpu" else f"rounds on {options.device}"
        run_cases(part, suite_cases.rounds(tuple(options.data)), options, results)
    if "peers" in parts:
        run_peers(options, results)
    if "growth" in parts:
        run_cases("growth", suite_cases.growth(), options, results)
    if "million" in parts:
        run_cases("million", suite_cases.million(), options, results)
    page = [sys.executable, str(HERE / "suite_page.py"), str(options.out), str(options.page)]
    subprocess.run(page, check=True)


if __name__ == "__main__":
    main()
