"""One harness: every benchmark takes its arguments from it, and every file of results says what measured it."""

import argparse
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness

BENCHMARKS = harness.ROOT / "benchmarks"
SCRIPTS = sorted(
    ".".join(file.relative_to(harness.ROOT).with_suffix("").parts)
    for folder in ("speed", "quality", "privacy", "peers")
    for file in [*(BENCHMARKS / folder).glob("*.py"), *(BENCHMARKS / folder).glob("*/__main__.py")]
    if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
)
FILES = sorted(harness.RESULTS.glob("*.json"))
NEEDS_FLOWER = ("flower", "flower_faults", "flower_parity")


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    return harness.parse(harness.parser(harness.__file__, "A benchmark."), ["--out", str(tmp_path / "results")])


def test_there_are_scripts_in_every_folder() -> None:
    assert {name.split(".")[1] for name in SCRIPTS} == {"speed", "quality", "privacy", "peers"}
    assert len(SCRIPTS) > 25


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_answers_help_in_the_words_of_the_harness(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name.rsplit(".", maxsplit=1)[-1] in NEEDS_FLOWER and importlib.util.find_spec("flwr") is None:
        pytest.skip("flwr is not installed")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert f"usage: python -m {name.removesuffix('.__main__')} " in shown
    for argument in ("out", "threads"):
        assert f"--{argument} " in shown
        assert str(harness.ARGUMENTS[argument]["help"]).split(" (default")[0] in shown


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_has_a_parser_of_its_own(name: str) -> None:
    source = importlib.util.find_spec(name)
    assert source is not None
    assert source.origin is not None
    text = Path(source.origin).read_text(encoding="utf-8")
    assert "ArgumentParser(" not in text
    assert "harness.parse(" in text
    for argument in harness.ARGUMENTS:
        assert f'add_argument("--{argument}"' not in text


def test_every_script_and_folder_stands_in_the_read_me() -> None:
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert [name for name in SCRIPTS if f"`{name.removesuffix('.__main__').split('.', 2)[2]}`" not in text] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_of_results_says_what_measured_it(file: Path) -> None:
    kept = harness.read(file)
    assert kept.keys() == {"sessions", "results"}
    assert all(session.keys() == set(harness.FIELDS) for session in kept["sessions"])
    assert kept["results"]


@pytest.mark.parametrize("field", harness.FIELDS)
@pytest.mark.parametrize("spoil", [lambda kept, field: kept.pop(field), lambda kept, field: kept.update({field: ""})])
def test_a_file_without_a_field_is_refused(tmp_path: Path, field: str, spoil: Any) -> None:
    session = dict.fromkeys(harness.FIELDS, harness.NOT_RECORDED)
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({"sessions": [session], "results": []}))
    assert harness.read(file)["results"] == []
    spoil(session, field)
    file.write_text(json.dumps({"sessions": [session], "results": []}))
    with pytest.raises(harness.RecordError, match=field):
        harness.read(file)


@pytest.mark.parametrize("kept", [[], {"results": []}, {"sessions": [], "results": []}])
def test_a_file_without_sessions_is_refused(tmp_path: Path, kept: Any) -> None:
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(kept))
    with pytest.raises(harness.RecordError, match="sessions"):
        harness.read(file)


def test_a_record_goes_on_where_it_was_as_a_further_session(options: argparse.Namespace) -> None:
    first = harness.Record("some", options, [])
    first.add({"label": "a", "seed": 0})
    second = harness.Record("some", options, [])
    assert second.has(label="a", seed=0)
    assert not second.has(label="a", seed=1)
    second.add({"label": "a", "seed": 1})
    kept = harness.read(first.file)
    assert kept["results"] == [{"label": "a", "seed": 0}, {"label": "a", "seed": 1}]
    assert len(kept["sessions"]) == 2
    assert kept["sessions"][0]["load_average"].keys() == {"before", "after"}
    assert kept["sessions"][0]["machine"].keys() >= {"processor", "cores", "memory_gib", "python", "numpy", "torch"}
    assert kept["sessions"][0]["command"] == "python -m benchmarks.harness --out results"


def test_a_record_that_starts_anew_keeps_nothing_of_before(options: argparse.Namespace) -> None:
    harness.Record("some", options, {}).put(1, "part", "old")
    record = harness.Record("some", options, {}, anew=True)
    record.put(2, "part", "new")
    record.put(3, "part", "newer")
    assert harness.results("some", options.out) == {"part": {"new": 2, "newer": 3}}
    assert len(harness.read(record.file)["sessions"]) == 1


def test_two_processes_that_keep_rows_keep_each_others(options: argparse.Namespace) -> None:
    one, other = harness.Record("some", options, {}), harness.Record("some", options, {})
    other.session["command"] = "another command"
    one.put(1, "a")
    other.put(2, "b")
    one.put(3, "c")
    kept = harness.read(one.file)
    assert kept["results"] == {"a": 1, "b": 2, "c": 3}
    assert sorted(session["command"] for session in kept["sessions"]) == [
        "another command",
        "python -m benchmarks.harness --out results",
    ]


def test_two_processes_that_add_rows_to_one_list_keep_each_others(options: argparse.Namespace) -> None:
    one, other = harness.Record("some", options, []), harness.Record("some", options, [])
    one.add({"row": 1})
    other.add({"row": 2})
    one.add({"row": 3})
    assert harness.results("some", options.out) == [{"row": 1}, {"row": 2}, {"row": 3}]


def test_only_takes_names_and_shell_patterns() -> None:
    assert harness.chosen("DFMR, E empty", [])
    assert harness.chosen("DFMR", ["DFMR"])
    assert not harness.chosen("DFMR, E empty", ["DFMR"])
    assert harness.chosen("DFMR, E empty", ["eALS", "DFMR*"])


def test_a_child_answers_with_its_last_line_of_json_or_why_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text('print("{}"); print(\'{"threads": 1}\'); print("done")')
    (tmp_path / "fails.py").write_text('raise ValueError("no such case")')
    assert harness.child("answers", checkout=tmp_path) == {"threads": 1}
    failed = harness.child("fails", checkout=tmp_path)
    assert failed == {"failed": "ended with 1 and said: ValueError: no such case"}
    with pytest.raises(harness.ChildError, match="no such case"):
        harness.succeeded(failed)
