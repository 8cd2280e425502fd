"""Small mechanisms, right ones and ones with a planted fault, written for the audit's tests."""

import math

import numpy as np
import torch

DELTA = 1e-5


def gaussian_scale(epsilon):
    """Standard deviation for sensitivity 1 by the classical formula, a little above what is needed."""
    return math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def clip(rows, norm=1.0):
    """Rows of finite numbers, each scaled to at most this length."""
    rows = np.nan_to_num(np.asarray(rows, np.float64), nan=0.0, posinf=1e100, neginf=-1e100)
    rows = np.clip(rows, -1e100, 1e100)
    return rows * np.minimum(1, norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def gaussian_sum(epsilon, clip_norm=1.0):
    def release(rows, generator):
        return clip(rows, clip_norm).sum(axis=0) + generator.normal(
            0, clip_norm * gaussian_scale(epsilon), rows.shape[1]
        )

    return release


def laplace_sum(epsilon):
    def release(rows, generator):
        bounded = np.clip(np.nan_to_num(rows), -1, 1) / rows.shape[1]
        return bounded.sum(axis=0) + generator.laplace(0, 1 / epsilon, rows.shape[1])

    return release


def laplace_histogram(epsilon, bins=5):
    def release(rows, generator):
        return np.bincount(rows, minlength=bins) + generator.laplace(0, 1 / epsilon, bins)

    return release


def discrete_gaussian_counts(epsilon, bins=5):
    def release(rows, generator):
        sigma = gaussian_scale(epsilon)
        support = np.arange(-60, 61)
        weights = np.exp(-(support**2) / (2 * sigma**2))
        return np.bincount(rows, minlength=bins) + generator.choice(support, bins, p=weights / weights.sum())

    return release


def randomised_response(epsilon):
    def release(rows, generator):
        keep = generator.random(rows.shape) < math.exp(epsilon) / (1 + math.exp(epsilon))
        return np.where(keep, rows, 1 - rows)

    return release


def sampled_gaussian_sum(epsilon, rate=0.2):
    """Poisson-subsampled; its claim is the one of the sum without sampling, which sampling only strengthens."""

    def release(rows, generator):
        present = generator.random(len(rows)) < rate
        return clip(rows)[present].sum(axis=0) + generator.normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release


def gaussian_mean(epsilon, users):
    """Divided by a public number of users."""

    def release(rows, generator):
        return gaussian_sum(epsilon)(rows, generator) / users

    return release


def torch_gaussian_sum(epsilon):
    def release(rows, generator):
        finite = torch.nan_to_num(rows, 0.0, 1e18, -1e18).clamp(-1e18, 1e18)
        clipped = finite / finite.norm(dim=1, keepdim=True).clamp_min(1)
        noise = torch.randn(rows.shape[1], generator=generator) * gaussian_scale(epsilon)
        return {"sum": clipped.sum(0) + noise}

    return release


def global_randomness(epsilon):
    def release(rows, generator):
        return clip(rows).sum(axis=0) + np.random.normal(0, gaussian_scale(epsilon), rows.shape[1])  # noqa: NPY002

    return release


def randomness_of_its_own(epsilon):
    """No seed of ours replays it."""
    entropy = np.random.default_rng(0)

    def release(rows, generator):
        return clip(rows).sum(axis=0) + entropy.normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release


def bounded_users(epsilon, records=2):
    """At most `records` records of each user, as the column of users says."""

    def release(inputs, generator):
        values, users = clip(inputs["values"]), inputs["user"]
        rank = np.array([(users[:row] == user).sum() for row, user in enumerate(users)], np.int64)
        kept = values[rank < records] if len(values) else values
        return kept.sum(axis=0) + generator.normal(0, records * gaussian_scale(epsilon), values.shape[1])

    return release


def sum_of_local_laplace(epsilon):
    """Every user adds noise enough for a claim of their own; the sum of the noises looks Gaussian."""

    def release(rows, generator):
        bounded = np.clip(np.nan_to_num(rows), -1, 1) / rows.shape[1]
        return (bounded + generator.laplace(0, 1 / epsilon, rows.shape)).sum(axis=0)

    return release


# Faults.


def noise_on_the_wrong_tensor(epsilon):
    def release(rows, generator):
        total = clip(rows).sum(axis=0)
        bias = clip(rows[:, :2]).sum(axis=0)
        return {"weight": total, "bias": bias + generator.normal(0, gaussian_scale(epsilon), 2)}

    return release


def clipped_after_averaging(epsilon):
    def release(rows, generator):
        mean = np.nan_to_num(rows).clip(-1e100, 1e100).sum(axis=0) / max(len(rows), 1)
        return clip(mean[None])[0] + generator.normal(0, gaussian_scale(epsilon) / 8, rows.shape[1])

    return release


def seeded_once(epsilon):
    def release(rows, generator):
        return clip(rows).sum(axis=0) + np.random.default_rng(7).normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release


def few_seeds(epsilon, seeds=50):
    def release(rows, generator):
        again = np.random.default_rng(int(generator.integers(seeds)))
        return clip(rows).sum(axis=0) + again.normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release


def noise_shared_by_coordinates(epsilon):
    def release(rows, generator):
        return clip(rows).sum(axis=0) + generator.normal(0, gaussian_scale(epsilon))

    return release


def not_a_number_passes(epsilon):
    def release(rows, generator):
        factor = np.minimum(1, 1 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))
        return (rows * factor).sum(axis=0) + generator.normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release


def unclipped(epsilon):
    def release(rows, generator):
        return np.nan_to_num(rows).sum(axis=0) + generator.normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release


def count_released(epsilon):
    def release(rows, generator):
        return {"sum": gaussian_sum(epsilon)(rows, generator), "count": len(rows)}

    return release


def absent_users_counted(epsilon):
    """What a flag says is absent is added with a hundredth of its size, unclipped."""

    def release(inputs, generator):
        rows, present = np.nan_to_num(inputs["values"]), inputs["present"]
        total = clip(rows[present]).sum(axis=0) + 0.01 * rows[~present].sum(axis=0).clip(-1e9, 1e9)
        return total + generator.normal(0, gaussian_scale(epsilon), rows.shape[1])

    return release
