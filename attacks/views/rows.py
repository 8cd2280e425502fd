"""What an adversary saw, what it knew beforehand, and what it tries to find out.

Every attack in this package is a pure function of a :class:`ServerView` (what passed the point in the system
where the adversary listens), a :class:`ScoreView` (what a user's device shows) or an
:class:`attacks.support_view.SupportView` (which rows clients send), and a :class:`Knowledge` (what the adversary knew
before). :class:`Targets` holds the truth and is seen only by the measurement, never by an attack.

The two games on training items follow the membership game of Shokri et al. (S&P 2017) in its recommender form (Yuan
et al., WWW 2023): "did user u train on item i?". Members are natural, not coin-flipped, so a score here mixes leakage
with popularity (and, for held-out items, with time); read it beside the popularity guesser and never convert
it to an epsilon. Two more games ask about the examinations in a support, where purchases are public.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

from attacks.views.server import ServerView
from attacks.views.types import UserMask

UNTOUCHED_TOLERANCE = 1e-4
"""A row is untouched below this share of the user's largest row; float32 rounding stays well under it."""


@dataclass(frozen=True, eq=False)
class UploadSupport:
    """Which rows each user's local training touched, as far as the view shows it.

    Attributes:
        rows: True where the upload differs from the untouched pattern (zero after the pull is taken out).
        told: Users with at least one untouched row. For the others noise lies on every row (or they really
            touched every item), so the support cannot be told and `rows` is all True.
    """

    rows: Bool[np.ndarray, "users items"]
    identifiable: UserMask


def proximal_share(view: ServerView) -> Float32[np.ndarray, "users"]:
    """How much of the server's own pull each upload contains.

    An untouched row equals share * pull exactly, with one share per user (GPFedRec: 1 - (1 - a)^steps). Least
    absolute deviations over rows, that is the weighted median of the per-row least-squares shares with
    weights |pull row|^2, finds it even though touched rows disagree, and is exact where more than half of the
    weight is untouched and there is no noise. Zero where there is no pull.
    """
    share = np.zeros(view.n_users, dtype=np.float32)
    if view.proximal is None:
        return share
    for chunk in view.chunks():
        proximal = view.proximal[chunk]
        weight = np.einsum("uiw,uiw->ui", proximal, proximal)
        product = np.einsum("uiw,uiw->ui", view.uploads[chunk], proximal)
        ratio = np.divide(product, weight, out=np.zeros_like(weight), where=weight > 0)
        order = ratio.argsort(axis=1)
        mass = np.take_along_axis(weight, order, axis=1).cumsum(axis=1, dtype=np.float64)
        middle = (mass < mass[:, -1:] / 2).sum(axis=1).clip(max=view.n_items - 1)
        rows = np.arange(len(ratio))
        share[chunk] = ratio[rows, order[rows, middle]]
    return share


def residual_chunk(
    view: ServerView, share: Float32[np.ndarray, "users"], chunk: slice
) -> Float32[np.ndarray, "chunk items width"]:
    """Uploads of a slice of users with the server's own pull taken out."""
    if view.proximal is None:
        return view.uploads[chunk]
    left: Float32[np.ndarray, "chunk items width"] = (
        view.uploads[chunk] - share[chunk, None, None] * view.proximal[chunk]
    )
    return left


def row_norms(view: ServerView) -> Float32[np.ndarray, "users items"]:
    """Euclidean norm of each upload row after the pull is taken out."""
    share = proximal_share(view)
    norms = np.empty((view.n_users, view.n_items), dtype=np.float32)
    for chunk in view.chunks():
        part = residual_chunk(view, share, chunk)
        norms[chunk] = np.sqrt(np.einsum("uiw,uiw->ui", part, part))
    return norms


def upload_support(view: ServerView) -> UploadSupport:
    """Read off which rows were touched; see :class:`Support`."""
    norms = row_norms(view)
    rows = norms > UNTOUCHED_TOLERANCE * norms.max(axis=1, keepdims=True)
    return UploadSupport(rows=rows, identifiable=~rows.all(axis=1))
