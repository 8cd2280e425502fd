"""Whether `private-gram` is ever worse than popularity that gets all of its budget, catalogue by catalogue.

    python -m benchmarks.quality.floor --on valid
    python -m benchmarks.quality.floor --on test --catalogues ml-100k --epsilons 0.5

Popularity released under the whole of epsilon by the same people costs less to build, so it is the floor of every row.
Full ranking of everything that a person has not trained on, NDCG@20, random splits by person and Amazon video by time
besides; `--on valid` fits on training items and ranks validation items, `--on test` fits on both and ranks test items.
At most 4,000 people of a catalogue, drawn once, are scored; all take part. No metadata but that of MovieLens, settings
by rule, central noise for a whole person (add or remove one) at delta = people^-1.1. Noise seeds are averaged by
person; "difference" is `private-gram` less that floor with its 95 % interval over people (bootstrap, 2,000). Where too
few items stand out of the noise both are popularity with all of epsilon and differ in their draws alone, so a row
counts as below only if zero lies above the interval over people and draws together. One process, one thread; results go
to `benchmarks/results/floor_<on>.json` after every row, and rows found there are not repeated.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.quality.forecast import ASIDE, FIT
from benchmarks.quality.private_gram import GRAM, PROTOCOL, Fitted, configured, plan
from benchmarks.quality.private_gram import SPLITS as PUBLISHED
from benchmarks.quality.ranking import by_user, interval, paired_interval, with_validation
from benchmarks.running import expect
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.evaluation import Part
from privfed.methods.private_gram import PrivateGramServer

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
ACTIVE = "amazon-instant-video, 10 items or more"
CATALOGUES: Mapping[str, tuple[str, SplitSpec, int]] = {
    **{name: (name, spec, 1) for name, spec in (FIT | ASIDE).items() if name != "gowalla"},
    ACTIVE: ("amazon-instant-video", PUBLISHED["amazon-instant-video"], 10),
}
"""Name -> data set, split, and how many items people have at least."""
NORMAL, SCORED = 1.96, 4_000
"""Half of a 95 % interval in standard deviations; people who are scored at most, drawn once, while all take part."""
FLOOR = {**GRAM, "popularity_share": 1.0}


def scored(parts: Split, on: Part) -> Split:
    """The same split, with what is held out of no more than `SCORED` people."""
    held_out = parts.valid if on == "valid" else parts.test
    people = np.flatnonzero(held_out.counts)
    if len(people) <= SCORED:
        return parts
    kept = np.isin(held_out.owners, np.random.default_rng(0).choice(people, SCORED, replace=False))
    some = Histories.from_pairs(held_out.owners[kept], held_out.items[kept], held_out.n_users, held_out.n_items)
    return replace(parts, valid=some, ratings=None) if on == "valid" else replace(parts, test=some, ratings=None)


class Catalogue:
    """One catalogue, its people scored by several methods.

    Attributes:
        parts: the split, fitted on as the part that is ranked asks for.
    """

    def __init__(self, name: str, on: Part) -> None:
        self.data, spec, least = CATALOGUES[name]
        parts = split(load(self.data, min_per_user=least), spec)
        self.parts: Split = scored(parts if on == "valid" else with_validation(parts), on)
        self.on: Part = on

    def popularity(self) -> np.ndarray:
        """NDCG of every person under popularity without noise."""
        return self._run({"name": "popularity"}, None, 0)[0]

    def row(self, epsilon: float, seeds: Sequence[int], settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """`private-gram` beside its floor at one epsilon."""
        started = time.process_time()
        floors = np.array([self._run(FLOOR, epsilon, seed)[0] for seed in seeds])
        runs = [self._run({**GRAM, **(settings or {})}, epsilon, seed) for seed in seeds]
        grams = np.array([ndcg for ndcg, _ in runs])
        found = [round(v, 5) for v in paired_interval((grams - floors).mean(0))]
        return {
            "people": self.parts.train.n_users, "items": self.parts.train.n_items,
            "private_gram": interval(grams.mean(0)), "floor": interval(floors.mean(0)),
            "difference": found,
            "difference_by_seed": [round(float(v), 5) for v in (grams - floors).mean(1)],
            "decisions": [decisions for _, decisions in runs],
            "cpu_s": round(time.process_time() - started, 2),
        }  # fmt: skip

    def _run(self, method: Mapping[str, Any], epsilon: float | None, seed: int) -> tuple[np.ndarray, dict[str, float]]:
        config = configured(self.data, method, plan(epsilon, self.parts.train.n_users), seed, spec=self.parts.spec)
        experiment = Fitted(config, self.parts).experiment
        ndcg = by_user(experiment, PROTOCOL, ("ndcg",), part=self.on)["ndcg"]
        if epsilon is None:
            return ndcg, {}
        server = expect(experiment.server, PrivateGramServer)
        return ndcg, {key: round(float(value), 4) for key, value in server.decisions.items()}


def below(row: Mapping[str, Any]) -> bool:
    """Whether `private-gram` is below its floor by more than the choice of people and the draws of noise explain."""
    return over_draws(row)[2] < 0


def over_draws(row: Mapping[str, Any]) -> list[float]:
    """The difference, with the interval over people widened by how much it differs from draw to draw."""
    mean, low, high = row["difference"]
    draws = row["difference_by_seed"]
    half = math.hypot((high - low) / 2, NORMAL * float(np.std(draws, ddof=1)) / math.sqrt(len(draws)))
    return [mean, mean - half, mean + half]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and name every catalogue and epsilon that is below its floor."""
    parser = harness.parser(__file__, __doc__, seeds=3)
    parser.add_argument("--on", default="valid", choices=("valid", "test"), help="part that is ranked (%(default)s)")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS), help="budgets (%(default)s)")
    parser.add_argument("--catalogues", nargs="*", choices=CATALOGUES, default=list(CATALOGUES))
    options = harness.parse(parser, arguments)
    record = harness.Record(f"floor_{options.on}", options, [])
    for name in options.catalogues:
        missing = [e for e in options.epsilons if not record.has(data=name, epsilon=e)]
        if not missing:
            continue
        catalogue = Catalogue(name, options.on)
        if not record.has(data=name, epsilon=None):
            record.add({"data": name, "epsilon": None, "popularity": interval(catalogue.popularity())})
        for epsilon in missing:
            row = catalogue.row(epsilon, range(options.seeds))
            record.add({"data": name, "epsilon": epsilon, "seeds": options.seeds, **row})
    for row in record.results:
        if row["epsilon"] is not None and below(row):
            print(f"below: {row['data']} at epsilon {row['epsilon']:g} by {over_draws(row)}")


if __name__ == "__main__":
    main()
