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
from privfed.audit.report.records import POPULARITY, ControlRow, Interval, NotRun
from privfed.data import Split
from privfed.evaluation import Metric, RoundEvaluation
from privfed.experiment import Experiment
from privfed.privacy import PlanError, PrivacyPlan
from privfed.setup.config import ExperimentConfig
from privfed.setup.controls import CONTROLS, Control


@dataclass(frozen=True, slots=True, eq=False)
class ControlRun:
    """A control as it was measured.

    Attributes:
        control: which it is.
        metric: its main metric on the test part.
        by_user: the same for every test user, ascending.
        refused: why it was not run; None where it was.
    """

    control: Control
    metric: Metric | None
    by_user: Float64[np.ndarray, " users"]
    refused: NotRun | None = None


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
        selected = Experiment(cell.model_copy(update=changes), parts).run().selected
    except PlanError as reason:
        what = f"{CONTROLS[control]}, as a control of {cell.method_name}"
        return ControlRun(control, None, np.empty(0), NotRun(what=what, why=str(reason)))
    if selected.by_user is None:
        what = f"{CONTROLS[control]}, as a control of {cell.method_name}"
        return ControlRun(control, None, np.empty(0), NotRun(what=what, why="it compares rankings, not ratings"))
    name, k, values = selected.by_user
    return ControlRun(control, selected.results["test"].metric(name, k), values)


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
