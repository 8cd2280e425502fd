"""Rounding to a grid lengthens no upload, and moves sums apart by no more than their noise is widened for."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privfed.federation.grid import NoisedSum, device_grid, power_of_two_below, release_upload_, released


@given(st.floats(1e-30, 1e30))
def test_the_power_of_two_below(size):
    power = power_of_two_below(size)
    assert power <= size < 2 * power
    assert math.frexp(power)[0] == 0.5


@given(st.floats(1e-20, 1e20))
def test_a_devices_noise_is_no_narrower_than_claimed_and_its_grid_fine(scale):
    grid = device_grid(scale)
    assert Fraction(grid.ratio) * Fraction(grid.step) >= Fraction(scale)
    assert grid.ratio * grid.step <= scale * (1 + 1e-9)
    assert 2**20 <= grid.ratio <= 2**21 * (1 + 1e-9)


def vectors(seed, count, size, clip_norm):
    drawn = np.random.default_rng(seed).normal(size=(count, size)) * np.exp(
        np.random.default_rng(seed + 1).normal(size=size)
    )
    return (drawn * (clip_norm * (1 - 2.0**-22) / np.linalg.norm(drawn, axis=1, keepdims=True))).astype(np.float32)


@given(
    seed=st.integers(0, 2**20),
    count=st.integers(2, 40),
    size=st.integers(1, 30),
    clip_norm=st.floats(1e-6, 1e6),
    multiplier=st.floats(1e-3, 1e9),
    weight=st.floats(1e-3, 1e3),
)
def test_rounded_sums_on_two_inputs_lie_within_the_widened_sensitivity(
    seed, count, size, clip_norm, multiplier, weight
):
    """In exact arithmetic, for sums in any order: the noise multiplier that is claimed holds."""
    noised = NoisedSum(clip_norm, multiplier * clip_norm, size, count)
    grid = noised.grid(weight)
    weighted = torch.from_numpy(vectors(seed, count, size, clip_norm)).double() / weight
    without = weighted[1:][torch.from_numpy(np.random.default_rng(seed).permutation(count - 1))]
    silent = torch.zeros(size, dtype=torch.float64)
    worlds = [released(values.sum(0), silent, grid) for values in (weighted, without)]
    for world in worlds:
        assert torch.equal(world, (world / grid.step).round() * grid.step)
    apart = [Fraction(a) - Fraction(b) for a, b in zip(*(world.tolist() for world in worlds), strict=True)]
    square = sum(part * part for part in apart) * Fraction(weight) ** 2
    deviation = Fraction(grid.ratio) * Fraction(grid.step) * Fraction(weight)
    assert square * Fraction(multiplier) ** 2 <= deviation**2


def test_the_widening_is_small_where_anybody_would_run_it():
    for coordinates, summands in ((1, 10), (7_000_000, 6_040), (50_000, 1_000_000)):
        assert 1 < NoisedSum(1.0, 5.0, coordinates, summands).widening < 1.0006


@pytest.mark.parametrize("summands", [2, 6040, 10**6, 2**24])
def test_noise_covers_what_float64_loses_of_a_sum_of_many_vectors(summands):
    """Each of n additions errs by up to 2^-53 of a sum of up to n norms, with a user and without one."""
    noised = NoisedSum(clip_norm=2.0, deviation=3.0, coordinates=1, summands=summands)
    lost = 2 * (summands - 1) * 2.0**-53 * summands
    assert noised.grid().ratio * noised.grid().step >= 3.0 * (1 + lost)


def test_a_release_has_no_signed_zero():
    values = torch.tensor([-1e-9, 1e-9, -0.0, 0.0, -0.3], dtype=torch.float64)
    out = released(values.clone(), torch.zeros(5, dtype=torch.float64), device_grid(2.0**20))
    assert not torch.signbit(out).any()


@pytest.mark.parametrize("clip_norm", [1e-8, 1.0, 1e8])
def test_very_wide_noise_has_a_coarser_grid_and_is_widened_for_it(clip_norm):
    noised = NoisedSum(clip_norm, 1e9 * clip_norm, 10_000, 100)
    assert noised.grid().ratio < 2.0**40
    assert noised.widening > 1 + noised.step * 100 / clip_norm * 0.99


@given(
    values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=9),
    exponent=st.integers(-60, 60),
    noise=st.integers(-(2**30), 2**30),
)
def test_an_upload_is_rounded_towards_zero_and_noised_exactly(values, exponent, noise):
    grid = device_grid(2.0 ** (exponent + 20))
    upload = torch.tensor([values, values])
    release_upload_(upload, torch.full(upload.shape, float(noise), dtype=torch.float64), grid)
    step = Fraction(2) ** exponent
    wanted = [
        float((math.trunc(Fraction(value) / step) + noise) * step) for value in upload.new_tensor(values).tolist()
    ]
    for row in upload:
        np.testing.assert_array_equal(row.numpy(), np.array(wanted).astype(np.float32))
        assert not torch.signbit(row[row == 0]).any()
