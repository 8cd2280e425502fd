"""Faults of the kinds that users report of real code, each planted in a small mechanism for the audit's tests."""

import math

import numpy as np
import torch

from attacks.empirical import mu_from_epsilon
from attacks.mechanism import Claim

EPSILON, DELTA = 2.0, 1e-5
CLAIM = Claim(EPSILON, DELTA)
NOISE = 1 / mu_from_epsilon(EPSILON, DELTA)
"""Exact for sensitivity 1."""
VALUES = np.random.default_rng(0).normal(size=(8, 3))
CATEGORIES = np.arange(10) % 5


def finite(rows):
    return np.nan_to_num(rows, nan=0.0, posinf=1e100, neginf=-1e100).clip(-1e100, 1e100)


def clip(rows, norm=1.0):
    rows = finite(np.asarray(rows, np.float64))
    return rows * np.minimum(1, norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def noise(generator, rows, scale=NOISE):
    return generator.normal(0, scale, rows.shape[1])


def noise_before_the_clip(rows, generator):
    share = NOISE / math.sqrt(max(len(rows), 1))
    return clip(finite(rows) + generator.normal(0, share, rows.shape)).sum(axis=0)


def noise_divided_by_the_batch_twice(rows, generator):
    return (clip(rows).sum(axis=0) + noise(generator, rows) / 8) / 8


def layers_clipped_one_by_one(rows, generator):
    return {
        name: clip(layer).sum(axis=0) + noise(generator, layer)
        for name, layer in (("first", rows[:, :3]), ("second", rows[:, 3:]))
    }


def one_noise_tensor_for_two_parameters(rows, generator):
    clipped, drawn = clip(rows), generator.normal(0, NOISE, 3)
    return {"weight": clipped[:, :3].sum(axis=0) + drawn, "bias": clipped[:, 3:].sum(axis=0) + 2 * drawn}


def noise_of_a_seed_in_the_settings(rows, generator):
    return clip(rows).sum(axis=0) + noise(np.random.default_rng(3), rows, NOISE * math.sqrt(10))


def batch_drawn_with_replacement(rows, generator):
    """Two of twenty, as if a rate of .1 were a Poisson sample's."""
    if not len(rows):
        return noise(generator, rows)
    drawn = generator.integers(0, len(rows), max(1, len(rows) // 10))
    return clip(rows)[drawn].sum(axis=0) + noise(generator, rows)


def rows_without_gradient_left_alone(rows, generator):
    total = clip(rows).sum(axis=0)
    return np.where(total != 0, total + noise(generator, rows), 0.0)


def items_that_nobody_has_left_alone(items, generator):
    counts = np.bincount(items, minlength=5).astype(float)
    return np.where(counts > 0, counts + generator.laplace(0, 1 / EPSILON, 5), 0.0)


def norm_in_half_precision(rows, generator):
    norms = rows.half().norm(dim=1, keepdim=True).float()
    factor = torch.where(norms > 1, 1 / norms, 1.0)
    factor = torch.where(norms.isfinite(), factor, 1.0)
    return torch.nan_to_num(rows * factor).sum(0) + NOISE * torch.randn(3, generator=generator)


def stopped_early_on_the_exact_metric(rows, generator):
    model, clipped = np.zeros(rows.shape[1]), clip(rows)
    for _ in range(5):
        model = model + (clipped.sum(axis=0) + noise(generator, rows, NOISE * math.sqrt(5))) / 8
        if len(rows) and (clipped @ model).mean() > 0:
            break
    return model


def number_of_rounds_beside_the_model(rows, generator):
    rounds = 1 + int(len(rows) > 0 and clip(rows).mean() > 0.1)
    return {"model": clip(rows).sum(axis=0) + noise(generator, rows), "rounds": rounds}


def clip_at_the_exact_median(rows, generator):
    norms = np.linalg.norm(finite(rows), axis=1)
    bound = max(float(np.median(norms)), 1e-3) if len(norms) else 1.0
    return clip(rows, bound).sum(axis=0) + noise(generator, rows, bound * NOISE)


def weighted_by_examples_after_the_clip(inputs, generator):
    weighted = clip(inputs["update"]) * inputs["examples"][:, None]
    return weighted.sum(axis=0) + noise(generator, weighted)


def noise_on_a_grid(rows, generator):
    return clip(rows).sum(axis=0) + np.round(4 * noise(generator, rows)) / 4


def noise_that_ends(rows, generator):
    return clip(rows).sum(axis=0) + generator.uniform(-NOISE * math.sqrt(3), NOISE * math.sqrt(3), rows.shape[1])


def noise_redrawn_beyond_two_deviations(rows, generator):
    drawn = generator.normal(0, NOISE, (50, rows.shape[1]))
    first = (np.abs(drawn) < 2 * NOISE).argmax(axis=0)
    return clip(rows).sum(axis=0) + drawn[first, np.arange(rows.shape[1])]


def four_local_steps_with_the_noise_of_one(rows, generator):
    return sum(clip(rows).sum(axis=0) for _ in range(4)) + noise(generator, rows)


def divided_by_who_is_present(inputs, generator):
    here = inputs["present"]
    return (clip(inputs["values"])[here].sum(axis=0) + noise(generator, inputs["values"])) / max(here.sum(), 1)


def norm_without_the_last_coordinate(rows, generator):
    rows = finite(rows)
    return (rows / np.maximum(1, np.linalg.norm(rows[:, :-1], axis=1, keepdims=True))).sum(0) + noise(generator, rows)


def norm_of_one_parameter_for_two(inputs, generator):
    weight, bias = finite(inputs["weight"]), finite(inputs["bias"])
    factor = 1 / np.maximum(1, np.linalg.norm(weight, axis=1, keepdims=True))
    both = np.concatenate([weight * factor, bias * factor], axis=1)
    return both.sum(axis=0) + noise(generator, both)


def l2_clip_under_laplace_noise(rows, generator):
    return clip(rows).sum(axis=0) + generator.laplace(0, 1 / EPSILON, rows.shape[1])


def two_l1_clips_under_laplace_noise(rows, generator):
    halves = (finite(rows[:, :2]), finite(rows[:, 2:]))
    clipped = [half / np.maximum(1, np.abs(half).sum(axis=1, keepdims=True)) for half in halves]
    return {str(at): half.sum(axis=0) + generator.laplace(0, 1 / EPSILON, 2) for at, half in enumerate(clipped)}


def gaussian_sum(rows, generator):
    """Right, but where a unit is replaced."""
    return clip(rows).sum(axis=0) + noise(generator, rows)


def positions_of_the_largest_values(rows, generator):
    total = clip(rows).sum(axis=0)
    chosen = np.argsort(-np.abs(total))[:2]
    return {"positions": chosen, "values": total[chosen] + generator.normal(0, NOISE, 2)}


def factor_of_the_first_row_for_all(rows, generator):
    rows = finite(rows)
    factor = 1 / max(1, np.linalg.norm(rows[0])) if len(rows) else 1.0
    return (rows * factor).sum(axis=0) + noise(generator, rows)


def exact_scale_beside_rounded_values(rows, generator):
    clipped = clip(rows)
    scale = float(np.abs(clipped).max(initial=1e-3))
    return {"rounded": np.rint(clipped.sum(axis=0) / scale + noise(generator, rows)), "scale": scale}


def sent_by_whoever_is_there(rows, generator):
    return [row + generator.normal(0, 2 * NOISE, len(row)) for row in clip(rows)]


def noise_that_cancels_in_the_mean(rows, generator):
    total, drawn = clip(rows).sum(axis=0), noise(generator, rows, 2 * NOISE)
    return {"first": total + drawn, "second": total - drawn}


def noise_that_mostly_cancels(rows, generator):
    total, drawn = clip(rows).sum(axis=0), generator.normal(0, NOISE, (2, rows.shape[1]))
    return {"model": total + drawn[0], "average": 0.9 * drawn[0] + 0.1 * drawn[1]}


def thresholded_histogram(items, generator):
    """Right: what is rare is never shown, but with probability delta."""
    counts = np.bincount(items, minlength=5)
    noisy = counts + generator.laplace(0, 1 / EPSILON, 5)
    return np.where(noisy > 1 + math.log(1 / (2 * DELTA)) / EPSILON, noisy, 0.0)


def rounded_after_the_noise(rows, generator):
    """Right: rounding is post-processing."""
    return np.round(4 * (clip(rows).sum(axis=0) + noise(generator, rows))) / 4


def clipped_after_the_noise(rows, generator):
    """Right: so is clipping."""
    return clip((clip(rows).sum(axis=0) + noise(generator, rows))[None])[0]
