"""docs/add_a_method.md is true: its file is written to disk, registered by its entry point, and run by the command."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privfed.cli import app
from privfed.methods import methods

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add_a_method.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's file and entry point, installed in a folder as pip would install them."""
    project = tomllib.loads(blocks("toml")[0])["project"]
    (tmp_path / f"{project['name']}.py").write_text(blocks("python")[0], encoding="utf-8")
    info = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = ["[privfed.methods]"]
    lines += [f"{name} = {place}" for name, place in project["entry-points"]["privfed.methods"].items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield project["name"]
    sys.modules.pop(project["name"], None)


def call(*words):
    answer = CliRunner().invoke(app, [str(word) for word in words])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_the_page_shows_a_whole_method_of_about_thirty_lines():
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 32


def test_the_pages_method_is_registered_trained_and_attacked_by_the_command(installed, tmp_path):
    found = methods()[installed]
    assert (found.item_block, found.bias_block, found.upload) == ("items.weight", "bias", "rows")
    out, private = tmp_path / "run", tmp_path / "private"
    common = ("--data", "synthetic-small", "--rounds", 2, "--quiet", "--json")
    result = json.loads(call("run", installed, *common, "--out", out))
    assert result
    plan = re.search(r"--privacy (\S+) --set (\S+)", PAGE)
    call("run", installed, *common, "--privacy", plan[1], "--set", plan[2], "--out", private)
    rows = json.loads(call("attack", out, "--json", "--quiet"))
    assert "bias" in json.dumps(rows)
    assert installed in call("methods")


def test_the_bones_of_popularity_are_its_own_lines():
    source = (ROOT / "privfed" / "methods" / "popularity" / "__init__.py").read_text(encoding="utf-8")
    source = [line.split("  # noqa")[0] for line in source.splitlines()]
    shown = [line for block in blocks("python")[1:] for line in block.splitlines() if line.strip()]
    assert len(shown) > 10
    assert [line for line in shown if line not in source] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|privfed|docs)/[\w/]+\.(?:py|md))`", PAGE))))
def test_files_named_on_the_page_exist(path):
    assert (ROOT / path).exists()
