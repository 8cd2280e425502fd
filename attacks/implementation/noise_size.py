"""Noise that is missing or too small, seen from released values alone.

Whatever value noise is added to, the sum is near zero at most as often as the noise itself is (Anderson 1955). So the
number of small values in any part of a release is at most binomial, and too many of them deny the claim. Looked for
among single rows, whole uploads and everything at once, at thresholds from twice the scale down to 2^-24 of it: few
values of no noise at all, and many values of slightly less noise, are both found. The value added may follow from
earlier releases; the bound holds given the past, so it holds for rounds one after another too.
"""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int64
from scipy.stats import binom

from attacks.implementation.claimed_noise import MAX_FALSE_ALARM, ClaimedNoise, NoiseTest

_WIDEST, _FINEST = 1, -24
"""Thresholds, as powers of two of the scale."""

_Histogram: TypeAlias = Int64[np.ndarray, "places thresholds"]


def small_values(values: Float[np.ndarray, "uploads rows width"], noise: ClaimedNoise) -> NoiseTest:
    """Test whether more values are near zero than claimed noise allows, in any row, in any upload, and in all.

    Args:
        values: Uploads (or sums, or differences of releases) as rows of numbers.
        noise: That every number is claimed to carry.
    """
    uploads, rows, width = values.shape
    counts = _row_histograms(values.reshape(uploads * rows, width), noise.scale)
    by_upload = counts.reshape(uploads, rows, counts.shape[1]).sum(axis=1)
    levels = [
        ("row {0} of upload {1}", counts, width),
        ("upload {1}", by_upload, rows * width),
        ("everything", by_upload.sum(axis=0, keepdims=True), values.size),
    ]
    likely = noise.max_probability_within(noise.scale * 2.0 ** np.arange(_FINEST, _WIDEST + 1))
    tested = [_worst(where, at, among, likely) for where, at, among in levels if at.size and among]
    p, statistic, threshold, where, at = min(tested, default=(1.0, 0.0, 0.0, "nothing", 0))
    return NoiseTest(
        name="no noise is missing or too small",
        statistic=statistic,
        threshold=threshold,
        p_value=min(1.0, max(len(tested), 1) * p),
        where=where.format(at % max(rows, 1), at // max(rows, 1) if "row" in where else at),
        places=sum(len(held) for _, held, _ in levels),
    )


def _row_histograms(rows: Float[np.ndarray, "rows width"], scale: float) -> _Histogram:
    """For every row, its values of size at most 2^j scales, j ascending."""
    exponents = np.frexp(np.abs(rows).astype(np.float64) / scale)[1]
    # frexp gives 2^(e - 1) <= x < 2^e: such an x is at most 2^e. A zero has e = 0 and belongs to the finest threshold.
    at = np.where(rows == 0, _FINEST, np.clip(exponents, _FINEST, _WIDEST + 1)) - _FINEST
    kinds = _WIDEST + 2 - _FINEST
    place = np.arange(len(rows))[:, None] * kinds + at
    histogram = np.bincount(place.ravel(), minlength=len(rows) * kinds).reshape(len(rows), kinds)
    return histogram[:, :-1].cumsum(axis=1)


def _worst(
    where: str, counts: _Histogram, among: int, likely: Float[np.ndarray, "thresholds"]
) -> tuple[float, float, float, str, int]:
    """The least likely count of any place: its p-value over all of them, itself, the largest likely one, and where."""
    largest = counts.max(axis=0)
    tries = counts.size
    p = tries * np.asarray(binom.sf(largest - 1, among, likely))
    j = int(p.argmin())
    threshold = float(binom.isf(MAX_FALSE_ALARM / tries, among, likely[j]))
    bound = f"values of {where} within 2^{j + _FINEST} of the scale of the noise (of {among})"
    return min(1.0, float(p[j])), float(largest[j]), threshold, bound, int(counts[:, j].argmax())
