"""A page in a real browser joins a masked sum over HTTP."""

import json
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from privfed.api.result import TrainedRun
from privfed.cli.static_server import StaticServer
from tests.browser import Browser
from tests.device_client.aggregator import OURS, PEOPLE, POLICY, Tab, joined, residual


@pytest.mark.browser
def test_a_page_joins_a_sum_and_its_calls_carry_the_history_under_noise_alone(
    browser: Browser, host: str, vectors: ModuleType
) -> None:
    browser.open(f"{host}/demo/index.html", "document.documentElement?.dataset.ready")
    for federation in joined(Tab(browser), vectors, POLICY, [host]):
        assert federation.announce() == set(range(PEOPLE))
        total, survivors = federation.sum_of(0)
        assert set(survivors) == set(range(PEOPLE))
        noise = residual(federation, 0, total, [number for number in survivors if number != OURS])
        assert federation.codes[0].distributed is not None
        assert 0.3 < noise.var() / float(federation.codes[0].distributed.noise.client_variance) < 3
        assert browser.ask("state().then(kept => kept.runs)") == 1
        assert browser.ask("refused") == []
        browser.ask("end.abort()")
    browser.ask("forget()")


@dataclass
class Person:
    """Somebody at the demo page, who does there what the page asks for."""

    browser: Browser
    items: list[str]

    def __post_init__(self) -> None:
        self.browser.ask("show.click()")
        self.browser.wait("key.textContent.length === 64")
        self.public = bytes.fromhex(self.browser.ask("key.textContent"))

    def tell(self, policy: dict[str, float], history: list[int], operator: str, **invitation: Any) -> None:
        for number in history:
            self.browser.ask(
                f"wanted.value = {json.dumps(self.items[number])}; wanted.dispatchEvent(new Event('change'))"
            )
        self.given = json.dumps(invitation | {"items": self.items})
        self.join("0" * 64)
        self.browser.wait("joined.textContent.includes('not signed by the operator')")
        self.browser.ask("epsilon.value = '20'; allow.click()")
        self.join(operator)
        self.browser.wait("joined.textContent.includes('You take part in people')")

    def join(self, operator_key: str) -> None:
        self.browser.ask(
            f"invitation.value = {json.dumps(self.given)}; operator.value = {json.dumps(operator_key)}; "
            "document.getElementById('join').click()"
        )


@pytest.mark.browser
def test_a_person_takes_part_at_the_demo_page_within_the_policy_alone(
    browser: Browser, host: str, vectors: ModuleType, served: StaticServer, trained: TrainedRun
) -> None:
    browser.open(f"{host}/demo/index.html?server={served.address}", "document.documentElement?.dataset.ready")
    person = Person(browser, [str(item) for item in trained.data.item_ids[: vectors.ITEMS]])
    for federation in joined(person, vectors, POLICY, [host]):  # type: ignore[arg-type]
        assert federation.announce(timeout=3) == set(range(PEOPLE)) - {OURS}
        browser.wait("joined.textContent.includes('your policy asks for 100')")
        browser.ask(
            f"import('../dist/index.js').then(d => new d.Ledger(new d.IndexedDbStore()).allow({json.dumps(POLICY)}))"
        )
        assert federation.announce() == set(range(PEOPLE))
        total, survivors = federation.sum_of(0)
        assert set(survivors) == set(range(PEOPLE))
        noise = residual(federation, 0, total, [number for number in survivors if number != OURS])
        assert federation.codes[0].distributed is not None
        assert 0.3 < noise.var() / float(federation.codes[0].distributed.noise.client_variance) < 3
        browser.wait("spent.textContent.includes('in 1 runs')")
        browser.ask("forget.click()")
        browser.wait("spent.textContent.includes('take part in nothing')")
        assert browser.ask("key.textContent + joined.textContent") == ""
