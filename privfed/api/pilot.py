"""What a few open histories say of a federation of many: trained on with as much noise as gives them its signal.

Within a catalogue the quality of `private-gram` over popularity follows n mu, people times the mu of the release. So m
open histories behind noise of mu n / m are worth what n private ones are worth behind noise of mu. The law ends where
the sample itself, and not the noise, limits what can be learned.
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
        popularity: of popularity.
        ndcg: of the method, mean over draws of the noise.
        twentieth: what the 20th most popular item is of a history as a vector of length 1, on average.
    """

    people: int
    popularity: float
    ndcg: float
    twentieth: float


def measured_on(sample: Data | str | os.PathLike[str] | pd.DataFrame, reach: float) -> Pilot:
    """What a sample shows on a held-out fifth of every history, behind noise that gives it this n mu.

    Raises:
        UseError: the sample is too small.
    """
    data = sample if isinstance(sample, Data) else load(sample)
    if data.n_users < MIN_PEOPLE:
        raise UseError(
            f"the sample holds {data.n_users} people: give at least {MIN_PEOPLE}, whose histories may be open"
        )
    found = shown(split(data, SplitSpec(kind="ratio")), "test", reach)
    if found.popularity == 0:
        raise UseError("popularity finds nothing that people of the sample have held out: give longer histories")
    return found


def shown(parts: Split, part: Part, reach: float) -> Pilot:
    """What all people of a split show on one of its parts, behind noise that gives them this n mu."""
    people = parts.train.n_users
    return Pilot(
        people=people,
        popularity=ndcg_on(parts, part, "popularity", None, 0),
        ndcg=fmean(ndcg_on(parts, part, "private-gram", reach / people, seed) for seed in range(_DRAWS)),
        twentieth=twentieth(parts),
    )


def twentieth(parts: Split) -> float:
    """What the 20th most popular item is of a history as a vector of length 1, on average."""
    train = parts.train
    unit = np.bincount(train.items, train.counts[train.owners] ** -0.5)
    return float(np.sort(unit)[-20:].min() / train.n_users)


def ndcg_on(parts: Split, part: Part, method: str, mu: float | None, seed: int) -> float:
    """NDCG@20 of one run over the whole catalogue, behind noise of this mu."""
    plan = PrivacyPlan.named("none", release="total")
    if mu is not None:
        plan = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=1 / mu)
    config = ExperimentConfig(
        split=parts.spec, method={"name": method}, privacy=plan, rounds=1, seed=seed, fidelity="analytic",
        protocol=Protocol(k=(_K,), state="received"), taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts).run(parts=(part,)).history[-1].results[part].metric("ndcg", _K).value
