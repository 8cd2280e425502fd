"""Controls in an audit: run once for all plans of a method, compared user by user, and said in the verdict."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from privfed.audit import grid as audit_grid
from privfed.audit.config import AuditConfig
from privfed.audit.controls import compared, first_of_groups, run_controls
from privfed.audit.grid import not_run, run_audit
from privfed.audit.page import rows
from privfed.audit.report.records import ControlRow, Interval
from privfed.audit.report.verdict import verdict
from privfed.data import load, split
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import AuditTapConfig

PLANS = ("none", "clip:clip_norm=1")


def grid(name: str = "fedmf") -> AuditConfig:
    return AuditConfig(
        data="synthetic-small",
        methods=({"name": name, "dim": 4},),
        plans=tuple(PrivacyPlan.parse(words) for words in PLANS),
        rounds=2,
        canaries=0,
        controls=("untrained", "shuffled"),
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
