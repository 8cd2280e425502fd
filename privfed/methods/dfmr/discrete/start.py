"""First codes from real factors: iterative quantisation (Gong and Lazebnik, CVPR 2011), then signs.

The rotation R that brings unit rows Z closest to codes is the result of alternating steps: B = sign(Z R), then R from
the singular vectors of Z^T B (orthogonal Procrustes). Users and items share one rotation, so their inner products
survive.
"""

import numpy as np
from jaxtyping import Float64, Int8

from privfed.compute.linear_algebra import orthonormal_columns, singular_triplets
from privfed.methods.dfmr.discrete.errors import DiscreteError

_TURNS = 50


def binarise(
    users: Float64[np.ndarray, "n r"], items: Float64[np.ndarray, "m r"], seed: int
) -> tuple[Int8[np.ndarray, "n r"], Int8[np.ndarray, "m r"]]:
    """Codes of users and items under one rotation of both.

    Args:
        users: real factors of users.
        items: real factors of items.
        seed: of the first rotation, and of the random sign of a factor that is exactly 0.

    Raises:
        DiscreteError: Factors of different ranks, or not finite.
    """
    if users.shape[1:] != items.shape[1:]:
        raise DiscreteError(f"user factors of shape {users.shape} and item factors of {items.shape} differ in rank")
    codes = binarise_items(np.concatenate([users, items]), seed)
    return codes[: len(users)], codes[len(users) :]


def binarise_items(items: Float64[np.ndarray, "m r"], seed: int) -> Int8[np.ndarray, "m r"]:
    """Codes of items alone, under their own rotation; arguments as in `binarise`.

    Raises:
        DiscreteError: Factors that are not finite.
    """
    if not np.all(np.isfinite(items)):
        raise DiscreteError("factors hold values that are not finite, of which no code can be made: train them again")
    draws = np.random.default_rng(seed)
    lengths = np.linalg.norm(items, axis=1, keepdims=True)
    unit = items / np.where(lengths > 0, lengths, 1.0)
    rotation = orthonormal_columns(draws.standard_normal((items.shape[1], items.shape[1])))
    for _ in range(_TURNS):
        left, _, right = singular_triplets(unit.T @ np.where(unit @ rotation >= 0, 1.0, -1.0))
        rotation = left @ right
    rotated = unit @ rotation
    tie_sign = draws.random(rotated.shape) < 0.5
    codes: Int8[np.ndarray, "m r"] = np.where(np.where(rotated == 0, tie_sign, rotated > 0), 1, -1).astype(np.int8)
    return codes
