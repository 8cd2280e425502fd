"""Rows of an upload: what is left without the server's proximal term, their norms, and which of them were touched.

An item table's gradient is zero on rows that training never looked up, so without noise the touched rows are the rows
that differ from zero once the server's own proximal term is removed.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64

from attacks.views.server import ServerView
from attacks.views.types import UserMask

UNTOUCHED_TOLERANCE = 1e-4
"""Share of the user's largest row norm below which a row is untouched; float32 rounding stays well under it."""


@dataclass(frozen=True, eq=False)
class UploadSupport:
    """Rows that each user's local training touched, as far as the view shows them.

    Attributes:
        rows: True where the upload differs from zero after the proximal term is removed.
        identifiable: Users with at least one untouched row. For other users noise lies on every row (or they really
            touched every item), so the support cannot be identified and `rows` is all True.
    """

    rows: Bool[np.ndarray, "users items"]
    identifiable: UserMask


def proximal_share(view: ServerView) -> Float32[np.ndarray, "users"]:
    """Multiple of the server's proximal direction that each upload contains.

    An untouched row equals share * proximal exactly, with one share per user (GPFedRec: 1 - (1 - a)^steps). Least
    absolute deviations over rows, that is the weighted median of the per-row least-squares shares with weights
    |proximal row|^2, finds it although touched rows disagree, and is exact if more than half of the weight is
    untouched and there is no noise. Zero without a proximal term.
    """
    share = np.zeros(view.n_users, dtype=np.float32)
    if view.proximal is None:
        return share
    for chunk in view.chunks():
        proximal = view.proximal[chunk]  # [chunk, items, width]
        weight = np.einsum("uiw,uiw->ui", proximal, proximal)
        product = np.einsum("uiw,uiw->ui", view.uploads[chunk], proximal)
        # Least-squares share of each row; a row without a proximal term has weight 0 and does not move the median.
        ratio = np.divide(product, weight, out=np.zeros_like(weight), where=weight > 0)
        order = ratio.argsort(axis=1)
        # Cumulative weight in ascending order of the shares: the median is where it first reaches one half.
        mass = np.take_along_axis(weight, order, axis=1).cumsum(axis=1, dtype=np.float64)
        median = (mass < mass[:, -1:] / 2).sum(axis=1).clip(max=view.n_items - 1)
        rows = np.arange(len(ratio))
        share[chunk] = ratio[rows, order[rows, median]]
    return share


def residual_chunk(
    view: ServerView, share: Float32[np.ndarray, "users"], chunk: slice
) -> Float32[np.ndarray, "chunk items width"]:
    """Uploads of a slice of users without the server's proximal term."""
    if view.proximal is None:
        return view.uploads[chunk]
    residual: Float32[np.ndarray, "chunk items width"] = (
        view.uploads[chunk] - share[chunk, None, None] * view.proximal[chunk]
    )
    return residual


def residual_rows(view: ServerView) -> Float32[np.ndarray, "users items width"]:
    """Upload rows without the server's proximal term, of observed and simulated uploads alike."""
    if view.proximal is None:
        return view.uploads
    share = proximal_share(view)
    rows = np.empty_like(view.uploads)
    for chunk in view.chunks():
        rows[chunk] = residual_chunk(view, share, chunk)
    return rows


def row_products(
    first: Float32[np.ndarray, "users items width"], second: Float32[np.ndarray, "users items width"]
) -> Float64[np.ndarray, "users items"]:
    """Inner product of each row of `first` with the same row of `second`."""
    return np.asarray(np.einsum("uiw,uiw->ui", first, second, dtype=np.float64))


def row_norms(view: ServerView) -> Float32[np.ndarray, "users items"]:
    """Euclidean norm of each upload row without the proximal term."""
    share = proximal_share(view)
    norms = np.empty((view.n_users, view.n_items), dtype=np.float32)
    for chunk in view.chunks():
        rows = residual_chunk(view, share, chunk)
        norms[chunk] = np.sqrt(np.einsum("uiw,uiw->ui", rows, rows))
    return norms


def upload_support(view: ServerView) -> UploadSupport:
    """Rows touched by local training; see :class:`UploadSupport`."""
    norms = row_norms(view)
    rows = norms > UNTOUCHED_TOLERANCE * norms.max(axis=1, keepdims=True)
    return UploadSupport(rows=rows, identifiable=~rows.all(axis=1))
