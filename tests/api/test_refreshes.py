"""A year of running totals through the front door and on the command line."""

import pytest

import privfed
from privfed.methods import UnknownMethodError


def test_a_year_is_one_method_with_a_round_for_each_refresh() -> None:
    run = privfed.run(
        "private-gram", "synthetic-small", epsilon=8, refreshes=3, split={"arrivals": 3}, protocol="honest"
    )
    assert (run.config.method["name"], run.config.method["refreshes"], run.config.rounds) == ("private-gram-year", 3, 3)
    assert run.guarantee.epsilon == pytest.approx(8, rel=1e-3)
    assert any("All 3 releases of popularity" in sentence for sentence in run.guarantee.statements)


def test_methods_without_running_totals_are_refused_in_a_sentence() -> None:
    with pytest.raises(UnknownMethodError, match=r"fedmf keeps no running totals of a year: .* choose private-gram"):
        privfed.run("fedmf", "synthetic-small", refreshes=3)
