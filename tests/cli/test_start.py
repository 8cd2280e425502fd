"""What a command loads before it answers, counted: seconds belong to whoever else is busy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed.start import HEAVY, PLAIN, REFUSALS, UNKNOWN

_REFUSE = """
import json, os, sys
from contextlib import redirect_stderr
from io import StringIO
from privfed.cli import app

answers = []
for words in json.loads(sys.argv[1]):
    with redirect_stderr(StringIO()) as told:
        try:
            app(words)
        except SystemExit as end:
            code = end.code
    answers.append([code, told.getvalue(), sorted(set(json.loads(sys.argv[2])) & set(sys.modules))])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, list[str]]]:
    """Every refusal, all in one process, one after the other: what one loads is there for those after it."""
    call = [
        sys.executable,
        "-c",
        _REFUSE,
        json.dumps([words.split() for words in REFUSALS]),
        json.dumps([*HEAVY, "numpy"]),
    ]
    folder = tmp_path_factory.mktemp("start")
    done = subprocess.run(
        call, capture_output=True, text=True, check=True, cwd=folder, env=os.environ | {"PYTHONPATH": str(Path.cwd())}
    )
    return dict(zip(REFUSALS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("words", REFUSALS)
def test_a_refusal_loads_neither_torch_nor_anything_as_heavy(
    words: str, answers: dict[str, tuple[int, str, list[str]]]
) -> None:
    code, told, loaded = answers[words]
    assert code == 2
    assert set(loaded) <= (set() if words in (*UNKNOWN, *PLAIN) else {"numpy"})
    assert len(told.splitlines()) == 1
    assert told.startswith("privfed: ")
