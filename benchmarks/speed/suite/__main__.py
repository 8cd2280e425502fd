"""The performance suite: every method's round on four data sets, its limits, its growth, and its peers.

    python -m benchmarks.speed.suite [rates ratios rounds start growth million peers page] [--data ml-100k ml-1m]
    python -m benchmarks.speed.suite --plan --stale           # what would be measured, and for how long

Without a part all of them run, in this order. Every case has a process of its own, one thread, a limit of CPU-seconds
and a limit of memory. Results lie in `benchmarks/results/suite.json`, written after every case with its commit: a suite
that was stopped goes on where it was; `--stale` measures once more what another commit measured, and `--again` all that
is chosen. `--plan` only prints the cases and the seconds that each took last time; with `--budget` a case that would
not fit into what is left of so many seconds is left out, and named. From that file the same command writes tables and
charts into `docs/results/performance.md` and `docs/results/performance/`. Real data are found as `privfed` finds them
(`PRIVFED_DATA`).

    rates    what the machine can do: products, memory, cipher
    ratios   what protection costs beside the same round without it, in turns in one process (`ratio.py`)
    rounds   one round of every registered method on every data set (`case.py`), with its counted work
    start    commands, from Enter to the answer or to the end of the first round (`benchmarks.speed.start`)
    growth   clients, items and dimension, on made-up lists
    million  one round of a million FedVAE clients over 10,000 items
    peers    the same FedNCF in Flower's simulation and in pfl, Opacus, Flower's SecAgg+, and alternating least squares
             in implicit and LensKit (`benchmarks/peers`)
    page     only tables and charts, from what is there

Peers need environments of their own: `python -m benchmarks.peers.environments --prepare FOLDER`, then `--peers FOLDER`
here (or `PRIVFED_PEERS`). Nothing is asserted: compare rows of one run, on one machine.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks import harness, tables
from benchmarks.peers import environments
from benchmarks.speed import start
from benchmarks.speed.suite import cases

PARTS = ("rates", "ratios", "rounds", "start", "growth", "million", "peers", "page")
UNKNOWN = 30.0
"""Seconds that a case is expected to take that was never measured."""
STARTING = 5.0
"""Seconds for libraries, data and both sides of a case whose seconds as a whole were not kept."""


@dataclass(frozen=True, slots=True)
class Task:
    """One case of a part: what it is called, and how it is measured."""

    part: str
    key: str
    measure: Callable[[], dict[str, Any]]


class Suite:
    """What was measured so far, and what is still to be.

    Args:
        options: of the command.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.record = options, harness.Record("suite", options, {})
        self.began, self.left_out = time.monotonic(), list[str]()

    def wanted(self, task: Task) -> bool:
        """Whether a case is chosen and not there yet, or measured anew."""
        row = self._row(task)
        old = row is not None and self.options.stale and row.get("commit") != self.record.session["commit"]
        return harness.chosen(task.key, self.options.only) and (row is None or old or self.options.again)

    def expected(self, task: Task) -> float:
        """Seconds that a case took last time, as far as is known."""
        row = self._row(task) or {}
        if "took_s" in row:
            return float(row["took_s"])
        if "cpu_s" not in row:
            return UNKNOWN
        return STARTING + float(row.get("cpu_s_first", row["cpu_s"]) + row["cpu_s"] * row.get("rounds", 1))

    def run(self, tasks: Iterable[Task]) -> None:
        """Measure the cases that fit, or say what would be measured."""
        total = 0.0
        for task in filter(self.wanted, tasks):
            seconds = self.expected(task)
            total += seconds
            if self.options.plan:
                print(f"{seconds:7.1f} s  {task.part} / {task.key}")
            elif time.monotonic() - self.began + seconds > self.options.budget:
                self.left_out.append(f"{task.part} / {task.key}")
            else:
                began = time.monotonic()
                row = task.measure()
                load = [round(load, 1) for load in os.getloadavg()]
                row |= {"took_s": round(time.monotonic() - began, 1), "at": time.strftime("%Y-%m-%d %H:%M")}
                self.record.put(row | {"load": load, "commit": self.record.session["commit"]}, task.part, task.key)
        if self.options.plan:
            print(f"{total:7.1f} s  expected")
        for name in self.left_out:
            print(f"left out for lack of time: {name}")

    def _row(self, task: Task) -> dict[str, Any] | None:
        row: dict[str, Any] | None = self.record.results.get(task.part, {}).get(task.key)
        return row


def tasks(part: str, options: argparse.Namespace) -> Iterator[Task]:
    """The cases of a part."""
    if part == "rates":
        yield Task(part, "one thread", lambda: harness.child("benchmarks.speed.suite.rates", limit=options.limit))
    if part == "ratios":
        for key, pair in cases.ratios().items():
            yield Task(part, key, partial(ratio, pair, options))
    if part == "rounds":
        name = part if options.device == "cpu" else f"rounds on {options.device}"
        yield from (Task(name, key, partial(one, case, options)) for key, case in cases.rounds(options.data).items())
    if part in ("growth", "million"):
        chosen = cases.growth() if part == "growth" else cases.million()
        yield from (Task(part, key, partial(one, case, options)) for key, case in chosen.items())
    if part == "start":
        yield Task(part, "commands", lambda: started(options))
    if part == "peers":
        yield from (
            Task(part, key, partial(peer, command, options))
            for key, command in environments.peers(options.peers).items()
        )


def bounded(case: cases.Case, options: argparse.Namespace) -> str:
    """A case with its bounds, as its process reads it."""
    bounds = {"memory": int(options.memory * 2**30)} if options.device == "cpu" else {}
    others = {"threads": options.threads, "device": options.device, "limit": math.ceil(options.limit)}
    return json.dumps(case | others | bounds)


def one(case: cases.Case, options: argparse.Namespace) -> dict[str, Any]:
    """One case in a process of its own."""
    spec = bounded(case, options)
    measured = harness.child("benchmarks.speed.suite.case", spec, threads=options.threads, limit=options.limit)
    described = {
        name: case[name] for name in ("label", "method", "axis", "size", "privacy", "fidelity") if name in case
    }
    return described | {"threads": options.threads} | measured


def ratio(pair: tuple[cases.Case, cases.Case], options: argparse.Namespace) -> dict[str, Any]:
    """Two cases in turns."""
    specs = [bounded(case, options) for case in pair]
    return harness.child("benchmarks.speed.suite.ratio", *specs, threads=options.threads, limit=options.limit)


def started(options: argparse.Namespace) -> dict[str, Any]:
    """Commands, into a file of their own."""
    start.main(["--repeats", "3", "--out", str(options.out)])
    return {"file": "start.json"}


@cache
def written(limit: float) -> None:
    """Write the data that peers read, once."""
    harness.child(*environments.WRITING, limit=limit, environment=environments.ENVIRONMENT)


def peer(command: tuple[str, ...], options: argparse.Namespace) -> dict[str, Any]:
    """A peer where its environment is, or privfed beside it."""
    python, module, *words = command
    written(options.limit)
    limit = options.peer_limit / harness.PATIENCE
    return harness.child(module, *words, python=python, limit=limit, environment=environments.ENVIRONMENT)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named parts, then write the page."""
    data = {"nargs": "+", "default": list(cases.DATA), "help": "data sets of `rounds` (default: all)"}
    parser = harness.parser(__file__, __doc__, data=data, only=[])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; all where none is named")
    parser.add_argument("--again", action="store_true", help="measure cases that are there already")
    parser.add_argument("--device", default="cpu", help="of `rounds`; kept as a part of its own where it is no cpu")
    parser.add_argument("--limit", type=float, default=600.0, help="CPU-seconds a case may take")
    parser.add_argument("--peer-limit", type=float, default=3600.0, help="seconds of wall a peer may take")
    parser.add_argument("--memory", type=float, default=16.0, help="GiB of data a case may hold")
    parser.add_argument(
        "--peers",
        type=Path,
        default=os.environ.get("PRIVFED_PEERS"),
        help="folder made by benchmarks.peers.environments",
    )
    parser.add_argument("--stale", action="store_true", help="measure cases that another commit measured")
    parser.add_argument("--plan", action="store_true", help="print what would be measured and for how long")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds that the suite may take")
    options = harness.parse(parser, arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    suite = Suite(options)
    suite.run(task for part in options.parts or PARTS for task in tasks(part, options))
    if options.plan:
        return
    if options.out == harness.RESULTS:
        tables.write(charts=True)


if __name__ == "__main__":
    main()
