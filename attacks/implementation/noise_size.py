"""Missing or too small noise, detected from released values alone.

Whatever value noise is added to, the sum is near zero at most as often as the noise itself is (Anderson 1955). So the
number of small values in any part of a release is at most binomial, and too many of them reject the claim. The test
covers single rows, whole uploads and everything at once, at thresholds from twice the scale down to 2^-24 of it, so it
finds few values without noise as well as many values with slightly too little noise. The added value may depend on
earlier releases; the bound holds given the past, so it holds over successive rounds too.
"""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int64
from scipy.stats import binom

from attacks.implementation.claimed_noise import MAX_FALSE_ALARM, ClaimedNoise, NoiseTest

_WIDEST, _FINEST = 1, -24
"""Exponents of the largest and smallest thresholds, which are powers of two times the scale."""

_Histogram: TypeAlias = Int64[np.ndarray, "positions thresholds"]


def small_values(values: Float[np.ndarray, "uploads rows width"], noise: ClaimedNoise) -> NoiseTest:
    """Test whether more values are near zero than claimed noise allows, in any row, in any upload, and in all.

    Args:
        values: Uploads (or sums, or differences of releases) as rows of numbers.
        noise: Noise that every number is claimed to carry.
    """
    uploads, rows, width = values.shape
    by_row = _count_small(values.reshape(uploads * rows, width), noise.scale)  # [uploads * rows, thresholds]
    by_upload = by_row.reshape(uploads, rows, by_row.shape[1]).sum(axis=1)
    levels = [
        ("row {0} of upload {1}", by_row, width),
        ("upload {1}", by_upload, rows * width),
        ("everything", by_upload.sum(axis=0, keepdims=True), values.size),
    ]
    probability = noise.max_probability_within(noise.scale * 2.0 ** np.arange(_FINEST, _WIDEST + 1))
    tests = [_most_suspicious(where, counts, n, probability) for where, counts, n in levels if counts.size and n]
    p, statistic, threshold, where, index = min(tests, default=(1.0, 0.0, 0.0, "nothing", 0))
    return NoiseTest(
        name="no noise is missing or too small",
        statistic=statistic,
        threshold=threshold,
        p_value=min(1.0, max(len(tests), 1) * p),
        where=where.format(index % max(rows, 1), index // max(rows, 1) if "row" in where else index),
        n_tested=sum(len(counts) for _, counts, _ in levels),
    )


def _count_small(rows: Float[np.ndarray, "rows width"], scale: float) -> _Histogram:
    """Number of values of size at most 2^j scales in every row, j ascending."""
    exponents = np.frexp(np.abs(rows).astype(np.float64) / scale)[1]
    # frexp gives 2^(e - 1) <= x < 2^e: such an x is at most 2^e. A zero has e = 0 and belongs to the finest threshold.
    bins = np.where(rows == 0, _FINEST, np.clip(exponents, _FINEST, _WIDEST + 1)) - _FINEST
    n_bins = _WIDEST + 2 - _FINEST
    cell = np.arange(len(rows))[:, None] * n_bins + bins  # flat index into [rows, bins]
    histogram = np.bincount(cell.ravel(), minlength=len(rows) * n_bins).reshape(len(rows), n_bins)
    # The last bin holds values above every threshold.
    return histogram[:, :-1].cumsum(axis=1)


def _most_suspicious(
    where: str, counts: _Histogram, n: int, probability: Float[np.ndarray, "thresholds"]
) -> tuple[float, float, float, str, int]:
    """The least likely count: its p-value over all counts, itself, the largest likely one, and its position.

    Args:
        where: Position in words, with gaps for its indices.
        counts: Number of small values at each position and threshold.
        n: Number of values at each position.
        probability: Upper bound on the probability of a value below each threshold.
    """
    largest = counts.max(axis=0)
    tries = counts.size
    p = tries * np.asarray(binom.sf(largest - 1, n, probability))
    j = int(p.argmin())
    threshold = float(binom.isf(MAX_FALSE_ALARM / tries, n, probability[j]))
    bound = f"values of {where} within 2^{j + _FINEST} of the scale of the noise (of {n})"
    return min(1.0, float(p[j])), float(largest[j]), threshold, bound, int(counts[:, j].argmax())
