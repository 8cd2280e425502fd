"""`--private-evaluation` and `tune`: noisy metrics everywhere, exact ones nowhere, and refusals in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from privfed.cli import closing
from privfed.evaluation import COUNTED, UNCOUNTED
from privfed.experiment import RunResult

Cli = Callable[..., Any]
WORDS = ("private-gram", "--data", "synthetic-small", "--epsilon", "8")


def test_a_run_shows_and_writes_noisy_metrics_only(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = cli("run", *WORDS, "--private-evaluation", "--set", "evaluation.mu=0.5", "--out", out, "--json")
    (test,) = answer.document["utility"].values()
    assert test["mu"] == 0.5
    assert {metric["name"] for metric in test["metrics"]} == {"ndcg", "hr"}
    assert all(metric["noise"] > 0 for metric in test["metrics"])
    assert answer.document["guarantee"]["epsilon"] <= 8
    assert COUNTED in answer.document["guarantee"]["statements"]
    assert UNCOUNTED not in answer.out
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["value"] for line in lines] == [metric["value"] for metric in test["metrics"]]
    assert {line["part"] for line in lines} == {"test"}
    assert [line["value"] for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())]
    saved = json.loads((out / "checkpoint" / "progress.json").read_text())["progress"]["history"]
    assert [list(one["results"]) for one in saved] == [["test"]]


@pytest.mark.parametrize(("lo", "hi", "worse"), [(-0.2, -0.1, True), (-0.2, 0.1, False), (0.1, 0.2, False)])
def test_what_noise_shows_to_be_below_popularity_is_said_last(
    lo: float, hi: float, worse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = SimpleNamespace(value=(lo + hi) / 2, lo=lo, hi=hi)
    monkeypatch.setattr(closing, "difference", lambda _: gap)
    monkeypatch.setattr(closing, "_noisy_quality", lambda *_: "Quality: noisy.")
    monkeypatch.setattr(closing, "_privacy", lambda _: "Privacy: stated.")
    result = Mock(
        spec=RunResult, test=SimpleNamespace(mu=0.1), config=SimpleNamespace(control=None, method_name="fedmf")
    )
    lines = closing.closing_lines("private-gram", result, None, synthetic=False)
    assert lines[-1] == ("Quality: noisy." if worse else "Privacy: stated.")
    assert ("worse than recommending" in closing.next_step(Path("out"), result, None)) == worse


def test_a_measurement_that_noise_drowned_says_so_in_place_of_a_number(cli: Cli, tmp_path: Path) -> None:
    answer = cli("run", *WORDS, "--private-evaluation", "--set", "evaluation.mu=0.002", "--out", tmp_path / "run")
    said = " ".join(answer.out.split())
    assert "Quality: not known. The noise on the number of people" in said
    assert "% below" not in said
    assert "recommending the most popular items" not in said


def test_tune_chooses_among_settings_of_one_release(cli: Cli, tmp_path: Path) -> None:
    words = ("--set-grid", "rank=0,64", "--set-grid", "beyond_head=popularity,content")
    answer = cli("tune", *WORDS, *words, "--out", tmp_path / "tuned")
    assert answer.out.count("chosen") >= 1
    assert "Choice among 4 settings of one release" in answer.out
    assert "beyond_head = content" in answer.out
    assert "Quality: " in answer.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("run", "fedmf", "--data", "synthetic-small", "--private-evaluation"), "noisy sum of whole users"),
        (("tune", *WORDS, "--set-grid", "rank"), "is not of the form key=v1,v2"),
        (("tune", *WORDS, "--set-grid", "damping=0,0.5"), "changes what devices are asked"),
        (("tune", "fedmf", *WORDS[1:], "--set-grid", "dim=4,8"), "another release"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(cli: Cli, tmp_path: Path, words: Any, why: str) -> None:
    answer = cli(*words, "--out", tmp_path / "run", code=2)
    assert why in " ".join(answer.err.split())
    assert not (tmp_path / "run" / "config.json").exists()
