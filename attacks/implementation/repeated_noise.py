"""Noise that was used twice: between rounds, clients, queries, blocks, or runs.

Three tests, each valid whatever was uploaded:

* `repeated_windows`: eight consecutive numbers that occur twice. If an upload leaves most rows unchanged, reused noise
  is visible to the bit.
* `correlated_uploads`: uploads that vary together. Clipped uploads can make two of them agree only up to a bound; noise
  that is reused, negated, scaled or partly shared goes far beyond it.
* `repeated_differences`: releases that differ by less than fresh noise. Given all earlier releases, a new one minus an
  old one is fresh noise around some value, so its differences are small at most as often as noise is. This is the test
  for sums, whose values are unbounded; it does without the factor of sqrt(2) by which two independent noises differ
  more, because a value may depend on the older noise.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Float32, Int32
from scipy.special import log_ndtr

from attacks.implementation.claimed_noise import MAX_FALSE_ALARM, ClaimedNoise, NoiseTest
from attacks.implementation.noise_size import small_values

WINDOW = 8
"""Number of consecutive values that are compared to the bit."""


def repeated_windows(releases: Sequence[Float[np.ndarray, "..."]], noise: ClaimedNoise) -> NoiseTest:
    """Test whether eight consecutive released numbers occur a second time, anywhere, up to their sign.

    Args:
        releases: Arrays with noise of one scale; windows lie along the last axis, from its beginning.
        noise: Noise that every number is claimed to carry.
    """
    sizes = np.concatenate([np.empty((0, WINDOW), np.int32), *map(_windows, releases)])
    repeated, pairs = _count_repeats(sizes), len(sizes) * max(len(sizes) - 1, 0) / 2
    log2_p = math.log2(max(pairs, 1)) + WINDOW * (noise.log2_atom + 1)
    return NoiseTest(
        name="no noise comes twice",
        statistic=float(repeated),
        threshold=0.0,
        p_value=min(1.0, 2.0**log2_p) if repeated else 1.0,
        where=f"{repeated} of {len(sizes)} runs of {WINDOW} numbers occur twice",
        n_tested=len(sizes),
    )


def correlated_uploads(
    uploads: Float[np.ndarray, "uploads numbers"],
    noise: ClaimedNoise,
    *,
    largest_sum: float,
    names: Sequence[str] | None = None,
) -> NoiseTest:
    """Test whether two uploads agree by more than what clipped values can add to independent noise.

    An upload is multiplied by the signs of an earlier one and summed. Given the earlier one, that is a sum of d
    independent noises plus at most `largest_sum`.

    Args:
        uploads: Uploads in order of time; later ones may depend on earlier ones.
        noise: Noise that every number is claimed to carry.
        largest_sum: Largest L1 norm that an upload may have on these numbers before noise.
        names: Names of the uploads, by default their positions.
    """
    n, d = uploads.shape
    if n < 2 or not d:
        return NoiseTest("uploads carry independent noise", 0.0, 0.0, 1.0, "fewer than two uploads", 0)
    scaled = (uploads / noise.scale).astype(np.float32)
    # agreement[later, earlier] for every pair; only the strict lower triangle is a pair.
    agreement = np.abs(np.tril(scaled @ np.sign(scaled).T, -1))
    slack = (largest_sum + d * noise.step) / noise.scale + _rounding(scaled)
    excess = np.maximum(agreement - slack, 0.0)
    later, earlier = divmod(int(excess.argmax()), n)
    pairs = n * (n - 1) // 2
    log_p = math.log(2 * pairs) + _log_tail(float(excess[later, earlier]), d, noise)
    label = [str(index) for index in range(n)] if names is None else names
    return NoiseTest(
        name="uploads carry independent noise",
        statistic=float(agreement[later, earlier]) / math.sqrt(d),
        threshold=(slack + _tail(math.log(MAX_FALSE_ALARM / (2 * pairs)), d, noise)) / math.sqrt(d),
        p_value=min(1.0, math.exp(min(log_p, 0.0))),
        where=f"{label[later]} agrees with {label[earlier]}",
        n_tested=pairs,
    )


def repeated_differences(releases: Float[np.ndarray, "rounds numbers"], noise: ClaimedNoise) -> NoiseTest:
    """Test whether any release is closer to an earlier one, or to its opposite, than fresh noise allows.

    Args:
        releases: Releases in order of time: sums of rounds, the same query in two runs, uploads of one client.
        noise: Noise that every number of the later release is claimed to carry.
    """
    pairs = [(i, j, sign) for i in range(len(releases)) for j in range(i) for sign in (1, -1)]
    tests = [
        (small_values((releases[i] - sign * releases[j].astype(np.float64))[None, None], noise), i, j)
        for i, j, sign in pairs
    ]
    if not tests:
        return NoiseTest("noise is drawn anew", 0.0, 0.0, 1.0, "fewer than two releases", 0)
    test, i, j = min(tests, key=lambda result: result[0].p_value)
    return replace(
        test,
        name="noise is drawn anew",
        p_value=min(1.0, len(tests) * test.p_value),
        where=f"release {i} against release {j}: {test.where}",
        n_tested=len(tests),
    )


def _windows(array: Float[np.ndarray, "..."]) -> Int32[np.ndarray, "windows width"]:
    """Bits of the absolute values of windows along the last axis; an incomplete window at its end is ignored."""
    width = array.shape[-1] // WINDOW * WINDOW
    rows = array.reshape(-1, array.shape[-1])[:, :width].astype(np.float32)
    return np.ascontiguousarray(np.abs(rows)).reshape(-1, WINDOW).view(np.int32)


def _count_repeats(windows: Int32[np.ndarray, "windows width"]) -> int:
    """Number of windows that equal an earlier one, found by a hash and compared by all their bits."""
    odd = np.random.default_rng(0).integers(2**63, size=WINDOW, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    # Unsigned arithmetic wraps around, which is what a hash wants.
    keys = (windows.astype(np.uint32) * odd).sum(axis=1, dtype=np.uint64)
    order = keys.argsort(kind="stable")
    first = np.flatnonzero(np.diff(keys[order]) == 0)
    return int((windows[order[first]] == windows[order[first + 1]]).all(axis=1).sum())


def _rounding(scaled: Float32[np.ndarray, "uploads numbers"]) -> float:
    """Bound on the rounding error of sums in float32."""
    d = scaled.shape[1]
    return float(d * np.finfo(np.float32).eps * np.abs(scaled).sum(axis=1, dtype=np.float64).max())


def _log_tail(excess: float, d: int, noise: ClaimedNoise) -> float:
    """Bound on log P(sum of `d` noises of scale 1 > excess): exact for a Gaussian, Chernoff's for Laplace."""
    if excess <= 0:
        return 0.0
    if noise.law == "gaussian":
        return float(log_ndtr(-excess / math.sqrt(d)))
    rate = excess / (d + math.hypot(d, excess))
    return -rate * excess - d * math.log1p(-(rate**2))


def _tail(log_p: float, d: int, noise: ClaimedNoise) -> float:
    """Excess at which `_log_tail` falls to `log_p`."""
    low, high = 0.0, 1.0
    while _log_tail(high, d, noise) > log_p:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_tail(middle, d, noise) > log_p else (low, middle)
    return high
