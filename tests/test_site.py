"""The site: it builds without a warning, its links lead somewhere, and its prose is short enough to be read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MOST_WORDS = 40_000
GENERATED = {f"reference/{name}.md" for name in ("commands", "settings", "report_schema")} | {"contributing/index.md"}


def prose(text: str) -> str:
    """What a person wrote: without tables that a script writes, programs, comments and addresses."""
    text = re.sub(r"<!-- (.+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"<!-- (.+) -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"</?\w[^>]*>", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def words(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in prose(text).split())


def test_programs_and_generated_tables_are_not_counted() -> None:
    table = "<!-- t: begin -->\n| five |\n<!-- t: end -->\n<!-- six -->\n| seven | -- |\n"
    page = "One [two](three.md).\n```py\nfour\n```\n" + table
    assert words(page) == len(["One", "two", "seven"])


def test_the_documentation_can_be_read() -> None:
    counts = {page.relative_to(DOCS).as_posix(): words(page.read_text(encoding="utf-8")) for page in PAGES}
    longest = sorted(counts.items(), key=lambda pair: -pair[1])[:10]
    assert sum(counts.values()) <= MOST_WORDS, longest


def test_the_page_of_a_paper_can_be_read_at_once() -> None:
    counts = {page.name: words(page.read_text(encoding="utf-8")) for page in (DOCS / "results/papers").glob("*.md")}
    assert len(counts) == 5
    assert max(counts.values()) <= 800, counts


def anchors(text: str) -> set[str]:
    """Anchors of the headings of a page, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (page.parent / path).resolve() if path else page
        if file.is_relative_to(DOCS) and file.relative_to(DOCS).as_posix() in GENERATED:
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())):
            broken.append(link)
    assert broken == []


def test_code_names_pages_that_exist() -> None:
    named = {
        (file.relative_to(ROOT).as_posix(), page)
        for folder in ("privfed", "attacks", "secure_agg", "benchmarks", "examples", "tests", ".github")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".md", ".toml", ".service", ".yml"}
        for page in re.findall(r"(?<![\w/.])docs/[\w/]+\.md", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert sorted(pair for pair in named if not (ROOT / pair[1]).exists()) == []


@pytest.mark.process
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    site = tmp_path / "site"
    assert "central-gaussian" in (site / "reference/settings/index.html").read_text(encoding="utf-8")
    assert "privfed audit" in (site / "reference/commands/index.html").read_text(encoding="utf-8")
    assert "AuditReport" in (site / "reference/report_schema/index.html").read_text(encoding="utf-8")
    assert "secure_agg.masking" in (site / "reference/api/secure_agg/index.html").read_text(encoding="utf-8")
