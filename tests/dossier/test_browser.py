"""The dossier in a real browser: it fits a phone and a desk, prints, and its two plain pages are two."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from privfed.dossier.making import make
from privfed.dossier.page.pdf import chromium
from tests.audit.test_browser import Browser

pytestmark = [pytest.mark.skipif(chromium() is None, reason="chromium is not installed"), pytest.mark.browser]


@pytest.fixture(scope="module")
def folders(kept: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    above = tmp_path_factory.mktemp("printed")
    return {name: make(kept(name), above / name, budget=8.0).folder for name in ("attacked", "unprotected")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.mark.parametrize("kind", ["attacked", "unprotected"])
def test_it_is_printed_as_a_pdf(folders: dict[str, Path], kind: str) -> None:
    printed = (folders[kind] / "dossier.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert 6 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 20


@pytest.mark.parametrize("kind", ["attacked", "unprotected"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_its_window(browser: Browser, folders: dict[str, Path], kind: str, width: int) -> None:
    page = folders[kind] / "index.html"
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.events.clear()
    browser.call("Page.navigate", url=page.as_uri())
    for _ in range(200):
        if browser.ask("document.readyState === 'complete' && document.querySelector('#environment') !== null"):
            break
    assert browser.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


@pytest.mark.parametrize("kind", ["attacked", "unprotected"])
def test_each_of_the_two_plain_pages_fits_a_sheet(browser: Browser, folders: dict[str, Path], kind: str) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=680, height=1017, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.call("Page.navigate", url=(folders[kind] / "index.html").as_uri())
    for _ in range(200):
        if browser.ask("document.readyState === 'complete' && document.querySelector('#environment') !== null"):
            break
    heights = browser.ask("[...document.querySelectorAll('.sheet')].map(s => s.getBoundingClientRect().height)")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert len(heights) == 2
    assert max(heights) <= 1017
