"""Linking pseudonyms of two runs, or of two services whose catalogues overlap.

A person's uploads say the same taste whatever the number they come under. So each pseudonym gets a profile, the scores
that an attack on items gives it, and profiles of two runs are compared on the items that both have.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.optimize import linear_sum_assignment

from attacks._scaling import standardise
from attacks.views.types import Scores, ViewError


def profiles(scores: Scores) -> Float64[np.ndarray, "users items"]:
    """What sets each user apart: scores of mean 0 and variance 1, less those of the average user."""
    standard = standardise(scores)
    own: Float64[np.ndarray, "users items"] = standard - standard.mean(axis=0)
    return own


def linked(first: Float64[np.ndarray, "a items"], second: Float64[np.ndarray, "b items"]) -> Float64[np.ndarray, "a b"]:
    """Cosine of every pair of profiles, over the same items in the same order.

    Raises:
        ViewError: If profiles are about different numbers of items.
    """
    if first.shape[1] != second.shape[1]:
        raise ViewError(
            f"Profiles are about {first.shape[1]} and {second.shape[1]} items; pass those of the items that both have."
        )
    units = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-12) for one in (first, second))
    left, right = units
    similar: Float64[np.ndarray, "a b"] = left @ right.T
    return similar


@dataclass(frozen=True)
class Linked:
    """How well pseudonyms were linked.

    Attributes:
        accuracy: share of people whose pseudonym in the second run was named, all being assigned at once.
        auc: that a pair of the same person looks more alike than one of two.
        chance: share that a random assignment finds.
    """

    accuracy: float
    auc: float
    chance: float


def measure_links(similar: Float64[np.ndarray, "a b"], same: Int64[np.ndarray, " a"]) -> Linked:
    """Compare with the truth.

    Args:
        similar: of every pair.
        same: pseudonym in the second run of each one in the first.

    Raises:
        ViewError: If there are fewer pseudonyms in the second run, or fewer than two of them.
    """
    people, others = similar.shape
    if others < max(people, 2):
        raise ViewError(f"{people} people cannot be found among {others} pseudonyms; pass at least as many, and two.")
    _, assigned = linear_sum_assignment(-similar)
    own = similar[np.arange(people), same]
    # Each row's own pair against all others of that row.
    above = (similar < own[:, None]).sum(axis=1) + ((similar == own[:, None]).sum(axis=1) - 1) / 2
    return Linked(float((assigned == same).mean()), float((above / (others - 1)).mean()), 1 / others)
