"""HeteFedRec on MovieLens-1M: the rows of its Tables II and IV, the default beside popularity, and cost.

    python benchmarks/hetefedrec.py choose --base ncf
    python benchmarks/hetefedrec.py table --base ncf --seeds 5
    python benchmarks/hetefedrec.py good --seeds 5
    python benchmarks/hetefedrec.py private --seeds 1
    python benchmarks/hetefedrec.py cost

Protocol of the paper as far as it is told: the published 80/20 split, 256 clients a round, every client once per epoch
of 24 rounds, Recall@20 and NDCG@20 over the whole catalogue less a user's training items, on the received model. What
the paper leaves open is read in two ways (`READINGS`). `choose` picks the reading of every arm by NDCG on the
validation part, one seed; `table` trains with other seeds, and each run is tested at its best validation epoch.
Differences of two arms are paired by user, means over seeds first. Results go to
`benchmarks/results/hetefedrec_<part>_<base>.json`. One process, one thread.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paired_runs import PairedRuns

from privfed.data import Split, SplitSpec, load, split
from privfed.engines import Simulation
from privfed.evaluation import Evaluator, Part, Protocol, RoundEvaluation
from privfed.experiment import Experiment
from privfed.methods.hetefedrec import HeteFedRecConfig
from privfed.methods.hetefedrec.config import Base
from privfed.privacy import Ledger, PrivacyPlan, plan_for_target
from privfed.setup.config import ExperimentConfig, TapConfig

DATA, K, COHORT, CHOOSING_SEED, USERS_AT_ONCE = "ml-1m", 20, 256, 100, 256
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
ARMS: dict[str, dict[str, Any]] = {
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
PAIRS = [("HeteFedRec", other) for other in ARMS if other != "HeteFedRec"] + [("All Small", "Direct")]
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


def settings(base: Base, arm: str, reading: str) -> dict[str, Any]:
    """An arm's settings under one reading."""
    published = HeteFedRecConfig.published(base).model_dump(mode="json")
    if arm == POPULARITY:
        return {"name": "popularity"}
    return {"name": "hetefedrec"} | published | READINGS[reading] | ARMS[arm]


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


def choose(base: Base, epochs: int, file: Path) -> None:
    """NDCG on the validation part of every arm under every reading, every two epochs."""
    parts, done = split(load(DATA), SPLIT), json.loads(file.read_text()) if file.exists() else []
    for arm in ARMS:
        for reading in READINGS:
            if any((r["arm"], r["reading"]) == (arm, reading) for r in done):
                continue
            length = 1 if arm in (POPULARITY, "Standalone") else epochs
            method = settings(base, arm, reading)
            result = experiment_of(parts, method, length, CHOOSING_SEED, every=min(2, length)).run(parts=("valid",))
            done.append(
                {
                    "arm": arm,
                    "reading": reading,
                    "curve": [{"epoch": (e.round + 1) // ROUNDS} | row(e, "valid") for e in result.history],
                    "cpu_s": round(result.cpu_seconds, 1),
                }
            )
            best = max(done[-1]["curve"], key=lambda point: point["ndcg"])
            print(arm, "|", reading, {k: round(v, 4) for k, v in best.items()}, done[-1]["cpu_s"], flush=True)
            file.write_text(json.dumps(done, indent=1) + "\n")


def chosen(arm: str, choices: list[dict[str, Any]]) -> str:
    """The reading with the best validation NDCG at any epoch."""
    points = [(p["ndcg"], c["reading"]) for c in choices if c["arm"] == arm for p in c["curve"]]
    reading: str = max(points)[1]
    return reading


def table(base: Base, seeds: int, epochs: int, only: list[str], choices: list[dict[str, Any]], file: Path) -> None:
    """Every arm in the reading chosen, over seeds: test at each run's best validation epoch; then differences."""
    parts, done = split(load(DATA), SPLIT), PairedRuns(file)
    for arm in ARMS:
        reading = chosen(arm, choices)
        for seed in range(1 if arm == POPULARITY else seeds):
            if done.has(arm, seed) or (only and arm not in only):
                continue
            length = 1 if arm in (POPULARITY, "Standalone") else epochs
            run, users = stopped(parts, settings(base, arm, reading), length, seed)
            done.add({"arm": arm, "reading": reading, "seed": seed} | run, users)
    done.compare(PAIRS)


def stopped(parts: Split, method: dict[str, Any], epochs: int, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """A run measured on the test part at its best validation epoch, and its NDCG user by user."""
    best: dict[str, Any] = {}
    users = np.empty(0)

    def look(t: int, evaluated: RoundEvaluation | None) -> None:
        nonlocal users
        if evaluated is not None and row(evaluated, "valid")["ndcg"] > best.get("valid ndcg", -1.0):
            best.update({"epoch": (t + 1) // ROUNDS, "valid ndcg": row(evaluated, "valid")["ndcg"]})
            best.update(row(evaluated, "test"))
            users = by_user(experiment)

    experiment = experiment_of(parts, method, epochs, seed, every=min(2, epochs))
    result = experiment.run(parts=("valid", "test"), progress=look)
    return best | {"cpu_s": round(result.cpu_seconds, 1)}, users


def by_user(experiment: Experiment) -> np.ndarray:
    """Test NDCG of every user with a test item, on the received model."""
    evaluator = Evaluator(experiment.parts, PROTOCOL, "test")
    message = experiment.server.public()
    for users in torch.split(torch.from_numpy(evaluator.users), USERS_AT_ONCE):
        scores = experiment.clients.score(users, message.addressed_to(users), None, None)
        evaluator.add(users.numpy(), scores.numpy())
    return evaluator.by_user("ndcg", K)


def good(seeds: int, only: list[str], file: Path) -> None:
    """The default configuration and what it consists of, over seeds, on the test part."""
    parts, done = split(load(DATA), SPLIT), PairedRuns(file)
    for arm, method in GOOD.items():
        for seed in range(1 if arm == POPULARITY else seeds):
            if done.has(arm, seed) or (only and arm not in only):
                continue
            run, users = stopped(parts, method, GOOD_EPOCHS, seed)
            done.add({"arm": arm, "seed": seed, "method": method} | run, users)
    done.compare([("default", arm) for arm in GOOD if arm != "default"])


def private(seeds: int, file: Path) -> None:
    """The default behind a clip, and behind central Gaussian noise for two budgets: test after the last round."""
    parts, done = split(load(DATA), SPLIT), PairedRuns(file)
    users = parts.train.n_users
    noised = PrivacyPlan.named("central-gaussian", clip_norm=CLIP_NORM, noise_multiplier=1.0, delta=users**-1.1)
    plans = {"clip, no noise": PrivacyPlan.named("secure-sum", clip_norm=CLIP_NORM)}
    plans |= {f"epsilon {e:g}": plan_for_target(noised, e, PRIVATE_ROUNDS, users) for e in BUDGETS}
    for seed in range(seeds):
        for arm, plan in plans.items():
            if done.has(arm, seed):
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
            run = {"arm": arm, "seed": seed, "method": method} | found | {"cpu_s": round(result.cpu_seconds, 1)}
            done.add(run, by_user(experiment))


def cost(file: Path) -> None:
    """CPU-seconds of a round of 256 clients after the first, and the peak memory of the process."""
    parts, rows = split(load(DATA), SPLIT), []
    variants = {
        f"{base}, published, {reading}": settings(base, "HeteFedRec", reading) for base in BASES for reading in READINGS
    }
    for label, method in ({"default": {"name": "hetefedrec"}} | variants).items():
        config = ExperimentConfig(data=DATA, split=SPLIT, method=method, privacy=IN_THE_OPEN, rounds=12)
        experiment, seconds = Experiment(config, parts), []
        plan, users = config.privacy, experiment.n_users
        simulation = Simulation(
            experiment.clients,
            plan,
            users,
            experiment.streams,
            Ledger(plan, users),
            chunk=experiment.registered.training.chunk,
        )
        for t in range(config.rounds):
            started = time.process_time()
            simulation.run(experiment.server, t)
            seconds.append(time.process_time() - started)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append({"what": label, "cpu_s mean": float(np.mean(seconds[1:])), "cpu_s least": min(seconds[1:])})
        rows[-1] |= {"peak_MiB": peak, "up_kB": simulation.costs.up_bytes / simulation.costs.client_rounds / 1e3}
        print(rows[-1], flush=True)
    file.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("choose", "table", "good", "private", "cost"))
    parser.add_argument("--base", default="ncf", choices=BASES)
    parser.add_argument("--epochs", type=int, default=12, help="longest run of `choose` and `table`")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="arms of `table` or `good` to run, by name")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.out / f"hetefedrec_{options.part}_{options.base}.json"
    if options.part == "good":
        good(options.seeds, options.only, options.out / "hetefedrec_good.json")
    elif options.part == "private":
        private(options.seeds, options.out / "hetefedrec_private.json")
    elif options.part == "cost":
        cost(options.out / "hetefedrec_cost.json")
    elif options.part == "choose":
        choose(options.base, options.epochs, file)
    else:
        choices = json.loads((options.out / f"hetefedrec_choose_{options.base}.json").read_text())
        table(options.base, options.seeds, options.epochs, options.only, choices, file)


if __name__ == "__main__":
    main()
