"""FAIR on Goodreads-100: tables of its paper, a ladder of memory budgets, ratings, cost.

    python -m benchmarks.quality.fair central
    python -m benchmarks.quality.fair table --seeds 3
    python -m benchmarks.quality.fair loss --seeds 3
    python -m benchmarks.quality.fair ladder --seeds 3
    python -m benchmarks.quality.fair ratings --data ml-100k --rounds 600 --seeds 3
    python -m benchmarks.quality.fair cost

99 users of 3,000 to 24,500 training items, 357,638 books, published split less a tenth of the training items for
validation, ten clients a round drawn without replacement, 200 rounds, settings of the released code (width 8, one
hidden layer, Adam 1e-3, five local epochs of batches of 512), capacities and weights as released. NDCG@20 of the
server's model with every user's own rows, over all items a user has not trained on, and over items that somebody
trained on; popularity is the baseline. `central` tries the paper's learning
rates on the same network trained centrally (NeuMF on pairs, batches of 512), and `table` trains it with the one that
was best on the validation part. Every run is tested at the best of ten validation rounds (and at its last): the
paper takes the best round on the test part. `ratings` predicts stars (MSE) for data that have them: each user's newest
tenth tested, a hundred clients a round, predictions starting from 3, next to the means of training ratings. Differences
are paired by user, means over seeds first. Results go to `benchmarks/results/fair_<part>_<data>.json`. One process, one
thread.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.paired_runs import PairedRuns
from benchmarks.running import round_seconds, simulation_of
from privfed.data import Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.evaluation import Evaluator, Protocol, RoundEvaluation
from privfed.experiment import Experiment
from privfed.methods import method as registered
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

K, COHORT, USERS_AT_ONCE, EVALUATIONS = 20, 10, 4, 10
CATALOGUES = ("all", "trained")
POPULARITY, MIDDLE = "popularity", 3.0
PUBLISHED = {"assigned": "pseudonym", "weights": "samples", "shares": "realised", "lr": 1e-3}
"""As released: capacities in the order of the file, which is that of activity, weights by interactions, the rate."""

SCHEMES = ("1x-2x", "1x-4x", "1x-8x", "1x-16x")
CENTRAL = "Central training"
NEUMF = {"name": "neumf", "loss": "bpr", "negatives": 1, "dim": 8, "mlp_dim": 8, "hidden": [8], "batch_size": 512}
RATES, TRIAL, PASSES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4), 5, 40
"""Learning rates of the paper's search, and passes over all interactions: of a trial, and of a run."""
LOSS = (0.01, 0.2, 0.3, 0.5)
BUDGETS = (64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000, 256_000_000)


def table_variants() -> dict[str, dict[str, Any]]:
    """Heterogeneous, homogeneous and low-rank devices under every scheme."""
    variants: dict[str, dict[str, Any]] = {POPULARITY: {}, "FedAvg": {"variant": "fedavg"}}
    for scheme in SCHEMES:
        for label, kind in (("FAIR-HET", "fair"), ("FAIR-HOM", "hom"), ("FedHM", "fedhm"), ("HeteroFL", "heterofl")):
            if kind not in ("fedhm", "heterofl") or scheme != "1x-16x":
                variants[f"{label} {scheme}"] = {"variant": kind, "scheme": scheme}
    return variants | {CENTRAL: NEUMF}


def loss_variants() -> dict[str, dict[str, Any]]:
    """A share of the devices holds everything; the others are left out, or hold a quarter."""
    variants: dict[str, dict[str, Any]] = {POPULARITY: {}}
    for share in LOSS:
        scheme = f"1x:{share:g}-4x:{1 - share:g}"
        variants |= {
            f"FULL-TRN {share:.0%}": {"variant": "full_trn", "scheme": scheme},
            f"FAIR-HET {share:.0%}": {"scheme": scheme},
        }
    return variants


def ladder_variants() -> dict[str, dict[str, Any]]:
    """Every device within one budget of memory in bytes."""
    return {POPULARITY: {}} | {f"{budget / 1e3:,.0f} kB": {"budgets": [budget]} for budget in BUDGETS}


VARIANTS = {"table": table_variants, "loss": loss_variants, "ladder": ladder_variants}
PAIRS = {
    "table": [(f"FAIR-HET {s}", f"{o} {s}") for s in SCHEMES for o in ("FAIR-HOM", "FedHM", "HeteroFL")]
    + [(f"FAIR-HET {s}", o) for s in SCHEMES for o in ("FedAvg", POPULARITY)],
    "loss": [(f"FAIR-HET {share:.0%}", f"FULL-TRN {share:.0%}") for share in LOSS],
    "ladder": [],
}


def experiment_of(parts: Split, method: dict[str, Any], rounds: int, seed: int) -> Experiment:
    """A configured run over loaded data, nothing tapped; devices that cannot train are drawn besides the cohort."""
    everyone, release = parts.train.n_users, registered(method["name"]).traits.release
    size = COHORT if method["name"] == "fair" else everyone
    if method.get("variant") == "full_trn":
        size = min(everyone, round(COHORT / float(method["scheme"].split("-")[0].split(":")[1])))
    plan = PrivacyPlan.named("none", release=release, sampling={"kind": "fixed", "size": size})
    config = ExperimentConfig(
        data=parts.source, split=parts.spec, method=method, privacy=plan, rounds=rounds,
        evaluate_every=-(-rounds // EVALUATIONS),
        seed=seed, protocol=Protocol(k=(K,), state="received"), taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts)


def by_user(experiment: Experiment) -> dict[str, np.ndarray]:
    """Test NDCG of every user, over either catalogue."""
    evaluators = {
        name: Evaluator(experiment.parts, Protocol(k=(K,), state="received", catalogue=name), "test")
        for name in CATALOGUES
    }
    message = experiment.server.public()
    for users in torch.split(torch.arange(experiment.n_users), USERS_AT_ONCE):
        scores = experiment.clients.score(users, message.addressed_to(users), None, None).numpy()
        for evaluator in evaluators.values():
            evaluator.add(users.numpy(), scores)
    return {name: evaluator.by_user("ndcg", K) for name, evaluator in evaluators.items()}


def quality(parts: Split, options: argparse.Namespace, file: str) -> None:
    """Every seed and variant; then differences paired by user."""
    done, rounds = PairedRuns(file, options), options.rounds
    for seed in range(options.seeds):
        for variant, settings in VARIANTS[options.part]().items():
            if done.has(variant, seed) or not harness.chosen(variant, options.only) or (variant == POPULARITY and seed):
                continue
            run, users = measured(parts, variant, settings, rounds, seed)
            done.add({"variant": variant, "seed": seed, "rounds": rounds} | run, users)
    done.compare(PAIRS[options.part])


def measured(
    parts: Split, variant: str, settings: dict[str, Any], rounds: int, seed: int
) -> tuple[dict[str, Any], np.ndarray]:
    """One run at its best validation round: NDCG over both catalogues, bytes and CPU-seconds; NDCG user by user."""
    method = {"name": POPULARITY} if variant == POPULARITY else {"name": "fair"} | PUBLISHED | settings
    if variant == CENTRAL:
        method, rounds = settings | {"lr": best_rate(parts.source)}, PASSES
    experiment = experiment_of(parts, method, 1 if variant == POPULARITY else rounds, seed)
    users = np.empty(0)
    best: dict[str, Any] = {"valid": -1.0}

    def look(t: int, evaluated: RoundEvaluation | None) -> None:
        nonlocal users
        if evaluated is None:
            return
        valid = evaluated.results["valid"].metric("ndcg", K).value
        if valid > best["valid"]:
            found = by_user(experiment)
            best.update({"round": t + 1, "valid": valid} | {f"ndcg {n}": float(v.mean()) for n, v in found.items()})
            users = found["all"]

    result = experiment.run(parts=("valid", "test"), progress=look)
    traffic = result.costs.client_rounds or 1
    return best | {
        "method": method,
        "ndcg last": result.test.metric("ndcg", K).value,
        "up_kB": round(result.costs.up_bytes / traffic / 1e3, 1),
        "down_kB": round(result.costs.down_bytes / traffic / 1e3, 1),
        "cpu_s": round(result.cpu_seconds, 1),
    }, users


def central(parts: Split, options: argparse.Namespace, file: str) -> None:
    """Each of the paper's learning rates, by NDCG on the validation part."""
    record = harness.Record(file, options, [])
    for lr in RATES:
        if record.has(lr=lr):
            continue
        result = experiment_of(parts, NEUMF | {"lr": lr}, TRIAL, 0).run(parts=("valid",))
        valid = [evaluated.results["valid"].metric("ndcg", K).value for evaluated in result.history]
        record.add({"lr": lr, "passes": TRIAL, "valid": max(valid), "cpu_s": round(result.cpu_seconds, 1)})


def best_rate(data: str) -> float:
    """What `central` found."""
    rows = harness.results(f"fair_central_{data}")
    return float(max(rows, key=lambda row: row["valid"])["lr"])


def ratings(parts: Split, options: argparse.Namespace, file: str) -> None:
    """MSE of predicted stars on the test part, at the round with the least on the validation part."""
    record, rounds = harness.Record(file, options, []), options.rounds
    plan = PrivacyPlan.named("none", release="total", sampling={"kind": "fixed", "size": min(100, parts.train.n_users)})
    for variant, settings in table_variants().items():
        if variant in (POPULARITY, CENTRAL):
            continue
        for seed in range(options.seeds):
            if record.has(variant=variant, seed=seed):
                continue
            method = {"name": "fair", "task": "rating", "rating_offset": MIDDLE} | PUBLISHED | settings
            config = ExperimentConfig(
                data=parts.source, split=parts.spec, method=method,
                privacy=plan, rounds=rounds, evaluate_every=min(20, rounds), seed=seed, taps=TapConfig(places=()),
                protocol=Protocol(task="rating", state="received", select="best_valid"),
            )  # fmt: skip
            result = Experiment(config, parts).run()
            measured: dict[str, Any] = {metric.name: metric.value for metric in result.test.metrics}
            means = {name: found[0].value for name, found in result.test.baselines.items()}
            measured |= {"mse of means": means, "cpu_s": round(result.cpu_seconds, 1)}
            record.add({"variant": variant, "seed": seed, "round": result.selected.round + 1} | measured)


def cost(parts: Split, options: argparse.Namespace, file: str) -> None:
    """CPU-seconds of a round after the first, and the peak memory of the process."""
    record = harness.Record(file, options, [], anew=True)
    for variant in ("FedAvg", "FAIR-HET 1x-4x", "FAIR-HOM 1x-16x", "FedHM 1x-4x", "HeteroFL 1x-4x"):
        experiment = experiment_of(parts, {"name": "fair"} | table_variants()[variant], 12, 0)
        seconds = round_seconds(simulation_of(experiment, Simulation), experiment)[2:]
        row = {"variant": variant, "cpu_s mean": float(np.mean(seconds)), "cpu_s least": min(seconds)}
        record.add(row | {"peak_MiB": harness.peak_mib()})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part."""
    shared = {"data": "goodreads-100", "rounds": 200, "seeds": 3, "only": []}
    parser = harness.parser(__file__, __doc__, parts=(*VARIANTS, "central", "ratings", "cost"), **shared)
    options = harness.parse(parser, arguments)
    stars = SplitSpec(kind="user_time", valid_fraction=0.1, test_fraction=0.1)
    spec = stars if options.part == "ratings" else SplitSpec(kind="published", valid_from_train=True)
    parts = split(load(options.data), spec)
    measure = {"central": central, "ratings": ratings, "cost": cost}.get(options.part, quality)
    measure(parts, options, f"fair_{options.part}_{options.data}")


if __name__ == "__main__":
    main()
