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
from jaxtyping import Float32

from attacks.views.types import UserMask, ViewError, check_block

USERS_PER_CHUNK = 64
"""Users handled together, so that temporary copies of their uploads stay within tens of megabytes."""


@dataclass(frozen=True, eq=False)
class ServerView:
    """The item-shaped uploads of one round, as they passed the adversary's listening point.

    An upload is what local training changed, local minus global. A user who did not take part has only zeros.

    Attributes:
        round: Round number, from 0.
        uploads: What each audited user sent about each item on the way out of the model: a row of the item
            table, or of the last layer's weights.
        pull: Direction the server itself put into each user's local training, known to it (GPFedRec: the
            user's own regularisation target minus the global table), or None where there is none. An upload
            contains an unknown multiple of it, the same for all rows of a user.
        inputs: The same for each item on the way in: its row of the first layer's weights, of a model that
            reads the user's history (autoencoders); None where there is none.
        bias: The last layer's bias, one number per item; None where there is none.

    Raises:
        ViewError: If the arrays are not float32 of equal users and items, uploads and inputs with a width,
        the pull as wide as the uploads and the bias without one, or hold NaN or infinity.
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
                f"ServerView.pull has shape {self.pull.shape} but uploads has {self.uploads.shape}; "
                "pass one pull row for every upload row."
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
        """User slices that cover the view, small enough to copy."""
        return [slice(at, at + USERS_PER_CHUNK) for at in range(0, self.n_users, USERS_PER_CHUNK)]

    def present(self) -> UserMask:
        """Users who sent anything in this round."""
        blocks = [block for block in (self.uploads, self.inputs, self.bias) if block is not None]
        sent: UserMask = np.any([block.reshape(self.n_users, -1).any(axis=1) for block in blocks], axis=0)
        return sent
