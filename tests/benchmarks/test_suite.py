"""The performance suite says what it would measure, stops at a budget, and shows what another commit measured."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import harness, scale_tables
from benchmarks.peers.als import ranked
from benchmarks.speed.suite import __main__ as suite
from benchmarks.speed.suite import cases
from benchmarks.speed.suite.case import typical
from benchmarks.speed.suite.page import Page
from benchmarks.speed.suite.ratio import steps_of
from privfed.data import Histories
from privfed.methods import methods

Given = Callable[..., Namespace]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """Options as the command parses them, with files of their own; the code is that of commit `now`."""
    monkeypatch.setattr(harness, "commit", lambda: "now")
    usual = {
        "only": [],
        "again": False,
        "stale": False,
        "plan": False,
        "budget": 1e9,
        "command": "suite",
        "out": tmp_path,
    }
    return lambda **others: Namespace(**usual | others)


def task(key: str, row: dict[str, Any] | None = None) -> suite.Task:
    return suite.Task("rounds", key, lambda: {"cpu_s": 1.0} if row is None else row)


def test_what_is_there_is_measured_again_only_when_asked_or_old(given: Given, capsys: pytest.CaptureFixture) -> None:
    run = suite.Suite(given())
    run.run([task("a"), task("b")])
    assert [row["commit"] for row in run.record.results["rounds"].values()] == ["now", "now"]
    assert not suite.Suite(given()).wanted(task("a"))
    assert suite.Suite(given(again=True)).wanted(task("a"))
    assert not suite.Suite(given(stale=True)).wanted(task("a"))
    run.record.results["rounds"]["a"]["commit"] = "before"
    run.record.save()
    assert [key for key in "abc" if suite.Suite(given(stale=True)).wanted(task(key))] == ["a", "c"]
    capsys.readouterr()
    suite.Suite(given(stale=True, plan=True)).run([task("a"), task("b")])
    assert "rounds / a" in (said := capsys.readouterr().out)
    assert "rounds / b" not in said


def test_a_case_that_does_not_fit_into_the_budget_is_left_out_and_named(
    given: Given, capsys: pytest.CaptureFixture
) -> None:
    run = suite.Suite(given(budget=suite.UNKNOWN / 2))
    run.run([task("a")])
    assert run.record.results == {}
    assert "left out for lack of time: rounds / a" in capsys.readouterr().out


def test_seconds_of_the_last_time_are_expected(given: Given) -> None:
    run = suite.Suite(given())
    assert run.expected(task("a")) == suite.UNKNOWN
    run.record.results["rounds"] = {"a": {"cpu_s": 2.0, "cpu_s_first": 3.0, "rounds": 4}, "b": {"took_s": 7.0}}
    assert run.expected(task("a")) == suite.STARTING + 3 + 4 * 2
    assert run.expected(task("b")) == 7


def test_every_method_has_a_case_on_every_data_set() -> None:
    assert set(cases.methods()) == set(methods())
    for data in cases.DATA:
        assert {f"{data}/{name}" for name in methods()} <= set(cases.rounds([data]))


def test_the_page_tells_rows_of_another_commit_and_methods_without_a_row() -> None:
    numbers = ("users", "items", "pairs", "cpu_s", "wall_s", "peak_bytes", "imported_bytes", "up_bytes", "down_bytes")
    row = dict.fromkeys(numbers, 2) | {"label": "fedmf", "once": False, "load": [0.5]}
    row |= {"at": "2026-11-27 10:00", "commit": "f" * 40}
    old = row | {"label": "pfedrec", "at": "2026-11-22 10:00", "commit": ""}
    rows = {"ml-100k/pfedrec": old, "ml-100k/fedmf": row}
    lines = list(Page({"sessions": [{"machine": {}}], "results": {"rounds": rows}}, None).lines())
    assert any("1 at 2026-11-22 (a day" in line for line in lines)
    shown = [line for line in lines if line.startswith(("| fedmf ", "| pfedrec "))]
    assert [line.split(" | ")[-1].strip(" |") for line in shown] == ["f" * 9, "2026-11-22"]
    (missing,) = (line for line in lines if line.startswith("Not measured here: "))
    assert "popularity" in missing
    assert "fedmf" not in missing


def test_a_held_out_item_is_ranked_among_what_a_user_does_not_have() -> None:
    have = Histories.from_pairs(np.array([0, 0]), np.array([0, 1]), 1, 20)
    held = Histories.from_pairs(np.array([0]), np.array([2]), 1, 20)
    item = np.arange(20, 0, -1, dtype=np.float64)[:, None]
    assert ranked(np.ones((1, 1)), item, held, [have]) == {"hr": 1.0, "ndcg": 1.0}
    assert ranked(np.ones((1, 1)), item, held, [])["ndcg"] == pytest.approx(0.5)
    assert ranked(-np.ones((1, 1)), item, held, [have]) == {"hr": 0.0, "ndcg": 0.0}


def test_what_a_hundred_million_clients_cost_follows_from_the_slope() -> None:
    rows = [{"users": n, "cpu_s": 2e-5 * n, "bytes": 1000 + 7 * n} for n in (100_000, 1_000_000)]
    spent, by = scale_tables.reached(rows, lambda row: row["cpu_s"])
    assert (spent, by) == (pytest.approx(2000), pytest.approx(1))
    assert scale_tables.added(rows, lambda row: row["bytes"]) == pytest.approx(7)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([3.0], 3.0), ([1.0, 2.0], 1.5), ([9.0, 1.0, 2.0], 2.0), ([1.0, 2.0, 3.0, 9.0], 2.5), ([0.0, 4, 5, 6, 99], 5.0)],
)
def test_a_typical_round_leaves_out_a_quarter_at_either_end(values: list[float], wanted: float) -> None:
    assert typical(values) == wanted


def test_steps_of_a_round_are_timed_and_put_back() -> None:
    from secure_agg.primitives import keys

    derive, paths = keys.derive, {"derived": "secure_agg.primitives.keys:derive", "idle": "secure_agg.shamir:split"}
    spent = steps_of(lambda: [keys.derive(bytes(32), 32, label="a", context=bytes(32)) for _ in range(50)], paths)
    assert (spent["derived"]["calls"], spent["idle"]) == (50, {"cpu_s": 0.0, "calls": 0})
    assert spent["derived"]["cpu_s"] > 0
    assert keys.derive is derive


def test_steps_belong_to_ratios_and_exist() -> None:
    assert set(cases.STEPS) <= set(cases.RATIOS)
    for steps in cases.STEPS.values():
        assert all(spent["calls"] == 0 for spent in steps_of(lambda: None, steps).values())
