"""The page as a person meets it: a real browser draws it, walks it by keyboard, and tells every error and request."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from privfed.audit.page.charts import Charts
from privfed.audit.page.render import render, sections
from privfed.audit.report.records import AuditReport
from tests.browser import CHROMIUM, Browser

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"), pytest.mark.browser]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(full_report: AuditReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render(full_report), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Window:
    """The page in a window of some width."""

    browser: Browser
    width: int
    dark: bool


@pytest.fixture(scope="module", params=[(400, False), (1400, True)], ids=["phone, light", "desk, dark"])
def window(browser: Browser, page: Path, request: pytest.FixtureRequest) -> Window:
    """The page as it has just been drawn; no test here changes what another one looks at."""
    width, dark = request.param
    browser.show(page, width, dark=dark)
    return Window(browser, width, dark)


def test_it_is_drawn_whole_without_a_word_or_a_request(window: Window, page: Path, full_report: AuditReport) -> None:
    assert window.browser.ask("document.documentElement.dataset.charts") == "drawn"
    places = window.browser.ask(
        "[...document.querySelectorAll('[data-chart]')].map(p => [p.dataset.chart, "
        "p.querySelectorAll('svg path').length > 0, p.ariaLabel.length > 40, p.getAttribute('role')])"
    )
    assert places == [[chart.slug, True, True, "img"] for chart in Charts.from_report(full_report).all()]
    assert window.browser.complaints() == []
    assert window.browser.requests() == [page.as_uri()]


def test_it_fits_its_window_with_every_fold_open(window: Window) -> None:
    assert window.browser.ask("innerWidth") == window.width
    assert window.browser.ask("getComputedStyle(document.body).backgroundColor") == (
        "rgb(22, 25, 28)" if window.dark else "rgb(251, 250, 247)"
    )
    folds = "document.querySelectorAll('details').forEach(d => { d.open = %s })"
    window.browser.ask(folds % "true")
    assert window.browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    window.browser.ask(folds % "false")


def test_the_keyboard_reaches_navigation_tables_and_folds(window: Window, full_report: AuditReport) -> None:
    window.browser.ask("document.activeElement.blur(); scrollTo(0, 0); window.reached = []")
    window.browser.ask(
        "document.addEventListener('focusin', e => reached.push([e.target.tagName, "
        "e.target.getAttribute('href') ?? e.target.ariaLabel ?? e.target.textContent, "
        "getComputedStyle(e.target).outlineStyle]))"
    )
    stops = window.browser.ask("document.querySelectorAll('a, summary, [tabindex]').length")
    for _ in range(stops):
        window.browser.press("Tab", 9)
    reached = window.browser.ask("reached")
    links = [text for tag, text, _ in reached if tag == "A"]
    assert links[: len(sections(full_report)) + 1] == ["#verdict", *(f"#{at}" for at, _ in sections(full_report))]
    tables = window.browser.ask(
        "[...document.querySelectorAll('.scroll')].filter(t => t.checkVisibility()).map(t => t.ariaLabel)"
    )
    assert len(tables) >= 4
    assert set(tables) <= {text for tag, text, _ in reached if tag == "DIV"}
    assert any(text.startswith("Every attack") for tag, text, _ in reached if tag == "SUMMARY")
    assert {style for _, _, style in reached} == {"solid"}


def test_a_key_opens_a_fold_and_follows_a_link(window: Window) -> None:
    window.browser.ask("document.querySelector('nav a[href=\"#cost\"]').focus()")
    window.browser.enter()
    assert window.browser.ask("location.hash") == "#cost"
    window.browser.ask("document.querySelector('#attacks details summary').focus()")
    window.browser.enter()
    assert window.browser.ask("document.querySelector('#attacks details').open")
    window.browser.enter()


def test_it_cannot_reach_out_even_if_it_tried(window: Window, page: Path) -> None:
    tried = "fetch('https://example.org/').then(() => 'reached', () => 'refused')"
    assert window.browser.ask(tried) == "refused"
    window.browser.ask(
        "new Promise(r => { const i = new Image(); i.onerror = r; i.src = 'https://example.org/x.png' })"
    )
    told = [e["params"]["entry"]["text"] for e in window.browser.events if e["method"] == "Log.entryAdded"]
    assert sum("Content Security Policy" in text for text in told) >= 2
    answers = [e["params"]["response"] for e in window.browser.events if e["method"] == "Network.responseReceived"]
    assert {answer["url"] for answer in answers} <= {page.as_uri()}
    window.browser.events.clear()


@pytest.mark.parametrize(("width", "drawn", "hidden"), [(390, "narrow", "wide"), (1400, "wide", "narrow")])
def test_the_picture_fits_a_phone_and_a_desk(browser: Browser, page: Path, width: int, drawn: str, hidden: str) -> None:
    browser.show(page, width)
    visible = "getComputedStyle(document.querySelector('.pic.%s')).display !== 'none'"
    assert browser.ask(visible % drawn)
    assert not browser.ask(visible % hidden)
    assert browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    outside = browser.ask(
        "[...document.querySelectorAll('.pic.%s text')].map(t => t.getBoundingClientRect())"
        ".filter(r => r.left < -1 || r.right > innerWidth + 1).length".replace("%s", drawn)
    )
    assert outside == 0


def test_verdict_and_advice_are_on_the_first_screen(browser: Browser, page: Path) -> None:
    browser.show(page, 1400)
    bottoms = browser.ask(
        "['h1', '.deck', '.vt tbody tr:nth-child(2)']"
        ".map(q => document.querySelector(q).getBoundingClientRect().bottom)"
    )
    assert bottoms == sorted(bottoms)
    assert bottoms[-1] < 900


def test_it_prints_as_a_pdf(browser: Browser, page: Path) -> None:
    browser.show(page, 1000)
    printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 4 <= pages <= 30
