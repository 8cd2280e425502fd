"""Noise as numbers in a machine: what the bits of released values say beyond the law of the noise.

    python -m benchmarks.privacy.float_noise all --seeds 3 --library before

| experiment | what is released | what is guessed |
|---|---|---|
| local-laplace | uploads of PFedRec, MovieLens-100K, four rounds, epsilon0 = .1 | inclusion bits of training items |
| local-gaussian | the same, noise multiplier 30 | the same |
| central | sums of one user or nobody, noise multiplier 100, as the engine releases them | whether the user is there |
| central-known | the same with the uploads of ten others, whose sum the adversary knows | the same |
| private-gram | popularity on MovieLens-100K, noise multiplier 4.6 | whether an item that one person has has anybody |

Two adversaries: one knows how floating-point noise was drawn, the other compares bits and knows nothing. What each
finds is a lower bound on epsilon with 95 % confidence, with the claim next to it; `denied` says that it lies above.
`--library` names the file of results: `before` was measured when noise was a floating-point number, by the same
attacks. One process, one thread.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from attacks.empirical import clopper_pearson_epsilon, count_guesses, one_run_epsilon
from attacks.implementation import FloatNoise, UntouchedBits
from attacks.metrics import user_auc
from benchmarks import harness
from benchmarks.running import ForwardingFederation
from privfed.contracts import Block, Schema
from privfed.data import Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.experiment import Experiment
from privfed.federation import Call, Cohort, Federation, Message, PrivateState, StatefulClients, Streams, Total
from privfed.privacy import Ledger, PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig
from privfed.updates import ClientUpdates, Rows

ROUNDS, GUESSED = 4, 0.1
TRIALS, WIDTH, OTHERS = 1_000, 256, 10
OFF = 1.0
"""Numbers that floating-point noise alone could not have come to, from which somebody is said to be there."""
LOCAL = {
    "local-laplace": "local-laplace:epsilon0=0.1,clip_norm=1",
    "local-gaussian": "local-gaussian:noise_multiplier=30,clip_norm=1",
}
CENTRAL = "central-gaussian:noise_multiplier=100,clip_norm=1"
GRAM = "central-gaussian:noise_multiplier=4.6,clip_norm=1"


def local(words: str, parts: Split, seed: int) -> dict[str, Any]:
    """The game of inclusion bits on single uploads."""
    plan = PrivacyPlan.parse(words)
    config = ExperimentConfig(
        method={"name": "pfedrec"},
        privacy=plan,
        rounds=ROUNDS,
        seed=seed,
        taps=TapConfig(places=("wire",), users=100, rounds=tuple(range(ROUNDS)), inclusion=0.2),
    )
    experiment = Experiment(config, parts)
    result = experiment.run(parts=())
    bits, noise = experiment.inclusion, plan.mechanism.noise
    assert bits is not None, "the taps ask for inclusion bits"
    assert noise is not None, f"{words} adds noise on the device"
    uploads = [seen.tensors["items"].numpy() for seen in result.transcript.joined("wire")]
    adversaries = {
        "knows the sampler": [UntouchedBits(FloatNoise(noise.law, noise.scale)).score_rows(rows) for rows in uploads],
        "knows nothing": [UntouchedBits().score_rows(rows, rows) for rows in uploads],
    }
    guarantee = result.guarantee
    found = {}
    for name, scores in adversaries.items():
        total, decided = np.sum(scores, axis=0), bits.decided
        each = int(GUESSED * decided.sum())
        guesses = count_guesses(total[decided], bits.kept[decided], guess_in=each, guess_out=each)
        bound = one_run_epsilon(guesses, delta=guarantee.delta)
        found[name] = {
            "auc": round(float(np.nanmean(user_auc(total, bits.kept, decided))), 4),
            "right": guesses.correct,
            "guesses": guesses.guesses,
        } | bounded(bound.epsilon, guarantee.epsilon)
    return {"plan": words, "claimed": round(guarantee.epsilon, 4), "delta": guarantee.delta, "adversaries": found}


def bounded(epsilon: float, claimed: float) -> dict[str, Any]:
    """A lower bound next to a claim."""
    return {"lower_bound": round(epsilon, 3), "denied": bool(epsilon > claimed)}


class Senders(StatefulClients):
    """One user on every even row, others with known uploads on every row."""

    steps = frozenset({"send"})

    def __init__(self, others: np.ndarray) -> None:
        self.others = torch.from_numpy(others)
        self.private = PrivateState({"nothing": torch.zeros(TRIALS + len(others))})

    def send(self, call: Call, message: Message) -> ClientUpdates:
        """A row of equal numbers as long as the clip norm lets it be, or a known one."""
        del message
        self.private.stage(call.clients, {"nothing": torch.zeros(len(call.clients))})
        values = torch.full((len(call.clients), WIDTH), 1.0)
        other = call.clients >= TRIALS
        values[other] = self.others[call.clients[other] - TRIALS]
        row = torch.where(other, (call.clients - TRIALS) % (2 * TRIALS), 2 * call.clients)
        return ClientUpdates(call.clients, call.schema, [Rows("values", torch.arange(len(row)), row, values)])

    def score(self, *_: Any) -> Any:
        """Nobody recommends anything here."""
        raise NotImplementedError


def central(others: int, seed: int) -> dict[str, Any]:
    """A thousand rows of a sum with one user, and a thousand without."""
    plan, rng = PrivacyPlan.parse(CENTRAL), np.random.default_rng(seed)
    known = rng.normal(size=(others * 2 * TRIALS, WIDTH)).astype(np.float32)
    known *= np.float32(0.5) / np.sqrt((known**2).sum(axis=1, keepdims=True)).clip(1e-9)
    senders = Senders(known)
    population = TRIALS + len(known)
    ledger = Ledger(plan, population)
    simulation = Simulation(senders, plan, population, Streams.from_seed(seed), ledger)
    schema = {"values": Block((2 * TRIALS, WIDTH))}
    released = simulation.aggregate("send", simulation.sample_cohort(0), Message({}), schema).sums["values"].numpy()
    candidate = np.zeros((2 * TRIALS, WIDTH))
    for first in range(0, len(known), 2 * TRIALS):
        candidate += known[first : first + 2 * TRIALS]
    noise = FloatNoise("gaussian", plan.mechanism.sum_deviation(population), sums=True)
    off = (~noise.could_be(released, candidate)).sum(axis=1).astype(np.float64)
    claimed = ledger.guarantee().epsilon
    flags = {"flagged_with": float((off[::2] >= OFF).mean()), "flagged_without": float((off[1::2] >= OFF).mean())}
    bound = clopper_pearson_epsilon(off[::2], off[1::2], delta=plan.delta, threshold=OFF)
    found = {"knows the sampler": flags | bounded(bound.epsilon, claimed)}
    if not others:
        apart = rng.random(2 * TRIALS)
        score = UntouchedBits().score_rows(released, released) + 1e-6 * apart
        bound = clopper_pearson_epsilon(score[::2], score[1::2], delta=plan.delta)
        found["knows nothing"] = bounded(bound.epsilon, claimed)
    return {"plan": CENTRAL, "claimed": round(claimed, 4), "delta": plan.delta, "others": others, "adversaries": found}


class RecordingFederation(ForwardingFederation):
    """A federation that keeps the sums that it released."""

    def __init__(self, inner: Federation) -> None:
        super().__init__(inner)
        self.sums: list[tuple[Schema, dict[str, torch.Tensor]]] = []

    def aggregate(self, step: str, cohort: Cohort, message: Message, schema: Schema) -> Total:
        """Release a sum and keep a copy."""
        total = super().aggregate(step, cohort, message, schema)
        self.sums.append((schema, {name: values.clone() for name, values in total.sums.items()}))
        return total


def private_gram(parts: Split, seed: int) -> dict[str, Any]:
    """Items that exactly one person has, and items that nobody has, by their number in the noisy popularity."""
    plan = PrivacyPlan.parse(GRAM)
    config = ExperimentConfig(
        method={"name": "private-gram"}, privacy=plan, rounds=1, seed=seed, taps=TapConfig(places=())
    )
    experiment = Experiment(config, parts)
    ledger = Ledger(plan, experiment.n_users)
    simulation = Simulation(experiment.clients, plan, experiment.n_users, experiment.streams, ledger)
    federation = RecordingFederation(simulation)
    experiment.server.round(federation, 0)
    schema, sums = federation.sums[0]
    ((name, block),) = schema.items()
    noise = FloatNoise("gaussian", plan.mechanism.sum_deviation(experiment.n_users) / block.weight, sums=True)
    off = (~noise.could_be(sums[name].numpy()[:, 0])).astype(np.float64)
    popularity, claimed = experiment.trained.train.popularity(), ledger.guarantee().epsilon
    one, nobody = off[popularity == 1], off[popularity == 0]
    found: dict[str, Any] = {
        "items_of_one": len(one),
        "items_of_nobody": len(nobody),
        "flagged_of_one": round(float(one.mean()), 4),
        "flagged_of_nobody": round(float(nobody.mean()), 4) if len(nobody) else None,
    }
    if len(nobody):
        bound = clopper_pearson_epsilon(one, nobody, delta=plan.delta, threshold=OFF)
        found |= bounded(bound.epsilon, claimed)
    return {
        "plan": GRAM,
        "claimed": round(claimed, 4),
        "delta": plan.delta,
        "adversaries": {"knows the sampler": found},
    }


def experiments(parts: Split) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Every experiment by its name."""
    return {name: lambda seed, words=words: local(words, parts, seed) for name, words in LOCAL.items()} | {
        "central": lambda seed: central(0, seed),
        "central-known": lambda seed: central(OTHERS, seed),
        "private-gram": lambda seed: private_gram(parts, seed),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named experiments and write one JSON file."""
    names = [*LOCAL, "central", "central-known", "private-gram"]
    parser = harness.parser(__file__, __doc__, seeds=3)
    parser.add_argument("experiment", nargs="+", choices=["all", *names])
    parser.add_argument("--library", default="after", help="name in the file of results for the library that is used")
    options = harness.parse(parser, arguments)
    known = experiments(split(load("ml-100k"), SplitSpec()))
    chosen = names if "all" in options.experiment else options.experiment
    record = harness.Record(f"float_noise_{options.library}", options, {}, anew=True)
    record.results = {"seeds": list(range(options.seeds)), "experiments": {}}
    for name in chosen:
        rows = record.results["experiments"].setdefault(name, [])
        for seed in range(options.seeds):
            started = time.process_time()
            row = {"seed": seed} | known[name](seed)
            rows.append(row | {"cpu_s": round(time.process_time() - started, 1)})
            print(name, json.dumps(rows[-1]), flush=True)
    record.save()


if __name__ == "__main__":
    main()
