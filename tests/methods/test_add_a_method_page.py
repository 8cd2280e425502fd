"""docs/guides/add_a_method.md is true: its files are written to disk, registered by entry point, checked, and run."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privfed.cli import app
from privfed.methods import method, methods
from privfed.testing import CHECKS, check_method

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "add_a_method.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


WHOLE, CHECKED, MODULE = blocks("python")


def install(directory, files, name, version, entries):
    """Modules and a dist-info with their entry points, as an installer would leave them."""
    for file, source in files.items():
        (directory / f"{file}.py").write_text(source, encoding="utf-8")
    info = directory / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = ["[privfed.methods]", *(f"{key} = {value}" for key, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The page's two methods: the one by hand with the page's own entry point, the torch module in a second package."""
    project = tomllib.loads(blocks("toml")[0])["project"]
    entries = project["entry-points"]["privfed.methods"]
    install(tmp_path, {project["name"]: WHOLE}, project["name"], project["version"], entries)
    (torch_entry,) = re.findall(r"`(bilinear) = \"(bilinear:METHOD)\"`", PAGE)
    install(tmp_path, {"bilinear": MODULE}, "bilinear", "0.1", dict([torch_entry]))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield [*entries, "bilinear"]
    for module in (project["name"], "bilinear"):
        sys.modules.pop(module, None)


def call(*words):
    answer = CliRunner().invoke(app, [str(word) for word in words])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def lines(source):
    return [line for line in source.splitlines() if line.strip()]


def test_the_page_shows_whole_methods_that_fit_a_screen():
    body = lines(WHOLE[: WHOLE.index("METHOD = Method(")])
    assert len([line for line in body if not line.startswith(("from ", "import ", '"""'))]) <= 40
    assert len(lines(MODULE)) <= 32


@pytest.mark.parametrize("check", CHECKS)
def test_methods_of_other_packages_pass_every_check(installed, check):
    for name in installed:
        check_method(method(name), only=check)


def test_the_pages_own_check_runs(installed):
    exec(CHECKED, {"METHOD": method(installed[0])})


def test_the_page_lists_every_check():
    section = PAGE[PAGE.index("## Check it") : PAGE.index("## Register it")]
    assert re.findall(r"^\| `([\w -]+)` \|", section, flags=re.MULTILINE) == list(CHECKS)


def test_the_pages_methods_are_registered_trained_and_attacked_by_the_command(installed, tmp_path):
    name, module = installed
    surface = methods()[module].attack_surface
    assert (surface.output, surface.bias, methods()[module].traits.upload) == ("items.weight", "bias", "rows")
    out, private = tmp_path / "run", tmp_path / "private"
    common = ("--data", "synthetic-small", "--rounds", 2, "--quiet", "--json")
    assert json.loads(call("run", name, *common, "--out", out))
    plan = re.search(r"--privacy (\S+) --set (\S+)", PAGE)
    call("run", name, *common, "--privacy", plan[1], "--set", plan[2], "--out", private)
    assert json.loads(call("attack", out, "--json", "--quiet"))
    assert json.loads(call("run", module, *common, "--out", tmp_path / "module"))
    assert "bias" in json.dumps(json.loads(call("attack", tmp_path / "module", "--json", "--quiet")))
    assert all(one in call("methods") for one in installed)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|privfed|docs)/[\w/]+\.(?:py|md))`", PAGE))))
def test_files_named_on_the_page_exist(path):
    assert (ROOT / path).exists()
