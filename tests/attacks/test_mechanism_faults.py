"""Faults of real code are found in small mechanisms; what no audit of outputs sees is said in words."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attacks.mechanism import Claim, audit_mechanism


def _faults():
    path = Path(__file__).with_name("mechanism_faults.py")
    spec = importlib.util.spec_from_file_location("mechanism_faults", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


f = _faults()
SIX, LONG = {"shape": (6,)}, {"trials": 1_000}
UPDATES = {"update": f.VALUES, "examples": np.array([1, 50, 3, 2, 2, 1, 9, 1])}
PARAMETERS = {"weight": f.VALUES, "bias": f.VALUES[:, :2]}
PRESENT = {"values": f.VALUES, "present": np.ones(8, bool)}


def audited(release, claim=f.CLAIM, **options):
    options = {"trials": 200, "budget_seconds": 1e6, **({} if "inputs" in options else {"shape": (3,)}), **options}
    return audit_mechanism(release, claim, **options)


FAULTS = {
    f.noise_before_the_clip: ({}, "unnoised outputs"),
    f.noise_divided_by_the_batch_twice: ({}, "influence"),
    f.layers_clipped_one_by_one: ({**SIX, "trials": 800}, "influence"),
    f.one_noise_tensor_for_two_parameters: (SIX, "influence"),
    f.noise_of_a_seed_in_the_settings: ({}, "unnoised outputs"),
    f.rows_without_gradient_left_alone: ({}, "unnoised outputs"),
    f.items_that_nobody_has_left_alone: ({"inputs": f.CATEGORIES}, "unnoised outputs"),
    f.norm_in_half_precision: ({"inputs": torch.from_numpy(f.VALUES).float()}, "influence"),
    f.stopped_early_on_the_exact_metric: ({"shape": (16,)}, "number of users"),
    f.number_of_rounds_beside_the_model: ({}, "unnoised outputs"),
    f.clip_at_the_exact_median: ({}, "number of users"),
    f.weighted_by_examples_after_the_clip: ({"inputs": UPDATES}, "influence"),
    f.noise_on_a_grid: ({}, "unnoised outputs"),
    f.noise_that_ends: (LONG, "influence"),
    f.noise_redrawn_beyond_two_deviations: ({"trials": 2_000}, "influence"),
    f.four_local_steps_with_the_noise_of_one: ({}, "influence"),
    f.divided_by_who_is_present: ({"inputs": PRESENT}, "number of users"),
    f.norm_without_the_last_coordinate: ({}, "influence"),
    f.norm_of_one_parameter_for_two: ({"inputs": PARAMETERS}, "influence"),
    f.positions_of_the_largest_values: (SIX, "unnoised outputs"),
    f.factor_of_the_first_row_for_all: ({}, "influence"),
    f.exact_scale_beside_rounded_values: ({}, "unnoised outputs"),
    f.sent_by_whoever_is_there: ({}, "unnoised outputs"),
    f.noise_that_cancels_in_the_mean: ({}, "influence"),
    f.noise_that_mostly_cancels: ({}, "influence"),
}


@pytest.mark.parametrize("release", FAULTS, ids=lambda release: release.__name__)
def test_a_fault_of_real_code_is_found_where_it_is(release):
    options, subject = FAULTS[release]
    assert audited(release, **options).finding(subject).verdict == "violation"


CLAIMS = {
    f.batch_drawn_with_replacement: (Claim(0.5, f.DELTA), {"inputs": np.random.default_rng(0).normal(size=(20, 3))}),
    f.l2_clip_under_laplace_noise: (Claim(f.EPSILON), SIX),
    f.two_l1_clips_under_laplace_noise: (Claim(f.EPSILON), {"shape": (4,)}),
    f.gaussian_sum: (replace(f.CLAIM, neighbours="replace"), {}),
}


@pytest.mark.parametrize("release", CLAIMS, ids=lambda release: release.__name__)
def test_a_claim_that_fits_another_mechanism_is_rejected(release):
    claim, options = CLAIMS[release]
    assert audited(release, claim, **options).finding("influence").verdict == "violation"


@pytest.mark.parametrize("neighbours", ["add_or_remove", "zero_out"])
@pytest.mark.parametrize("release", [f.gaussian_sum, f.rounded_after_the_noise, f.clipped_after_the_noise])
def test_what_is_done_after_the_noise_is_no_fault(release, neighbours):
    report = audited(release, replace(f.CLAIM, neighbours=neighbours))
    assert not report.violated, report.text()


def test_a_count_that_is_shown_above_a_threshold_alone_is_no_fault():
    report = audited(f.thresholded_histogram, inputs=f.CATEGORIES)
    assert not report.violated, report.text()


def test_what_is_not_read_is_named():
    def release(inputs, generator):
        if np.abs(inputs["update"]).max(initial=0.0) > 1e5:
            raise RuntimeError("the loss diverged")
        return {"sum": f.clip(inputs["update"]).sum(axis=0) + generator.normal(0, f.NOISE, 3), "note": "8 users"}

    unseen = "\n".join(audited(release, inputs=UPDATES).unseen)
    assert "outputs that are no numbers: note" in unseen
    assert "other than the example's: examples" in unseen
    assert "the loss diverged); whoever sees that it failed learns that" in unseen
    assert "a seed that starts anew with every process" in unseen
