"""Evidence for attribute inference besides whole uploads (`attacks.attributes.gram.upload_gram`): one row per user.

Every row has length 1 (or is all zeros), and none depends on another user's, so nothing leaks from test users into
training. Rows of true interactions are an upper baseline: no adversary sees them, and what an upload reveals can be
compared with what there is to reveal. An activity count, the weakest evidence, is the lower baseline.
"""

import numpy as np
from jaxtyping import Bool, Float64, Integer, Num

from attacks._linear_algebra import orthonormal_columns
from attacks._scaling import divide_by_rms
from attacks.views.types import Scores, ViewError

EvidenceRows = Float64[np.ndarray, "users columns"]
"""One row per user."""


def item_rows(items: Bool[np.ndarray, "users items"]) -> EvidenceRows:
    """Unit rows of the items that each user has, or is believed to have."""
    return unit_rows(items.astype(np.float64))


def recovered_items(scores: Scores, top: int | None = None) -> EvidenceRows:
    """Unit rows of the items that a membership attack finds for each user.

    Args:
        scores: Scores of the attack; higher means "more likely trained on".
        top: Number of highest scores that count as each user's items. None grades the items, for attacks whose scores
            have a sign (rank-1 sign, decoder bias): 0 up to a score of 0, 1 from the user's root mean square on, in
            proportion in between. How far below 0 a sampled negative lies is no information about the user.

    Raises:
        ViewError: If `top` is not between 1 and the number of items.
    """
    if top is None:
        return unit_rows(divide_by_rms(scores).clip(0, 1))
    if not 1 <= top <= scores.shape[1]:
        raise ViewError(f"top is {top} for a catalogue of {scores.shape[1]} items; pass a number between 1 and that.")
    chosen = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(chosen, np.argpartition(-scores, top - 1, axis=1)[:, :top], values=True, axis=1)
    return item_rows(chosen)


def activity(counts: Integer[np.ndarray, "users"]) -> EvidenceRows:
    """Activity of each user and nothing else: log(1 + count), one column, not of length 1."""
    return np.log1p(counts.astype(np.float64))[:, None]


def popularity_blind(values: EvidenceRows, popularity: Num[np.ndarray, "items"]) -> EvidenceRows:
    """Residual of each user's row after its fit by log(1 + popularity).

    The fit (least squares with an intercept, for each user separately) captures the user's activity and preference for
    popular items; the residual shows which items the user has beyond their popularity.

    Raises:
        ViewError: If popularity is not one number of at least 0 per item.
    """
    if popularity.shape != values.shape[1:] or not (popularity >= 0).all():
        raise ViewError(
            f"popularity has shape {popularity.shape} for rows of {values.shape[1]} items; pass one count or share per "
            "item."
        )
    basis = orthonormal_columns(np.column_stack([np.ones(len(popularity)), np.log1p(popularity)]))
    return unit_rows(values - (values @ basis) @ basis.T)


def unit_rows(values: EvidenceRows) -> EvidenceRows:
    """Each row divided by its length; a row of zeros stays zero."""
    length = np.linalg.norm(values, axis=1, keepdims=True)
    rows: EvidenceRows = np.divide(values, length, out=np.zeros_like(values), where=length > 0)
    return rows
