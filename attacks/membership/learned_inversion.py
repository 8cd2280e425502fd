"""Learned inversion: read a history off an upload in which no row belongs to an item.

Low-rank factors, hashed tables and compressed uploads have no row to look at, and several local steps have no formula
to invert. But whoever knows the code can train newcomers on made-up histories, as often as wanted, and learn the way
back from uploads to histories by ridge regression: with simulated uploads U and histories H,

    scores(x) = x U^T (U U^T + lambda I)^-1 H,

rows of U and x centred by the mean simulated upload and scaled to length one. This is gradient inversion by regression
on simulated pairs; `gradient_inversion` optimises for each upload instead.
"""

import numpy as np
from jaxtyping import Bool, Float

from attacks.views.types import Scores, ViewError


def learned_inversion(
    uploads: Float[np.ndarray, "users size"],
    simulated: Float[np.ndarray, "newcomers size"],
    histories: Bool[np.ndarray, "newcomers items"],
    ridge: float = 1e-2,
) -> Scores:
    """Scores of every item for every upload.

    Args:
        uploads: To read, flat.
        simulated: Uploads of newcomers who trained on made-up histories, flat.
        histories: These histories.
        ridge: Lambda; uploads have length one.

    Raises:
        ViewError: If there are fewer than two newcomers, or uploads of other lengths.
    """
    if len(simulated) < 2 or simulated.shape[1] != uploads.shape[1] or len(histories) != len(simulated):
        raise ViewError(
            f"Got {len(simulated)} simulated uploads of {simulated.shape[1]} numbers with {len(histories)} histories "
            f"for uploads of {uploads.shape[1]}; pass two or more of the same length, with a history each."
        )
    mean = simulated.mean(axis=0, dtype=np.float64).astype(simulated.dtype)
    known, asked = _unit(simulated - mean), _unit(uploads - mean)
    labels = histories - histories.mean(axis=0)
    gram = (known @ known.T).astype(np.float64)
    weights = np.linalg.solve(gram + ridge * np.eye(len(known)), labels)
    scores: Scores = asked @ known.T @ weights
    return scores


def _unit(rows: Float[np.ndarray, "n size"]) -> Float[np.ndarray, "n size"]:
    unit: Float[np.ndarray, "n size"] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
