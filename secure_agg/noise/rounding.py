"""Conditional stochastic rounding: from real vectors to whole ones whose norm is known for certain.

Each coordinate goes to one of its two neighbours with the real value as its mean, and a vector whose rounded norm came
out above the bound is rounded again. The bound, for real norm r in d coordinates, is

    min{ r + sqrt d,  sqrt(r^2 + d/4 + sqrt(2 ln(1/beta)) (r + sqrt(d)/2)) }.

The first holds always, the second with probability at least 1 - beta per try, so a handful of tries do. Redrawing
leaves a small bias towards shorter vectors and costs no privacy: what a guarantee rests on is that no result is longer
than the bound.

Should every try fail, the vector is rounded towards zero, which lengthens nothing, so the bound holds there as well.
With the default beta and 64 tries this happens to one vector in 10^13 at most.

Source: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism" (2102.06387), section 4, conditional
randomised rounding.
"""

import math

import numpy as np
from numpy.typing import NDArray

from secure_agg.errors import ConfigurationError
from secure_agg.noise.checks import whole
from secure_agg.noise.subkeys import subkey
from secure_agg.prg import random_words

BETA = math.exp(-0.5)
"""Default chance, at most, that one try exceeds the bound: the value the paper uses."""

LONGEST = 2.0**26
"""r + sqrt d stays below this: squared norms are then exact in float64, and 1e-9 of r is far inside the bound."""

NORM_SLACK = 1e-9
"""Relative excess over the radius that is taken for the rounding of floats."""


def rounded_norm_bound(radius: float, coordinates: int, beta: float = BETA) -> float:
    """The L2 norm that no rounded vector exceeds.

    Args:
        radius: largest L2 norm before rounding, in steps; positive, with radius + sqrt(coordinates) below 2^26.
        coordinates: d.
        beta: chance in [0, 0.9] that one try exceeds the bound; 0 takes the bound that always holds.

    Raises:
        ConfigurationError: an argument out of its range.
    """
    root = math.sqrt(whole("coordinates", coordinates, least=1))
    if not 0.0 <= beta <= 0.9:
        raise ConfigurationError(f"beta is {beta!r}; give a chance in [0, 0.9]")
    if not (radius > 0.0 and radius + root < LONGEST):
        raise ConfigurationError(
            f"a norm of {radius!r} steps in {coordinates} coordinates was given; it must be positive and, with the "
            "root of the coordinates, below 2^26, so choose another grid"
        )
    if beta == 0.0:
        return radius + root
    lean = math.sqrt(2.0 * math.log(1.0 / beta)) * (radius + root / 2.0)
    return min(radius + root, math.sqrt(radius * radius + coordinates / 4.0 + lean))


def l1_bound(l2: float, coordinates: int) -> float:
    """The L1 norm of a whole vector of L2 norm `l2`: sqrt(d) l2 by Cauchy and Schwarz, l2^2 because |k| <= k^2."""
    return min(math.sqrt(coordinates) * l2, l2 * l2)


def conditional_round(
    values: NDArray[np.floating], radius: float, beta: float = BETA, key: bytes | None = None, *, tries: int = 64
) -> NDArray[np.int64]:
    """Round each vector, and again where the result is longer than `rounded_norm_bound`.

    Args:
        values: [clients, coordinates], in steps, each of L2 norm at most radius.
        radius: largest L2 norm.
        beta: as in `rounded_norm_bound`.
        key: `None` draws from the operating system; 32 bytes make it a simulation.
        tries: how often a vector is rounded at random before it is rounded towards zero.

    Returns:
        [clients, coordinates]; one try has the mean of `values` to within 2^-32 of a step.

    Raises:
        ConfigurationError: a norm above radius or not finite, another number of axes, or an argument out of its range.
    """
    if values.ndim != 2:
        raise ConfigurationError(f"got an array of {values.ndim} axes; give [clients, coordinates]")
    vectors = values.astype(np.float64, copy=False)
    largest = rounded_norm_bound(radius, vectors.shape[1], beta) ** 2 * (1.0 - 2.0**-50)
    norms = np.sqrt(_squared_norms(vectors))
    if not (norms <= radius * (1.0 + NORM_SLACK)).all():
        raise ConfigurationError(
            f"a vector of norm {norms.max():.9g} steps was given and the radius is {radius:.9g}; clip before rounding"
        )
    rounded = np.empty(vectors.shape, np.int64)
    pending = np.arange(len(vectors))
    for attempt in range(tries):
        if not pending.size:
            return rounded
        attempt_key = None if key is None else subkey(key, "rounding", attempt)
        drawn = _round(vectors[pending], attempt_key)
        within = _squared_norms(drawn) <= largest
        rounded[pending[within]] = drawn[within]
        pending = pending[~within]
    rounded[pending] = np.trunc(vectors[pending])
    return rounded


def _round(vectors: NDArray[np.float64], key: bytes | None) -> NDArray[np.float64]:
    """Up with probability the fraction, rounded up to a multiple of 2^-32, else down; whole numbers stay."""
    lower = np.floor(vectors)
    fraction = vectors - lower
    fraction *= 2.0**32
    lower += random_words(vectors.size, np.uint32, key).reshape(vectors.shape) < fraction
    return lower


def _squared_norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """[rows] from [rows, coordinates]; exact for whole numbers, as all sums stay below 2^53."""
    return np.asarray(np.einsum("rc,rc->r", rows, rows))
