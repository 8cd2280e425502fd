"""Every recommender as it is shipped, on ten catalogues, beside popularity.

    python -m benchmarks.quality.shipped
    python -m benchmarks.quality.shipped --only dfmr fedmf --catalogues retailrocket-small

Settings are those that `privfed run NAME` takes by itself, for 100 rounds (codes, which settle sooner: 30) without
protection; NDCG@20 over the whole catalogue on the validation part, which no default of the three catalogues kept aside
(`benchmarks.quality.defaults.ASIDE`) was chosen by. Catalogues with more than `--users` people are cut to as many,
drawn once. A row is measured again when settings change.

One process, one thread; results go to `benchmarks/results/shipped.json` after every row, and rows found there are not
repeated.
"""

import json
from collections.abc import Sequence
from hashlib import sha256

from benchmarks import harness
from benchmarks.quality.defaults import ASIDE, CATALOGUES, ROUNDS, USERS, fewer_users, validated
from privfed.data import load, split
from privfed.setup.config import ExperimentConfig

METHODS = (
    "fedmf", "pfedrec", "fedncf", "gpfedrec", "hetefedrec", "fair", "fedvae", "feddae", "dcf", "dfmr",
    "lightfr", "colr", "fedrecon", "fedrap", "fedcia", "fedlightgcn", "fedpergnn", "metamf",
)  # fmt: skip
"""Federated recommenders whose defaults are ours."""


def settings_of(method: str) -> str:
    """A name for the settings that a method is shipped with."""
    shipped = ExperimentConfig(method={"name": method}).settings().model_dump(mode="json")
    return sha256(json.dumps(shipped, sort_keys=True).encode()).hexdigest()[:12]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing."""
    parser = harness.parser(__file__, __doc__, rounds=100, only=[])
    parser.add_argument("--users", type=int, default=1000, help="most users of a catalogue (default: %(default)s)")
    everything = CATALOGUES | ASIDE
    parser.add_argument("--catalogues", nargs="*", choices=list(everything), default=list(everything))
    options = harness.parse(parser, arguments)
    record = harness.Record("shipped", options, [])
    for data in options.catalogues:
        parts = split(load(data), everything[data])
        sizes = [min(options.users, users) for users in (options.users, *USERS.values())]
        for method, most in [("popularity", size) for size in sizes] + [(name, None) for name in METHODS]:
            fewer = fewer_users(parts, most or min(options.users, USERS.get(method, options.users)))
            rounds = 1 if method == "popularity" else min(options.rounds, ROUNDS.get(method, options.rounds))
            key = {"method": method, "data": data, "users": fewer.train.n_users, "rounds": rounds}
            key |= {"settings": settings_of(method)}
            if harness.chosen(method, options.only) and not record.has(**key):
                record.add(key | validated(data, fewer, {"name": method}, rounds))


if __name__ == "__main__":
    main()
