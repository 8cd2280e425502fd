"""Controls in an audit: run once for all plans of a method, compared user by user, and said in the verdict."""

from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privfed.audit import grid as audit_grid
from privfed.audit.config import AuditConfig
from privfed.audit.controls import ControlRun, compared, first_of_groups, run_controls
from privfed.audit.grid import ExtraAudits, not_run, run_audit
from privfed.audit.page import rows
from privfed.audit.report.records import ControlRow, Interval, Run
from privfed.audit.report.verdict import verdict
from privfed.data import Split, load, split
from privfed.evaluation import Metric, RoundEvaluation
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import AuditTapConfig, ExperimentConfig
from privfed.setup.controls import Control

PLANS = ("none", "clip:clip_norm=1")
CHOSEN: tuple[Control, ...] = ("untrained", "shuffled")


def grid(name: str = "fedmf") -> AuditConfig:
    return AuditConfig(
        data="synthetic-small",
        methods=({"name": name, "dim": 4},),
        plans=tuple(PrivacyPlan.parse(words) for words in PLANS),
        rounds=2,
        canaries=0,
        controls=CHOSEN,
        taps=AuditTapConfig(users=20, places=("sum",), inclusion=0),
    )


def test_an_audit_has_its_controls_beside_every_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_grid, "publish", lambda report, out: None)
    report = run_audit(grid(), load("synthetic-small"), tmp_path, workers=1)
    popular, *cells = report.aggregates
    assert popular.controls == []
    assert [[row.control for row in cell.controls] for cell in cells] == [["untrained", "shuffled"]] * 2
    first, second = ([row.users for row in cell.controls] for cell in cells)
    assert first == second
    named = [line["cells"][0] for line in rows.controls(report)]
    assert named == [("The untrained model",), ("Training on shuffled histories",)] * 2
    assert not any(file.suffix != ".json" for file in (tmp_path / "cells").iterdir())


class PoolHere(ProcessPoolExecutor):
    """Whatever it is handed is done at once, in this process."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        self.order.append(next(str(one) for one in arguments if isinstance(one, str)))
        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


def test_controls_come_first_and_then_the_longest_and_cells_have_the_controls_of_their_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: SimpleNamespace
) -> None:
    plans = (*grid().plans, PrivacyPlan.parse("central-gaussian:noise_multiplier=2,clip_norm=1"))
    config, values = grid().model_copy(update={"plans": plans}), np.linspace(0, 1, 20)
    cells, more = config.cells(), ExtraAudits(controls=CHOSEN)
    metric = Metric(name="ndcg", k=10, value=0.5, lo=0.4, hi=0.6, n_users=20)

    def attacked(cell: ExperimentConfig, *_: Any) -> tuple[Run, RoundEvaluation]:
        evaluated = RoundEvaluation(0, {}, ("ndcg", 10, values + 0.01 * len(cell.privacy.slug)))
        return make.run(cell.method_name, "none", 0), evaluated

    def control_of(cell: ExperimentConfig, parts: Split, control: Control, queue: Any) -> ControlRun:
        return ControlRun(control, metric, values / (1 + CHOSEN.index(control)))

    monkeypatch.setattr(audit_grid, "_attacked", attacked)
    monkeypatch.setattr(audit_grid, "_one_control", control_of)
    pool, files = PoolHere(), [tmp_path / f"{cell.method_name} {cell.privacy.slug}.json" for cell in cells]
    missing, parts = list(zip(cells, files, strict=True)), split(load("synthetic-small"), config.split)
    signs = audit_grid._Signs(1, 0, None)
    audit_grid._run_in_pool(pool, missing, parts, more, first_of_groups(cells), Queue(), signs)
    popular, plain, clipped, noised = (file.stem for file in files)
    assert pool.order == [*CHOSEN, noised, plain, clipped, popular]
    first, *rest = (Run.model_validate_json(file.read_text()) for file in files)
    assert first.controls == []
    assert [[row.control for row in run.controls] for run in rest] == [[*CHOSEN]] * 3
    for cell, run in zip(cells[1:], rest, strict=True):
        above = [row.gain.value for row in run.controls]
        assert above == pytest.approx([0.01 * len(cell.privacy.slug), 0.01 * len(cell.privacy.slug) + 0.25])


def test_controls_are_paired_by_user_and_run_once_for_a_method_and_seed() -> None:
    config, data = grid(), load("synthetic-small")
    cells, parts = config.cells(), split(data, config.split)
    (cell,) = first_of_groups(cells).values()
    assert cell is cells[1]
    evaluated = Experiment(cell, parts).run().selected
    runs = run_controls(cell, parts, config.controls)
    found, refused = compared(evaluated, runs)
    assert refused == []
    for row, run in zip(found, runs, strict=True):
        assert row.gain.value == pytest.approx((evaluated.by_user[2] - run.by_user).mean())
        assert row.users.value == pytest.approx(run.by_user.mean())
    fewer = replace(runs[0], by_user=runs[0].by_user[1:])
    found, (refused,) = compared(evaluated, [fewer, *runs[1:]])
    assert [row.control for row in found] == ["shuffled"]
    assert (refused.what, "other users" in refused.why) == ("the untrained model, as a control", True)


def test_a_control_that_cannot_be_run_is_reported() -> None:
    config = grid().model_copy(update={"methods": ({"name": "dcf"},), "controls": ("no-communication",)})
    parts = split(load("synthetic-small"), config.split)
    (run,) = run_controls(config.cells()[1], parts, config.controls)
    assert run.metric is None
    assert run.refused is not None
    assert run.refused.what == "devices that train alone, as a control of dcf"
    asked = AuditConfig.model_validate(config.model_dump() | {"controls": ["untrained", "no-communication"]})
    assert "controls (training on shuffled histories)" in {one.what for one in not_run(asked)}


def control(name: str, low: float, high: float) -> ControlRow:
    gain = Interval(value=(low + high) / 2, lo=low, hi=high)
    return ControlRow(control=name, name="ndcg", k=10, users=Interval(value=0.3, lo=0.2, hi=0.4), gain=gain)


@pytest.mark.parametrize(
    ("controls", "said"),
    [
        ([], ""),
        ([("untrained", 0.1, 0.2)], ""),
        ([("no-communication", -0.01, 0.02), ("untrained", 0.1, 0.2)], "cannot be told from devices that train alone"),
        (
            [("no-communication", -0.03, -0.01), ("untrained", -0.01, 0.01)],
            "cannot be told from the untrained model and is worse than devices that train alone",
        ),
    ],
)  # fmt: skip
def test_the_verdict_says_where_a_control_is_not_beaten(
    make: SimpleNamespace, controls: list[tuple[str, float, float]], said: str
) -> None:
    measured = [control(*one).model_dump() for one in controls]
    report = make.report([make.run("popularity", "none", 0), make.run("gpfedrec", "none", 0, controls=measured)])
    sentence = verdict(report).controls
    assert sentence == (f"Under this evaluation GPFedRec · no protection {said}." if said else "")
    assert report.verdict.endswith(sentence or "better than popularity.")
