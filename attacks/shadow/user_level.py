"""User-level membership: is this person's history in the training set of a recommender that only shows lists?

Zhang et al., "Membership inference attacks against recommender systems" (CCS 2021). A recommender shows its members
items close to their history, and other users popular items. With item factors from any available interactions, a user's
feature is

    x_u = mean factor of u's history - mean factor of the items recommended to u,

and a classifier learns from a shadow recommender, whose members the adversary chose, which differences are members'.

Differences from the paper: the factors come from a truncated singular value decomposition and not from a trained matrix
factorisation, and the classifier is a logistic regression on the standardised feature and its squares and not a
multi-layer perceptron. The squares are needed because a member's difference is *small*, which no linear function of it
can express. So the paper's numbers are not the target.

Opt-in: it needs a second recommender trained on users of the adversary's choice. The unit is a user, the game compares
people who were in training with people who were not, and only the lists are observed.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64

from attacks._linear_algebra import largest_singular_vectors
from attacks._logistic import fit_path
from attacks.evaluation.users import UserResult, measure_users
from attacks.views.types import UserMask, ViewError

TRAINED_USERS = "in training vs not in training"


@dataclass(frozen=True, eq=False)
class RecommendedLists:
    """Users' histories and the lists that one recommender shows them.

    Attributes:
        histories: Interactions of each user.
        recommended: Items on the user's list.
        members: Users whose histories are in the training set.

    Raises:
        ViewError: If the masks are not boolean of one [users, items] shape, or a user has no history or no list.
    """

    histories: Bool[np.ndarray, "users items"]
    recommended: Bool[np.ndarray, "users items"]
    members: UserMask

    def __post_init__(self) -> None:
        masks = (self.histories, self.recommended, self.members)
        same = self.histories.shape == self.recommended.shape and self.members.shape == self.histories.shape[:1]
        if not same or self.histories.ndim != 2 or any(mask.dtype != bool for mask in masks):
            raise ViewError(
                f"RecommendedLists got histories {self.histories.shape}, recommended {self.recommended.shape} and "
                f"members {self.members.shape}; pass boolean masks of shapes [users, items] twice and [users]."
            )
        if not (self.histories.any(axis=1) & self.recommended.any(axis=1)).all():
            raise ViewError("A user has no history or an empty list; leave out users who have nothing to compare.")


@dataclass(frozen=True)
class UserLevelLists:
    """Tell members from other users by the distance between their lists and their histories.

    Attributes:
        strength: L2 penalty of the classifier, above 0.
    """

    strength: float = 1e-3

    name: ClassVar[str] = "user-level lists"
    observable: ClassVar[str] = "lists of recommended items"
    adversary: ClassVar[str] = "whoever sees what the device shows"
    knowledge: ClassVar[tuple[str, ...]] = (
        "the histories of the users asked about",
        "item factors",
        "a shadow recommender with members of the adversary's choice",
    )
    unit: ClassVar[str] = "user"
    cost: ClassVar[str] = "one shadow training, and O(users * width) after it"
    explains: ClassVar[str] = (
        "Learns on a recommender of its own how much closer to their histories the lists of members are, and looks for "
        "the same closeness in the lists of others."
    )

    def score(
        self, shadow: RecommendedLists, target: RecommendedLists, factors: Float64[np.ndarray, "items width"]
    ) -> Float64[np.ndarray, "users"]:
        """Log-odds that each target user is a member; the target's own membership is not used.

        Args:
            shadow: Lists of the shadow recommender, with its members.
            target: Lists of the recommender under attack.
            factors: One vector per item (:func:`item_factors`).

        Raises:
            ViewError: If catalogues differ, or the shadow's users are all members or all not.
        """
        features = list_features(shadow, factors)
        if shadow.members.all() or not shadow.members.any():
            raise ViewError("The shadow recommender's users are all on one side; hold some out of its training.")
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        rows = _with_squares((features - mean) / spread)
        (classifier,) = fit_path(rows, shadow.members.astype(np.int64), [self.strength])
        target_rows = _with_squares((list_features(target, factors) - mean) / spread)
        return classifier.log_odds(target_rows)[:, 1]


def infer_list_members(
    shadow: RecommendedLists,
    target: RecommendedLists,
    factors: Float64[np.ndarray, "items width"],
    *,
    strength: float = 1e-3,
    resamples: int = 200,
    seed: int = 0,
) -> UserResult:
    """Train the attack on the shadow recommender, score the target's users and compare the scores with the truth.

    Args:
        shadow: Lists of the shadow recommender, with its members.
        target: Lists of the recommender under attack, with the truth.
        factors: One vector per item.
        strength: L2 penalty of the classifier, above 0.
        resamples: Number of bootstrap resamples of users.
        seed: Seed of the bootstrap.

    Raises:
        ViewError: As in :meth:`UserLevelLists.score` and :func:`attacks.evaluation.measure_users`.
    """
    attack = UserLevelLists(strength)
    scores = attack.score(shadow, target, factors)
    return measure_users(attack, scores, target.members, TRAINED_USERS, resamples=resamples, seed=seed)


def item_factors(histories: Bool[np.ndarray, "users items"], width: int = 32) -> Float64[np.ndarray, "items width"]:
    """Item vectors of the best rank-`width` approximation of the interactions: right singular vectors, scaled.

    Args:
        histories: Histories of users that the adversary knows, for example the shadow's members.
        width: Length of a vector, at least 1 and less than the numbers of users and items.

    Raises:
        ViewError: If the width is outside its range.
    """
    if not 1 <= width < min(histories.shape):
        raise ViewError(f"width is {width} for {histories.shape} histories; pass at least 1 and less than both sizes.")
    singular, right = largest_singular_vectors(histories, width)
    factors: Float64[np.ndarray, "items width"] = right.T * singular
    return factors


def list_features(
    shown: RecommendedLists, factors: Float64[np.ndarray, "items width"]
) -> Float64[np.ndarray, "users width"]:
    """Mean factor of each user's history minus mean factor of the user's list.

    Raises:
        ViewError: If there is not one factor per item.
    """
    if len(factors) != shown.histories.shape[1]:
        raise ViewError(
            f"There are factors of {len(factors)} items but histories over {shown.histories.shape[1]}; pass one vector "
            "per item of the catalogue."
        )

    def mean(chosen: Bool[np.ndarray, "users items"]) -> Float64[np.ndarray, "users width"]:
        centre: Float64[np.ndarray, "users width"] = chosen @ factors / chosen.sum(axis=1, keepdims=True)
        return centre

    difference: Float64[np.ndarray, "users width"] = mean(shown.histories) - mean(shown.recommended)
    return difference


def _with_squares(features: Float64[np.ndarray, "users width"]) -> Float64[np.ndarray, "users inputs"]:
    return np.concatenate([features, np.square(features)], axis=1)
