"""DFMR on real view logs: what private examinations add, what a cover hides, and what secret sharing costs.

    python -m benchmarks.quality.dfmr quality --data jd-dfmr --seeds 5
    python -m benchmarks.quality.dfmr leakage --data jd-dfmr
    python -m benchmarks.quality.dfmr cost --data jd-dfmr

`search` is how the settings below were chosen: random draws on the validation part only, as many for every variant,
then the best fifth of each with three fresh starts; test was not looked at until all were fixed. `quality` ranks the
whole catalogue less a user's training (and, for test, validation) purchases (convention A), and again less what the
user viewed in training, held-out items included, as the slides rank (convention B). Differences of two variants are
paired by user, means over seeds first. Convention N removes training purchases alone, as the design's notes do on
MovieLens. Results go to `benchmarks/results/dfmr_<part>_<data>.json`. One process, one thread.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.quality.ranking import paired_interval
from benchmarks.running import simulation_of
from privfed.audit.attack_runs.supports import attack_supports
from privfed.contracts import Fidelity
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.engines.simulation import Simulation
from privfed.evaluation.ranking import positions, user_metrics
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

K = 10
AUDITED = 1000
USERS_AT_ONCE = 256

PUBLISHED = SplitSpec(kind="published", target="buy")
BY_TIME = SplitSpec(kind="user_time", target="buy", valid_fraction=0.1, test_fraction=0.1)
DATA: dict[str, tuple[SplitSpec, str]] = {
    "jd-dfmr": (PUBLISHED, "view"),
    "tmall-dfmr": (PUBLISHED, "fav"),
    "ub-dfmr": (PUBLISHED, "cart"),
    "ml-100k-behaviours": (BY_TIME, "view"),
}
"""Data set -> its split, and the behaviour that counts as examination (Tmall and UB lack their views)."""

EXAMINATIONS = {"tmall-dfmr": ["fav"], "ub-dfmr": ["cart"]}
IN_THE_OPEN = PrivacyPlan.named("none")

JD = {
    "dfmr": (
        {"s": 2e-4, "lam": 0.917, "c0": 43.7, "exponent": 0.5, "gamma1": 0.25, "gamma2": 0.75, "gamma3": 0.25}
        | {"alpha": 0.0, "beta": 0.0},
        8,
    ),
    "dfmr server": (
        {"s": 1e-3, "lam": 0.97, "c0": 47.0, "exponent": 0.5, "gamma1": 0.75, "gamma2": 0.5, "gamma3": 0.125}
        | {"alpha": 0.59, "beta": 0.0},
        2,
    ),
    "empty": (
        {"s": 5.6e-4, "lam": 0.716, "c0": 17.4, "exponent": 1.0, "gamma1": 0.875, "gamma2": 0.75, "gamma3": 0.75}
        | {"alpha": 0.9, "beta": 0.384},
        4,
    ),
    "dcf": ({"s": 1.1e-4, "alpha": 0.0, "beta": 0.0}, 3),
    "dcf server": ({"s": 1.6e-3, "alpha": 0.142, "beta": 0.0}, 2),
}
SETTINGS: dict[str, dict[str, tuple[dict[str, Any], int]]] = {
    "jd-dfmr": JD,
    "tmall-dfmr": JD,
    "ub-dfmr": JD,
    "ml-100k-behaviours": {
        "dfmr": (
            {"s": 0.1, "lam": 0.3, "c0": 30.0, "exponent": 1.0, "gamma1": 0.25, "gamma2": 0.75, "gamma3": 0.25}
            | {"alpha": 1e-3},
            6,
        ),
        "empty": ({"s": 0.1, "c0": 30.0, "exponent": 1.0, "gamma2": 0.5, "alpha": 0.01}, 6),
        "dcf": ({"s": 0.2, "alpha": 0.0, "beta": 1e-3}, 6),
    },
}
"""Data set -> variant -> settings and rounds, chosen on validation (ML-100K: by 40 draws each, in the design's notes).

Tmall and UB run with JD's settings: nothing was tuned on them.
"""

LEAKAGE = {
    "every row": "shared-sum",
    "own rows": "shared-sum:padding.kind=no_padding",
    **{
        f"{drawn} fake items, rho {rho}": f"shared-sum:padding.kind=fake_items,padding.rho={rho},padding.drawn={drawn}"
        for drawn in ("uniform", "popularity")
        for rho in (1, 3, 5)
    },
    **{
        f"randomised response, epsilon {epsilon}": "shared-sum:padding.kind=randomised_response,"
        f"padding.epsilon={epsilon},padding.keep={keep}"
        for epsilon, keep in ((1, 0.5), (2, 0.5), (4, 0.9), (6, 0.9))
    },
}
COSTS: dict[str, tuple[str, Fidelity]] = {
    "plain": ("none:release=total", "exact"),
    "two aggregators, real shares": ("shared-sum:padding.kind=no_padding", "protocol"),
    "three aggregators, real shares": ("shared-sum:aggregators=3,padding.kind=no_padding", "protocol"),
    "two aggregators, rho 1, real shares": ("shared-sum:padding.kind=fake_items,padding.rho=1", "protocol"),
}
PAIRS = (
    ("DFMR", "DCF"),
    ("DFMR, server start", "DCF, server start"),
    ("DFMR", "DFMR, E empty"),
    ("DFMR, E empty", "DCF"),
    ("VALS", "eALS"),
    ("DFMR", "VALS"),
)
ROUNDS_TIMED, BITS, CATALOGUES = 6, (8, 16, 32, 64), (3_366, 6_733, 13_465, 26_930)


def variants(data: str) -> dict[str, tuple[dict[str, Any], int]]:
    """Variant -> method with its settings, and rounds."""
    chosen, extra = SETTINGS[data], dict[str, Any](min_buyers=0)
    views = {"examinations": EXAMINATIONS[data]} if data in EXAMINATIONS else {}
    extra |= views
    dcf, rounds = chosen["dcf"]
    purchases_only = {key: value for key, value in dcf.items() if key not in ("alpha", "beta")}
    server_start = {}
    for name, more in (("dcf", {}), ("dfmr", extra)):
        if (key := f"{name} server") in chosen:
            method, its_rounds = chosen[key]
            server_start[f"{name.upper()}, server start"] = (
                {"name": name, "start": "server"} | more | method,
                its_rounds,
            )
    return {
        "popularity": ({"name": "popularity"}, 1),
        "LightFR-like": ({"name": "lightfr"} | purchases_only, rounds),
        "DCF": ({"name": "dcf"} | dcf, rounds),
        "DFMR, E empty": ({"name": "dfmr", "examinations": []} | chosen["empty"][0], chosen["empty"][1]),
        "DFMR": ({"name": "dfmr"} | extra | chosen["dfmr"][0], chosen["dfmr"][1]),
        "DFMR, 3 buyers": ({"name": "dfmr"} | extra | chosen["dfmr"][0] | {"min_buyers": 3}, chosen["dfmr"][1]),
        **server_start,
        "eALS": ({"name": "eals"}, 15),
        "VALS": ({"name": "vals"} | views, 15),
        "ALS, views as a level": ({"name": "vals", "pairs_c0": 0.0, "examined_weight": 0.02} | views, 15),
    }


def experiment_of(
    data: str, parts: Split, method: dict[str, Any], rounds: int, seed: int, plan: PrivacyPlan
) -> Experiment:
    """A configured run over loaded data; nothing is tapped."""
    config = ExperimentConfig(
        data=data,
        split=parts.spec,
        method=method,
        privacy=plan,
        rounds=rounds,
        seed=seed,
        taps=TapConfig(places=(), users=AUDITED),
    )
    return Experiment(config, parts)


def trained(experiment: Experiment) -> Simulation:
    """Train for the configured rounds."""
    simulation = simulation_of(experiment, Simulation)
    for t in range(experiment.config.rounds):
        simulation.run(experiment.server, t)
    return simulation


def by_user(experiment: Experiment, part: str, convention: str, viewed: str = "") -> dict[str, np.ndarray]:
    """NDCG@10 and recall@10 of every user with a held-out item; `viewed` names the behaviour convention B removes."""
    parts = experiment.parts
    held = parts.valid if part == "valid" else parts.test
    found: dict[str, list[np.ndarray]] = {"ndcg": [], "recall": []}
    message, everything = experiment.server.public(), np.arange(parts.train.n_items)
    for users in np.array_split(np.flatnonzero(held.counts), -(-held.n_users // USERS_AT_ONCE)):
        clients = torch.from_numpy(users)
        scores = experiment.clients.score(clients, message.addressed_to(clients), None, None).numpy().copy()
        hidden = parts.train.mask(users)
        if part == "test" and convention != "N":
            hidden |= parts.valid.mask(users)
        if convention == "B":
            scores[parts.auxiliary[viewed].mask(users)] = scores.min() - 1
        relevant = held.mask(users)
        items = np.broadcast_to(everything, scores.shape)
        at = positions(scores, items, relevant, relevant | ~hidden, users, pessimistic=False, seed=0)
        metrics = user_metrics(at, len(users), (K,))
        for name, values in found.items():
            values.append(metrics[name, K])
    return {name: np.concatenate(values) for name, values in found.items()}


def quality(parts: Split, options: argparse.Namespace, file: str) -> None:
    """Every variant (or only those named) and seed; then differences paired by user."""
    data, viewed = options.data, DATA[options.data][1]
    record = harness.Record(file, options, {"runs": []})
    done = record.results
    users: dict[tuple[str, str], list[np.ndarray]] = {}
    for label, (method, rounds) in variants(data).items():
        if not harness.chosen(label, options.only):
            continue
        for seed in range(options.seeds if label != "popularity" else 1):
            started = time.process_time()
            experiment = experiment_of(data, parts, method, rounds, seed, IN_THE_OPEN)
            trained(experiment)
            row: dict[str, Any] = {"variant": label, "seed": seed, "rounds": rounds, "method": method}
            for convention in ("A", "B", "N"):
                for part in ("valid", "test"):
                    values = by_user(experiment, part, convention, viewed)
                    row |= {f"{part} {convention} {name}": float(v.mean()) for name, v in values.items()}
                    if part == "test":
                        users.setdefault((label, convention), []).append(values["ndcg"])
            row["cpu_s"] = round(time.process_time() - started, 1)
            done["runs"] = [r for r in done["runs"] if (r["variant"], r["seed"]) != (label, seed)] + [row]
            print(
                {key: round(v, 4) if isinstance(v, float) else v for key, v in row.items() if key != "method"},
                flush=True,
            )
            record.save()
    known = {paired_key(row): row for row in done.get("paired", [])}
    fresh: list[dict[str, Any]] = [
        {
            "of": one,
            "less": other,
            "convention": convention,
            "ndcg": paired_interval(np.mean(users[one, convention], 0) - np.mean(users[other, convention], 0)),
        }
        for one, other in PAIRS
        if (one, "A") in users and (other, "A") in users
        for convention in ("A", "B")
    ]
    done["paired"] = list((known | {paired_key(row): row for row in fresh}).values())
    record.save()
    for row in fresh:
        print(row)


def paired_key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Which difference a row shows."""
    return row["of"], row["less"], row["convention"]


def draw_settings(variant: str, rng: np.random.Generator) -> dict[str, Any]:
    """One random draw of a variant's settings."""

    def spread(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    drawn: dict[str, Any] = {
        "name": "dcf" if variant == "dcf" else "dfmr",
        "s": spread(1e-4, 5e-3),
        "alpha": float(rng.choice([0, spread(1e-3, 3)])),
        "beta": float(rng.choice([0, 0, spread(1e-3, 1)])),
    }
    if variant != "dcf":
        drawn |= {
            "lam": float(rng.uniform(0.3, 0.99)),
            "c0": spread(3, 300),
            "exponent": float(rng.choice([0, 0.5, 1])),
            **{f"gamma{which}": int(rng.integers(1, 9)) / 8 for which in (1, 2, 3)},
        }
    return drawn | ({"examinations": []} if variant == "empty" else {})


def validated(data: str, parts: Split, method: dict[str, Any], seed: int) -> dict[int, float]:
    """Validation NDCG@10 after 2, 3, 4, 6 and 8 rounds of one start."""
    experiment = experiment_of(data, parts, method, 8, seed, IN_THE_OPEN)
    simulation, found = simulation_of(experiment, Simulation), dict[int, float]()
    for t in range(experiment.config.rounds):
        simulation.run(experiment.server, t)
        if t + 1 in (2, 3, 4, 6, 8):
            found[t + 1] = float(by_user(experiment, "valid", "A")["ndcg"].mean())
    return found


def search(parts: Split, options: argparse.Namespace, file: str) -> None:
    """Equal budgets: `--draws` settings a variant from one start, then the best fifth from three others."""
    data, draws = options.data, options.draws
    extra = {"min_buyers": 0} | ({"examinations": EXAMINATIONS[data]} if data in EXAMINATIONS else {})
    record = harness.Record(file, options, {})
    for variant in ("dcf", "empty", "dfmr"):
        rng = np.random.default_rng(0)
        tried = []
        for number in range(draws):
            method = draw_settings(variant, rng) | (extra if variant == "dfmr" else {})
            found = validated(data, parts, method, 0)
            tried.append((max(found.values()), number, method))
            print(variant, number, round(tried[-1][0], 4), flush=True)
        finalists: list[dict[str, Any]] = []
        for _, _, method in sorted(tried, reverse=True)[: max(1, draws // 5)]:
            each = [validated(data, parts, method, seed) for seed in (1, 2, 3)]
            means = {rounds: float(np.mean([found[rounds] for found in each])) for rounds in each[0]}
            best = max(means, key=means.__getitem__)
            finalists.append({"valid": means[best], "rounds": best, "method": method})
            print(variant, "finalist", finalists[-1], flush=True)
        record.put({"draws": draws, "chosen": max(finalists, key=lambda f: f["valid"])}, variant)


def leakage(parts: Split, options: argparse.Namespace, file: str) -> None:
    """Every kind of padding: what aggregators still read off the rows, what user codes give away, and what it costs."""
    data = options.data
    (method, rounds), record = variants(data)["DFMR"], harness.Record(file, options, [], anew=True)
    for label, words in LEAKAGE.items():
        experiment = experiment_of(data, parts, method, rounds, 0, PrivacyPlan.parse(words))
        simulation = trained(experiment)
        rows, leak = attack_supports(experiment, rounds, simulation.costs)
        record.add(
            {
                "padding": label,
                "test A ndcg": float(by_user(experiment, "test", "A")["ndcg"].mean()),
                "leak": None if leak is None else leak.model_dump(mode="json"),
                "auc": {f"{row.game}: {row.attack}": round(row.auc.value, 4) for row in rows},
            }
        )


def cost(parts: Split, options: argparse.Namespace, file: str) -> None:
    """CPU-seconds and bytes of whole rounds, server and all clients: by plan, by d and by catalogue."""
    data = options.data
    (method, _), record = variants(data)["DFMR"], harness.Record(file, options, [], anew=True)
    for label, (words, fidelity) in COSTS.items():
        record.add(
            {"what": label} | timed(experiment_of(data, parts, method, 1, 0, PrivacyPlan.parse(words)), fidelity)
        )
    for label in ("plain", "two aggregators, real shares"):
        words, fidelity = COSTS[label]
        for d in BITS:
            sized = experiment_of(data, parts, method | {"d": d}, 1, 0, PrivacyPlan.parse(words))
            record.add({"what": label, "d": d} | timed(sized, fidelity))
        for n_items in CATALOGUES:
            resized = on_catalogue(parts, n_items)
            sized = experiment_of(data, resized, method, 1, 0, PrivacyPlan.parse(words))
            record.add({"what": label, "n_items": n_items} | timed(sized, fidelity))


def timed(experiment: Experiment, fidelity: Fidelity) -> dict[str, float]:
    """The least CPU-seconds of a round after the first, and bytes of a client and round."""
    simulation, rounds = simulation_of(experiment, Simulation, fidelity=fidelity), []
    for t in range(ROUNDS_TIMED):
        up, down, started = simulation.costs.up_bytes, simulation.costs.down_bytes, time.process_time()
        simulation.run(experiment.server, t)
        rounds.append(time.process_time() - started)
    return {
        "cpu_s": round(min(rounds[1:]), 4),
        "cpu_s_median": round(float(np.median(rounds[1:])), 4),
        "up_bytes": (simulation.costs.up_bytes - up) / experiment.n_users,
        "down_bytes": (simulation.costs.down_bytes - down) / experiment.n_users,
        "up_bytes_with_enrolment": simulation.costs.up_bytes / experiment.n_users / ROUNDS_TIMED,
        "peak_mib": harness.peak_mib(),
    }


def on_catalogue(parts: Split, n_items: int) -> Split:
    """The same users and numbers of pairs on a catalogue of another size: item codes times a constant, modulo it."""

    def moved(rows: Histories) -> Histories:
        item = rows.items * 7919 % n_items
        _, first = np.unique(rows.owners * n_items + item, return_index=True)
        return Histories.from_pairs(rows.owners[first], item[first], rows.n_users, n_items)

    auxiliary = {name: moved(rows) for name, rows in parts.auxiliary.items()}
    train, valid, test = (moved(part) for part in (parts.train, parts.valid, parts.test))
    return replace(parts, train=train, valid=valid, test=test, auxiliary=auxiliary, ratings=None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part and print its rows."""
    parts = {"search": search, "quality": quality, "leakage": leakage, "cost": cost}
    data = {"default": "jd-dfmr", "choices": DATA}
    parser = harness.parser(__file__, __doc__, parts=parts, data=data, seeds=5, only=[])
    parser.add_argument("--draws", type=int, default=60, help="settings a variant (search)")
    options = harness.parse(parser, arguments)
    interactions = split(load(options.data), DATA[options.data][0])
    parts[options.part](interactions, options, f"dfmr_{options.part}_{options.data}")


if __name__ == "__main__":
    main()
