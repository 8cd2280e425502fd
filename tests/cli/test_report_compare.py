"""`privfed report` and `privfed compare`: files made again, audits laid side by side, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.audit.report.records import Contradiction, read_report, write_report

EXPERIMENT = """
data = "synthetic-small"
rounds = 2
canaries = 0
methods = ["fedmf"]
plans = ["none", "local-laplace:epsilon0=1,clip_norm=1"]
"""


@pytest.fixture(scope="module")
def audited(call: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small audit."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    answer = call("audit", folder / "experiment.toml", "--out", folder / "audit", "--workers", 1, "--quiet")
    assert answer.code == 0, answer.err
    return folder / "audit"


@pytest.fixture
def alone(audited: Path, tmp_path: Path) -> Path:
    """A folder with nothing but the audit's report.json."""
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "report.json").write_bytes((audited / "report.json").read_bytes())
    return folder


def change(folder: Path, **fields: object) -> None:
    """Change fields of the report in a folder."""
    path = folder / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_everything_is_made_again_from_the_report_alone(cli: Callable, audited: Path, alone: Path) -> None:
    before = (alone / "report.json").read_bytes()
    answer = cli("report", alone, "--json").document
    assert answer["page"] == str(alone / "index.html")
    assert answer["synthetic"] is True
    assert (alone / "index.html").read_text() == (audited / "index.html").read_text()
    assert (alone / "runs.csv").read_text() == (audited / "runs.csv").read_text()
    assert all(Path(file).stat().st_size > 0 for file in answer["files"])
    assert {Path(file).suffix for file in answer["files"]} == {".svg", ".pdf", ".csv", ".tex"}
    assert (alone / "report.json").read_bytes() == before


def test_a_contradiction_counts_here_too(cli: Callable, alone: Path) -> None:
    change(alone, self_checks=[{"name": "a check", "passed": False, "detail": "it failed"}])
    out = cli("report", alone, code=1).out
    assert "This version of privfed draws other conclusions" in out
    assert "Contradicted: The audit's own check 'a check' failed: it failed." in out
    gone = [Contradiction(rule="old", text="An old one.").model_dump()]
    change(alone, self_checks=[], contradictions=gone)
    cli("report", alone, "--quiet")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"schema_version": 1}', "schema version 1, from an older privfed than this one, which reads version 3"),
        ('{"schema_version": 99}', "from a newer privfed than this one"),
        ('{"schema_version": 3, "runs": [', "damaged or cut short"),
        ('{"schema_version": 3}', "is damaged: created: field required"),
        ("[]", "is not an audit report"),
    ],
)
def test_a_report_that_cannot_be_read_changes_nothing(refused: Callable, alone: Path, text: str, told: str) -> None:
    (alone / "index.html").write_text("the former page")
    (alone / "report.json").write_text(text)
    assert told in refused("report", alone)
    assert {path.name: path.read_text() for path in alone.iterdir()} == {
        "index.html": "the former page",
        "report.json": text,
    }
    assert told in refused("compare", alone, alone)


def test_folders_without_a_report(refused: Callable, trained: Path, audited: Path, tmp_path: Path) -> None:
    assert "holds a run, not an audit" in refused("report", trained)
    assert "is not there: give the --out folder of 'privfed audit'" in refused("report", tmp_path / "nowhere")
    assert "holds no report.json" in refused("report", tmp_path)
    assert "is a file: give the folder" in refused("report", audited / "report.json")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_bytes((audited / "config.json").read_bytes())
    assert "is not finished: give its command again" in refused("report", tmp_path / "begun")


def test_two_audits_on_the_terminal_and_on_a_page(cli: Callable, audited: Path, alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "comparison.html"
    said = cli("compare", audited, alone, "--out", out).out
    assert "audit → alone" in said
    assert "fedmf, none" in said
    assert f"The page: {out}" in said
    assert "not measured alike" not in said
    assert out.read_text().startswith("<!doctype html>")
    document = cli("compare", audited, alone, "--json").document
    assert document["comparable"] is True
    assert document["page"] is None
    assert [pair["utility"]["difference"]["value"] for pair in document["pairs"]] == [0, 0]
    assert {pair["epsilon"]["a"] for pair in document["pairs"]} >= {"inf"}
    cli("compare", audited, alone, "--out", out, "--quiet")


def test_audits_that_were_not_measured_alike_are_told_apart(
    cli: Callable, audited: Path, alone: Path, tmp_path: Path
) -> None:
    report = read_report(alone / "report.json")
    write_report(report.model_copy(update={"dataset": report.dataset | {"name": "other"}}), alone / "report.json")
    out = tmp_path / "comparison.html"
    said = cli("compare", audited, alone, "--out", out, "--quiet").out
    assert "These two audits were not measured alike" in said
    assert "data set: synthetic-small and other" in said
    assert "These two were not measured alike" in out.read_text()
    assert cli("compare", audited, alone, "--json").document["comparable"] is False


def test_a_comparison_replaces_nothing_but_a_comparison(refused: Callable, audited: Path, tmp_path: Path) -> None:
    precious = tmp_path / "thesis.html"
    precious.write_text("years of work")
    assert "holds no comparison: choose another --out" in refused("compare", audited, audited, "--out", precious)
    assert precious.read_text() == "years of work"
    assert "there is no folder" in refused("compare", audited, audited, "--out", tmp_path / "no" / "c.html")
    assert "is a folder" in refused("compare", audited, audited, "--out", tmp_path)


def test_the_last_lines_are_verdict_advice_page_and_what_next(cli: Callable, alone: Path) -> None:
    lines = cli("report", alone, "--quiet").out.strip().splitlines()
    report = read_report(alone / "report.json")
    assert lines[-4:] == [
        f"Verdict (synthetic data): {report.verdict}",
        f"Advice: {report.advice}",
        f"The page: {alone / 'index.html'}",
        f"Next: open the page; privfed compare {alone} OTHER lays another audit beside it.",
    ]


def test_a_broken_threshold_is_told_and_counts(cli: Callable, refused: Callable, alone: Path, tmp_path: Path) -> None:
    out = cli("report", alone, "--quiet", "--fail-if", "epsilon > 1e9", code=1).out
    assert "Failed: FedMF · no protection: epsilon is ∞, and the audit has to fail if epsilon > 1e+09." in out
    policy = tmp_path / "policy.toml"
    policy.write_text('fail_if = ["epsilon > 1e9"]\nonly = ["fedmf:local*"]\n')
    assert cli("report", alone, "--json", "--policy-file", policy).document["failures"] == []
    assert "unknown name: use one of epsilon" in refused("report", alone, "--fail-if", "size > 3")
