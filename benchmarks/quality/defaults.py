"""Defaults that travel: settings of every method compared on the validation parts of seven catalogues at once.

    python -m benchmarks.quality.defaults --only dcf dfmr lightfr --rounds 10
    python -m benchmarks.quality.defaults --only dcf dfmr lightfr --rounds 10 --users 8000 --catalogues ub-dfmr
    python -m benchmarks.quality.defaults --only fedmf pfedrec colr fedrecon hetefedrec fair --users 500
    python -m benchmarks.quality.defaults --only gpfedrec --rounds 60 --catalogues ml-100k tenrec-qba-small ...
    python -m benchmarks.quality.defaults --only gpfedrec --rounds 60 --best 1 --by ml-100k ... --catalogues jd-dfmr ...
    python -m benchmarks.quality.defaults --only metamf fedpergnn --users 500 --best 1 --by ml-100k ... --catalogues ...
    python -m benchmarks.quality.defaults --show

A default that is chosen on one data set is a setting of that data set. Here every method gets the same budget: the
six settings of its grid in `GRIDS`, of which the first are what was shipped before, each trained once on each catalogue
for the 100 rounds that `privfed.run` trains by default (codes settle in 30), and measured by NDCG@20 on the validation
part; no test part is looked at. Where the best of them lay at an edge of what they span, one or two beyond it were
tried as well (`BEYOND`); they are chosen where they are better than level. GPFedRec, whose rounds take seconds, has 60
of them. Of it, of MetaMF and of FedPerGNN, only the setting that led on three catalogues (`--by`) went on to the others
beside the first. Catalogues too large for a method are left out (`WITHOUT`).
Catalogues with more than `--users` users are cut to as many, drawn once. A setting may be a rule of public numbers:
`density` is the share of all pairs of user and item that are training pairs, `history` the mean number of training
items of a user.

The score of a setting is the geometric mean over catalogues of its NDCG@20 over that of popularity; geometric, because
popularity is next to nothing on the shops, and a mean of ratios would be theirs alone. Among settings whose scores lie
within `LEVEL` of the best the one with the best worst catalogue is chosen. `--catalogues` names others, such as ones
that were kept aside: what they say is reported and chooses nothing.

One process, one thread; results go to `benchmarks/results/defaults.json` after every row, and rows found there are
not repeated. The commands above are those of the rows that are kept. UB was measured with 8,000 people after rows of
codes with 1,000 had turned out to be noise (NDCG@20 of .000 to .006); where a setting has both, the row with more
people counts.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.markdown import table
from privfed.data import Split, SplitSpec, load, split
from privfed.evaluation import EvaluationError, Protocol
from privfed.experiment import Experiment
from privfed.setup.config import ExperimentConfig, TapConfig

LEVEL = 0.02
"""Scores closer than this share of the best are level."""
NDCG = Protocol(k=(20,))
ROUNDS = {"dcf": 30, "dfmr": 30, "lightfr": 30}
"""Rounds of methods that settle sooner than in the 100 of `privfed.run`."""
LEAVE_ONE_OUT = SplitSpec()
RATIO = SplitSpec(kind="ratio")
PURCHASES = SplitSpec(kind="published", target="buy")
CATALOGUES: dict[str, SplitSpec] = {
    "ml-100k": LEAVE_ONE_OUT,
    "lastfm-2k": RATIO,
    "douban-book-dtcdr": RATIO,
    "tenrec-qba-small": RATIO,
    "amazon-instant-video": LEAVE_ONE_OUT,
    "jd-dfmr": PURCHASES,
    "ub-dfmr": PURCHASES,
}
"""Data set -> its split: by time where there are times, as published where purchases are, else at random."""
ASIDE: dict[str, SplitSpec] = {
    "ml-1m": LEAVE_ONE_OUT,
    "tmall-dfmr": PURCHASES,
    "retailrocket-small": SplitSpec(kind="ratio", target="view"),
}
"""Data sets that chose nothing here and can be looked at afterwards."""
USERS = {"gpfedrec": 300}
"""Users of every catalogue, for methods whose state has a whole item table per user."""
WITHOUT = {"gpfedrec": ("ub-dfmr",), "fedrap": ("ub-dfmr",), "fedcia": ("jd-dfmr", "ub-dfmr")}
"""Catalogues whose 13,465 or 30,947 items would take such a method hours, or more memory than there is, with so many
people that rows are more than noise: of 300 people on UB, nobody's held-out item was found with most settings."""

GRIDS: dict[str, list[dict[str, Any]]] = {
    "dcf": [
        {"s": 1e-4},
        {"s": "2.0 density"},
        {"s": "4.0 density"},
        *({"s": f"{share} history density"} for share in (0.05, 0.1, 0.2)),
    ],
    "dfmr": [
        {"s": 2e-4, "c0": 44.0},
        {"s": "2.0 density", "c0": 14.0},
        *({"s": "0.1 history density", "c0": c0} for c0 in (44.0, 14.0, 5.0, 1.0)),
    ],
    "fedmf": [
        {"user_lr_factor": user, "item_lr_factor": item}
        for user, item in ((20.0, 1.0), (20.0, 10.0), (20.0, 3.0), (10.0, 1.0), (5.0, 1.0), (5.0, 3.0))
    ],
    "pfedrec": [
        {"lr": lr, "item_lr_factor": item, "initial_scale": scale}
        for lr, item, scale in (
            (0.1, 80.0, 1.0),
            (0.1, 30.0, 1.0),
            (0.1, 10.0, 1.0),
            (0.1, 80.0, 0.1),
            (0.1, 30.0, 0.1),
            (0.1, 10.0, 0.1),
        )
    ],
    "gpfedrec": [
        {"eta": eta, "reg": reg, "initial_scale": scale}
        for eta, reg, scale in (
            (80.0, 0.5, 1.0),
            (80.0, 0.5, 0.1),
            (20.0, 0.5, 1.0),
            (20.0, 0.5, 0.1),
            (80.0, 0.25, 1.0),
            (20.0, 0.25, 0.1),
        )
    ],
    "fedrap": [
        {"personal_lr": 1.0, "common_lr_factor": 1.0, "distance": 0.01},
        {"personal_lr": 0.1, "common_lr_factor": 1.0, "distance": 0.01},
        {"personal_lr": 3.0, "common_lr_factor": 1.0, "distance": 0.01},
        {"personal_lr": 1.0, "common_lr_factor": 0.3, "distance": 0.01},
        {"personal_lr": 1.0, "common_lr_factor": 3.0, "distance": 0.01},
        {"personal_lr": 1.0, "common_lr_factor": 1.0, "distance": 0.0},
    ],
    "fedrecon": [
        {"recon_lr": rebuilt, "item_lr_factor": item}
        for rebuilt, item in ((2.0, 1.0), (0.5, 1.0), (5.0, 1.0), (2.0, 0.3), (2.0, 3.0), (5.0, 3.0))
    ],
    "colr": [
        {"item_lr_factor": item, "user_lr_factor": user}
        for item, user in ((10.0, 20.0), (3.0, 20.0), (30.0, 20.0), (100.0, 20.0), (30.0, 5.0), (30.0, 80.0))
    ],
    "fedcia": [
        {"filtered_on": where, "low_pass": weight}
        for where, weight in (
            ("server", 1.0),
            ("server", 0.0),
            ("server", 0.3),
            ("server", 3.0),
            ("device", 0.3),
            ("device", 1.0),
        )
    ],
    "fedlightgcn": [
        {"item_lr_factor": item, "user_lr_factor": user}
        for item, user in ((4.0, 20.0), (1.0, 20.0), (10.0, 20.0), (40.0, 20.0), (4.0, 5.0), (10.0, 80.0))
    ],
    "fedpergnn": [
        {"server_lr": server, "user_lr": user}
        for server, user in ((0.03, 1.0), (0.01, 1.0), (0.003, 1.0), (0.1, 1.0), (0.03, 0.1), (0.03, 10.0))
    ],
    "fedvae": [
        {"server_lr": server, "beta_cap": beta}
        for server, beta in ((0.01, 1.0), (0.003, 1.0), (0.03, 1.0), (0.1, 1.0), (0.01, 0.2), (0.03, 0.2))
    ],
    "feddae": [
        {"server_lr": server, "personal_lr": personal}
        for server, personal in ((0.01, 0.01), (0.003, 0.01), (0.03, 0.01), (0.1, 0.01), (0.01, 0.1), (0.03, 0.1))
    ],
    "metamf": [{"server_lr": rate} for rate in (0.003, 0.0003, 0.001, 0.01, 0.03, 0.1)],
    "fedncf": [
        {"lr": lr, "user_lr_factor": user, "item_lr_factor": item}
        for lr, user, item in (
            (0.1, 80.0, 80.0),
            (0.03, 80.0, 80.0),
            (0.1, 20.0, 80.0),
            (0.1, 80.0, 20.0),
            (0.1, 20.0, 20.0),
            (0.3, 20.0, 20.0),
        )
    ],
    "hetefedrec": [
        {"server_lr": server, "lr_user": user}
        for server, user in ((0.02, 0.05), (0.005, 0.05), (0.01, 0.05), (0.05, 0.05), (0.1, 0.05), (0.02, 0.2))
    ],
    "fair": [{"lr": rate} for rate in (1e-3, 3e-4, 3e-3, 1e-2, 3e-2, 1e-1)],
    "lightfr": [
        {"s": 1e-4},
        {"s": "2.0 density"},
        {"s": "4.0 density"},
        *({"s": f"{share} history density"} for share in (0.05, 0.1, 0.2)),
    ],
}
"""Method -> settings, all others as they are; the first are the defaults before this search."""
BEYOND: dict[str, list[dict[str, Any]]] = {
    "dfmr": [{"s": "0.1 history density", "c0": 0.3}],
    "fedmf": [{"user_lr_factor": 40.0, "item_lr_factor": 1.0}, {"user_lr_factor": 20.0, "item_lr_factor": 0.3}],
    "fedrap": [
        {"personal_lr": 1.0, "common_lr_factor": 0.1, "distance": 0.01},
        {"personal_lr": 3.0, "common_lr_factor": 0.3, "distance": 0.01},
    ],
    "fedrecon": [{"recon_lr": 0.2, "item_lr_factor": 1.0}, {"recon_lr": 0.5, "item_lr_factor": 0.3}],
    "colr": [{"item_lr_factor": 1.0, "user_lr_factor": 20.0}, {"item_lr_factor": 3.0, "user_lr_factor": 5.0}],
    "fedncf": [
        {"lr": 0.1, "user_lr_factor": 80.0, "item_lr_factor": 300.0},
        {"lr": 0.3, "user_lr_factor": 80.0, "item_lr_factor": 80.0},
    ],
    "fedlightgcn": [{"item_lr_factor": 0.3, "user_lr_factor": 20.0}, {"item_lr_factor": 1.0, "user_lr_factor": 5.0}],
}
"""Method -> at most two settings more, where the best of its six lay at an edge of what they span."""


def density(parts: Split) -> float:
    """Share of all pairs that are training pairs."""
    return len(parts.train) / (parts.train.n_users * parts.train.n_items)


def resolved(settings: Mapping[str, Any], parts: Split) -> dict[str, Any]:
    """Settings with rules of public numbers worked out, such as "0.5 density"."""
    known = {"density": density(parts), "history": len(parts.train) / parts.train.n_users}
    return {
        name: math.prod(known[word] if word in known else float(word) for word in value.split())
        if isinstance(value, str) and not known.keys().isdisjoint(value.split())
        else value
        for name, value in settings.items()
    }


def fewer_users(parts: Split, users: int) -> Split:
    """The same catalogue with so many users, drawn once; all of them where there are fewer."""
    if parts.train.n_users <= users:
        return parts
    return parts.subset(np.sort(np.random.default_rng(0).choice(parts.train.n_users, users, replace=False)))


def validated(data: str, parts: Split, method: dict[str, Any], rounds: int) -> dict[str, Any]:
    """NDCG@20 on the validation part after the last round, and the CPU-seconds it took."""
    config = ExperimentConfig(
        data=data,
        split=parts.spec,
        method=method,
        protocol=NDCG,
        rounds=rounds,
        evaluate_every=rounds,
        taps=TapConfig(places=()),
    )
    started = time.process_time()
    try:
        found = Experiment(config, parts).run(parts=("valid",)).history[-1].results["valid"]
    except EvaluationError as error:
        return {"ndcg": 0.0, "failed": str(error)}
    return {"ndcg": round(found.metric("ndcg", 20).value, 5), "cpu_s": round(time.process_time() - started, 1)}


def label(method: str, settings: Mapping[str, Any]) -> str:
    """Name of a row, without its catalogue."""
    return " ".join([method, *(f"{name}={value}" for name, value in settings.items())])


def ratios(rows: Sequence[Mapping[str, Any]], method: str, data: Sequence[str]) -> dict[str, list[float]]:
    """Label of every setting of a method that was measured on all catalogues -> NDCG over popularity's on each."""
    base = {(row["data"], row["users"]): row["ndcg"] for row in rows if row["method"] == "popularity"}
    found: dict[str, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: row["users"]):
        if row["method"] == method:
            found.setdefault(row["label"], {})[row["data"]] = row["ndcg"] / base[row["data"], row["users"]]
    return {name: [each[one] for one in data] for name, each in found.items() if each.keys() >= set(data)}


def score(each: Sequence[float]) -> float:
    """Geometric mean of ratios; next to nothing where one is."""
    return math.exp(sum(math.log(max(ratio, 1e-3)) for ratio in each) / len(each))


def best(found: Mapping[str, Sequence[float]], beyond: Collection[str] = ()) -> str:
    """The setting with the best worst catalogue among those level with the best mean.

    Those of `beyond` the grid count only where one of them is better than level with the best of the grid.
    """
    scores = {name: score(each) for name, each in found.items()}
    top = max(scores.values())
    inside = {name: scores[name] for name in found if name not in beyond}
    kept = inside if inside and max(inside.values()) >= (1 - LEVEL) * top else scores
    level = [name for name in kept if kept[name] >= (1 - LEVEL) * max(kept.values())]
    return max(level, key=lambda name: min(found[name]))


def searched(method: str, data: Sequence[str] = tuple(CATALOGUES)) -> list[str]:
    """The catalogues among `data` that a method was searched on."""
    return [one for one in data if one not in WITHOUT.get(method, ())]


def outside(method: str) -> list[str]:
    """Labels of the settings beyond a method's grid."""
    return [label(method, settings) for settings in BEYOND.get(method, [])]


def leading(
    rows: Sequence[Mapping[str, Any]], method: str, settings: Mapping[str, Any], data: Sequence[str], many: int
) -> bool:
    """Whether settings are among so many that score best on some catalogues, or were the defaults before."""
    found = ratios(rows, method, data)
    best_first = sorted(found, key=lambda name: -score(found[name]))
    return label(method, settings) in [label(method, GRIDS[method][0]), *best_first[:many]]


def shown(rows: Sequence[Mapping[str, Any]], data: Sequence[str]) -> Iterator[str]:
    """A table for each method: shipped before, chosen, and all others, by score."""
    for method in GRIDS:
        catalogues = searched(method, data)
        found = ratios(rows, method, catalogues)
        if not found:
            continue
        winner, before = best(found, outside(method)), label(method, GRIDS[method][0])
        marks = {before: " (before)", winner: " (chosen)"}
        lines = [
            [
                name + marks.get(name, ""),
                f"{score(found[name]):.3f}",
                f"{min(found[name]):.2f}",
                *(f"{r:.2f}" for r in found[name]),
            ]
            for name in sorted(found, key=lambda name: -score(found[name]))
        ]
        yield from table([method, "score", "worst", *catalogues], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, or show what was chosen."""
    parser = harness.parser(__file__, __doc__, rounds=100, only=[])
    parser.add_argument("--users", type=int, default=1000, help="most users of a catalogue (default: %(default)s)")
    parser.add_argument("--catalogues", nargs="*", choices=[*CATALOGUES, *ASIDE], default=list(CATALOGUES))
    parser.add_argument("--best", type=int, help="only so many settings, by what was measured on --by, and the first")
    parser.add_argument("--by", nargs="*", choices=list(CATALOGUES), default=[], help="catalogues that --best goes by")
    parser.add_argument("--show", action="store_true", help="show what was measured, and what is chosen")
    options = harness.parse(parser, arguments)
    record = harness.Record("defaults", options, [])
    if options.show:
        print("\n".join(shown(record.results, options.catalogues)))
        return
    for data in options.catalogues:
        parts = split(load(data), (CATALOGUES | ASIDE)[data])
        for method, settings in _rows(options.only):
            if options.best and not leading(record.results, method, settings, options.by, options.best):
                continue
            fewer = fewer_users(parts, min(options.users, USERS.get(method, options.users)))
            users = fewer.train.n_users
            for name, chosen in (("popularity", {}), (method, settings)):
                rounds = 1 if name == "popularity" else min(options.rounds, ROUNDS.get(name, options.rounds))
                key = {"label": label(name, chosen), "data": data, "users": users, "rounds": rounds}
                if record.has(**key):
                    continue
                table_of = {"name": name} | resolved(chosen, fewer)
                row = validated(data, fewer, table_of, rounds)
                record.add(key | {"method": name, "settings": chosen} | row)


def _rows(only: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for method, grid in GRIDS.items():
        if harness.chosen(method, only):
            for settings in [*grid, *BEYOND.get(method, [])]:
                yield method, settings


if __name__ == "__main__":
    main()
