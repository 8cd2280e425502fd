"""Somebody who has just found privfed follows README and the tutorials, block by block, outside the clone.

`make slow` runs this with a wheel and the dependencies of the tests' environment (`tests/bare.py`). By hand, with
README's own line in an environment that holds nothing else:

    python3 -m venv bare && bare/bin/python -m pip install -c constraints.txt torch .
    JOURNEY_PYTHON=$PWD/bare/bin/python python -m pytest -m slow tests/journeys
"""

import ast
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bare import ROOT, build, install

pytestmark = [pytest.mark.slow, pytest.mark.process]

TUTORIALS = ROOT / "docs" / "tutorials"
NEW_BLOCK = "-- next block --"
NUMBER = r"-?\d[\d,]*\.?\d*(?:e-?\d+)?"
TOLERANCE = 0.02


@dataclass(frozen=True)
class Traveller:
    """Somebody with an environment, in a folder of their own.

    Attributes:
        python: the interpreter of the environment.
        folder: where they are.
    """

    python: Path
    folder: Path

    def runs(self, command: str, seconds: int = 900, *, traceback: bool = False) -> str:
        """What a shell command prints; it has to succeed without a warning, or a traceback where none may be."""
        clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "COLUMNS"}}
        path = f"{self.python.parent}{os.pathsep}{clean['PATH']}"
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=clean | {"PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert traceback or "Traceback" not in done.stderr + done.stdout
        assert "Warning" not in done.stderr
        return done.stdout

    def runs_python(self, page: Path) -> list[str]:
        """What each block of Python prints, all of them saved as one script, as people do."""
        (self.folder / "page.py").write_text("\n".join(map(shown, blocks(page, "python"))), encoding="utf-8")
        return [part.strip() for part in self.runs("python page.py").split(NEW_BLOCK)[1:]]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def shown(block: str) -> str:
    """The block as a notebook runs it: the value of its last line is printed, a table whole."""
    body = ast.parse(block).body
    last = body[-1]
    if isinstance(last, ast.Expr) and not ast.unparse(last).startswith("print("):
        body[-1:] = ast.parse(
            f"it = {ast.unparse(last)}\nprint(it.to_string() if hasattr(it, 'to_string') else it)"
        ).body
    return "\n".join([f"print({NEW_BLOCK!r})", *map(ast.unparse, body)])


def words(text: str) -> list[str]:
    """Lines with every number as one sign, and spaces as one."""
    return [" ".join(re.sub(NUMBER, "#", line).split()) for line in text.strip().splitlines()]


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(NUMBER, text)]


def same(printed: str, page: str) -> None:
    """The same words, and the same numbers but for the last bits of another processor."""
    assert words(printed) == words(page)
    assert numbers(printed) == pytest.approx(numbers(page), rel=TOLERANCE, abs=TOLERANCE)


def above_popularity(text: str) -> float:
    """By how many percent a run says that it is better than popularity."""
    (said,) = re.findall(r"(\d+) ?% (above|below)", text)
    return float(said[0]) * (1 if said[1] == "above" else -1)


def row(text: str, start: str) -> str:
    """The last line that begins so."""
    return [line for line in text.splitlines() if line.startswith(start)][-1]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the bare environment."""
    if given := os.environ.get("JOURNEY_PYTHON"):
        return Path(given)
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("bare")
    (folder / "dist").mkdir()
    return install(build(folder / "dist")[1], folder / "env")


@pytest.fixture
def me(python: Path, tmp_path: Path) -> Traveller:
    return Traveller(python, tmp_path)


@pytest.fixture
def films(me: Traveller) -> Traveller:
    """Somebody with MovieLens-100K, which README shows."""
    sets = {one["name"]: one for one in json.loads(me.runs("privfed data list --json"))}
    if not sets["ml-100k"]["here"]:
        pytest.skip("ml-100k is not on this machine")
    return me


def test_readme_in_python(films: Traveller) -> None:
    printed, page = films.runs_python(ROOT / "README.md")[0], blocks(ROOT / "README.md", "text")[0]
    same(printed, page)
    assert above_popularity(printed) > 0


def test_readme_on_the_command_line(films: Traveller) -> None:
    _, _, (run, recommend) = (block.strip().splitlines() for block in blocks(ROOT / "README.md", "sh"))
    printed, page = films.runs(run), blocks(ROOT / "README.md", "text")[1]
    same("\n".join(row(printed, line.split()[0]) for line in page.strip().splitlines()), page)
    assert above_popularity(row(printed, "Quality:")) > 0
    assert (films.folder / "runs/gram/guarantee.json").exists()
    titles = [
        line.split("  ")[-2].split(maxsplit=2)[-1] for line in blocks(ROOT / "README.md", "text")[0].splitlines()[-3:]
    ]
    listed = films.runs(recommend)
    assert [title for title in titles if title not in listed] == []
    follow = row(printed, "Next: ").removeprefix("Next: ")
    assert follow.startswith("privfed attack")
    assert "AUC" in films.runs(follow)


def test_the_audit_of_readme(films: Traveller) -> None:
    """`make audit` sets up `.venv` first; what it runs then is this."""
    printed = " ".join(films.runs("privfed audit").split())
    assert (films.folder / "audit/index.html").stat().st_size > 100_000
    assert "of four settings" in printed
    assert "audit/index.html" in printed
    assert "Contradicted" not in printed


def test_audit_your_first_recommender(me: Traveller) -> None:
    page = TUTORIALS / "audit_your_recommender.md"
    loaded, again, verdict, table, written = me.runs_python(page)
    assert loaded.startswith("shop: 120 users")
    assert again == loaded
    assert "settings" in verdict
    assert verdict.endswith(".")
    assert len(table.splitlines()) == 1 + len(("gpfedrec:published", "gpfedrec", "private-gram"))
    for column in ("method", "epsilon", "value", "popularity", "auc", "auc_popularity"):
        assert column in table.splitlines()[0].split()
    assert Path(written).name == "audit.html"
    assert "</html>" in (me.folder / "audit.html").read_text(encoding="utf-8")
    (command,) = blocks(page, "sh")
    printed = " ".join(me.runs(command).split())
    assert "of six settings" in printed
    assert (me.folder / "audit" / "index.html").exists()


def test_train_a_private_recommender(me: Traveller) -> None:
    page = TUTORIALS / "private_recommender.md"
    run, metrics, new, known, guarantee, sizes, again, exported = me.runs_python(page)
    assert len(run.splitlines()) == 3
    assert above_popularity(run) > 0
    assert "NDCG" in metrics
    assert [len(table.splitlines()) for table in (new, known)] == [1 + 5, 1 + 5]
    epsilon, delta, unit, trust = guarantee.splitlines()[0].split()
    assert (unit, trust) == ("user", "central")
    assert 7.9 < float(epsilon) <= 8
    assert 0 < float(delta) < 1 / 120
    assert guarantee.count("\n- ") >= 3
    multipliers = [float(found) for found in re.findall(r"noise multiplier (\S+)", sizes)]
    assert len(multipliers) == 4
    assert multipliers == sorted(multipliers, reverse=True)
    assert again == epsilon
    assert exported
    assert (me.folder / "model.safetensors").exists()
    assert {"guarantee.json", "ledger.json", "config.json"} <= {file.name for file in (me.folder / "gram").iterdir()}


@pytest.mark.flower
def test_three_organisations(me: Traveller) -> None:
    """Servers in the background; some minutes. By hand `make federation` sets `.venv` up first."""
    pytest.importorskip("flwr")
    page = TUTORIALS / "three_organisations.md"
    command = blocks(page, "sh")[1].strip().replace("python examples", f"python {ROOT}/examples")
    command = command.replace("--data ml-100k", "--data synthetic")
    printed = me.runs(command, seconds=1200)
    assert "gateway: a stranger with its address and certificate cannot" in printed
    assert "SuperLink, gateway and 3 nodes run after" in printed
    assert 3.5 < numbers(row(printed, "guarantee:"))[0] <= 4
    folder = me.folder / "my-federation"
    named = re.findall(r"^\| `([\w./-]+)` \|", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(named) == 4
    assert [name for name in named if not (folder / name).exists()] == []
    policy = folder / "nodes/alpha/node.toml"
    policy.write_text(policy.read_text().replace("max_epsilon = 8.0", "max_epsilon = 1.0"))
    refused = [line for line in me.runs(command, traceback=True).splitlines() if line.startswith("refused:")]
    assert refused
    assert all("node alpha" in line and "its policy has max_epsilon = 1 " in line for line in refused)


def test_another_number_or_word_is_noticed() -> None:
    same("epsilon 8.00, 41 % above", "epsilon 8.01, 41 % above")
    for other in ("epsilon 8.00, 41 % below", "epsilon 8.00, 45 % above"):
        with pytest.raises(AssertionError):
            same("epsilon 8.00, 41 % above", other)
