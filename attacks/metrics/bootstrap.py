"""Bootstrap over users: intervals that respect that one user's items are not independent.

All of a user's (user, item) scores come from one upload, so resampling pairs would make intervals far too narrow. Users
are drawn with replacement instead (Efron & Tibshirani, 1993, cluster bootstrap), and each resample is stored as the
number of times that each user was drawn, which turns every resampled mean into a weighted sum.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float64, Num

LEVEL = 0.95
"""Coverage of every interval in this package."""


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
    low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
    return np.asarray(low), np.asarray(high)
