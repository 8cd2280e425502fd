"""Conditional randomised rounding: real vectors to integer vectors whose norm has a certain bound.

Each coordinate is rounded to one of its two neighbours with the real value as its mean, and a vector whose rounded norm
exceeds the bound is rounded again. The bound, for real norm r in d coordinates, is

    min{ r + sqrt d,  sqrt(r^2 + d/4 + sqrt(2 ln(1/beta)) (r + sqrt(d)/2)) }.

The first holds always, the second with probability at least 1 - beta per attempt, so a handful of attempts suffice.
Rejection leaves a small bias towards shorter vectors and costs no privacy: the guarantee rests only on the fact that no
result exceeds the bound.

Should every attempt fail, the vector is rounded towards zero, which lengthens nothing, so the bound still holds. With
the default beta and 64 attempts this happens to one vector in 10^13 at most.

Source: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism" (2102.06387), section 4, conditional
randomised rounding.
"""

import math

import numpy as np
from numpy.typing import NDArray

from secure_agg.checks import check_integer
from secure_agg.errors import ConfigurationError
from secure_agg.noise.kernels import in_use, squared_norms
from secure_agg.noise.subkeys import subkey
from secure_agg.primitives.prg import random_uints

DEFAULT_BETA = math.exp(-0.5)
"""Default probability, at most, that one attempt exceeds the bound: the value the paper uses."""

MAX_NORM = 2.0**26
"""r + sqrt d stays below this: squared norms are then exact in float64, and 1e-9 of r is far inside the bound."""

NORM_SLACK = 1e-9
"""Relative excess over the radius that is attributed to the rounding of floats."""


def rounded_norm_bound(radius: float, coordinates: int, beta: float = DEFAULT_BETA) -> float:
    """The L2 norm that no rounded vector exceeds.

    Args:
        radius: maximum L2 norm before rounding, in steps; positive, with radius + sqrt(coordinates) below 2^26.
        coordinates: d.
        beta: probability in [0, 0.9] that one attempt exceeds the bound; 0 takes the bound that always holds.

    Raises:
        ConfigurationError: an argument out of its range.
    """
    root = math.sqrt(check_integer("coordinates", coordinates, minimum=1))
    if not 0.0 <= beta <= 0.9:
        raise ConfigurationError(f"beta is {beta!r}; give a probability in [0, 0.9]")
    if not (radius > 0.0 and radius + root < MAX_NORM):
        raise ConfigurationError(
            f"a norm of {radius!r} steps in {coordinates} coordinates was given; it must be positive and, with the "
            "root of the coordinates, below 2^26, so choose another grid"
        )
    if beta == 0.0:
        return radius + root
    deviation = math.sqrt(2.0 * math.log(1.0 / beta)) * (radius + root / 2.0)
    return min(radius + root, math.sqrt(radius * radius + coordinates / 4.0 + deviation))


def joint_rounded_norm_bound(radius: float, coordinates: int, vectors: int, beta: float = DEFAULT_BETA) -> float:
    """The joint L2 norm that no rounded vectors exceed, each rounded within the bound of its own norm.

    With norms r_t whose squares add up to R^2, sum_t r_t <= sqrt(T) R, so the two bounds of each vector add up to

        (R + sqrt(T d))^2  and  R^2 + T d/4 + sqrt(2 ln(1/beta)) (sqrt(T) R + T sqrt(d)/2).

    Args:
        radius: R, in steps.
        coordinates: d, of each vector.
        vectors: T.
        beta: as in `rounded_norm_bound`.
    """
    single, root = rounded_norm_bound(radius, coordinates, beta), math.sqrt(vectors * coordinates)
    if vectors == 1 or beta == 0.0:
        return single if vectors == 1 else radius + root
    deviation = math.sqrt(2.0 * math.log(1.0 / beta)) * math.sqrt(vectors) * (radius + root / 2.0)
    return min(radius + root, math.sqrt(radius * radius + root * root / 4.0 + deviation))


def l1_bound(l2: float, coordinates: int) -> float:
    """Bound on the L1 norm of an integer vector of L2 norm `l2`."""
    # sqrt(d) l2 by Cauchy-Schwarz; l2^2 because |k| <= k^2 for integers.
    return min(math.sqrt(coordinates) * l2, l2 * l2)


def conditional_round(
    values: NDArray[np.floating],
    radius: float,
    beta: float = DEFAULT_BETA,
    key: bytes | None = None,
    *,
    max_attempts: int = 64,
) -> NDArray[np.int64]:
    """Round each vector, and again where the result is longer than `rounded_norm_bound`.

    Args:
        values: [clients, coordinates], in steps, each of L2 norm at most radius.
        radius: maximum L2 norm.
        beta: as in `rounded_norm_bound`.
        key: `None` draws from the operating system; 32 bytes make the rounding reproducible, for simulations.
        max_attempts: number of randomised attempts before a vector is rounded towards zero.

    Returns:
        [clients, coordinates]; one attempt has the mean of `values` to within 2^-32 of a step.

    Raises:
        ConfigurationError: a norm above radius or not finite, another number of axes, or an argument out of its range.
    """
    if values.ndim != 2:
        raise ConfigurationError(f"got an array of {values.ndim} axes; give [clients, coordinates]")
    vectors = values.astype(np.float64, copy=False)
    # Shrunk by 2^-50, so that the rounding of the square cannot admit an integer vector above the bound.
    max_squared_norm = rounded_norm_bound(radius, vectors.shape[1], beta) ** 2 * (1.0 - 2.0**-50)
    norms = np.sqrt(squared_norms(vectors))
    if not (norms <= radius * (1.0 + NORM_SLACK)).all():
        raise ConfigurationError(
            f"a vector of norm {norms.max():.9g} steps was given and the radius is {radius:.9g}; clip before rounding"
        )
    rounded = np.empty(vectors.shape, np.int64)
    pending = np.arange(len(vectors))  # rows that exceeded the bound in every attempt so far
    for attempt in range(max_attempts):
        if not pending.size:
            return rounded
        attempt_key = None if key is None else subkey(key, "rounding", attempt)
        again = vectors[pending] if attempt else vectors
        candidates = np.empty(again.shape, np.int64) if attempt else rounded
        uints = random_uints(again.size, np.uint32, attempt_key)
        accepted = in_use().round_up(again, uints, candidates) <= max_squared_norm
        if attempt:
            rounded[pending[accepted]] = candidates[accepted]
        pending = pending[~accepted]
    rounded[pending] = np.trunc(vectors[pending])
    return rounded
