"""Generated interactions with the features that matter here, from a seed. No person is behind any of it.

Each user's choices are drawn without replacement from a softmax over the catalogue (Plackett-Luce), by the
Gumbel top-k identity: the k largest of `logit + Gumbel noise` are k such draws (Kool, van Hoof and Welling,
"Stochastic Beams and Where to Find Them", ICML 2019). The logit of item i for user u is

    -popularity * log(rank of i)  +  sharpness * <taste of u, character of i> / sqrt(dimensions)

so popularity has a long tail (Zipf), taste has low rank, and a method that learns taste beats popularity. A
share of each user's taste comes from gender, age group and occupation, so an attack on attributes has
something to find. Timestamps are whole seconds in sessions, some of them equal; the order in time is
independent of taste.
"""

import math
from typing import Annotated

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64, Int64
from pydantic import BaseModel, ConfigDict, Field

from privfed.data.interactions import Duplicates, Interactions, build
from privfed.data.sources.people import demographics

TERMS = "Generated from a seed: free to use, and about nobody."

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


class SyntheticSpec(BaseModel):
    """What to generate.

    Attributes:
        name: Name of the data set; it contains "synthetic".
        n_users: Users.
        n_items: Size of the catalogue.
        mean_per_user: Mean number of interactions of a user (what comes out is up to 10 % lower).
        least_per_user: Fewest interactions of a user.
        popularity: Zipf exponent of item popularity.
        rank: Dimensions of taste.
        sharpness: Weight of taste against popularity.
        from_attributes: Share of the variance of taste that gender, age group and occupation explain.
        seed: Seed; equal specs give equal data (on one platform: floating point may differ between two).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern="synthetic")] = "synthetic"
    n_users: Annotated[int, Field(ge=1)] = 943
    n_items: Annotated[int, Field(ge=2)] = 1682
    mean_per_user: Annotated[float, Field(gt=0)] = 106
    least_per_user: Annotated[int, Field(ge=1)] = 20
    popularity: Annotated[float, Field(ge=0)] = 0.9
    rank: Annotated[int, Field(ge=1)] = 8
    sharpness: Annotated[float, Field(ge=0)] = 2.0
    from_attributes: Annotated[float, Field(ge=0, le=1)] = 0.3
    seed: Annotated[int, Field(ge=0)] = 0


SPECS = {
    "synthetic": SyntheticSpec(),
    "synthetic-small": SyntheticSpec(
        name="synthetic-small", n_users=120, n_items=200, mean_per_user=25, least_per_user=8, sharpness=3.0
    ),
}


def generate(spec: SyntheticSpec, duplicates: Duplicates = "drop", min_per_user: int = 1) -> Interactions:
    """Generate the data set that `spec` describes; a row's position in the "file" is its position in time."""
    rng = np.random.default_rng(spec.seed)
    people = _people(spec, rng)
    genre = rng.integers(len(_GENRES), size=spec.n_items)
    centres = rng.standard_normal((len(_GENRES), spec.rank))
    character = 0.8 * centres[genre] + 0.6 * rng.standard_normal((spec.n_items, spec.rank))
    appeal = -spec.popularity * np.log1p(rng.permutation(spec.n_items))
    taste = _taste(people, spec, rng)
    counts = _counts(spec, rng)

    user = np.repeat(np.arange(spec.n_users), counts)
    item = np.empty(len(user), dtype=np.int64)
    affinity = np.empty(len(user))
    done = 0
    for first in range(0, spec.n_users, _USERS_AT_ONCE):
        block = slice(first, first + _USERS_AT_ONCE)
        liking = taste[block] @ character.T / np.sqrt(spec.rank)
        logit = appeal + spec.sharpness * liking
        ranked = np.argsort(-(logit + rng.gumbel(size=logit.shape)), axis=1)
        chosen = np.zeros(logit.shape, dtype=bool)
        np.put_along_axis(chosen, ranked, _first_of_rows(counts[block], spec.n_items), axis=1)
        total = int(counts[block].sum())
        item[done : done + total] = np.nonzero(chosen)[1]
        affinity[done : done + total] = liking[chosen]
        done += total

    seconds = _seconds(user, spec.n_users, rng)
    rating = np.clip(np.rint(3.5 + 0.8 * affinity + 0.7 * rng.standard_normal(len(user))), 1, 5)
    rows = np.argsort(seconds, kind="stable")
    return build(
        spec.name,
        user[rows] + 1,
        item[rows] + 1,
        timestamp=seconds[rows],
        rating=rating[rows],
        catalogue=np.arange(1, spec.n_items + 1),
        attributes=demographics(people),
        item_info=pd.DataFrame(
            {
                "title": [f"Synthetic {_GENRES[kind]} {number}" for number, kind in enumerate(genre, start=1)],
                "genres": [_GENRES[kind] for kind in genre],
            },
            index=np.arange(1, spec.n_items + 1),
        ),
        duplicates=duplicates,
        min_per_user=min_per_user,
        synthetic=True,
        terms=TERMS,
    )


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


def _counts(spec: SyntheticSpec, rng: np.random.Generator) -> Int64[np.ndarray, "users"]:
    """Log-normal numbers of interactions, at most half the catalogue each."""
    most = max(1, spec.n_items // 2)
    least = min(spec.least_per_user, most)
    extra = rng.lognormal(sigma=1.0, size=spec.n_users)
    counts: np.ndarray = least + extra / extra.mean() * max(0.0, spec.mean_per_user - least)
    return counts.clip(max=most).astype(np.int64)


def _first_of_rows(counts: Int64[np.ndarray, "users"], width: int) -> Bool[np.ndarray, "users width"]:
    return np.arange(width) < counts[:, None]


def _seconds(
    user: Int64[np.ndarray, "interactions"], n_users: int, rng: np.random.Generator
) -> Int64[np.ndarray, "interactions"]:
    """The time of each row, in whole seconds.

    A user starts at a random moment of a year, acts about every 20 seconds, and now and then comes back days
    later. Which row gets which of the user's moments is random.
    """
    pause = np.where(rng.random(len(user)) < 0.03, rng.exponential(20 * 24 * 3600, len(user)), 0)
    elapsed = np.cumsum((rng.exponential(20, len(user)) + pause).astype(np.int64))
    begun = elapsed[np.searchsorted(user, np.arange(n_users))]
    start = rng.integers(_START, _START + _YEAR, size=n_users)
    moment: np.ndarray = (start - begun)[user] + elapsed
    return moment[np.lexsort((rng.random(len(user)), user))]
