"""Controls of an audit: what a method has to beat, run beside it and compared user by user.

A control is run once for every method and seed, without a mechanism, and serves all plans of the method. What single
users reached stays in memory: no file holds it, so an audit that was stopped runs its controls again.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float64

from attacks.metrics import user_mean
from privfed.audit.report.records import POPULARITY, Check, ControlRow, Interval, NotRun
from privfed.data import Split
from privfed.evaluation import Metric, RoundEvaluation
from privfed.experiment import Experiment, RunResult
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig
from privfed.setup.controls import CONTROLS, SILENT, Control


@dataclass(frozen=True, slots=True, eq=False)
class ControlRun:
    """A control as it was measured.

    Attributes:
        control: which it is.
        metric: its main metric on the test part.
        by_user: the same for every test user, ascending.
        refused: why it was not run; None where it was.
        fault: why it is not what it is called; empty where it is.
    """

    control: Control
    metric: Metric | None
    by_user: Float64[np.ndarray, " users"]
    refused: NotRun | None = None
    fault: str = ""


def group(cell: ExperimentConfig) -> str:
    """What the controls of a cell depend on: cells of one group share them."""
    return json.dumps([cell.method, cell.rounds, cell.seed], sort_keys=True)


def first_of_groups(cells: Sequence[ExperimentConfig]) -> dict[str, ExperimentConfig]:
    """A cell of every group that has controls; popularity is one itself."""
    return {group(cell): cell for cell in reversed(cells) if cell.method_name != POPULARITY}


def run_controls(cell: ExperimentConfig, parts: Split, controls: Sequence[Control]) -> list[ControlRun]:
    """Run the controls of a cell."""
    return [_run(cell, parts, control) for control in controls]


def _run(cell: ExperimentConfig, parts: Split, control: Control) -> ControlRun:
    changes = {
        "control": control,
        "privacy": PrivacyPlan.named("none"),
        "taps": cell.taps.of_run(places=(), inclusion=0.0, shadows=0),
    }
    try:
        experiment = Experiment(cell.model_copy(update=changes), parts)
        result = experiment.run()
        selected = result.selected
    except PlanError as reason:
        what = f"{CONTROLS[control]}, as a control of {cell.method_name}"
        return ControlRun(control, None, np.empty(0), NotRun(what=what, why=str(reason)))
    if selected.by_user is None:
        what = f"{CONTROLS[control]}, as a control of {cell.method_name}"
        return ControlRun(control, None, np.empty(0), NotRun(what=what, why="it compares rankings, not ratings"))
    name, k, values = selected.by_user
    fault = _fault(control, experiment, result, parts)
    return ControlRun(control, selected.results["test"].metric(name, k), values, fault=fault)


def _fault(control: Control, experiment: Experiment, result: RunResult, parts: Split) -> str:
    """Why a control is not what it is called; empty where it is."""
    if control == "shuffled":
        own, true = experiment.trained.train, parts.train
        same = int(np.isin(own.pairs(own.n_items), true.pairs(true.n_items)).sum())
        # Of so many renamed items of a user, of n, about as many as the square of their number over n are its own.
        chance = float((true.counts.astype(np.float64) ** 2).sum() / true.n_items)
        if same > chance + 10 * chance**0.5 + 10 and same > 0.5 * len(own):
            return f"{same} of {len(own)} shuffled training items are those that their users really have"
    if control in SILENT and result.entries:
        return f"{len(result.entries)} queries were made in a control in which nothing is sent"
    return ""


def check_controls(runs: Sequence[ControlRun]) -> list[Check]:
    """Whether the controls of a run are what they are called."""
    faults = [f"{CONTROLS[run.control]}: {run.fault}" for run in runs if run.fault]
    measured = [run for run in runs if run.refused is None]
    detail = faults[0] if faults else f"{len(measured)} controls trained on what they are to train on, or on nothing"
    return [Check(name="controls", passed=not faults, detail=detail)] if measured else []


def compared(evaluated: RoundEvaluation, runs: Sequence[ControlRun]) -> tuple[list[ControlRow], list[NotRun]]:
    """The controls beside a run, paired by user, and what was not run or measured other users."""
    rows, without = list[ControlRow](), list[NotRun]()
    for run in runs:
        if run.refused is not None:
            without.append(run.refused)
        elif run.metric is None or evaluated.by_user is None or len(evaluated.by_user[2]) != len(run.by_user):
            why = "it has measured other users than the run, so they cannot be compared user by user"
            without.append(NotRun(what=f"{CONTROLS[run.control]}, as a control", why=why))
        else:
            rows.append(_row(evaluated.by_user[2], run, run.metric))
    return rows, without


def _row(by_user: Float64[np.ndarray, " users"], run: ControlRun, metric: Metric) -> ControlRow:
    gain = user_mean(by_user - run.by_user, resamples=1000)
    return ControlRow(
        control=run.control,
        name=metric.name,
        k=metric.k,
        users=Interval(value=metric.value, lo=metric.lo, hi=metric.hi),
        gain=Interval.model_validate(asdict(gain)),
    )
