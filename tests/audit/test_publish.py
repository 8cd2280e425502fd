"""A report's files appear whole or not at all, and nobody else's are touched."""

from pathlib import Path

import pytest

from privfed.audit import publish as module
from privfed.audit.publish import publish
from privfed.audit.report.records import AuditReport, ReportError


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def published(report: AuditReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("published")
    (out / "charts").mkdir()
    (out / "charts" / "of_a_former_audit.svg").write_text("<svg/>")
    (out / "charts" / "my_notes.txt").write_text("keep me")
    (out / "cells").mkdir()
    (out / "cells" / "a.json").write_text("{}")
    assert publish(report, out) == out / "index.html"
    return out


def test_all_files_are_there_and_no_other_is_harmed(published: Path) -> None:
    found = files(published)
    assert {"index.html", "runs.csv", "tables/utility.tex", "charts/cost_bytes.pdf"} <= set(found)
    assert found["charts/my_notes.txt"] == b"keep me"
    assert found["cells/a.json"] == b"{}"
    assert "charts/of_a_former_audit.svg" not in found
    assert {path.name for path in published.iterdir()} == {"index.html", "runs.csv", "charts", "tables", "cells"}


def test_a_failure_on_the_way_leaves_everything_as_it_was(
    published: Path, report: AuditReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(published)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_charts", full_disk)
    with pytest.raises(ReportError, match=r"cannot write the page to .*No space left.*choose a folder"):
        publish(report, published)
    assert files(published) == before


def test_a_folder_that_is_not_there_is_named(report: AuditReport, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="choose a folder that exists"):
        publish(report, tmp_path / "nowhere")
