"""Runs of the papers' tables, cell by cell: `docs/results/papers.md` shows them beside the papers' numbers.

    python -m benchmarks.quality.paper_runs --paper gpfedrec --table table-3 --data ml-100k --seeds 3
    python -m benchmarks.quality.paper_runs --plan
    python -m benchmarks.quality.paper_runs --paper gpfedrec --seeds 3 --budget 240

A cell is a row of a table on a data set under a protocol (`paper_cells.py`); a run is a cell with a seed. Runs that are
in `benchmarks/results/paper_<paper>.json` are not repeated, so a queue that was killed goes on, several queues may
write to one file, and a run that another table has already is copied. Cells come in the order of what they are worth:
main tables first, small data sets first. `--plan` prints what is missing with its CPU-minutes, as two timed rounds and
an evaluation have them (or `EXPECTED`), kept in `benchmarks/results/paper_costs.json`; `--budget` takes what fits into
so many. Cells whose method is not registered, or does not take their settings, are named and skipped. One process, one
thread; every run keeps its command, commit and CPU-seconds.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from benchmarks import harness
from benchmarks.quality.paper_cells import PAPERS, POPULARITY, Cell, Data, expected_minutes
from privfed.data import Split, load, split
from privfed.evaluation import EvaluationResult, Part, RoundEvaluation
from privfed.experiment import Experiment
from privfed.guards.client_guard import BrokenUploadError
from privfed.methods.registry import entries
from privfed.privacy import PrivacyPlan, configure
from privfed.setup.config import ExperimentConfig, TapConfig

METRICS = {"hr": "HR", "ndcg": "NDCG", "recall": "recall", "precision": "precision", "mrr": "MRR"}


class SkippedCellError(Exception):
    """A cell that cannot be run here; the message says why."""


@dataclass(frozen=True)
class Run:
    """A cell with a seed."""

    cell: Cell
    seed: int

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return self.cell.key(self.seed)


def runs(options: argparse.Namespace) -> Iterator[Run]:
    """What the arguments ask for; popularity needs one seed."""
    for cell in cells(options):
        for seed in range(1 if cell.row == POPULARITY else options.seeds):
            yield Run(cell, seed)


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Cells of the papers, tables, data sets and rows that were named."""
    for name, listed in PAPERS.items():
        for cell in listed():
            named = (
                (name, options.paper),
                (cell.result, options.table),
                (cell.data.here, options.data),
                (cell.row, options.only),
                (cell.by, options.protocol),
            )
            if all(not wanted or any(fnmatchcase(value, one) for one in wanted) for value, wanted in named):
                yield cell


@cache
def parts_of(data: Data) -> Split:
    """A data set as a cell splits it."""
    return split(load(data.here, min_per_user=data.min_per_user), data.split)


def config_of(run: Run, **changes: Any) -> ExperimentConfig:
    """Everything that decides the run.

    Raises:
        SkippedCellError: its method is not registered, or does not take its settings.
    """
    cell = run.cell
    name = str(cell.method["name"]).partition(":")[0]
    if name not in entries():
        raise SkippedCellError(f"{name} is not registered")
    try:
        fields: dict[str, Any] = {
            "data": cell.data.here,
            "split": cell.data.split,
            "method": cell.method,
            "privacy": PrivacyPlan.parse(cell.privacy),
            "protocol": cell.protocol,
            "rounds": 1 if cell.row == POPULARITY else cell.rounds,
            "seed": run.seed,
            "taps": TapConfig(places=()),
        }
        config = configure(ExperimentConfig, fields | dict(cell.options) | changes)
        config.settings()
    except ValueError as error:
        raise SkippedCellError(f"{name} does not take these settings: {error}") from error
    return config


def selected(run: Run, history: Sequence[RoundEvaluation], by_protocol: RoundEvaluation) -> RoundEvaluation:
    """The round that counts: best on the validation part by the cell's metric, or as the protocol says."""
    if run.cell.select is None:
        return by_protocol
    name, k = run.cell.select
    return max(history, key=lambda one: (_value(one.results["valid"], name, k), one.round))


def _value(result: EvaluationResult, name: str, k: int) -> float:
    return next(metric.value for metric in result.metrics if (metric.name, metric.k) == (name, k))


def shown(result: EvaluationResult) -> dict[str, float]:
    """Metrics as the papers call them: HR@10, NDCG@20, MSE."""
    return {
        f"{METRICS[metric.name]}@{metric.k}" if metric.k else metric.name.upper(): round(metric.value, 6)
        for metric in result.metrics
    } | {f"Recall@{metric.k}": round(metric.value, 6) for metric in result.metrics if metric.name == "recall"}


def measured(run: Run, command: str) -> dict[str, Any]:
    """Train once, and say what came out, how and by what."""
    cell, started, config = run.cell, time.process_time(), config_of(run)
    row: dict[str, Any] = labelled(run) | {
        "method": config.method,
        "privacy": config.privacy.name,
        "rounds": config.rounds,
        "evaluation": cell.protocol.sentence(),
        "digest": config.digest(),
        "command": command,
        "commit": harness.commit(),
    }
    try:
        experiment = Experiment(config, parts_of(cell.data))
        parts: tuple[Part, ...] = ("valid", "test") if len(experiment.parts.valid) else ("test",)
        result = experiment.run(parts=parts)
    except (ValueError, BrokenUploadError) as error:
        return row | {"failed": str(error), "metrics": {}}
    best = selected(run, result.history, result.selected)
    test = best.results["test"]
    return row | {
        "round": best.round + 1,
        "metrics": shown(test),
        "intervals": {m.slug: [round(m.lo, 6), round(m.hi, 6)] for m in test.metrics},
        "ties": round(test.tie_fraction, 4),
        "users": test.n_users,
        "curve": {str(one.round + 1): shown(one.results["test"]) for one in _thinned(result.history)},
        "up_kB": round(result.costs.up_bytes / (result.costs.client_rounds or 1) / 1e3, 1),
        "cpu_s": round(time.process_time() - started, 1),
    }


def labelled(run: Run) -> dict[str, Any]:
    """Where a run belongs."""
    cell = run.cell
    return {
        "paper": cell.paper,
        "result": cell.result,
        "data": cell.data.label,
        "on": cell.data.here,
        "row": cell.row,
        "protocol": cell.by,
        "seed": run.seed,
    }


def already(run: Run, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The same run as another table has it, under this one's name."""
    digest = config_of(run).digest()
    twin = next((row for row in results.values() if row.get("digest") == digest), None)
    return None if twin is None else {**twin, **labelled(run)}


def _thinned(history: Sequence[RoundEvaluation], points: int = 10) -> list[RoundEvaluation]:
    """At most so many evaluations spread over a run, the last among them."""
    step = max(1, len(history) // points)
    return list(history[::-1][::step][::-1])


def timed(run: Run) -> float:
    """CPU-minutes that a run will take: rounds as the second took, evaluations as that of the second."""
    config, parts = config_of(run), parts_of(run.cell.data)
    if config.rounds == 1:
        return _last_round(config, parts, evaluated=True, rounds=1) / 60
    both = _last_round(config, parts, evaluated=True)
    looks = sum(config.evaluated(t) for t in range(config.rounds))
    if looks == config.rounds:
        return config.rounds * both / 60
    training = _last_round(config, parts, evaluated=False)
    return (config.rounds * training + looks * max(0.0, both - training)) / 60


def _last_round(config: ExperimentConfig, parts: Split, *, evaluated: bool, rounds: int = 2) -> float:
    """CPU-seconds of the last of so many rounds."""
    protocol = config.protocol.model_copy(update={"select": "last"})
    short = config.model_copy(update={"rounds": rounds, "evaluate_every": 1, "protocol": protocol})
    clock = [time.process_time()]
    looks: tuple[Part, ...] = ("test",) if evaluated else ()
    Experiment(short, parts).run(parts=looks, progress=lambda *_: clock.append(time.process_time()))
    return clock[-1] - clock[-2]


class Costs:
    """Estimated CPU-minutes of every cell, kept in a file so that they are measured once.

    Args:
        options: parsed by the harness.
        records: what was run, by paper.
    """

    def __init__(self, options: argparse.Namespace, records: Mapping[str, harness.Record]) -> None:
        self._record, self._records = harness.Record("paper_costs", options, {}), records

    def minutes(self, run: Run) -> float:
        """Of one run."""
        known = expected_minutes(run.cell, self._records[run.cell.paper].results, self._record.results)
        if known is None:
            known = round(timed(run), 2)
            self._record.put(known, run.cell.cost_key)
        return known


def affordable(missing: Sequence[Run], price: Callable[[Run], float], budget: float) -> Iterator[tuple[Run, float]]:
    """Of the runs that are missing, in the order of their worth, those that fit, and their CPU-minutes."""
    spent = 0.0
    for run in sorted(missing, key=lambda one: -one.cell.value):
        minutes = price(run)
        if spent + minutes <= budget:
            spent += minutes
            yield run, minutes


def possible(wanted: Iterable[Run]) -> Iterator[Run]:
    """Those that can be run here; the others are named, once a cell."""
    for run in wanted:
        try:
            config_of(run)
        except SkippedCellError as error:
            if run.seed == 0:
                print(f"skipped: {run.cell.paper} / {run.key}: {error}", flush=True)
            continue
        yield run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, or print it with its cost."""
    parser = harness.parser(__file__, __doc__, seeds=3, only=[])
    chosen = {"paper": "papers", "table": "results, by id", "data": "data sets", "protocol": "protocols"}
    for name, what in chosen.items():
        parser.add_argument(f"--{name}", nargs="*", help=f"{what} to run, or shell patterns of them (default: all)")
    parser.add_argument("--plan", action="store_true", help="print what is missing and its CPU-minutes; run nothing")
    parser.add_argument("--budget", type=float, help="CPU-minutes to spend, on what is worth most first")
    options = harness.parse(parser, arguments)
    records = {name: harness.Record(f"paper_{name}", options, {}) for name in PAPERS}
    missing = [run for run in possible(runs(options)) if run.key not in records[run.cell.paper].results]
    if options.plan or options.budget is not None:
        budget = float("inf") if options.budget is None else options.budget
        priced = []
        for run, minutes in affordable(missing, Costs(options, records).minutes, budget):
            priced.append((run, minutes))
            if options.plan:
                print(f"{minutes:8.2f} CPU-min  {run.cell.paper} / {run.key}", flush=True)
        print(f"{len(priced)} of {len(missing)} missing runs, {sum(one for _, one in priced):.0f} CPU-min", flush=True)
        missing = [] if options.plan else [run for run, _ in priced]
    for run in sorted(missing, key=lambda one: -one.cell.value):
        record = records[run.cell.paper]
        if run.key not in record.results:
            record.put(already(run, record.results) or measured(run, options.command), run.key)


if __name__ == "__main__":
    main()
