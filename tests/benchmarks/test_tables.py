"""Every table of the documentation that shows results is what the files of results say."""

import importlib
import re

import pytest

from benchmarks import doc_tables, five_tables, harness, tables
from benchmarks.markdown import MarkerError, markers, replaced, table

PAGES = sorted({entry.page for entry in tables.TABLES})


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_what_was_measured(page: str) -> None:
    text = (tables.DOCS / page).read_text(encoding="utf-8")
    assert tables.written(page, text) == text


@pytest.mark.parametrize("entry", tables.TABLES, ids=lambda entry: entry.name)
def test_another_number_or_word_on_the_page_is_noticed(entry: tables.Table) -> None:
    text = (tables.DOCS / entry.page).read_text(encoding="utf-8")
    begin, end = (text.index(marker) for marker in markers(entry.name))
    begin += len(markers(entry.name)[0])
    places = re.search(r"\d", text[begin:end]) or re.search(r"[a-z]", text[begin:end])
    assert places is not None
    at = begin + places.start()
    other = text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1 :]
    assert tables.written(entry.page, other) == text != other


def test_every_marker_of_the_documentation_is_that_of_a_table() -> None:
    found = {
        ("../README.md" if file.parent == harness.ROOT else file.relative_to(tables.DOCS).as_posix(), name)
        for file in (harness.ROOT / "README.md", *tables.DOCS.rglob("*.md"))
        for name in re.findall(r"<!-- (.+): begin -->", file.read_text(encoding="utf-8"))
    }
    assert found == {(entry.page, entry.name) for entry in tables.TABLES}


def test_the_faults_of_the_table_are_those_that_are_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(harness.ROOT / "tests" / "audit" / "faults"))
    planted = importlib.import_module("registry").FAULTS
    assert {row["fault"] for row in harness.results("planted_faults")["faults"]} == set(planted)


def test_the_picture_shows_what_was_measured() -> None:
    assert tables.PICTURE.read_text(encoding="utf-8") == five_tables.picture()


def test_noise_on_a_grid_gives_nothing_away_in_the_table() -> None:
    assert "0 of 20" in "\n".join(doc_tables.float_noise())


def test_a_table_stands_between_its_markers() -> None:
    lines = table(["method", "rounds"], [["FAIR", "3"]])
    assert lines == ["| method | rounds |", "|---|---:|", "| FAIR | 3 |", ""]
    page = "before\n<!-- some: begin -->\nold\n<!-- some: end -->\nafter\n"
    assert replaced(page, "some", ["new", ""]) == page.replace("old", "new")


@pytest.mark.parametrize("page", ["", "<!-- some: begin -->\n", "<!-- some: end -->\n<!-- some: begin -->\n"])
def test_a_page_without_its_markers_is_refused(page: str) -> None:
    with pytest.raises(MarkerError, match="some: begin"):
        replaced(page, "some", [])
