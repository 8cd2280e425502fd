"""Does noise that is correlated between rounds help where everybody takes part in every round?

    python -m benchmarks.quality.correlated_rounds bounds
    python -m benchmarks.quality.correlated_rounds runs --data ml-100k --seeds 3

The server adds up T sums. With C lower triangular, sum t gets the noise (C^-1 w)_t, w white, so that the T sums are one
Gaussian release of C times them (DP-FTRL: Kairouz et al., ICML 2021; banded factors: Choquette-Choo et al., NeurIPS
2023). Somebody who takes part in every round and sends vectors u_t of norm 1 or less moves that release by

    |C U|^2 = sum_st (C^T C)_st <u_s, u_t>  <=  sum_st |C^T C|_st,

with equality for equal u_t where C^T C has no negative entry, so the sensitivity is exact: |C 1|. `bounds` reports the
noise on what the server has after the last round, and the root mean square over all rounds, as multiples of what
independent noise of the same guarantee leaves there. After the last round nothing can be gained: if b C = 1 (the row
of ones), Cauchy-Schwarz gives |b| |C 1| >= |b C 1| = T, and independent noise, sqrt(T) sqrt(T), reaches it. Over all
rounds no C gets below the nuclear norm of A G^(1/2), for any G with a diagonal of 1 (A adds up), which is maximised
over G = (1 - a) I + a 11^T.

`runs` trains FedVAE and FedDAE as `feddae.py privacy` does, 30 rounds and a query of popularity, with independent
noise, with the square root of A and with less noise in early rounds, at one guarantee: noise is drawn here, behind a
clip of the product (the best band without negative entries is no band). HR@20 and NDCG@20 after the last round;
differences are paired by person. One process, one thread; results go to
`benchmarks/results/correlated_rounds_<part>.json`.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float64
from scipy.optimize import minimize

from benchmarks import harness
from benchmarks.quality.feddae import CLIP_NORM, LARGEST_LR, PRIVATE, PRIVATE_ROUNDS, PROTOCOL, STEP_NOISE
from benchmarks.quality.ranking import by_user, interval, paired_interval
from benchmarks.running import ForwardingFederation, simulation_of
from privfed.contracts import Schema, square_root
from privfed.data import Interactions, load, split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.federation import Cohort, Federation, Message, Total
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

ROUNDS, BANDS, EPSILONS = (20, 30, 100), (2, 4, 8), (1.0, 8.0)
METHODS: Mapping[str, dict[str, Any]] = {"fedvae": {}, "feddae": {"personal_lr": 1e-2}}
TOP = PROTOCOL.model_copy(update={"k": (20,)})
INDEPENDENT, ROOT, BAND, UNEVEN = "independent", "square root", "best band", "independent, less in early rounds"

Matrix = Float64[np.ndarray, "rounds rounds"]


def toeplitz(column: Float64[np.ndarray, " band"], rounds: int) -> Matrix:
    """Lower triangular C with this first column, zero below it."""
    first = np.zeros(rounds)
    first[: len(column)] = column[:rounds]
    made: Matrix = scipy.linalg.toeplitz(first, np.zeros(rounds))
    return made


def sensitivity(mixing: Matrix) -> float:
    """Largest |C U| of somebody who sends a vector of norm 1 in every round; C^T C must have no negative entry."""
    products = mixing.T @ mixing
    if products.min() < 0:
        raise ValueError("C^T C has a negative entry, so equal vectors are not the worst: bound it another way")
    return math.sqrt(products.sum())


def noise(mixing: Matrix) -> tuple[float, float]:
    """Deviation after the last round, and the root mean square over rounds, over that of independent noise."""
    rounds = len(mixing)
    # Rows of A C^-1: what each round's total has of the white noise.
    carried = np.linalg.norm(np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(mixing), axis=1) * sensitivity(mixing)
    alone = np.sqrt(np.arange(1, rounds + 1)) * math.sqrt(rounds)
    return float(carried[-1] / alone[-1]), float(np.linalg.norm(carried) / np.linalg.norm(alone))


def least_everywhere(rounds: int) -> float:
    """What no C gets below: root mean square over rounds, over that of independent noise."""
    adding, ones = np.tril(np.ones((rounds, rounds))), np.ones((rounds, rounds))
    found = 0.0
    for share in np.linspace(0, 1, 41):
        values, vectors = np.linalg.eigh((1 - share) * np.eye(rounds) + share * ones)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        found = max(found, float(np.linalg.norm(adding @ root, "nuc")))
    return found / math.sqrt(rounds * rounds * (rounds + 1) / 2)


@cache
def best_band(rounds: int, width: int) -> Matrix:
    """The Toeplitz C of so many diagonals, none negative, with the least noise over all rounds."""

    def loss(column: np.ndarray) -> float:
        return noise(toeplitz(np.concatenate([[1.0], column]), rounds))[1]

    start = square_root(width)[1:]
    found = minimize(loss, start, bounds=[(0.0, 1.0)] * (width - 1), method="L-BFGS-B")
    return toeplitz(np.concatenate([[1.0], found.x]), rounds)


def mixings(rounds: int) -> dict[str, Matrix]:
    """Ways to make noise, by name."""
    bands = [best_band(rounds, width) for width in BANDS]
    return {
        INDEPENDENT: np.eye(rounds),
        ROOT: toeplitz(square_root(rounds), rounds),
        BAND: min(bands, key=lambda mixing: noise(mixing)[1]),
        # What a round adds stays in all later totals: the diagonal C with the least noise over all of them.
        UNEVEN: np.diag(np.arange(rounds, 0, -1.0) ** 0.25),
    }


class CorrelatedFederation(ForwardingFederation):
    """Adds noise to clipped sums: white to popularity, correlated between rounds to what rounds train.

    Args:
        inner: clips and adds up.
        mixing: C.
        deviation: of independent noise of the same guarantee.
        seed: of the noise.
    """

    def __init__(self, inner: Federation, mixing: Matrix, deviation: float, seed: int) -> None:
        super().__init__(inner)
        self._inverse = np.linalg.inv(mixing)
        self._scale = deviation * sensitivity(mixing) / math.sqrt(len(mixing))
        self._deviation, self._generator = deviation, torch.Generator().manual_seed(seed)
        self._white: dict[str, list[torch.Tensor]] = {}

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """A sum with its noise."""
        found = super().aggregate(step, cohort, message, schema)
        return replace(found, sums={name: self._noisy(name, step, value) for name, value in found.sums.items()})

    def _noisy(self, name: str, step: str, value: torch.Tensor) -> torch.Tensor:
        white = torch.randn(value.shape, generator=self._generator)
        if step != "train":
            return value + self._deviation * white
        past = self._white.setdefault(name, [])
        past.append(white)
        row = self._inverse[len(past) - 1]
        for weight, drawn in zip(row.tolist(), past, strict=False):
            if weight:
                value = value + self._scale * weight * drawn
        return value


def bounds(options: argparse.Namespace) -> None:
    """Noise of every way, and what no way gets below."""
    record = harness.Record("correlated_rounds_bounds", options, [], anew=True)
    for rounds in ROUNDS:
        ways = {name: noise(mixing) for name, mixing in mixings(rounds).items()}
        for name, (last, over_all) in {**ways, "no way gets below": (1.0, least_everywhere(rounds))}.items():
            record.add({"rounds": rounds, "way": name, "last": round(last, 4), "over_all": round(over_all, 4)})


def runs(options: argparse.Namespace) -> None:
    """Both systems behind every kind of noise."""
    interactions = load(options.data)
    record = harness.Record("correlated_rounds_runs", options, [])
    if not record.has(data=options.data, method="popularity"):
        plan = PrivacyPlan.named("none")
        config = ExperimentConfig(
            data=options.data, method={"name": "popularity"}, rounds=1, privacy=plan, protocol=PROTOCOL,
            taps=TapConfig(places=()),
        )  # fmt: skip
        popular = Experiment(config, split(interactions, config.split))
        popular.run(parts=())
        alone = by_user(popular, TOP, ("hr", "ndcg"))
        record.add(
            {"data": options.data, "method": "popularity", **{key: interval(value) for key, value in alone.items()}}
        )
    for method in METHODS:
        for epsilon in EPSILONS:
            if record.has(data=options.data, method=method, epsilon=epsilon, way=UNEVEN):
                continue
            ways = {name: mixing for name, mixing in mixings(PRIVATE_ROUNDS).items() if name != BAND}
            rows = {
                name: list(trained(interactions, options, method, epsilon, mixing)) for name, mixing in ways.items()
            }
            for name, found in rows.items():
                values = {key: np.mean([one[key] for one in found], 0) for key in ("hr", "ndcg")}
                base = np.mean([one["ndcg"] for one in rows[INDEPENDENT]], 0)
                record.add({
                    "data": options.data, "method": method, "epsilon": epsilon, "way": name, "seeds": options.seeds,
                    **{key: interval(value) for key, value in values.items()},
                    "over_independent": [round(v, 5) for v in paired_interval(values["ndcg"] - base)],
                })  # fmt: skip


def trained(
    interactions: Interactions, options: argparse.Namespace, method: str, epsilon: float, mixing: Matrix
) -> Iterator[dict[str, np.ndarray]]:
    """HR and NDCG of every person, seed by seed."""
    users, items, latent = interactions.n_users, interactions.n_items, PRIVATE["latent"]
    start = PrivacyPlan.named("central-gaussian", clip_norm=CLIP_NORM, noise_multiplier=1.0, delta=users**-1.1)
    coordinates = (3 * latent + 1) * items + 2 * latent
    sized = plan_for_target(start, epsilon, PRIVATE_ROUNDS, users, extra_queries=1, coordinates=coordinates)
    deviation = sized.to_dict()["mechanism"]["noise_multiplier"] * CLIP_NORM
    settings = {**PRIVATE, **METHODS[method], "server_lr": min(LARGEST_LR, STEP_NOISE * users / deviation)}
    for seed in range(options.seeds):
        started = time.process_time()
        config = ExperimentConfig(
            data=options.data, method={"name": method, **settings}, rounds=PRIVATE_ROUNDS, seed=seed,
            privacy=PrivacyPlan.named("clip", clip_norm=CLIP_NORM, order=2), protocol=PROTOCOL, fidelity="analytic",
            taps=TapConfig(places=()),
        )  # fmt: skip
        experiment = Experiment(config, split(interactions, config.split))
        federation = CorrelatedFederation(simulation_of(experiment, Simulation), mixing, deviation, seed)
        for t in range(PRIVATE_ROUNDS):
            experiment.server.round(federation, t)
        found = by_user(experiment, TOP, ("hr", "ndcg"))
        print(f"{method}, epsilon {epsilon:g}, seed {seed}: {time.process_time() - started:.1f} CPU-s", flush=True)
        yield found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part."""
    parts = {"bounds": bounds, "runs": runs}
    options = harness.parse(harness.parser(__file__, __doc__, parts=parts, data="ml-100k", seeds=3), arguments)
    parts[options.part](options)


if __name__ == "__main__":
    main()
