"""Bootstrap over users: intervals that respect that one user's items are not independent.

All of a user's (user, item) scores come from one upload, so resampling pairs would make intervals far too narrow. Users
are drawn with replacement instead (Efron & Tibshirani, 1993, cluster bootstrap), and each resample is stored as the
number of times that each user was drawn, which turns every resampled mean into a weighted sum.

Percentiles of resamples alone are too narrow where there are few users: they take the spread of the users, and the
percentile itself, for known. `interval` stretches them about the measured value as Student's t does (after Hesterberg,
"What Teachers Should Know About the Bootstrap", The American Statistician, 2015, on percentiles that are too narrow).
"""

from functools import lru_cache

import numpy as np
import scipy.special
from jaxtyping import Float64, Int64, Num

LEVEL = 0.95
"""Coverage of every interval in this package."""

SHARES = (0.0, 1.0)
"""Where rates and AUCs lie."""

_FREEDOM_OF_A_RESAMPLE = 0.269
"""A percentile of R resamples is as uncertain as a deviation of 0.269 R degrees of freedom."""


@lru_cache(maxsize=8)
def user_weights(n_users: int, resamples: int, seed: int) -> Float64[np.ndarray, "resamples users"]:
    """Number of times that each user is drawn in each resample; rows sum to n_users. Read-only: calls share one array.

    Args:
        n_users: Number of users, at least 1.
        resamples: Number of bootstrap resamples, at least 1.
        seed: Seed of the resamples; equal seeds give equal weights.

    Raises:
        ValueError: If either count is below 1.
    """
    if n_users < 1 or resamples < 1:
        raise ValueError(f"A bootstrap needs users and resamples, got {n_users} and {resamples}; pass at least 1 each.")
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(n_users, np.full(n_users, 1 / n_users), size=resamples).astype(np.float64)
    weights.flags.writeable = False
    return weights


def percentile_interval(
    samples: Num[np.ndarray, "resamples *rest"],
) -> tuple[Float64[np.ndarray, "*rest"], Float64[np.ndarray, "*rest"]]:
    """Lower and upper ends of the central :data:`LEVEL` share of the resampled values."""
    tail = (1 - LEVEL) / 2
    # Of R values the k-th lies above k / (R + 1) of what they are drawn from; other rules lie too far inside.
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0, method="weibull")
    return np.asarray(low), np.asarray(high)


def freedom(n_users: int | Int64[np.ndarray, "*rest"], resamples: int) -> Float64[np.ndarray, "*rest"]:
    """Degrees of freedom of an interval from so many resamples of so many users."""
    return 1 / (1 / np.maximum(n_users - 1, 1) + 1 / (_FREEDOM_OF_A_RESAMPLE * resamples))


def interval(
    value: float | Float64[np.ndarray, "*rest"],
    samples: Num[np.ndarray, "resamples *rest"],
    n_users: int | Int64[np.ndarray, "*rest"],
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[Float64[np.ndarray, "*rest"], Float64[np.ndarray, "*rest"]]:
    """Ends of the :data:`LEVEL` interval of a value, which hold for few users, too.

    Of a single user nothing is known but the bounds; without bounds both ends are the value.

    Args:
        value: What was measured.
        samples: What resamples of the users give.
        n_users: Users that were drawn from.
        bounds: Where the value can lie.
    """
    low, high = percentile_interval(samples)
    n, upper = np.maximum(n_users, 2), (1 + LEVEL) / 2
    # Resamples have the spread of the users about their own mean, which is sqrt((n - 1) / n) times as large.
    factor = np.sqrt(n / (n - 1)) * scipy.special.stdtrit(freedom(n, len(samples)), upper) / scipy.special.ndtri(upper)
    # A value that all resamples exceed, as the best of many is, has an end that says so already.
    low = low - (factor - 1) * np.maximum(value - low, 0)
    high = high + (factor - 1) * np.maximum(high - value, 0)
    alone = (np.asarray(n_users) < 2) & np.isfinite(bounds).all()
    low, high = np.where(alone, bounds[0], low), np.where(alone, bounds[1], high)
    return low.clip(*bounds), high.clip(*bounds)
