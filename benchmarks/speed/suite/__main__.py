"""The performance suite: every method's round on four data sets, its limits, its growth, and its peers.

    python -m benchmarks.speed.suite [rates rounds peers growth million page] [--data ml-100k ml-1m] [--again]

Without a part all of them run. Every case has a process of its own, one thread, a limit of CPU-seconds and a limit of
memory. Results lie in `benchmarks/results/suite.json`, written after every case: a suite that was stopped goes on where
it was, and `--again` measures what is chosen once more. From that file the same command writes tables and charts into
`docs/results/performance.md` and `docs/results/performance/`. Real data are found as `privfed` finds them
(`PRIVFED_DATA`).

    rates    what the machine can do: products, memory, cipher
    rounds   one round of every registered method on every data set (`case.py`), with its counted work
    peers    the same FedNCF in Flower's simulation and in pfl, Opacus, Flower's SecAgg+ (`benchmarks/peers`)
    growth   clients, items and dimension, on made-up lists
    million  one round of a million FedVAE clients over 10,000 items
    page     only tables and charts, from what is there

Peers need environments of their own: `python -m benchmarks.peers.environments --prepare FOLDER`, then `--peers FOLDER`
here (or `PRIVFED_PEERS`). Nothing is asserted: compare rows of one run, on one machine.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, tables
from benchmarks.peers import environments
from benchmarks.speed.suite import cases

PARTS = ("rates", "rounds", "peers", "growth", "million", "page")


def keep(record: harness.Record, part: str, key: str, row: dict[str, Any]) -> None:
    """Keep a row with its time and load."""
    load = [round(load, 1) for load in os.getloadavg()]
    record.put(row | {"at": time.strftime("%Y-%m-%d %H:%M"), "load": load}, part, key)


def missing(record: harness.Record, part: str, key: str, options: argparse.Namespace) -> bool:
    """Whether a case is wanted and not there yet."""
    there = key in record.results.get(part, {}) and not options.again
    return harness.chosen(key, options.only) and not there


def run_cases(part: str, chosen: dict[str, cases.Case], options: argparse.Namespace, record: harness.Record) -> None:
    """Every case that is not there yet."""
    for key, case in chosen.items():
        if not missing(record, part, key, options):
            continue
        bounds = {"memory": int(options.memory * 2**30), "limit": math.ceil(options.limit)}
        if options.device != "cpu":
            bounds = {"limit": bounds["limit"]}
        spec = json.dumps(case | {"threads": options.threads, "device": options.device} | bounds)
        measured = harness.child("benchmarks.speed.suite.case", spec, threads=options.threads, limit=options.limit)
        described = {
            name: case[name] for name in ("label", "method", "axis", "size", "privacy", "fidelity") if name in case
        }
        keep(record, part, key, described | {"threads": options.threads} | measured)


def run_peers(options: argparse.Namespace, record: harness.Record) -> None:
    """Every peer whose environment is there, and privfed."""
    chosen = {
        key: peer for key, peer in environments.peers(options.peers).items() if missing(record, "peers", key, options)
    }
    if chosen:
        harness.child(*environments.WRITING, limit=options.limit, environment=environments.ENVIRONMENT)
    for key, (python, module, *words) in chosen.items():
        limit = options.peer_limit / harness.PATIENCE
        row = harness.child(module, *words, python=python, limit=limit, environment=environments.ENVIRONMENT)
        keep(record, "peers", key, row)


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
    options = harness.parse(parser, arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}: choose among {', '.join(PARTS)}")
    record, parts = harness.Record("suite", options, {}), options.parts or PARTS
    if "rates" in parts and missing(record, "rates", "one thread", options):
        keep(record, "rates", "one thread", harness.child("benchmarks.speed.suite.rates", limit=options.limit))
    if "rounds" in parts:
        part = "rounds" if options.device == "cpu" else f"rounds on {options.device}"
        run_cases(part, cases.rounds(tuple(options.data)), options, record)
    if "peers" in parts:
        run_peers(options, record)
    if "growth" in parts:
        run_cases("growth", cases.growth(), options, record)
    if "million" in parts:
        run_cases("million", cases.million(), options, record)
    if options.out == harness.RESULTS:
        tables.write(charts=True)


if __name__ == "__main__":
    main()
