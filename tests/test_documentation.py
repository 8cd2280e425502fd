"""What the documentation names exists, and the first program of README runs as it stands."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = ("privfed", "attacks", "secure_agg")


def programs(page: Path) -> list[str]:
    return re.findall(r"```py(?:thon)?\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def missing(program: str) -> list[str]:
    """Names that a program imports from us and that are not there."""
    absent = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            module = importlib.import_module(node.module)
            absent += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
    return absent


@pytest.mark.parametrize("page", [page for page in PAGES if programs(page)], ids=lambda page: page.name)
def test_programs_import_what_exists(page: Path) -> None:
    assert [name for program in programs(page) for name in missing(program)] == []


def test_a_missing_name_is_noticed() -> None:
    assert missing("from privfed.privacy import PrivacyPlan, Protection") == ["privfed.privacy.Protection"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = set(
        re.findall(r"`((?:privfed|attacks|secure_agg|benchmarks|tests|examples|docs)/[\w./-]+\.\w+)`", page.read_text())
    )
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def named_tests(page: Path) -> set[tuple[str, str]]:
    """Files and functions of the tests that a page names."""
    return set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")))


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", [page for page in PAGES if named_tests(page)], ids=lambda page: page.name)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    absent = [f"{file}::{test}" for file, test in named_tests(page) if test not in functions(ROOT / file)]
    assert sorted(absent) == []


def test_every_line_of_the_threat_model_names_its_test() -> None:
    _, _, after = (
        (ROOT / "docs" / "guides" / "deploying.md").read_text(encoding="utf-8").partition("<!-- threats -->\n")
    )
    table, end, _ = after.partition("<!-- threats end -->")
    lines = table.splitlines()[2:]
    assert end
    assert len(lines) > 20
    assert [line for line in lines if not re.search(r"\| `tests/\S+\.py::\w+` \|$", line)] == []


def without_digits(text: str) -> list[str]:
    """Lines with every number as one sign, and spaces as one."""
    return [" ".join(re.sub(r"[\d.,]*\d(e-\d+)?", "#", line).split()) for line in text.strip().splitlines()]


def test_the_first_program_prints_what_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("privfed.api")
    (program,) = programs(ROOT / "README.md")
    shown, _ = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    smaller = program.replace('"ml-100k"', '"synthetic-small"').replace('"196"', "1")
    exec(compile(smaller, "README.md", "exec"), {})
    printed, expected = (without_digits(text) for text in (capsys.readouterr().out, shown))
    assert len(printed) == len(expected)
    assert [line.split()[0] for line in printed[:3]] == [line.split()[0] for line in expected[:3]]
    assert printed[2] == expected[2]


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"<!-- (.+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= 400
