"""What an adversary has who trained shadow recommenders beside the one it attacks."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64
from scipy.special import logsumexp

from attacks.views.types import ViewError

OutputActivation = Literal["softmax", "sigmoid"]
"""How a recommender's scores become probabilities; see :meth:`ShadowView.log_odds`."""

_TYPES = (np.dtype(np.float32), np.dtype(np.float32), np.dtype(np.bool_))


@dataclass(frozen=True, eq=False)
class ShadowView:
    """Scores of a target recommender and of shadows that were trained on known parts of the same histories.

    In each world a coin decides of every interaction put to it whether the shadow trains on it. One world therefore
    speaks about all users and items at once. **Ask only the coin's game of it**
    (:meth:`attacks.view.Targets.coin_decided`): where `trained` is made from true histories, items in no world's
    training are known to be nobody's, and any other game would be answered by the masks.

    Attributes:
        target: How the recommender under attack scores each item for each audited user, training items included.
        shadows: The same from every shadow.
        trained: True where the shadow of that world trained on the interaction.
        output: How scores become probabilities.

    Raises:
        ViewError: If arrays have other types than float32, float32 and bool, shapes do not fit, a score is not finite,
        or there is no world.
    """

    target: Float32[np.ndarray, "users items"]
    shadows: Float32[np.ndarray, "worlds users items"]
    trained: Bool[np.ndarray, "worlds users items"]
    output: OutputActivation = "softmax"

    def __post_init__(self) -> None:
        fits = self.shadows.shape == self.trained.shape and self.shadows.shape[1:] == self.target.shape
        types = (self.target.dtype, self.shadows.dtype, self.trained.dtype)
        if not fits or types != _TYPES or 0 in self.shadows.shape or self.target.ndim != 2:
            raise ViewError(
                f"ShadowView got target {self.target.dtype} {self.target.shape}, shadows {self.shadows.dtype} "
                f"{self.shadows.shape} and trained {self.trained.dtype} {self.trained.shape}; pass float32 [users, "
                "items], float32 [worlds, users, items] and bool of that shape, with at least one of each."
            )
        if self.output not in ("softmax", "sigmoid"):
            raise ViewError(f"ShadowView.output is {self.output!r}; use 'softmax' or 'sigmoid'.")
        if not np.isfinite(self.target).all() or not np.isfinite(self.shadows).all():
            raise ViewError("ShadowView holds NaN or infinity as a score; leave out the users whose model broke.")

    @property
    def n_users(self) -> int:
        """Number of audited users."""
        return len(self.target)

    @property
    def n_items(self) -> int:
        """Catalogue size."""
        return len(self.target[0])

    @property
    def n_worlds(self) -> int:
        """Shadow recommenders."""
        return len(self.shadows)

    def log_odds(self, scores: Float32[np.ndarray, "users items"]) -> Float64[np.ndarray, "users items"]:
        """Scores as log-odds phi of a probability p = 1 / (1 + exp(-phi)) that the user would take the item.

        A ranking has no probabilities. "sigmoid" reads a score as the logit of a model trained on the binary
        cross-entropy, which it is there. "softmax" knows scores only up to a constant of the user's own, and asks for
        the item against an average one of the catalogue: phi_i = s_i - log mean_j exp(s_j). Up to log(items) this is
        the logit-scaled confidence of Carlini et al. (S&P 2022, eq. for phi), and its probabilities do not shrink as
        the catalogue grows.
        """
        wide = scores.astype(np.float64)
        if self.output == "sigmoid":
            return wide
        phi: Float64[np.ndarray, "users items"] = wide - logsumexp(wide, axis=1, keepdims=True) + np.log(wide.shape[1])
        return phi
