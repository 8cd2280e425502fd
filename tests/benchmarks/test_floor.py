"""Whether a difference lies below zero by more than people and draws of noise explain."""

import pytest

from benchmarks.quality.floor import below, over_draws


def test_draws_that_agree_leave_the_interval_over_people():
    row = {"difference": [-0.01, -0.014, -0.006], "difference_by_seed": [-0.01, -0.01, -0.01]}
    assert over_draws(row) == pytest.approx(row["difference"])
    assert below(row)


def test_draws_that_differ_widen_it():
    row = {"difference": [-0.01, -0.014, -0.006], "difference_by_seed": [0.01, -0.01, -0.03]}
    half = (0.004**2 + (1.96 * 0.02 / 3**0.5) ** 2) ** 0.5
    assert over_draws(row) == pytest.approx([-0.01, -0.01 - half, -0.01 + half])
    assert not below(row)
