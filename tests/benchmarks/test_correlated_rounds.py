"""Noise that is correlated between rounds: its sensitivity for people of every round, and what it leaves after them."""

import numpy as np
import pytest
import torch

from benchmarks.quality.correlated_rounds import CorrelatedFederation, least_everywhere, noise, sensitivity, toeplitz
from privfed.contracts import square_root
from privfed.federation import Total

T = 8


def mixings():
    rng = np.random.default_rng(3)
    return [
        np.eye(T),
        toeplitz(square_root(T), T),
        np.diag(rng.uniform(0.5, 2, T)),
        np.tril(rng.uniform(0, 1, (T, T))) + np.eye(T),
    ]


@pytest.mark.parametrize("mixing", mixings())
def test_nobody_of_every_round_moves_the_release_further(mixing):
    rng, bound = np.random.default_rng(0), sensitivity(mixing)
    sent = rng.normal(size=(200, T, 3))
    sent /= np.linalg.norm(sent, axis=2, keepdims=True)
    assert np.linalg.norm(np.einsum("st,nti->nsi", mixing, sent), axis=(1, 2)).max() <= bound + 1e-9
    always_the_same = np.linalg.norm(mixing @ np.ones((T, 1)))
    assert always_the_same == pytest.approx(bound)


def test_opposite_vectors_may_be_worse_and_are_not_overlooked():
    with pytest.raises(ValueError, match="negative entry"):
        sensitivity(toeplitz(np.array([1.0, -0.5]), T))


@pytest.mark.parametrize("mixing", mixings())
def test_no_noise_is_smaller_after_the_last_round_and_none_gets_below_the_bound(mixing):
    last, over_all = noise(mixing)
    assert last >= 1 - 1e-9
    assert over_all >= least_everywhere(T) - 1e-9
    assert noise(np.eye(T)) == pytest.approx((1, 1))


class Silent:
    """Sums of zeros."""

    def aggregate(self, step, cohort, message, schema):
        return Total({"block": torch.zeros(40_000)}, 1.0)


def test_totals_have_the_noise_that_was_worked_out():
    mixing = toeplitz(square_root(T), T)
    federation = CorrelatedFederation(Silent(), mixing, 2.0, 0)
    total = sum(federation.aggregate("train", None, None, {}).sums["block"] for _ in range(T))
    assert float(total.std()) == pytest.approx(noise(mixing)[0] * 2.0 * T**0.5, rel=0.02)
    assert float(federation.aggregate("count", None, None, {}).sums["block"].std()) == pytest.approx(2.0, rel=0.02)
