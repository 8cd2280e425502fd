"""Numbers keep their meaning when they become words."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.audit.report import formatting
from privfed.audit.report.records import Setting


@pytest.mark.parametrize(
    ("auc", "said"),
    [
        (0.5, "50 times in 100"),
        (0.934, "93 times in 100"),
        (0.9951, "more than 99 times in 100"),
        (0.99999, "more than 99 times in 100"),
        (1.0, "100 times in 100"),
        (0.0, "0 times in 100"),
    ],
)
def test_times_in_a_hundred(auc: float, said: str) -> None:
    assert formatting.in_hundred(auc) == said


@given(st.floats(0.0, 1.0, exclude_max=True))
@settings(max_examples=50, deadline=None)
def test_nothing_short_of_certain_is_called_certain(auc: float) -> None:
    assert formatting.in_hundred(auc) != "100 times in 100"
    assert formatting.floor2(auc) != "1.00"


@pytest.mark.parametrize(
    ("value", "said"),
    [(math.inf, "∞"), (68.31, "68.3"), (0.4444, "0.444"), (8.0, "8"), (250_000.0, "250,000")],
)
def test_epsilon(value: float, said: str) -> None:
    assert formatting.epsilon(value) == said


@pytest.mark.parametrize(("value", "said"), [(0.0, "0"), (1e-5, "10^-5"), (1e-10, "10^-10"), (5.3e-4, "5.3 x 10^-4")])
def test_delta(value: float, said: str) -> None:
    assert formatting.delta(value) == said


def test_powers_are_raised_and_units_kept_on_their_line() -> None:
    assert formatting.typeset("10^-5 and 10^30") == "10⁻⁵ and 10³⁰"
    assert formatting.typeset("epsilon = 1, 95 %") == "epsilon\u00a0=\u00a01, 95\u00a0%"


@pytest.mark.parametrize(
    ("value", "said"),
    [(-0.0001, "0.000"), (-0.02, "\N{MINUS SIGN}0.020"), (0.5, "+0.500"), (math.nan, "n/a")],
)
def test_signed(value: float, said: str) -> None:
    assert formatting.signed(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.04, "0.0 s"), (59.6, "60 s"), (179.6, "3 min 00 s"), (3_725.0, "62 min 05 s")]
)
def test_seconds(value: float, said: str) -> None:
    assert formatting.seconds(value) == said


@pytest.mark.parametrize(("value", "said"), [(12.0, "12 B"), (215_296.0, "215 kB"), (2.5e9, "2.5 GB")])
def test_volume(value: float, said: str) -> None:
    assert formatting.volume(value) == said


def test_lists_rounds_and_slugs() -> None:
    assert [formatting.listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [formatting.rounds(r) for r in ([], [4], [4, 9])] == ["no round", "round 4", "2 rounds, 4 to 9"]
    assert formatting.slug("Trained vs held-out (user)") == "trained_vs_held_out_user"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("none", "no privacy mechanism"),
        ("distributed Skellam (z = 3.4000540378, C = 0.1)", "distributed Skellam (z = 3.4, C = 0.1)"),
        ("local Laplace (C = 0.25), delta 0.00053774", "local Laplace (C = 0.25), delta 0.0005377"),
    ],
)
def test_long_decimals_in_the_name_of_a_setting_are_rounded_for_reading(name: str, read: str) -> None:
    assert formatting.setting(Setting(slug="some", name=name)) == read
