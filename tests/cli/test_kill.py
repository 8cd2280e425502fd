"""A killed run continues to the very bytes of an unbroken one; an interrupted one says how to go on."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.cli.directory import held

pytestmark = pytest.mark.process

RUN = (
    "run", "gpfedrec", "--data", "synthetic-small", "--rounds", 24,
    "--privacy", "local-laplace:epsilon0=1,clip_norm=1", "--set", "evaluate_every=2", "--set", "method.dim=8",
    "--quiet",
)  # fmt: skip
FILES = ("config.json", "metrics.jsonl", "ledger.jsonl", "ledger.json", "guarantee.json")
_PATIENCE = 60


def contents(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in FILES} | {
        path.name: path.read_bytes() for path in sorted((run / "taps").iterdir())
    }


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + _PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


def count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("checkpoint_every", [5, 1000], ids=["after a checkpoint", "before the first checkpoint"])
def test_kill_and_resume(
    cli: Callable, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, checkpoint_every: int
) -> None:
    words = (*RUN, "--set", f"checkpoint_every={checkpoint_every}")
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    process = start(*words, "--out", broken)
    wait_for(lambda: count(broken / "ledger.jsonl") > 8, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (broken / "guarantee.json").exists()
    assert (broken / "checkpoint").exists() == (checkpoint_every == 5)
    first = json.loads((broken / "metrics.jsonl").read_text().splitlines()[0])

    cli("run", "--out", broken, "--resume", "--quiet")
    cli(*words, "--out", whole)
    assert contents(broken) == contents(whole)
    assert json.loads((whole / "metrics.jsonl").read_text().splitlines()[0]) == first


def test_half_a_line_of_metrics_is_dropped_on_resume(cli: Callable, tmp_path: Path) -> None:
    out = tmp_path / "r"
    cli(*RUN, "--rounds", 4, "--out", out)
    before = (out / "metrics.jsonl").read_bytes()
    (out / "metrics.jsonl").write_bytes(before + b'{"round": 3, "par')
    cli("run", "--out", out, "--resume", "--quiet")
    assert (out / "metrics.jsonl").read_bytes() == before


def test_two_processes_do_not_continue_one_run(refused: Callable[..., str], cli: Callable, tmp_path: Path) -> None:
    """Each would write its half of one checkpoint."""
    out = tmp_path / "r"
    cli(*RUN, "--rounds", 2, "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with held(out, new=False):
        assert f"another process trains in {out} right now" in refused("run", "--out", out, "--resume", "--quiet")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    cli("run", "--out", out, "--resume", "--quiet")


def test_two_new_runs_do_not_share_a_folder(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other one began while this one was assembled."""
    out = tmp_path / "r"

    def late(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr("privfed.cli.directory.claim", late)
    assert "holds a run already" in refused(*RUN, "--rounds", 2, "--out", out)
    assert (out / "config.json").read_text() == "{}"


def test_interruption(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    out = tmp_path / "r"
    process = start(*RUN, "--rounds", 500, "--out", out)
    wait_for(lambda: count(out / "ledger.jsonl") > 3, process)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 130
    assert printed == ""
    assert told.startswith("privfed: stopped after round ")
    assert told.endswith(f"of 500; to go on: privfed run --out {out} --resume\n")


def test_a_cut_last_line_of_the_ledger_is_told_to_people(cli: Callable, tmp_path: Path) -> None:
    out = tmp_path / "r"
    cli(*RUN, "--rounds", 4, "--out", out)
    with (out / "ledger.jsonl").open("ab") as file:
        file.write(b'{"previous":')
    note = "Note: the last line of ledger.jsonl was cut short (12 bytes, after 4 entries) and has been dropped"
    told = cli("run", "--out", out, "--resume", "--quiet")
    assert told.out.count(note) == 2, "when it resumes, and at the end"
    document = json.loads(cli("run", "--out", out, "--resume", "--json").out)
    assert ["cut short (12 bytes" in notice for notice in document["notices"]] == [True]
    assert json.loads((out / "ledger.json").read_text())["notices"] == document["notices"]
    assert note in cli("attack", out).out


@pytest.mark.parametrize("kept", [0, 3])
def test_a_ledger_that_was_rolled_back_ends_a_resume_with_one_sentence(
    cli: Callable, tmp_path: Path, kept: int
) -> None:
    out = tmp_path / "r"
    cli(*RUN, "--rounds", 4, "--out", out)
    ledger, metrics = out / "ledger.jsonl", (out / "metrics.jsonl").read_bytes()
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:kept])) if kept else ledger.unlink()
    for command in (("run", "--out", out, "--resume"), ("attack", out)):
        told = cli(*command, code=2)
        assert ("holds 2 entries where the checkpoint has seen 4" if kept else "cannot be read") in told.err
    assert (out / "metrics.jsonl").read_bytes() == metrics
