"""CPU-seconds and peak memory of rounds, one thread, every case in a process of its own, on MovieLens-100K.

    python -m benchmarks.speed.rounds methods                       # ten methods without privacy; under three minutes
    python -m benchmarks.speed.rounds methods --before CHECKOUT     # the same in another checkout, in turns
    python -m benchmarks.speed.rounds noise --before CHECKOUT       # eight private methods
    python -m benchmarks.speed.rounds evaluated                     # with and without evaluation

`methods` and `noise`: all clients, no evaluation; the first round is left out, and of the others the least counts, and
of `--repeats` again the least (`benchmarks.speed.suite.case`). CHECKOUT is a checkout of this repository with the same
case there, which runs its own code; the load average stands in every row, and one above 2 should be taken again.
`evaluated`: every other round evaluates validation and test against 99 sampled items, as the papers do every round;
medians of five rounds after the first two. Results go to `benchmarks/results/rounds_<part>.json`; nothing is asserted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import harness
from privfed.data import load
from privfed.evaluation import PAPER
from privfed.experiment import Experiment
from privfed.privacy import PrivacyPlan
from privfed.setup.config import ExperimentConfig, TapConfig

DATA = "ml-100k"
METHODS: dict[str, dict[str, Any]] = {
    name: {"method": name, "rounds": 3, "seconds": 4.0}
    for name in (
        "fedmf",
        "fedncf",
        "pfedrec",
        "gpfedrec",
        "fedvae",
        "feddae",
        "hetefedrec",
        "fair",
        "private-gram",
        "dpals",
    )
}
CENTRAL = "central-gaussian:clip_norm=1,noise_multiplier=4.6"
NOISE: dict[str, dict[str, Any]] = {
    name: {"method": method, "privacy": privacy}
    for name, method, privacy in (
        ("PFedRec, local Laplace", "pfedrec", "local-laplace:epsilon0=1,clip_norm=1"),
        ("PFedRec, local Gaussian", "pfedrec", "local-gaussian:noise_multiplier=5,clip_norm=1"),
        ("PFedRec, DP-SGD over interactions", "pfedrec", "interaction-dpsgd:clip_norm=0.5,noise_multiplier=1"),
        ("GPFedRec, local Laplace", "gpfedrec", "local-laplace:epsilon0=1,clip_norm=1"),
        ("FedVAE, central Gaussian", "fedvae", "central-gaussian:clip_norm=1,noise_multiplier=5"),
        ("private-gram", "private-gram", CENTRAL),
        ("dpals", "dpals", CENTRAL),
        ("private-autoencoder", "private-autoencoder", CENTRAL),
    )
}
EVALUATED = [
    ("popularity", "none"),
    ("fedmf", "none"),
    ("fedncf", "none"),
    ("pfedrec", "none"),
    ("gpfedrec", "none"),
    ("gpfedrec, no graph", "none"),
    ("gpfedrec, light (every 10)", "none"),
    ("gpfedrec", "published-noise"),
    ("gpfedrec", "local-laplace:epsilon0=1,clip_norm=1"),
    ("pfedrec", "local-laplace:epsilon0=1,clip_norm=1"),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "gpfedrec, no graph": {"graph": None},
    "gpfedrec, light (every 10)": {"refresh_every": 10},
}


def compared(cases: Mapping[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """The least round of every case, here and in the other checkout, in turns."""
    checkouts = {"": harness.ROOT}
    record = harness.Record(f"rounds_{options.part}", options, [], anew=True)
    if options.before:
        checkouts = {"before_": options.before.resolve(), "after_": harness.ROOT}
        record.session["commit"] = {side.strip("_"): harness.commit(folder) for side, folder in checkouts.items()}
    for name in cases:
        if not harness.chosen(name, options.only):
            continue
        row: dict[str, Any] = {"case": name, "load": []}
        spec = json.dumps(cases[name] | {"data": DATA})
        for _ in range(options.repeats):
            row["load"].append(harness.load_average()[0])
            for side, checkout in checkouts.items():
                found = harness.succeeded(harness.child("benchmarks.speed.suite.case", spec, checkout=checkout))
                row[f"{side}cpu_s"] = min(row.get(f"{side}cpu_s", found["cpu_s_least"]), found["cpu_s_least"])
                row[f"{side}peak_mib"] = round(found["peak_bytes"] / 2**20)
        record.add(row)


def evaluated(case: int, rounds: int) -> dict[str, object]:
    """One case in this process."""
    label, words = EVALUATED[case]
    config = ExperimentConfig(
        data=DATA,
        method={"name": label.split(",")[0], **SETTINGS.get(label, {})},
        privacy=PrivacyPlan.parse(words),
        protocol=PAPER,
        rounds=2 * rounds + 2,
        evaluate_every=2,
        taps=TapConfig(places=()),
    )
    experiment = Experiment.on(config, load(DATA))
    clock = [time.process_time()]
    result = experiment.run(progress=lambda t, evaluated: clock.append(time.process_time()))  # noqa: ARG005
    per_round = [after - before for before, after in pairwise(clock[2:])]
    return {
        "method": label,
        "privacy": words,
        "cpu_s_per_round": round(statistics.median(per_round[::2]), 3),
        "cpu_s_with_evaluation": round(statistics.median(per_round[1::2]), 3),
        "peak_rss_mb": round(harness.peak_mib()),
        "up_kb_per_client": round(result.costs.up_bytes / max(result.costs.client_rounds, 1) / 1000, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases of a part."""
    parts = {"methods": METHODS, "noise": NOISE, "evaluated": EVALUATED}
    parser = harness.parser(__file__, __doc__, parts=parts, rounds=5, repeats=1, only=[])
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="another checkout to measure in turns with this"
    )
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = harness.parse(parser, arguments)
    if options.case is not None:
        print(json.dumps(evaluated(options.case, options.rounds)))
    elif options.part == "evaluated":
        record = harness.Record("rounds_evaluated", options, {}, anew=True)
        record.results = {"data": DATA, "rows": []}
        for case in range(len(EVALUATED)):
            words = ("evaluated", "--case", case, "--rounds", options.rounds)
            record.results["rows"].append(harness.succeeded(harness.child("benchmarks.speed.rounds", *words)))
            record.save()
    else:
        compared({"methods": METHODS, "noise": NOISE}[options.part], options)


if __name__ == "__main__":
    main()
