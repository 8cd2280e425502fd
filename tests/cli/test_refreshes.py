"""`privfed run --refreshes`."""

import json
from collections.abc import Callable
from pathlib import Path


def test_a_year_on_the_command_line(cli: Callable, tmp_path: Path) -> None:
    words = ("run", "private-gram", "--data", "synthetic-small", "--epsilon", 8, "--refreshes", 2)
    found = cli(*words, "--out", tmp_path / "year", "--json").document
    assert (found["config"]["method"], found["config"]["rounds"]) == ({"name": "private-gram-year", "refreshes": 2}, 2)
    assert 7.9 < found["guarantee"]["epsilon"] <= 8
    entries = [json.loads(line) for line in (tmp_path / "year" / "ledger.jsonl").read_text().splitlines()[1:]]
    assert {entry["event"]["kind"] for entry in entries} == {"account"}
