"""What a few open histories say of a federation of many: trained on with as much noise as gives them its signal.

Within a catalogue the quality of `private-gram` over popularity follows n mu, people times the mu of the release. So m
open histories behind noise of mu n / m are worth what n private ones are worth behind noise of mu. The law ends where
the sample itself, and not the noise, limits what can be learned.
"""

import os
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from privfed.api.data import Data, load
from privfed.api.errors import UseError
from privfed.data import Split, SplitSpec, split
from privfed.evaluation import Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

MIN_PEOPLE = 100
_K, _DRAWS = 20, 3


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a sample shows.

    Attributes:
        people: in the sample.
        popularity: NDCG@20 of popularity on it.
        ratio: NDCG@20 of the method over that, mean over draws of the noise.
    """

    people: int
    popularity: float
    ratio: float


def measured_on(sample: Data | str | os.PathLike[str] | pd.DataFrame, reach: float) -> Pilot:
    """NDCG@20 on a held-out tenth of every history of the sample, behind noise that gives it this n mu.

    Raises:
        UseError: the sample is too small.
    """
    data = sample if isinstance(sample, Data) else load(sample)
    people = data.n_users
    if people < MIN_PEOPLE:
        raise UseError(f"the sample holds {people} people: give at least {MIN_PEOPLE}, whose histories may be open")
    parts = split(data, SplitSpec(kind="ratio"))
    popularity = _ndcg(parts, "popularity", PrivacyPlan.named("none", release="total"), 0)
    if popularity == 0:
        raise UseError("popularity finds nothing that people of the sample have held out: give longer histories")
    noise = PrivacyPlan.named("central-gaussian", clip_norm=1.0, noise_multiplier=people / reach)
    return Pilot(
        people, popularity, fmean(_ndcg(parts, "private-gram", noise, seed) for seed in range(_DRAWS)) / popularity
    )


def _ndcg(parts: Split, method: str, plan: PrivacyPlan, seed: int) -> float:
    config = ExperimentConfig(
        split=parts.spec, method={"name": method}, privacy=plan, rounds=1, seed=seed, fidelity="analytic",
        protocol=Protocol(k=(_K,), state="received"), taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts).run(parts=("test",)).history[-1].results["test"].metric("ndcg", _K).value
