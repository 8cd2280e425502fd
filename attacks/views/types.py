"""Array types, the protocol and the error that all views share."""

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64

Scores: TypeAlias = Float64[np.ndarray, "users items"]
"""One number per (user, item); higher means "more likely that the user trained on the item"."""

PerUser: TypeAlias = Float64[np.ndarray, "users"]
"""One number per audited user."""

UserMask: TypeAlias = Bool[np.ndarray, "users"]
"""A subset of the audited users."""


class ViewError(ValueError):
    """A view, the adversary's knowledge or a set of targets has a wrong type, shape or value."""


@runtime_checkable
class AttackView(Protocol):
    """What an adversary saw of some audited users and one catalogue."""

    @property
    def n_users(self) -> int:
        """Number of audited users."""

    @property
    def n_items(self) -> int:
        """Catalogue size."""


def check_block(name: str, array: Float32[np.ndarray, "users items ..."], shape: str, number: int) -> None:
    """Raise a ViewError unless an array is float32, finite and has a value for every user and item.

    Args:
        name: Name of the array for the error.
        array: The array.
        shape: Expected axes, for example "[users, items]".
        number: Round of the view.
    """
    if array.dtype != np.float32 or array.ndim != shape.count(",") + 1 or 0 in array.shape:
        raise ViewError(
            f"{name} is {array.dtype} of shape {array.shape}; pass a non-empty float32 array of shape {shape}."
        )
    # A sum is NaN or infinite whenever one of its terms is, and needs no mask of the array's size.
    if not np.isfinite(array.sum(dtype=np.float64)):
        raise ViewError(
            f"{name} of round {number} holds NaN or infinity; leave out the users whose model broke, or pass zeros "
            "for users who did not take part."
        )
