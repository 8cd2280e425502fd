"""A page in a real browser joins a masked sum over HTTP."""

from types import ModuleType

import pytest

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
