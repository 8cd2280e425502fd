"""The command as tests call it: in this process through `cli`, or as a real process through `start`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from privfed.cli import app
from privfed.data import catalogue


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


@pytest.fixture(scope="session", autouse=True)
def no_terminal() -> Iterator[None]:
    """Test runners may set a width for their own output; a command must not take it for a terminal's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="session")
def call() -> Callable[..., Answer]:
    """Run a command in this process."""

    def run(*words: object) -> Answer:
        result = CliRunner().invoke(app, [str(word) for word in words])
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def cli(call: Callable[..., Answer]) -> Callable[..., Answer]:
    """Run a command in this process; anything but the code 0 fails unless `code` says so."""

    def run(*words: object, code: int = 0) -> Answer:
        answer = call(*words)
        assert answer.code == code, answer.err + answer.out
        return answer

    return run


@pytest.fixture
def refused(cli: Callable[..., Answer]) -> Callable[..., str]:
    """Run a command that must be refused: one line on standard error, nothing but it, and code 2."""

    def run(*words: object) -> str:
        answer = cli(*words, code=2)
        lines = answer.err.splitlines()
        assert len(lines) == 1, answer.err
        assert lines[0].startswith("privfed: ")
        assert "Traceback" not in answer.err
        return lines[0].removeprefix("privfed: ")

    return run


@pytest.fixture(scope="session")
def heavy_of() -> Callable[..., list[str]]:
    """Run a command in a process of its own: which of the heavy libraries it loaded."""
    code = (
        "import sys; from privfed.cli import main\n"
        "try: main()\n"
        "finally: print(*({'torch', 'pandas', 'pydantic'} & set(sys.modules)), file=sys.stderr)"
    )

    def run(*words: object) -> list[str]:
        call = [sys.executable, "-c", code, *map(str, words)]
        return sorted(subprocess.run(call, capture_output=True, text=True, check=True).stderr.split())

    return run


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command as a process of its own, with one thread as in the tests themselves."""
    begun: list[subprocess.Popen[str]] = []

    def run(*words: object) -> subprocess.Popen[str]:
        code = "from privfed.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *(str(word) for word in words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def trained(call: Callable[..., Answer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 4 rounds; read it, do not write to it."""
    out = tmp_path_factory.mktemp("trained") / "run"
    answer = call("run", "fedmf", "--data", "synthetic-small", "--rounds", 4, "--out", out, "--quiet")
    assert answer.code == 0, answer.err
    return out


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the command never reach for data of this machine."""
    monkeypatch.delenv(catalogue.ENVIRONMENT, raising=False)


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """Write a csv file of user, item, timestamp."""

    def write(text: str, name: str = "own.csv", header: str = "user,item,timestamp\n") -> Path:
        path = tmp_path / name
        path.write_text(header + text)
        return path

    return write


@pytest.fixture
def own(table: Callable[..., Path]) -> Path:
    """Twelve users with seven items each, one with a single item, and columns of other names."""
    rows = [f"u{user},{(user * 3 + n) % 40},{n}" for user in range(12) for n in range(7)]
    return table("\n".join([*rows, "alone,3,1"]) + "\n", "shop.csv", "who,what,at\n")
