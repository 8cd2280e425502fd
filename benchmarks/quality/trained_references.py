"""Defaults of the trained references (MF, NeuMF, LightGCN, SGL, LogMF, RecVAE, CentDAE), chosen on validation items.

    python -m benchmarks.quality.trained_references --data ml-100k
    python -m benchmarks.quality.trained_references --data lastfm-2k --best 2

Every setting of a small grid is trained on training items for 30 rounds and ranks the validation items after 10, 20 and
30: full ranking, all items that the user has not trained on. `--best` takes only so many settings of each method, those
that ranked best on MovieLens-100K. Popularity, EASE and Mult-VAE stand beside them. No test item is looked at. One
process, one thread; results go to `benchmarks/results/trained_references.json` after every run, and runs found there
are not repeated.
"""

import time
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks import harness
from benchmarks.quality.references import PROTOCOL
from privfed.data import Split, SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

FIRST = "ml-100k"
SPLITS = {FIRST: SplitSpec(kind="leave_one_out"), "lastfm-2k": SplitSpec(kind="ratio")}
ROUNDS, EVERY = 30, 10
AT_ONCE = ("popularity", "ease")
"""Methods that are done after one round."""

GRID: dict[str, list[dict[str, Any]]] = {
    "popularity": [{}],
    "ease": [{"regularisation": strength} for strength in (100.0, 300.0, 500.0)],
    "multvae": [{"lr": lr} for lr in (3e-3, 1e-2)],
    "mf": [{"lr": lr, "regularisation": reg} for lr, reg in product((5e-3, 2e-2), (1e-3, 1e-2, 1e-1))],
    "neumf": [{"lr": lr, "weight_decay": decay} for lr, decay in product((1e-3, 5e-3), (0.0, 1e-5))],
    "lightgcn": [{"lr": lr, "regularisation": reg} for lr, reg in product((5e-3, 2e-2), (1e-4, 1e-3, 1e-2))],
    "sgl": [{"contrast": weight, "temperature": t} for weight, t in ((0.005, 0.5), (0.02, 0.5), (0.1, 0.2))],
    "logmf": [
        {"alpha": alpha, "reg": reg, "initial_scale": scale}
        for alpha, reg, scale in product((1.0, None), (0.6, 6.0), (0.1, 1.0))
    ],
    "recvae": [{"lr": lr, "gamma": gamma} for lr, gamma in product((5e-4, 2e-3), (0.002, 0.005, 0.01))],
    "centdae": [{"lr": lr, "beta_cap": beta} for lr, beta in product((3e-3, 1e-2), (0.2, 0.5))],
}


def label(method: dict[str, Any]) -> str:
    """A method and its settings in one line."""
    return " ".join([method["name"], *(f"{key}={value}" for key, value in method.items() if key != "name")])


def measure(data: str, method: dict[str, Any], parts: Split) -> dict[str, Any]:
    """Train one setting and rank the validation items."""
    rounds = 1 if method["name"] in AT_ONCE else ROUNDS
    config = ExperimentConfig(
        data=data,
        split=parts.spec,
        method=method,
        protocol=PROTOCOL,
        rounds=rounds,
        evaluate_every=min(EVERY, rounds),
        taps=TapConfig(places=()),
    )
    started = time.process_time()
    history = Experiment(config, parts).run(parts=("valid",)).history
    by_round = {entry.round + 1: entry.results["valid"].metric("ndcg", 20) for entry in history}
    last = by_round[max(by_round)]
    return {
        "ndcg@20": {str(t): round(metric.value, 4) for t, metric in by_round.items()},
        "interval": [round(last.lo, 4), round(last.hi, 4)],
        "cpu_s": round(time.process_time() - started, 1),
    }


def candidates(name: str, found: dict[str, dict[str, Any]], best: int | None) -> list[dict[str, Any]]:
    """Settings of a method: all of the grid, or those that ranked best in `found` after the last round."""
    methods = [{"name": name, **settings} for settings in GRID[name]]
    if best is None:
        return methods
    measured = [method for method in methods if label(method) in found]
    return sorted(measured, key=lambda method: -list(found[label(method)]["ndcg@20"].values())[-1])[:best]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the grid on a data set, or what is missing of it."""
    data = {"default": FIRST, "choices": SPLITS}
    parser = harness.parser(__file__, __doc__, data=data, only=[])
    parser.add_argument("--best", type=int, help=f"only so many settings of each method, the best on {FIRST}")
    options = harness.parse(parser, arguments)
    parts = split(load(options.data), SPLITS[options.data])
    record = harness.Record("trained_references", options, {})
    for name in options.only or GRID:
        for method in candidates(name, record.results.get(FIRST, {}), options.best):
            if label(method) not in record.results.get(options.data, {}):
                record.put(measure(options.data, method, parts), options.data, label(method))


if __name__ == "__main__":
    main()
