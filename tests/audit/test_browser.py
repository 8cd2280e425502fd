"""The page as a person meets it: a real browser draws it, walks it by keyboard, and tells every error and request."""

import base64
import itertools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from privfed.audit.page.charts import Charts
from privfed.audit.page.render import render, sections
from privfed.audit.report.records import AuditReport

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
PATIENCE = 30

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"), pytest.mark.browser]


class Browser:
    """Chromium behind its debugging pipe: JSON messages that end in a null byte, in on descriptor 3 and out on 4."""

    def __init__(self, home: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # posix_spawn rather than a fork: this process has threads. Chromium needs the two ends at 3 and 4, and
        # moving them there in two steps keeps one from landing on the other.
        moves = [(to_read, 103), (to_write, 104), (103, 3), (104, 4)]
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        self._pid = os.posix_spawn(
            str(CHROMIUM),
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={home / 'profile'}", "about:blank"],
            os.environ | {"HOME": str(home)},
            file_actions=[*quiet, *((os.POSIX_SPAWN_DUP2, old, new) for old, new in moves)],
            setpgroup=0,
        )
        os.close(to_read)
        os.close(to_write)
        os.set_blocking(self._read, False)
        self._numbers, self._rest, self._session = itertools.count(1), b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what else is told meanwhile goes to `events`."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)
        raise AssertionError("the browser is gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + PATIENCE
        while True:
            while b"\0" in self._rest:
                one, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(one)
            try:
                self._rest += os.read(self._read, 1 << 20)
            except BlockingIOError:
                assert time.monotonic() < end, "the browser does not answer"
                time.sleep(0.005)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def show(self, page: Path, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Open a page as a window of this width shows it, and wait until its charts are drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        end = time.monotonic() + PATIENCE
        while self.ask("document.documentElement?.dataset.charts ?? ''") == "":
            assert time.monotonic() < end, "the charts are not drawn"
            time.sleep(0.05)

    def press(self, key: str, code: int, text: str = "") -> None:
        """One key, down and up."""
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **told, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def enter(self) -> None:
        """The key that follows links and opens folds."""
        self.press("Enter", 13, "\r")

    def complaints(self) -> list[dict[str, Any]]:
        """Errors and warnings of the page since it was opened."""
        told = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event["params"] for event in self.events if event["method"] in told]

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        """End the browser and every process that it started."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write)
        os.close(self._read)


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
