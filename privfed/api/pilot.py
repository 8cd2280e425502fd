"""What a few open histories say of a federation of many: trained on with as much noise as gives them its signal.

Within a catalogue the quality of `private-gram` over popularity follows n mu, people times the mu of the release. So m
open histories behind noise of mu n / m are worth what n private ones are worth behind noise of mu. The law ends where
the sample itself, and not the noise, limits what can be learned. How much it limits is seen in two halves of it, each
trained on behind the same n mu and measured on its own people.
"""

import os
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import pandas as pd

from privfed.api.data import Data, load
from privfed.api.errors import UseError
from privfed.data import Split, SplitSpec, split
from privfed.evaluation import Part, Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

MIN_PEOPLE = 100
_K, _DRAWS = 20, 3


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a sample shows: NDCG@20 of its people, behind noise that gives it some n mu.

    Attributes:
        people: in the sample.
        popularity: of popularity, learned from all of them.
        whole: of the method, learned from all of them, mean over draws of the noise.
        half_popularity: of popularity, learned from the half that a person is in.
        half: of the method, likewise.
    """

    people: int
    popularity: float
    whole: float
    half_popularity: float
    half: float


def measured_on(sample: Data | str | os.PathLike[str] | pd.DataFrame, reach: float) -> Pilot:
    """What a sample shows on a held-out tenth of every history, behind noise that gives it this n mu.

    Raises:
        UseError: the sample is too small.
    """
    data = sample if isinstance(sample, Data) else load(sample)
    if data.n_users < MIN_PEOPLE:
        raise UseError(f"the sample holds {data.n_users} people: give at least {MIN_PEOPLE}, whose histories may be open")
    found = shown(split(data, SplitSpec(kind="ratio")), "test", reach)
    if found.popularity == 0:
        raise UseError("popularity finds nothing that people of the sample have held out: give longer histories")
    return found


def shown(parts: Split, part: Part, reach: float) -> Pilot:
    """What all people of a split show on one of its parts, behind noise that gives them this n mu."""
    people = parts.train.n_users
    mixed = np.random.default_rng(0).permutation(people)
    halves = [parts.subset(np.sort(half)) for half in np.array_split(mixed, 2)]
    return Pilot(
        people=people,
        popularity=ndcg(parts, part, "popularity", None, 0),
        whole=fmean(ndcg(parts, part, "private-gram", reach / people, seed) for seed in range(_DRAWS)),
        half_popularity=fmean(ndcg(half, part, "popularity", None, 0) for half in halves),
        half=fmean(
            ndcg(half, part, "private-gram", reach / half.train.n_users, seed) for seed, half in enumerate(halves)
        ),
    )


def ndcg(parts: Split, part: Part, method: str, mu: float | None, seed: int) -> float:
    """NDCG@20 of one run over the whole catalogue, behind noise of this mu."""
    plan = PrivacyPlan.named("none", release="total")
    if mu is not None:
        plan = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1 / mu)
    config = ExperimentConfig(
        split=parts.spec, method={"name": method}, privacy=plan, rounds=1, seed=seed, fidelity="analytic",
        protocol=Protocol(k=(_K,), state="received"), taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts).run(parts=(part,)).history[-1].results[part].metric("ndcg", _K).value
