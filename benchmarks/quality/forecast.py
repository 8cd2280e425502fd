"""What `private-gram` keeps of the gain over popularity, by people, items and epsilon: the rule of `privfed forecast`.

    python -m benchmarks.quality.forecast measure
    python -m benchmarks.quality.forecast measure --catalogues douban-book-dtcdr gowalla
    python -m benchmarks.quality.forecast fit

`measure` trains on populations of several sizes drawn from each catalogue: popularity, the same method without noise
(the *open* run), and under central noise at four epsilons, NDCG@20 over the whole catalogue. Catalogues of the fit are
measured on their validation part and the others on their test part. What is kept is (private - popularity) / (open -
popularity). `fit` regresses it on ln(n mu) and ln(items) over the catalogues of the fit, each with the same weight, and
prints the constants of `privfed.methods.private_gram.expected`, their error when one catalogue is left out, and the
forecasts of the others beside what was measured there. One process, one thread, ten minutes; results go to
`benchmarks/results/forecast.json` after every row, and rows found there are not repeated.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from benchmarks import harness
from benchmarks.quality.defaults import fewer_users
from privfed.data import Split, SplitSpec, load, split
from privfed.evaluation import Part, Protocol
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.privacy.gaussian_budget import solve_gaussian
from privfed.setup.config import ExperimentConfig, TapConfig

K = 20
RATIO = SplitSpec(kind="ratio")
FIT = {
    "ml-100k": RATIO,
    "ml-1m": RATIO,
    "lastfm-2k": RATIO,
    "tenrec-qba-small": RATIO,
    "amazon-instant-video": RATIO,
    "jd-dfmr": SplitSpec(kind="ratio", target="buy"),
}
"""Data set -> split, on whose validation parts the rule is fitted."""
ASIDE = {
    "douban-book-dtcdr": RATIO,
    "gowalla": RATIO,
    "ub-dfmr": SplitSpec(kind="ratio", target="buy"),
    "tmall-dfmr": SplitSpec(kind="ratio", target="buy"),
    "retailrocket-small": SplitSpec(kind="ratio", target="view"),
}
"""Data sets that only show how far off the rule is."""
SIZES = (1_000_000, 3_000, 1_000, 400)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
OPEN = "open"


def ndcg(data: str, parts: Split, part: Part, method: str, epsilon: float | None, seed: int) -> float:
    """NDCG@20 of one run."""
    users = parts.train.n_users
    plan = PrivacyPlan.named("none", release="total")
    if epsilon is not None:
        plan = PrivacyPlan.named("central-gaussian", clip_norm=1.0, epsilon=epsilon, delta=users**-1.1)
    config = ExperimentConfig(
        data=data, split=parts.spec, method={"name": method}, privacy=plan, rounds=1, seed=seed, fidelity="analytic",
        protocol=Protocol(k=(K,), state="received"), taps=TapConfig(places=()),
    )  # fmt: skip
    return Experiment(config, parts).run(parts=(part,)).history[-1].results[part].metric("ndcg", K).value


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, or fit the rule."""
    parser = harness.parser(__file__, __doc__, parts=("measure", "fit"), seeds=2)
    parser.add_argument("--catalogues", nargs="*", choices=[*FIT, *ASIDE], default=[*FIT, *ASIDE])
    options = harness.parse(parser, arguments)
    record = harness.Record("forecast", options, [])
    if options.part == "fit":
        print("\n".join(fitted(record.results)))
        return
    for data in options.catalogues:
        whole = split(load(data), (FIT | ASIDE)[data])
        part: Part = "valid" if data in FIT else "test"
        for size in dict.fromkeys(min(size, whole.train.n_users) for size in SIZES):
            parts = fewer_users(whole, size)
            for row in _rows(options.seeds):
                key = {"data": data, "users": size} | row
                if not record.has(**key):
                    started = time.process_time()
                    found = ndcg(data, parts, part, row["method"], row["epsilon"], row["seed"])
                    record.add(key | _public(parts, row["epsilon"]) | {
                        "ndcg": round(found, 5), "cpu_s": round(time.process_time() - started, 2)
                    })  # fmt: skip


def _rows(seeds: int) -> list[dict[str, Any]]:
    """Method, epsilon and seed of every run on a population; noise alone has seeds."""
    base: list[dict[str, Any]] = [
        {"method": name, "epsilon": None, "seed": 0} for name in ("popularity", "private-gram")
    ]
    noisy = [
        {"method": "private-gram", "epsilon": epsilon, "seed": seed} for epsilon in EPSILONS for seed in range(seeds)
    ]
    return base + noisy


def _public(parts: Split, epsilon: float | None) -> dict[str, Any]:
    """What is known before anybody takes part."""
    users, items = parts.train.n_users, parts.train.n_items
    mu = None
    if epsilon is not None:
        mu = round(1 / solve_gaussian(epsilon, 1, 1.0, users**-1.1, thorough=False).budget.noise_multiplier, 4)
    return {"items": items, "history": round(len(parts.train) / users, 2), "mu": mu}


def kept(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for a population and an epsilon: reach, what is kept of the gain, and both ends of the gain."""
    populations: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        populations.setdefault((row["data"], row["users"]), []).append(row)
    found = []
    for (data, users), runs in populations.items():
        ends = {row["method"]: row["ndcg"] for row in runs if row["epsilon"] is None}
        gain = ends["private-gram"] - ends["popularity"]
        for epsilon in EPSILONS:
            noisy = [row for row in runs if row["epsilon"] == epsilon]
            if noisy:
                ndcg = float(np.mean([row["ndcg"] for row in noisy]))
                found.append({
                    "data": data, "users": users, "items": noisy[0]["items"], "history": noisy[0]["history"],
                    "epsilon": epsilon, "reach": users * noisy[0]["mu"], "popularity": ends["popularity"],
                    "open": ends["private-gram"], "ndcg": ndcg, "kept": (ndcg - ends["popularity"]) / gain,
                })  # fmt: skip
    return found


def features(points: Sequence[dict[str, Any]]) -> Float64[np.ndarray, "points 3"]:
    """1, ln(n mu) and ln(items)."""
    return np.array([[1.0, np.log(p["reach"]), np.log(p["items"])] for p in points])


def fitted(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rule, its error on catalogues left out of it, and on those that were aside."""
    points = kept(rows)
    raise NotImplementedError(points)


if __name__ == "__main__":
    main()
