"""The folder as a whole: what is in it, that it verifies, that it is written whole or not at all, and its page."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from privfed.dossier.errors import DossierError
from privfed.dossier.making import make
from privfed.dossier.manifest import differences, list_files, read_manifest
from tests.dossier.conftest import change, write_run

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def made(kept: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Dossiers of a protected and of an unprotected run, an audit and a node."""
    above = tmp_path_factory.mktemp("made")
    for name, setting in (
        ("attacked", None),
        ("unprotected", None),
        ("audit", "private-gram:gaussian"),
        ("node", None),
    ):
        make(kept(name), above / name, setting=setting, budget=8.0, pdf=False, now=NOW)
    return lambda name: above / name


KINDS = ("attacked", "unprotected", "audit", "node")


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_in_the_manifest_and_every_citation_is_of_a_file_there(
    made: Callable[[str], Path], kind: str
) -> None:
    folder = made(kind)
    manifest, _ = read_manifest(folder)
    assert differences(folder, manifest) == []
    assert manifest.files == list_files(folder)
    assert {"index.html", "answers.json", "registry.json", "budget.json", "sbom.cdx.json"} <= set(manifest.files)
    answers = json.loads((folder / "answers.json").read_text())["answers"]
    cited = [source for one in answers for source in one.get("sources", [])]
    assert cited
    digests = set(manifest.files.values())
    assert [one for one in cited if one["copied"] and one["sha256"] not in digests] == []
    assert not list(folder.rglob("ledger*"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_loads_nothing_and_its_links_lead_somewhere(made: Callable[[str], Path], kind: str) -> None:
    page = (made(kind) / "index.html").read_text()
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert re.findall(r'(?:src|href)="https?:', page) == []
    anchors = set(re.findall(r'id="([^"]+)"', page))
    links = re.findall(r'href="([^"]+)"', page)
    assert [link for link in links if link.startswith("#") and link[1:] not in anchors] == []
    assert [link for link in links if not link.startswith("#") and not (made(kind) / link).exists()] == []


def test_the_first_heading_of_an_unprotected_run_is_that_nothing_is_guaranteed(made: Callable[[str], Path]) -> None:
    page = (made("unprotected") / "index.html").read_text()
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", page)
    assert heading is not None
    assert heading[1].startswith("Nothing is guaranteed to anybody: epsilon is infinite")
    assert json.loads((made("unprotected") / "answers.json").read_text())["first"].startswith("Nothing is guaranteed")


def test_hostile_names_are_escaped_on_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    record = json.loads((run / "evaluation.json").read_text())
    record["split"] = "<script>alert(1)</script>"
    change(run / "evaluation.json", **record)
    dossier = make(run, tmp_path / "out", pdf=False)
    page = (dossier.folder / "index.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_nothing_is_left_where_something_is_wrong_and_nothing_is_written_over(
    kept: Callable[[str], Path], made: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(DossierError, match="never written over"):
        make(kept("run"), made("attacked"), pdf=False)
    with pytest.raises(DossierError, match="number above 0"):
        make(kept("run"), tmp_path / "out", budget=float("nan"))
    (tmp_path / "junit.xml").write_text("<a/>")
    with pytest.raises(DossierError, match="holds no test"):
        make(kept("run"), tmp_path / "out", tests=tmp_path / "junit.xml", pdf=False)
    with pytest.raises(DossierError, match="is no plain file"):
        make(kept("run"), tmp_path / "out", tests=tmp_path, pdf=False)
    with pytest.raises(DossierError, match="cannot be written"):
        make(kept("run"), tmp_path / "junit.xml" / "out", pdf=False)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DossierError, match="is not empty"):
        make(kept("run"), tmp_path / "link", pdf=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["junit.xml", "link"]


def test_equal_folders_make_equal_dossiers(kept: Callable[[str], Path], tmp_path: Path) -> None:
    first, second = (make(kept("run"), tmp_path / name, pdf=False, now=NOW) for name in ("one", "two"))
    assert first.manifest == second.manifest


def test_the_report_of_an_audit_comes_along(made: Callable[[str], Path]) -> None:
    assert (made("audit") / "evidence" / "report.json").exists()
    assert "The audit" in (made("audit") / "evidence" / "index.html").read_text()


def test_secrets_of_a_node_stay_there(made: Callable[[str], Path]) -> None:
    assert {path.name for path in (made("node") / "evidence").rglob("*") if path.is_file()} == {
        "book.json", "budget-given.json", "node.toml",
    }  # fmt: skip


def test_without_a_browser_the_page_is_all_there_is_and_it_is_told(
    kept: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    dossier = make(kept("run"), tmp_path / "out")
    assert dossier.no_pdf is not None
    assert "no PDF was made" in dossier.no_pdf
    assert "dossier.pdf" not in dossier.manifest.files
