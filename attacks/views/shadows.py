"""View of an adversary that trained shadow recommenders like the one it attacks."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from jaxtyping import Bool, Float32, Float64

from attacks.views.types import ViewError

OutputActivation = Literal["softmax", "sigmoid"]
"""Function that turns a recommender's scores into probabilities; see :meth:`ShadowView.log_odds`."""

_TYPES = (np.dtype(np.float32), np.dtype(np.float32), np.dtype(np.bool_))


@dataclass(frozen=True, eq=False)
class ShadowView:
    """Scores of a target recommender and of shadow recommenders trained on known parts of the same histories.

    In each world a random inclusion bit decides for every randomised interaction whether the shadow trains on it, so
    one world serves all users and items at once. **Measure only the game of randomised inclusion on it**
    (:meth:`attacks.Targets.randomised_inclusion`): if `trained` is made from true histories, items that no shadow
    trains on are known to be in no history, and the masks alone would decide any other game.

    Attributes:
        target: Scores of each item for each audited user by the recommender under attack, training items included.
        shadows: Scores by the shadow recommender of each world.
        trained: True where the shadow of that world trained on the interaction.
        output: Function that turns scores into probabilities.

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
        """Number of shadow recommenders."""
        return len(self.shadows)

    def log_odds(self, scores: Float32[np.ndarray, "users items"]) -> Float64[np.ndarray, "users items"]:
        """Scores as log-odds phi of a probability p = 1 / (1 + exp(-phi)) that the user would take the item.

        A ranking has no probabilities. "sigmoid" takes a score as the logit of a model trained on the binary
        cross-entropy. "softmax" scores are defined only up to a constant per user, so the item is compared with an
        average item of the catalogue: phi_i = s_i - log mean_j exp(s_j). Up to log(items) this is the logit-scaled
        confidence of Carlini et al. (S&P 2022, eq. for phi), and its probabilities do not shrink as the catalogue
        grows.
        """
        wide = scores.astype(np.float64)
        if self.output == "sigmoid":
            return wide
        phi: Float64[np.ndarray, "users items"] = (
            wide - scipy.special.logsumexp(wide, axis=1, keepdims=True) + np.log(wide.shape[1])
        )
        return phi
