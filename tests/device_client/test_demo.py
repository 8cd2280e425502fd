"""The demo page in a real browser: a history stays in the tab, the list appears, the budget is shown and withdrawn."""

import json
from pathlib import Path

import pytest

from privfed.api.publishing import PublishedModel
from privfed.api.result import TrainedRun
from privfed.cli.static_server import StaticServer
from tests.browser import CHROMIUM, Browser

DEVICE = Path(__file__).resolve().parents[2] / "device"
READY = "document.documentElement?.dataset.ready"

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"), pytest.mark.browser]


@pytest.fixture
def page(browser: Browser, host: str, served: StaticServer) -> Browser:
    """The page as somebody opens it."""
    browser.open(f"{host}/demo/index.html?server={served.address}", READY)
    assert browser.ask("document.documentElement.dataset.ready") == "yes", browser.ask("what.textContent")
    return browser


def like(page: Browser, text: str) -> None:
    page.ask(f"wanted.value = {json.dumps(text)}; wanted.dispatchEvent(new Event('change'))")


def texts(page: Browser, place: str) -> list[str]:
    return page.ask(f"[...document.querySelectorAll({json.dumps(place)})].map(one => one.textContent)")


def test_the_list_is_pythons_and_no_request_carries_the_history(
    page: Browser, host: str, served: StaticServer, trained: TrainedRun
) -> None:
    asked = page.requests()
    own = [str(item) for item in trained.data.item_ids[[3, 8, 150]]]
    for item in own:
        like(page, item)
    expected = trained.recommend(history=own)
    lines = [f"{row.title} ({row.item})" for row in expected.itertuples()]
    page.wait(f"document.querySelectorAll('#history li').length === {len(own)}")
    assert texts(page, "#list li") == lines
    page.ask("new Promise(done => setTimeout(done, 200))")
    assert page.requests() == asked
    page_itself = {f"{host}/demo/{name}" for name in (f"index.html?server={served.address}", "demo.css", "demo.js")}
    module = {f"{host}/dist/{file.name}" for file in (DEVICE / "dist").glob("*.js")}
    model = {f"{served.address}/{path}" for path in PublishedModel.from_run(trained).files}
    assert set(asked) <= page_itself | module | model | {"data:,"}
    assert not any("postData" in e["params"]["request"] for e in page.events if "request" in e["params"])
    kept = "Promise.all([indexedDB.databases(), Promise.resolve(localStorage.length + sessionStorage.length)])"
    bases, stored = page.ask(kept)
    assert stored == 0
    assert page.ask("document.cookie") == ""
    assert {base["name"] for base in bases} <= {"privfed-device"}
    assert page.complaints() == []


def test_a_removed_item_changes_the_list_and_an_unknown_one_is_named(page: Browser) -> None:
    like(page, "8")
    first = texts(page, "#list li")
    like(page, "150")
    assert texts(page, "#list li") != first
    page.ask("document.querySelectorAll('#history button')[1].click()")
    assert texts(page, "#list li") == first
    like(page, "<b>none</b>")
    assert texts(page, "#wrong") == ['The catalogue has no "<b>none</b>".']


def test_the_guarantee_is_shown_in_its_own_words(page: Browser, trained: TrainedRun) -> None:
    shown = page.ask("guarantee.textContent")
    assert f"Epsilon {trained.guarantee.epsilon:.2f} at delta {trained.guarantee.delta:g}" in shown
    assert set(trained.guarantee.statements) <= set(texts(page, "#statements li"))


def test_a_budget_is_kept_over_visits_shown_spent_and_withdrawn(page: Browser, host: str, served: StaticServer) -> None:
    assert "take part in nothing" in page.ask("spent.textContent")
    page.ask("epsilon.value = '2'; allow.click()")
    page.wait("spent.textContent.includes('of 2 in the last year')")
    terms = json.loads((DEVICE / "vectors" / "uploading.json").read_text())["cases"][0]["terms"]
    spend = (
        "import('../dist/index.js').then(async d => { const l = new d.Ledger(new d.IndexedDbStore()); "
        f"const terms = d.parseTerms({json.dumps(terms)}); "
        "const spend = (run, tab) => l.spend(run.repeat(32), terms, 0, `tab ${tab}`, false); "
        "const both = await Promise.allSettled(['a', 'a', 'b', 'c'].map(spend)); "
        "return [both.map(one => one.status), (await l.state()).runs, d.epsilonOf(terms)] })"
    )
    statuses, runs, cost = page.ask(spend)
    assert sorted(statuses) == ["fulfilled"] * runs + ["rejected"] * (4 - runs)
    assert runs == min(int(2 / cost), 3)
    page.open(f"{host}/demo/index.html?server={served.address}", READY)
    assert f"in {runs} runs" in page.ask("spent.textContent")
    like(page, "8")
    page.ask("forget.click()")
    page.wait("spent.textContent.includes('take part in nothing')")
    assert texts(page, "#history li") == []
    assert page.ask("indexedDB.databases().then(all => all.length)") == 0
    assert page.ask("import('../dist/index.js').then(d => new d.IndexedDbStore().read())") is None


def test_the_step_in_the_browser_equals_the_vectors(page: Browser) -> None:
    """One upload of both blocks and one agreement of the vectors, by the browser's own WebCrypto."""
    uploading = json.loads((DEVICE / "vectors" / "uploading.json").read_text())
    masking = json.loads((DEVICE / "vectors" / "masking.json").read_text())
    case = uploading["cases"][4]
    assert "head_popularity" in case["terms"]["queries"][1]
    upload = next(one for one in case["uploads"] if (one["query"], one["history"]) == (1, 3))
    program = (
        "import('../dist/index.js').then(async d => { "
        f"const one = {json.dumps(upload)}, m = {json.dumps(masking)}, h = {json.dumps(uploading['head'])}; "
        "const at = name => d.fromHex(h[name]).buffer; const head = { head: new Int32Array(at('head')), "
        "shares: new Float32Array(at('shares')), scale: new Float32Array(at('scale')) }; "
        f"const terms = d.parseTerms({json.dumps(case['terms'])}); await d.insistOnCrypto(); "
        f"const own = new Set({json.dumps(uploading['histories'][upload['history']])}); "
        "const made = await d.encoded(own, terms, terms.queries[one.query], head, d.fromHex(one.key)); "
        "const pair = await d.KeyPair.fromPrivate(d.fromHex(m.ours), d.fromHex(m.our_public)); "
        "return [d.hex(new d.Ring(terms.bits).pack(made)), d.hex(await pair.agree(d.fromHex(m.theirs)))] })"
    )
    assert page.ask(program) == [upload["packed"], masking["agreed"]]


def test_a_server_that_is_none_is_named(browser: Browser, host: str) -> None:
    browser.open(f"{host}/demo/index.html?server={host}/nowhere/", READY)
    assert browser.ask("document.documentElement.dataset.ready") == "no"
    assert "is this the address of 'privfed serve'" in browser.ask("what.textContent")
