"""People with tastes and items with a character, from a seed: what every generated data set draws from.

A user's choices are drawn without replacement from a softmax over the catalogue (Plackett-Luce), by the
Gumbel top-k identity: the k largest of `logit + Gumbel noise` are k such draws (Kool, van Hoof and Welling,
"Stochastic Beams and Where to Find Them", ICML 2019). The logit of item i for user u is

    -popularity * log(rank of i)  +  sharpness * <taste of u, character of i> / sqrt(dimensions)

so popularity has a long tail (Zipf), taste has low rank, and a method that learns taste beats popularity. A
share of each user's taste comes from gender, age group and occupation, so an attack on attributes has
something to find. Nobody is behind any of it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64, Int64

from privfed.data.synthetic_spec import SyntheticSpec

_GENRES = (
    "Action", "Comedy", "Crime", "Documentary", "Drama", "Family", "Fantasy", "Horror", "Music", "Romance",
    "Science fiction", "Thriller",
)  # fmt: skip
_OCCUPATIONS = (
    "student", "educator", "engineer", "programmer", "artist", "health care", "executive", "retired", "sales",
    "other",
)  # fmt: skip
_OCCUPATION_SHARES = (0.2, 0.12, 0.1, 0.1, 0.07, 0.06, 0.07, 0.05, 0.08, 0.15)
_AGE_LOWEST = np.array([12, 18, 25, 35, 45, 50, 56])
_AGE_HIGHEST = np.array([17, 24, 34, 44, 49, 55, 75])
_AGE_SHARES = (0.04, 0.2, 0.34, 0.2, 0.08, 0.08, 0.06)
_SHARE_OF_MEN = 0.65
_USERS_AT_ONCE = 512
_START = 1_600_000_000
_YEAR = 365 * 24 * 3600


@dataclass(frozen=True)
class SyntheticPopulation:
    """Users and items before anybody acts.

    Attributes:
        spec: Requested properties.
        people: Gender, age and occupation of each user, indexed by user id (from 1).
        genre: Number of each item's genre.
        character: Where each item stands in the dimensions of taste.
        appeal: What each item has for everybody, in units of the logit.
        taste: Where each user stands in the dimensions of taste.
    """

    spec: SyntheticSpec
    people: pd.DataFrame
    genre: Int64[np.ndarray, "items"]
    character: Float64[np.ndarray, "items rank"]
    appeal: Float64[np.ndarray, "items"]
    taste: Float64[np.ndarray, "users rank"]

    @classmethod
    def sample(cls, spec: SyntheticSpec, rng: np.random.Generator) -> "SyntheticPopulation":
        """Draw the people and items that `spec` describes."""
        people = _people(spec, rng)
        genre = rng.integers(len(_GENRES), size=spec.n_items)
        centres = rng.standard_normal((len(_GENRES), spec.rank))
        character = 0.8 * centres[genre] + 0.6 * rng.standard_normal((spec.n_items, spec.rank))
        appeal = -spec.popularity * np.log1p(rng.permutation(spec.n_items))
        return cls(spec, people, genre, character, appeal, _taste(people, spec, rng))

    def blocks(self) -> Iterator[tuple[slice, Float64[np.ndarray, "block items"]]]:
        """A few hundred users at a time: who they are, and how much they like each item (variance about 1)."""
        for first in range(0, self.spec.n_users, _USERS_AT_ONCE):
            block = slice(first, first + _USERS_AT_ONCE)
            yield block, self.taste[block] @ self.character.T / np.sqrt(self.spec.rank)

    def logit(self, liking: Float64[np.ndarray, "block items"]) -> Float64[np.ndarray, "block items"]:
        """How strongly each user is drawn to each item."""
        return self.appeal + self.spec.sharpness * liking

    def titles(self) -> pd.DataFrame:
        """Title and genre of each item, indexed by item id (from 1)."""
        return pd.DataFrame(
            {
                "title": [f"Synthetic {_GENRES[kind]} {number}" for number, kind in enumerate(self.genre, start=1)],
                "genres": [_GENRES[kind] for kind in self.genre],
            },
            index=np.arange(1, self.spec.n_items + 1),
        )


def choose(
    logit: Float64[np.ndarray, "users items"], counts: Int64[np.ndarray, "users"], rng: np.random.Generator
) -> Bool[np.ndarray, "users items"]:
    """True for the `counts[u]` items that user u draws without replacement; a logit of -inf is never drawn."""
    ranked = np.argsort(-(logit + rng.gumbel(size=logit.shape)), axis=1)
    chosen = np.zeros(logit.shape, dtype=bool)
    np.put_along_axis(chosen, ranked, np.arange(logit.shape[1]) < counts[:, None], axis=1)
    return chosen


def activity(spec: SyntheticSpec, rng: np.random.Generator) -> Int64[np.ndarray, "users"]:
    """Log-normal numbers of interactions, at most half the catalogue each."""
    most = max(1, spec.n_items // 2)
    least = min(spec.min_per_user, most)
    extra = rng.lognormal(sigma=1.0, size=spec.n_users)
    counts: np.ndarray = least + extra / extra.mean() * max(0.0, spec.mean_per_user - least)
    return counts.clip(max=most).astype(np.int64)


def moments(
    user: Int64[np.ndarray, "interactions"], n_users: int, rng: np.random.Generator, min_pause: int = 0
) -> Int64[np.ndarray, "interactions"]:
    """The time of each row of rows grouped by user, in whole seconds, rising within a user.

    A user starts at a random moment of a year, acts about every 20 seconds (`min_pause` of them are sure),
    and now and then comes back days later. Every user needs a row.
    """
    pause = np.where(rng.random(len(user)) < 0.03, rng.exponential(20 * 24 * 3600, len(user)), 0)
    elapsed = np.cumsum((rng.exponential(20, len(user)) + pause).astype(np.int64) + min_pause)
    begun = elapsed[np.searchsorted(user, np.arange(n_users))]
    start = rng.integers(_START, _START + _YEAR, size=n_users)
    moment: np.ndarray = (start - begun)[user] + elapsed
    return moment


def _people(spec: SyntheticSpec, rng: np.random.Generator) -> pd.DataFrame:
    group = rng.choice(len(_AGE_SHARES), p=_AGE_SHARES, size=spec.n_users)
    return pd.DataFrame(
        {
            "gender": np.where(rng.random(spec.n_users) < _SHARE_OF_MEN, "M", "F"),
            "age": rng.integers(_AGE_LOWEST[group], _AGE_HIGHEST[group], endpoint=True),
            "occupation": rng.choice(_OCCUPATIONS, p=_OCCUPATION_SHARES, size=spec.n_users),
        },
        index=np.arange(1, spec.n_users + 1),
    )


def _taste(people: pd.DataFrame, spec: SyntheticSpec, rng: np.random.Generator) -> Float64[np.ndarray, "users rank"]:
    """Unit-variance taste, a share of it explained by the attributes in equal parts."""
    age_group = np.searchsorted(_AGE_LOWEST, people["age"], side="right")
    explained = np.zeros((spec.n_users, spec.rank))
    for values in (people["gender"], age_group, people["occupation"]):
        codes, kinds = pd.factorize(np.asarray(values), sort=True)
        explained += rng.standard_normal((len(kinds), spec.rank))[codes]
    own = rng.standard_normal((spec.n_users, spec.rank))
    return math.sqrt(spec.from_attributes / 3) * explained + math.sqrt(1 - spec.from_attributes) * own
