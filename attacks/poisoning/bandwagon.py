"""Bandwagon profiles: malicious clients train honestly on histories that nobody has.

A profile holds the targets, popular items that make it resemble many people, and random filler (Mobasher, Burke,
Bhaumik & Williams, "Toward trustworthy recommender systems: an analysis of attack models and algorithm robustness",
ACM TOIT 2007). No upload is crafted, so no check of uploads can tell.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int64


def bandwagon_profiles(
    popularity: Float64[np.ndarray, " items"], targets: Int64[np.ndarray, " k"], profiles: int, size: int, seed: int
) -> Bool[np.ndarray, "profiles items"]:
    """Histories of so many items each: all targets, half of the rest among the most popular, the others random.

    Args:
        popularity: of the items, on any scale.
        targets: items to promote.
        profiles: how many clients there are.
        size: items of each, at least one more than there are targets.
        seed: of the draw.

    Raises:
        ValueError: a profile has no room for the targets and one more item.
    """
    rest = size - len(targets)
    if rest < 1:
        raise ValueError(f"profiles of {size} items have no room beside {len(targets)} targets; make them longer")
    rng, out = np.random.default_rng(seed), np.zeros((profiles, len(popularity)), dtype=bool)
    out[:, targets] = True
    others = np.setdiff1d(np.argsort(-popularity, kind="stable"), targets, assume_unique=True)
    ordered = others[np.argsort(-popularity[others], kind="stable")]
    out[:, ordered[: rest // 2]] = True
    filler = ordered[rest // 2 :]
    # The smallest of random keys are a draw without replacement, for all profiles at once.
    keys = rng.random((profiles, len(filler))).argsort(axis=1)[:, : rest - rest // 2]
    np.put_along_axis(out, filler[keys], values=True, axis=1)
    return out
