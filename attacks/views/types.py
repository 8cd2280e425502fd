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

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64

Scores: TypeAlias = Float64[np.ndarray, "users items"]
"""One number per (user, item); higher means "more likely that the user trained on the item"."""

PerUser: TypeAlias = Float64[np.ndarray, "users"]
"""One number per audited user."""

UserMask: TypeAlias = Bool[np.ndarray, "users"]
"""A choice of audited users."""


class ViewError(ValueError):
    """A view, some knowledge or a set of targets does not have the shape or the values it must have."""


@runtime_checkable
class View(Protocol):
    """Any view: it is about some audited users and one catalogue."""

    @property
    def n_users(self) -> int:
        """Number of audited users."""

    @property
    def n_items(self) -> int:
        """Catalogue size."""


def check_block(name: str, array: Float32[np.ndarray, "users items ..."], shape: str, number: int) -> None:
    """One float32 array with a value for every user and item."""
    if array.dtype != np.float32 or array.ndim != shape.count(",") + 1 or 0 in array.shape:
        raise ViewError(
            f"{name} is {array.dtype} of shape {array.shape}; pass a non-empty float32 array of shape {shape}."
        )
    if not np.isfinite(array.sum(dtype=np.float64)):
        raise ViewError(
            f"{name} of round {number} holds NaN or infinity; leave out the users whose model broke, or pass zeros "
            "for users who did not take part."
        )
