"""Open histories of a few beside the private sums of everybody else: what donors add, and what biased ones do.

    python -m benchmarks.quality.donors --data ml-100k --on valid --seeds 1
    python -m benchmarks.quality.donors --data ml-1m
    python -m benchmarks.quality.donors --data ml-1m --only "random*" --epsilons 1 8

A share of people (`--share`) open their training items and leave; all others are asked, and they alone are scored, in
every row of a draw. Rows: popularity without noise; `private-gram` without the donors ("base"); with them ("donors");
with the weight of the rule although they may differ ("unchecked"); and from their histories alone ("donors alone",
which asks for sums and ignores them). Draws of donors: at random; from the fifth with the most items ("heavy"); of one
gender ("one gender"); from the fifth with the largest share of one genre ("one genre"); and at random with all items
renamed by one permutation, so that nothing they say is true ("strangers"). A row averages `--seeds` draws, each with
its own noise. Data, splits, ranking and noise are those of `private_gram.py`. Metrics are averaged per
person over the draws that score the person; intervals are 95 % over people (bootstrap, 1,000), "over_base" is the
paired difference to the base of the same draws.

One process, one thread; results go to `benchmarks/results/donors_<data>.json` after every row, and rows found there are
not repeated.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.quality.private_gram import GRAM, METRICS, Fitted, add_arguments, configured, parts_of, plan
from benchmarks.quality.ranking import interval, paired_interval
from benchmarks.running import expect
from privfed.data import Donors, Split, load
from privfed.data.item_features import item_features
from privfed.evaluation import Part
from privfed.methods.private_gram import PrivateGramServer

GENDER, GENRE, FIFTH = "F", "Sci-Fi", 5
ALONE = {"donor_weight": 1.0, "select": False, "histories": "long", "min_items": 0}
VARIANTS: Mapping[str, tuple[dict[str, Any], bool]] = {
    "base": ({}, False),
    "donors": ({}, True),
    "unchecked": ({"check_donors": False}, True),
    "donors alone": (ALONE, True),
}
"""Settings, and whether donors open their histories; without them they are merely missing."""


def everybody(parts: Split) -> np.ndarray:
    """All users."""
    return np.arange(parts.train.n_users)


def heavy(parts: Split) -> np.ndarray:
    """The fifth with the most training items."""
    return _highest_fifth(parts.train.counts.astype(float))


def one_gender(parts: Split) -> np.ndarray:
    """Everybody of one gender."""
    if parts.attributes is None:
        raise SystemExit(f"{parts.source} does not say the gender of its users: leave the rows 'one gender' out")
    return np.flatnonzero((parts.attributes["gender"] == GENDER).to_numpy())


def one_genre(parts: Split) -> np.ndarray:
    """The fifth whose histories have the largest share of one genre."""
    features = item_features(parts.item_info)
    if parts.item_info is None or features is None or features.genres is None:
        raise SystemExit(f"{parts.source} does not say the genres of its items: leave the rows 'one genre' out")
    names = parts.item_info["genres"].fillna("")
    has = names.str.split("|").map(lambda genres: GENRE in genres).to_numpy()
    train = parts.train
    own = np.bincount(train.owners, weights=has[train.items], minlength=train.n_users)
    return _highest_fifth(own / np.maximum(train.counts, 1))


def _highest_fifth(values: np.ndarray) -> np.ndarray:
    return np.argsort(-values, kind="stable")[: len(values) // FIFTH]


DRAWS: Mapping[str, Callable[[Split], np.ndarray]] = {
    "random": everybody,
    "heavy": heavy,
    "one gender": one_gender,
    "one genre": one_genre,
    "strangers": everybody,
}


def opened(parts: Split, draw: str, share: float, seed: int) -> Split:
    """The parts when a share of people, drawn from those of the draw, opened their history."""
    among = DRAWS[draw](parts)
    count, rng = min(round(share * parts.train.n_users), len(among)), np.random.default_rng([seed, 5])
    rest = parts.without(np.sort(rng.choice(among, count, replace=False)))
    if draw != "strangers":
        return rest
    donors = expect(rest.donors, Donors)
    histories = donors.histories
    renamed = replace(histories, items=rng.permutation(histories.n_items)[histories.items])
    return replace(rest, donors=replace(donors, histories=renamed))


def rows(epsilons: Sequence[float]) -> Iterator[tuple[str, str, str, dict[str, Any], bool, float | None]]:
    """Label, draw, variant, settings, whether histories are open, and epsilon of every row."""
    for draw in DRAWS:
        yield f"{draw}: popularity", draw, "popularity", {"name": "popularity"}, False, None
        for epsilon in epsilons:
            for name, (settings, donated) in VARIANTS.items():
                label = f"{draw}: {name}, epsilon {epsilon:g}"
                yield label, draw, name, {**GRAM, **settings}, donated, epsilon


class Measurements:
    """Metrics of every person in every draw, with those of the base kept for differences."""

    def __init__(self, data: str, parts: Split, on: Part, share: float, seeds: int) -> None:
        self.data, self.parts, self.on, self.share, self.seeds = data, parts, on, share, seeds
        self._base: dict[tuple[str, float], np.ndarray] = {}

    def row(
        self, label: str, draw: str, name: str, method: dict[str, Any], epsilon: float | None, *, donated: bool
    ) -> dict[str, Any]:
        """One row."""
        started = time.process_time()
        runs = [self._run(draw, seed, method, epsilon, donated=donated) for seed in range(self.seeds)]
        found = {metric: np.array([values[metric] for values, _ in runs]) for metric in METRICS}
        row: dict[str, Any] = {
            "label": label, "draw": draw, "variant": name, "epsilon": epsilon, "on": self.on, "seeds": self.seeds,
            "share": self.share, "method": method,
            "metrics": {metric: interval(_by_person(values)) for metric, values in found.items()},
            "by_seed": {metric: [round(float(np.nanmean(v)), 5) for v in values] for metric, values in found.items()},
            "decisions": [decisions for _, decisions in runs],
        }  # fmt: skip
        if epsilon is not None:
            row["over_base"] = [round(v, 5) for v in self._over_base(draw, epsilon, name, found["ndcg"])]
        return row | {"cpu_s": round(time.process_time() - started, 2)}

    def _run(
        self, draw: str, seed: int, method: dict[str, Any], epsilon: float | None, *, donated: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Metrics of all people, NaN where one is not scored, and what the server decided."""
        rest = opened(self.parts, draw, self.share, seed)
        scored = rest if donated else replace(rest, donors=None)
        fitted = Fitted(configured(self.data, method, plan(epsilon, rest.train.n_users), seed), scored)
        values, people = fitted.by_user(self.on), np.delete(everybody(self.parts), expect(rest.donors, Donors).users)
        found = {str(metric): np.full(self.parts.train.n_users, np.nan) for metric in METRICS}
        for metric in METRICS:
            found[metric][people[fitted.users]] = values[str(metric)]
        gram = None if epsilon is None else expect(fitted.experiment.server, PrivateGramServer)
        return found, {} if gram is None else {key: round(float(v), 4) for key, v in gram.decisions.items()}

    def _over_base(self, draw: str, epsilon: float, name: str, ndcg: np.ndarray) -> list[float]:
        if name == "base":
            self._base[draw, epsilon] = ndcg
        if (draw, epsilon) not in self._base:
            runs = [self._run(draw, seed, dict(GRAM), epsilon, donated=False) for seed in range(self.seeds)]
            self._base[draw, epsilon] = np.array([values["ndcg"] for values, _ in runs])
        return paired_interval(_by_person(ndcg) - _by_person(self._base[draw, epsilon]))


def _by_person(values: np.ndarray) -> np.ndarray:
    """Means over draws of everybody who is scored in one."""
    scored = ~np.isnan(values)
    kept = scored.any(0)
    means: np.ndarray = np.where(scored, values, 0).sum(0)[kept] / scored.sum(0)[kept]
    return means


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of a table."""
    data = {"default": "ml-1m", "choices": ["ml-1m", "ml-100k"]}
    parser = harness.parser(__file__, __doc__, data=data, seeds=3, only=[])
    add_arguments(parser)
    parser.add_argument("--share", type=float, default=0.05, help="share of people who are donors (%(default)s)")
    options = harness.parse(parser, arguments)

    interactions = load(options.data)
    parts = parts_of(options.data, interactions, options.on)
    measurements = Measurements(options.data, parts, options.on, options.share, options.seeds)
    record = harness.Record(f"donors_{options.data}", options, [])
    for label, draw, name, method, donated, epsilon in rows(options.epsilons):
        if harness.chosen(label, options.only) and not record.has(label=label, on=options.on):
            record.add(measurements.row(label, draw, name, method, epsilon, donated=donated))


if __name__ == "__main__":
    main()
