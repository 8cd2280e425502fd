"""HeteFedRec on MovieLens-1M: the rows of its Tables II and IV, the default next to popularity, and cost.

    python -m benchmarks.quality.hetefedrec choose --base ncf
    python -m benchmarks.quality.hetefedrec table --base ncf --seeds 5
    python -m benchmarks.quality.hetefedrec groups --base ncf --seeds 3
    python -m benchmarks.quality.hetefedrec good --seeds 5
    python -m benchmarks.quality.hetefedrec private --seeds 1
    python -m benchmarks.quality.hetefedrec cost

Protocol of the paper as far as it is told: the published 80/20 split, 256 clients a round, every client once per epoch
of 24 rounds, Recall@20 and NDCG@20 over the whole catalogue less a user's training items, on the received model. What
the paper leaves open is read in two ways (`READINGS`). `choose` picks the reading of every variant by NDCG on the
validation part, one seed; `table` trains with other seeds, and each run is tested at its best validation epoch.
`groups` is figure 6 and table V, of runs made in the same way: NDCG by group of activity, and the variance of the
singular values of the covariance of the largest item table (eq. 12).
Differences of two variants are paired by user, means over seeds first. Results go to
`benchmarks/results/hetefedrec_<part>_<base>.json`. One process, one thread.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.paired_runs import PairedRuns
from benchmarks.quality.ranking import by_user
from benchmarks.running import round_seconds, simulation_of
from privfed.data import Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.evaluation import Part, Protocol, RoundEvaluation
from privfed.experiment import Experiment
from privfed.federation import Streams
from privfed.methods.hetefedrec.config import Base, HeteFedRecConfig
from privfed.methods.hetefedrec.groups import assign_groups
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig, TapConfig

DATA, K, COHORT, CHOOSING_SEED = "ml-1m", 20, 256, 100
BASES: tuple[Base, ...] = ("ncf", "lightgcn")
PROTOCOL = Protocol(k=(K,), state="received", when_testing="valid_ranked")
SPLIT = SplitSpec(kind="published")
SUMMED = {"kind": "epoch", "size": COHORT}
IN_THE_OPEN = PrivacyPlan.named("none", release="total", sampling=SUMMED)
READINGS: dict[str, dict[str, Any]] = {
    "sums, one step": {},
    "means, four steps": {
        "aggregation": "contributors",
        "head_aggregation": "contributors",
        "steps": 4,
        "lr_user": 2e-3,
        "lr_items": 2e-3,
        "lr_heads": 2e-3,
    },
}
POPULARITY, ROUNDS = "popularity", 24
VARIANTS: dict[str, dict[str, Any]] = {
    POPULARITY: {},
    "All Small": {"variant": "all_small"},
    "All Large": {"variant": "all_large"},
    "All Large, exclusive": {"variant": "exclusive"},
    "Standalone": {"variant": "standalone", "standalone_steps": 40},
    "Clustered": {"variant": "clustered"},
    "Direct": {"variant": "direct"},
    "HeteFedRec": {},
    "less distillation": {"distillation": 0},
    "less distillation and decorrelation": {"distillation": 0, "decorrelation": 0.0},
}
WITHOUT_DECORRELATION = "less decorrelation"
BY_GROUP = VARIANTS | {WITHOUT_DECORRELATION: {"decorrelation": 0.0}}
GROUPED = (POPULARITY, "HeteFedRec", WITHOUT_DECORRELATION, "All Small", "All Large")
PAIRS = [("HeteFedRec", other) for other in VARIANTS if other != "HeteFedRec"] + [("All Small", "Direct")]
GOOD: dict[str, dict[str, Any]] = {
    POPULARITY: {"name": POPULARITY},
    "default": {"name": "hetefedrec"},
    "default, NCF": {"name": "hetefedrec", "base": "ncf", "user_l2": 0.005, "user_steps": 10},
    "default, all small": {"name": "hetefedrec", "variant": "all_small"},
    "default, all large": {"name": "hetefedrec", "variant": "all_large"},
    "default, own head only": {"name": "hetefedrec", "dual_task": False},
    "default, groups by activity": {"name": "hetefedrec", "groups": "activity"},
}
GOOD_EPOCHS = 12
CLIP_NORM, STEP_NOISE, LARGEST_LR, PRIVATE_ROUNDS, BUDGETS = 0.1, 0.0047, 20.0, 20, (8.0, 1.0)


def settings(base: Base, variant: str, reading: str) -> dict[str, Any]:
    """An variant's settings under one reading."""
    published = method_settings("hetefedrec:published", base=base)
    if variant == POPULARITY:
        return {"name": "popularity"}
    return published | READINGS[reading] | BY_GROUP[variant]


def experiment_of(parts: Split, method: dict[str, Any], epochs: int, seed: int, *, every: int) -> Experiment:
    """A configured run of so many epochs, evaluated every so many; popularity counts everybody once."""
    counts = method["name"] == POPULARITY
    config = ExperimentConfig(
        data=DATA,
        split=parts.spec,
        method=method,
        privacy=PrivacyPlan.named("none", release="total") if counts else IN_THE_OPEN,
        protocol=PROTOCOL,
        rounds=1 if counts else epochs * ROUNDS,
        evaluate_every=1 if counts else every * ROUNDS,
        seed=seed,
        taps=TapConfig(places=()),
    )
    return Experiment(config, parts)


def row(result: RoundEvaluation, part: Part) -> dict[str, float]:
    """One evaluation, and the share of users for whom ties decide."""
    measured = result.results[part]
    recall, ndcg = measured.metric("recall", K).value, measured.metric("ndcg", K).value
    return {"recall": recall, "ndcg": ndcg, "ties": measured.tie_fraction}


def choose(options: argparse.Namespace) -> None:
    """NDCG on the validation part of every variant under every reading, every two epochs."""
    parts, record = split(load(DATA), SPLIT), harness.Record(f"hetefedrec_choose_{options.base}", options, [])
    for variant in VARIANTS:
        for reading in READINGS:
            if record.has(variant=variant, reading=reading):
                continue
            length = 1 if variant in (POPULARITY, "Standalone") else options.epochs
            method = settings(options.base, variant, reading)
            result = experiment_of(parts, method, length, CHOOSING_SEED, every=min(2, length)).run(parts=("valid",))
            record.add(
                {
                    "variant": variant,
                    "reading": reading,
                    "curve": [{"epoch": (e.round + 1) // ROUNDS} | row(e, "valid") for e in result.history],
                    "cpu_s": round(result.cpu_seconds, 1),
                }
            )


def chosen(variant: str, choices: list[dict[str, Any]]) -> str:
    """The reading with the best validation NDCG at any epoch."""
    points = [(p["ndcg"], c["reading"]) for c in choices if c["variant"] == variant for p in c["curve"]]
    reading: str = max(points)[1]
    return reading


def table(options: argparse.Namespace) -> None:
    """Every variant in the reading chosen, over seeds: test at each run's best validation epoch; then differences."""
    parts, done = split(load(DATA), SPLIT), PairedRuns(f"hetefedrec_table_{options.base}", options)
    choices = harness.results(f"hetefedrec_choose_{options.base}", options.out)
    for variant in VARIANTS:
        reading = chosen(variant, choices)
        for seed in range(1 if variant == POPULARITY else options.seeds):
            if done.has(variant, seed) or not harness.chosen(variant, options.only):
                continue
            length = 1 if variant in (POPULARITY, "Standalone") else options.epochs
            run, users = stopped(parts, settings(options.base, variant, reading), length, seed)
            done.add({"variant": variant, "reading": reading, "seed": seed} | run, users)
    done.compare(PAIRS)


def groups(options: argparse.Namespace) -> None:
    """NDCG of every group of activity, and how evenly the largest table uses its dimensions, over seeds."""
    parts, record = split(load(DATA), SPLIT), harness.Record(f"hetefedrec_groups_{options.base}", options, [])
    choices = harness.results(f"hetefedrec_choose_{options.base}", options.out)
    published = method_settings("hetefedrec:published", base=options.base)
    config = HeteFedRecConfig.model_validate({name: value for name, value in published.items() if name != "name"})
    for variant in GROUPED:
        reading = chosen("HeteFedRec" if variant == WITHOUT_DECORRELATION else variant, choices)
        for seed in range(1 if variant == POPULARITY else options.seeds):
            if record.has(variant=variant, seed=seed) or not harness.chosen(variant, options.only):
                continue
            length = 1 if variant == POPULARITY else options.epochs
            run, users = stopped(parts, settings(options.base, variant, reading), length, seed, also=spread)
            record.add({"variant": variant, "reading": reading, "seed": seed} | run | by_group(parts, config, users))


def spread(experiment: Experiment) -> dict[str, float]:
    """Variance of the singular values of the covariance of the largest item table; nothing where there is none."""
    tables = [value for name, value in experiment.server.state().items() if name.startswith("items.")]
    if not tables:
        return {}
    largest = max(tables, key=lambda table: table.shape[1]).double()
    return {"variance": float(torch.linalg.svdvals(torch.cov(largest.T)).var(correction=0))}


def by_group(parts: Split, config: HeteFedRecConfig, users: np.ndarray) -> dict[str, list[float]]:
    """Mean NDCG of tested people by the group that their number of training items puts them into."""
    of_everybody = assign_groups(config, parts.train.counts, Streams.from_seed(0))
    group = of_everybody[np.flatnonzero(parts.test.counts)]
    return {"groups": [round(float(users[group == one].mean()), 5) for one in range(len(config.shares))]}


def stopped(
    parts: Split,
    method: dict[str, Any],
    epochs: int,
    seed: int,
    also: Callable[[Experiment], Mapping[str, Any]] = lambda _: {},
) -> tuple[dict[str, Any], np.ndarray]:
    """A run measured on the test part at its best validation epoch, its NDCG user by user, and what else is asked."""
    best: dict[str, Any] = {}
    users = np.empty(0)

    def look(t: int, evaluated: RoundEvaluation | None) -> None:
        nonlocal users
        if evaluated is not None and row(evaluated, "valid")["ndcg"] > best.get("valid ndcg", -1.0):
            best.update({"epoch": (t + 1) // ROUNDS, "valid ndcg": row(evaluated, "valid")["ndcg"]})
            best.update(row(evaluated, "test") | dict(also(experiment)))
            users = by_user(experiment, PROTOCOL, ("ndcg",))["ndcg"]

    experiment = experiment_of(parts, method, epochs, seed, every=min(2, epochs))
    result = experiment.run(parts=("valid", "test"), progress=look)
    return best | {"cpu_s": round(result.cpu_seconds, 1)}, users


def good(options: argparse.Namespace) -> None:
    """The default configuration and what it consists of, over seeds, on the test part."""
    parts, done = split(load(DATA), SPLIT), PairedRuns("hetefedrec_good", options)
    for variant, method in GOOD.items():
        for seed in range(1 if variant == POPULARITY else options.seeds):
            if done.has(variant, seed) or not harness.chosen(variant, options.only):
                continue
            run, users = stopped(parts, method, GOOD_EPOCHS, seed)
            done.add({"variant": variant, "seed": seed, "method": method} | run, users)
    done.compare([("default", variant) for variant in GOOD if variant != "default"])


def private(options: argparse.Namespace) -> None:
    """The default behind a clip, and behind central Gaussian noise for two budgets: test after the last round."""
    parts, done = split(load(DATA), SPLIT), PairedRuns("hetefedrec_private", options)
    users = parts.train.n_users
    noised = PrivacyPlan.named("central-gaussian", clip_norm=CLIP_NORM, noise_multiplier=1.0, delta=users**-1.1)
    plans = {"clip, no noise": PrivacyPlan.named("secure-sum", clip_norm=CLIP_NORM)}
    plans |= {f"epsilon {e:g}": plan_for_target(noised, e, PRIVATE_ROUNDS, users) for e in BUDGETS}
    for seed in range(options.seeds):
        for variant, plan in plans.items():
            if done.has(variant, seed):
                continue
            noise = getattr(plan.mechanism, "noise_multiplier", 0.0) * CLIP_NORM / users
            rate = min(LARGEST_LR, STEP_NOISE / noise) if noise else LARGEST_LR
            method = {"name": "hetefedrec", "server_optimiser": "sgd", "server_lr": rate}
            config = ExperimentConfig(
                data=DATA, split=SPLIT, method=method, privacy=plan, protocol=PROTOCOL, rounds=PRIVATE_ROUNDS,
                seed=seed, evaluate_every=PRIVATE_ROUNDS, taps=TapConfig(places=()), fidelity="analytic",
            )  # fmt: skip
            experiment = Experiment(config, parts)
            result = experiment.run(parts=("test",))
            found = {"claimed": result.guarantee.epsilon} | row(result.history[-1], "test")
            run = {"variant": variant, "seed": seed, "method": method} | found | {"cpu_s": round(result.cpu_seconds, 1)}
            done.add(run, by_user(experiment, PROTOCOL, ("ndcg",))["ndcg"])


def cost(options: argparse.Namespace) -> None:
    """CPU-seconds of a round of 256 clients after the first, and the peak memory of the process."""
    parts, record = split(load(DATA), SPLIT), harness.Record("hetefedrec_cost", options, [], anew=True)
    variants = {
        f"{base}, published, {reading}": settings(base, "HeteFedRec", reading) for base in BASES for reading in READINGS
    }
    for label, method in ({"default": {"name": "hetefedrec"}} | variants).items():
        config = ExperimentConfig(data=DATA, split=SPLIT, method=method, privacy=IN_THE_OPEN, rounds=12)
        experiment = Experiment(config, parts)
        simulation = simulation_of(experiment, Simulation)
        seconds, costs = round_seconds(simulation, experiment)[1:], simulation.costs
        row = {"what": label, "cpu_s mean": float(np.mean(seconds)), "cpu_s least": min(seconds)}
        record.add(row | {"peak_MiB": harness.peak_mib(), "up_kB": costs.up_bytes / costs.client_rounds / 1e3})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part."""
    parts = {"choose": choose, "table": table, "groups": groups, "good": good, "private": private, "cost": cost}
    parser = harness.parser(__file__, __doc__, parts=parts, seeds=5, only=[])
    parser.add_argument("--base", default="ncf", choices=BASES, help="model of `choose`, `table` and `groups`")
    parser.add_argument("--epochs", type=int, default=12, help="longest run of the same")
    options = harness.parse(parser, arguments)
    parts[options.part](options)


if __name__ == "__main__":
    main()
