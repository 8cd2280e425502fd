"""View of single uploads: the item-shaped updates that each audited user sent in one round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from attacks.views.types import UserMask, ViewError, check_block

_USERS_PER_CHUNK = 64
"""Number of users processed together, so that temporary copies of uploads stay within tens of megabytes."""


@dataclass(frozen=True, eq=False)
class ServerView:
    """The item-shaped uploads of one round, as they passed the point where the adversary listens.

    An upload is the change made by local training, local minus global. A user who did not take part has only zeros.

    Attributes:
        round: Round number, from 0.
        uploads: Update of each item's row on the output side of the model: the item table, or the last layer's
            weights.
        proximal: Direction of the proximal term that the server put into each user's local training and therefore
            knows (GPFedRec: the user's regularisation target minus the global table); None without such a term. An
            upload contains an unknown multiple of it, the same multiple for all rows of a user.
        inputs: Update of each item's row on the input side, the first layer's weights, for models that read the
            user's history (autoencoders); None for other models.
        bias: Update of the last layer's bias, one number per item; None for models without it.

    Raises:
        ViewError: If the arrays are not float32 of equal users and items, uploads and inputs with a width,
        the proximal direction as wide as the uploads and the bias without one, or hold NaN or infinity.
    """

    round: int
    uploads: Float32[np.ndarray, "users items width"]
    proximal: Float32[np.ndarray, "users items width"] | None = None
    inputs: Float32[np.ndarray, "users items input_width"] | None = None
    bias: Float32[np.ndarray, "users items"] | None = None

    def __post_init__(self) -> None:
        rows = {"uploads": self.uploads, "pull": self.proximal, "inputs": self.inputs}
        for name, array in rows.items():
            if array is not None:
                check_block(f"ServerView.{name}", array, "[users, items, width]", self.round)
        if self.bias is not None:
            check_block("ServerView.bias", self.bias, "[users, items]", self.round)
        if self.proximal is not None and self.proximal.shape != self.uploads.shape:
            raise ViewError(
                f"ServerView.proximal has shape {self.proximal.shape} but uploads has {self.uploads.shape}; "
                "pass one proximal row for every upload row."
            )
        for name, array in (("inputs", self.inputs), ("bias", self.bias)):
            if array is not None and array.shape[:2] != self.uploads.shape[:2]:
                raise ViewError(
                    f"ServerView.{name} has shape {array.shape} but uploads has {self.uploads.shape}; pass the "
                    "same users and items in both."
                )

    @property
    def n_users(self) -> int:
        """Number of audited users."""
        return len(self.uploads)

    @property
    def n_items(self) -> int:
        """Catalogue size."""
        return len(self.uploads[0])

    @property
    def width(self) -> int:
        """Length of one item row."""
        return len(self.uploads[0, 0])

    def chunks(self) -> list[slice]:
        """Slices of users that partition the view, each small enough to copy."""
        return [slice(start, start + _USERS_PER_CHUNK) for start in range(0, self.n_users, _USERS_PER_CHUNK)]

    def present(self) -> UserMask:
        """Mask of the users who uploaded anything in this round."""
        blocks = [block for block in (self.uploads, self.inputs, self.bias) if block is not None]
        sent: UserMask = np.any([block.reshape(self.n_users, -1).any(axis=1) for block in blocks], axis=0)
        return sent
