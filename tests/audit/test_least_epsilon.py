"""What releases cost at least stays below what accountants say, and close to it."""

from collections import Counter

import pytest

from privfed.audit.checks.least_epsilon import OneRelease, least_epsilon
from privfed.privacy.accounting import account, dp_accounting

DELTA = 1e-6


@pytest.mark.parametrize(
    ("one", "count"),
    [
        (OneRelease("gaussian", 2.0), 6),
        (OneRelease("gaussian", 2.0, 0.5), 6),
        (OneRelease("gaussian", 0.6, 0.1), 40),
        (OneRelease("laplace", 1.0), 6),
        (OneRelease("laplace", 0.125), 40),
        (OneRelease("laplace", 10.0), 100),
    ],
)
def test_it_is_a_lower_bound_and_a_close_one(one: OneRelease, count: int) -> None:
    dp = dp_accounting()
    noise = dp.GaussianDpEvent if one.law == "gaussian" else dp.LaplaceDpEvent
    event = noise(one.multiplier)
    event = event if one.rate == 1 else dp.PoissonSampledDpEvent(one.rate, event)
    accounted = account(dp.SelfComposedDpEvent(event, count), DELTA).epsilon
    assert 0.985 * accounted < least_epsilon(Counter({one: count}), DELTA) <= accounted


def test_nothing_released_costs_nothing() -> None:
    assert least_epsilon(Counter(), DELTA) == 0
