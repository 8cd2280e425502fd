"""The oracles of `benchmarks/peers/accounting_oracles.py`: right where the answer is known, and shown on the page."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.harness import results
from benchmarks.peers import accounting_oracles as oracles

MEASURED = results("accounting_oracles")
SETTINGS = [{key: row[key] for key in ("delta", "releases")} for row in MEASURED["settings"]]


def test_what_was_measured_is_what_the_seed_draws() -> None:
    assert list(oracles.settings(np.random.default_rng(MEASURED["seed"]))) == SETTINGS
    assert len(SETTINGS) == 20


@pytest.mark.parametrize("row", MEASURED["settings"], ids=range(len(SETTINGS)))
def test_the_product_lies_between_the_bounds_of_the_oracle(row: dict[str, Any]) -> None:
    assert row["oracle_low"] - 1e-7 <= row["epsilon"] <= row["oracle_high"] + 1e-4 * max(1.0, row["epsilon"])
    assert row["oracle_high"] - row["oracle_low"] <= 6e-3


@pytest.mark.parametrize("place", [2, 3, 7, 19])
def test_the_product_still_says_what_was_measured(place: int) -> None:
    assert oracles.product(SETTINGS[place]).epsilon == pytest.approx(MEASURED["settings"][place]["epsilon"], rel=1e-6)


@pytest.mark.parametrize(("z", "times", "delta"), [(1.0, 1, 1e-5), (5.0, 20, 1e-6), (20.0, 100, 1e-4)])
def test_convolution_agrees_with_the_closed_form_of_gaussian_noise(z: float, times: int, delta: float) -> None:
    low, high = oracles.convolved([{"kind": "gaussian", "z": z, "times": times}], delta)
    exact = oracles.gaussian_epsilon(math.sqrt(times) / z, delta)
    assert low - 1e-6 <= exact <= high + 1e-6
    assert high - low < 6e-3


@pytest.mark.parametrize(("epsilon0", "delta"), [(0.1, 1e-3), (1.0, 1e-5), (2.0, 0.2)])
def test_convolution_agrees_with_the_closed_form_of_one_laplace_release(epsilon0: float, delta: float) -> None:
    low, high = oracles.convolved([{"kind": "laplace", "epsilon0": epsilon0, "times": 1}], delta)
    assert low - 1e-6 <= max(0.0, epsilon0 + 2 * math.log1p(-delta)) <= high + 1e-6


def test_one_sampled_gaussian_by_direct_integration() -> None:
    z, q, delta = 1.1, 0.2, 1e-4
    low, high = oracles.convolved([{"kind": "gaussian", "z": z, "times": 1, "rate": q}], delta)
    x = np.linspace(-14, 15, 2_000_001)
    out = np.exp(-(x**2) / (2 * z * z)) / (z * math.sqrt(2 * math.pi))
    mixed = (1 - q) * out + q * np.exp(-((x - 1) ** 2) / (2 * z * z)) / (z * math.sqrt(2 * math.pi))
    step = float(x[1] - x[0])

    def divergence(epsilon: float) -> float:
        factor = math.exp(epsilon)
        return max(np.maximum(a - factor * b, 0).sum() * step for a, b in ((out, mixed), (mixed, out)))

    assert divergence(low - 1e-4) > delta >= divergence(high + 1e-4)


@pytest.mark.parametrize("wrong", [{"rate": 0.3}, {"times": 70}, {"z": 2.4}])
def test_a_wrong_setting_falls_outside(wrong: dict[str, float]) -> None:
    place = 12
    release, row = SETTINGS[place]["releases"][0], MEASURED["settings"][place]
    assert (
        not row["oracle_low"]
        <= oracles.product(SETTINGS[place] | {"releases": [release | wrong]}).epsilon
        <= row["oracle_high"]
    )
