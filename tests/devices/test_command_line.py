"""`--device` from the command line to the run directory, and back out of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from privfed.cli import app

WORDS = ("--data", "synthetic-small", "--rounds", "2", "--set", "taps.users=5", "--quiet")


def command(*words: object) -> Any:
    """The result of a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def told(result: Any) -> str:
    """The sentence of a refused command."""
    assert result.exit_code == 2, result.output
    return str(result.stderr)


@pytest.fixture
def trained(pretended: Callable, tmp_path: Path) -> Path:
    """A run on the pretended device."""
    with pretended():
        result = command("run", "fedmf", *WORDS, "--device", "pretend", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    return tmp_path / "run"


def test_the_record_names_the_device(trained: Path) -> None:
    config = json.loads((trained / "config.json").read_text())["config"]
    assert (config["device"], config["deterministic"]) == ("pretend", True)


def test_a_trained_run_is_attacked_and_recommends_anywhere(pretended: Callable, trained: Path) -> None:
    assert command("attack", trained, "--json").exit_code == 0
    user = ("recommend", trained, "--user", "1", "--json")
    here = json.loads(command(*user).stdout)
    with pretended():
        there = json.loads(command(*user, "--device", "pretend").stdout)
    assert [item["item"] for item in there["items"]] == [item["item"] for item in here["items"]]


def test_a_run_resumes_where_it_was_begun(trained: Path) -> None:
    assert "was begun with device = 'pretend', not 'cpu'" in told(
        command("run", "--out", trained, "--resume", "--device", "cpu")
    )


def test_a_run_directory_from_before_there_were_devices_resumes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert command("run", "fedmf", *WORDS, "--out", out).exit_code == 0
    record = json.loads((out / "config.json").read_text())
    for field in ("device", "deterministic"):
        del record["config"][field]
    (out / "config.json").write_text(json.dumps(record))
    assert command("run", "--out", out, "--resume", "--quiet").exit_code == 0


def test_devices_that_are_not_there_are_refused(tmp_path: Path) -> None:
    for words in (("--device", "cuda:99"), ("--set", "device=cuda:99")):
        assert "cannot be used here" in told(command("run", "fedmf", *WORDS, *words, "--out", tmp_path / "run"))
    assert "No such option: --device" in told(command("methods", "--device", "cuda"))


def test_an_audit_reports_the_device_it_trained_on(pretended: Callable, tmp_path: Path) -> None:
    words = ("--method", "fedmf", "--data", "synthetic-small", "--rounds", "1", "--privacy", "none", "--quiet")
    fast = ("--set", "taps.users=5", "--set", "canaries=0", "--workers", "1")
    with pretended():
        result = command("audit", *words, *fast, "--device", "pretend", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["environment"]["device"] == "pretend"
    assert "GPU runs" not in {reason["what"] for reason in report["not_run"]}
