"""Linking pseudonyms of two runs, or of two services whose catalogues overlap.

A person's uploads say the same taste whatever the number they come under. So each pseudonym gets a profile, the scores
that an attack on items gives it, and profiles of two runs are compared on the items that both have.

Two services may hold different items of one person, halves without overlap even. Then a person has at the one what they
lack at the other, and profiles item by item are less alike than strangers' are: that they fail to link is the failure
of the attack, not protection. Smoothed profiles ask for kinds of items instead, by histories of other people.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.optimize import linear_sum_assignment
from scipy.stats import beta

from attacks._scaling import standardise
from attacks.metrics.bootstrap import LEVEL
from attacks.metrics.estimate import Estimate
from attacks.views.types import PerUser, Scores, UserMask, ViewError


def profiles(scores: Scores) -> Float64[np.ndarray, "users items"]:
    """What sets each user apart: scores of mean 0 and variance 1, less those of the average user."""
    standard = standardise(scores)
    own: Float64[np.ndarray, "users items"] = standard - standard.mean(axis=0)
    return own


def smoothed_profiles(
    scores: Scores, known_histories: Bool[np.ndarray, "known items"], rank: int | None = None
) -> Float64[np.ndarray, "users features"]:
    """Profiles of what goes together with the items that set each user apart.

    Args:
        scores: as for :func:`profiles`.
        known_histories: of people whom the adversary knows, such as colluders or a public data set; never of targets.
        rank: number of directions in which these people differ most, each counted alike; None scores every item by
            how often known people who have it have the user's items, too (cosine, the item itself left out).

    Raises:
        ViewError: If histories are about other items than scores, nobody has a history, or the rank is below 1.
    """
    held = known_histories.astype(np.float64)
    if held.shape[1] != scores.shape[1]:
        raise ViewError(
            f"Known histories are about {held.shape[1]} items and scores about {scores.shape[1]}; pass both over the "
            "same catalogue."
        )
    if not held.any() or (rank is not None and rank < 1):
        raise ViewError(
            f"Got {int(held.sum())} known interactions and rank {rank}; pass some, and a rank of 1 or more."
        )
    own = profiles(scores)
    if rank is None:
        # [known, items], columns of length 1: of an item that nobody has, 0.
        units = held / np.maximum(np.sqrt(held.sum(axis=0)), 1.0)
        # The diagonal of the co-occurrence, 1 for items that somebody has, is taken off again.
        near = standardise(own @ units.T @ units - own * held.any(axis=0))
        together: Float64[np.ndarray, "users items"] = near - near.mean(axis=0)
        return together
    rows = held / np.maximum(np.linalg.norm(held, axis=1, keepdims=True), 1e-12)
    _, lengths, directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    kept = directions[:rank][lengths[:rank] > 1e-9]
    reduced: Float64[np.ndarray, "users features"] = own @ kept.T
    return reduced


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


@dataclass(frozen=True, eq=False)
class Linked:
    """How well pseudonyms were linked.

    Attributes:
        named: whether each person's pseudonym in the second run was named, all being assigned at once.
        aucs: that each person's own pair looks more alike than one with anybody else.
        chance: share of people whom a random assignment names.
    """

    named: UserMask
    aucs: PerUser
    chance: float

    @property
    def accuracy(self) -> float:
        """Share of people who were named."""
        return float(self.named.mean())

    @property
    def auc(self) -> float:
        """Mean over people."""
        return float(self.aucs.mean())


def share_named(named: PerUser | UserMask) -> Estimate:
    """Share of people who were named, with an exact binomial interval: where all were, a bootstrap would show none.

    Args:
        named: whether each person was, or in which share of several runs; people are what is counted.

    Raises:
        ValueError: If there is nobody.
    """
    people, found = len(named), float(named.sum())
    if not people:
        raise ValueError("Got no person; a share needs at least one.")
    tail = (1 - LEVEL) / 2
    low = float(beta.ppf(tail, found, people - found + 1)) if found else 0.0
    high = float(beta.ppf(1 - tail, found + 1, people - found)) if found < people else 1.0
    return Estimate(found / people, low, high)


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
    # Among equals the assignment takes the first, and the order of pseudonyms must give nobody away.
    shuffled = np.random.default_rng(0).permutation(others)
    assigned = shuffled[linear_sum_assignment(-similar[:, shuffled])[1]]
    own = similar[np.arange(people), same]
    # Each row's own pair against all others of that row.
    above = (similar < own[:, None]).sum(axis=1) + ((similar == own[:, None]).sum(axis=1) - 1) / 2
    return Linked(assigned == same, above / (others - 1), 1 / others)
