"""Data without times are split as published, or at random; every command says so and records it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

ROWS = [(user, (user * 3 + n) % 40, "test" if n == 6 else "train") for user in range(24) for n in range(7)]
WHY = "There are no times to tell the newest by."
HEADERS = {"ratio": "user,item\n", "published": "user,item,split\n"}
SAID = {"ratio": "a random split per user (test 0.2", "published": "the split it was published with"}


@pytest.fixture(params=list(HEADERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def timeless(table: Callable[..., Path], kind: str) -> Path:
    width = HEADERS[kind].count(",") + 1
    return table("".join(",".join(map(str, row[:width])) + "\n" for row in ROWS), header=HEADERS[kind])


def recorded(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["config"]["split"]["kind"])


def test_a_run_says_and_records_the_split(cli: Callable, timeless: Path, kind: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = cli("run", "popularity", "--data", timeless, "--out", out)
    assert SAID[kind] in answer.out
    assert WHY in answer.out
    assert " 24 validation, " in answer.out
    assert recorded(out) == kind
    assert "popularity" in cli("run", "--out", out, "--resume").out


def test_an_audit_uses_the_same_split(cli: Callable, timeless: Path, kind: str, tmp_path: Path) -> None:
    words = ("--method", "popularity", "--privacy", "none", "--rounds", 1, "--set", "canaries=0", "--workers", 1)
    answer = cli("audit", timeless, *words, "--out", tmp_path / "audit")
    assert SAID[kind] in answer.out
    assert recorded(tmp_path / "audit") == kind


def test_data_show_says_what_a_run_would_do(cli: Callable, timeless: Path, kind: str) -> None:
    answer = cli("data", "show", timeless)
    assert SAID[kind] in answer.out
    assert WHY in answer.out
    assert SAID[kind] in cli("data", "show", timeless, "--json").document["split"]


def test_python_uses_the_same_split(timeless: Path, kind: str) -> None:
    import privfed

    assert privfed.run("popularity", timeless).config.split.kind == kind


def test_a_split_by_time_is_refused_where_it_was_asked_for(refused: Callable, timeless: Path, tmp_path: Path) -> None:
    words = ("--set", "split.kind=leave_one_out", "--out", tmp_path / "run")
    assert "none of its interactions is the newest" in refused("run", "popularity", "--data", timeless, *words)


def test_data_with_times_keep_their_newest_items(cli: Callable, own: Path, tmp_path: Path) -> None:
    columns = ("--user-column", "who", "--item-column", "what", "--time-column", "at")
    answer = cli("run", "popularity", "--data", own, *columns, "--out", tmp_path / "run")
    assert WHY not in answer.out
    assert recorded(tmp_path / "run") == "leave_one_out"
