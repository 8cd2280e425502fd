"""What `private-gram` is worth over popularity, by people, items and epsilon: the rule of `privfed forecast`.

    python -m benchmarks.quality.forecast measure
    python -m benchmarks.quality.forecast measure --catalogues douban-book-dtcdr ub-dfmr
    python -m benchmarks.quality.forecast fit

`measure` takes populations of several sizes from each catalogue of the fit, drawn once: NDCG@20 over the whole
catalogue of popularity and of the method under central noise at five epsilons; of the other catalogues all people
alone. It then forecasts all people from open histories of a tenth and of three tenths of them (`--samples`), by the
very code of `privfed.forecast(sample=...)` on what a file of the sample would hold: the method on the sample alone,
with as much noise as gives it the n mu of everybody, and popularity as the sample has it. Catalogues of the fit are
measured on their validation part, the others on their test part.

`fit` regresses ln(NDCG / popularity's) on ln(n mu), ln(items) and ln(mean history) over the populations of the fit,
each catalogue with the same weight, and how much less samples show on what limits them; it prints the constants of
`privfed.methods.private_gram.expected` and `.costs`, the error on each catalogue that is left out, and forecasts beside
measurements. One process, one thread, half an hour; results go to `benchmarks/results/forecast.json` after every row,
and rows found there are not repeated; those of earlier code say its `commit`, and are to be dropped before measuring.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float64

from benchmarks import harness
from benchmarks.quality.defaults import fewer_users
from privfed.api.pilot import ndcg_on, shown, twentieth
from privfed.data import Histories, Split, SplitSpec, load, split
from privfed.evaluation import Part
from privfed.methods.private_gram.expected import BY_SAMPLE, sample_excess
from privfed.privacy.gaussian_budget import solve_gaussian

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
SAMPLES, FEWEST = (0.1, 0.3), 400
"""Shares of the people whose open histories forecast all of them, and the fewest people of a sample."""
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
LEAST_REACH = 250
"""n mu below which the product gives popularity and nothing else, and a single draw of noise decides."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, or fit the rule."""
    parser = harness.parser(__file__, __doc__, parts=("measure", "fit"), seeds=1)
    parser.add_argument("--catalogues", nargs="*", choices=[*FIT, *ASIDE], default=[*FIT, *ASIDE])
    parser.add_argument("--samples", nargs="*", type=float, default=SAMPLES, help="shares (default: %(default)s)")
    options = harness.parse(parser, arguments)
    record = harness.Record("forecast", options, [])
    if options.part == "fit":
        print("\n".join(fitted(record.results)))
        return
    for data in options.catalogues:
        whole = split(load(data), (FIT | ASIDE)[data])
        for key, public, run in _runs(data, whole, options.seeds, options.samples):
            if not record.has(**key):
                started = time.process_time()
                found = {name: round(value, 5) for name, value in run().items()}
                record.add(key | public | found | {"cpu_s": round(time.process_time() - started, 2)})


def _runs(
    data: str, whole: Split, seeds: int, samples: Sequence[float]
) -> Iterator[tuple[dict[str, Any], dict[str, Any], Callable[[], dict[str, float]]]]:
    """Every run of a catalogue: what names it, what is public, and the run itself."""
    part: Part = "valid" if data in FIT else "test"
    people = whole.train.n_users
    for size in sorted({min(size, people) for size in (SIZES if data in FIT else SIZES[:1])}, reverse=True):
        parts = fewer_users(whole, size)
        base, public = {"data": data, "users": size}, _public(parts)
        yield base | {"method": "popularity"}, public, partial(_popular, parts, part)
        for epsilon, seed in product(EPSILONS, range(seeds)):
            name, mu = {"method": "private-gram", "epsilon": epsilon, "seed": seed}, mu_of(epsilon, size)
            yield base | name, public | {"mu": mu}, partial(_measured, parts, part, "private-gram", mu, seed)
    for size in sorted({max(round(share * people), FEWEST) for share in samples}, reverse=True):
        parts = as_loaded(fewer_users(whole, size))
        for epsilon in EPSILONS:
            reach = round(mu_of(epsilon, people) * people, 2)
            name = {"data": data, "users": size, "method": "forecast", "epsilon": epsilon}
            yield name, _public(parts) | {"reach": reach}, partial(_forecast, parts, part, reach)


def as_loaded(parts: Split) -> Split:
    """A sample as a file of it would be read: nobody knows of other items than its own."""
    kept = np.unique(parts.seen.items)

    def cut(rows: Histories) -> Histories:
        return Histories(rows.indptr, np.searchsorted(kept, rows.items), len(kept))

    info = None if parts.item_info is None else parts.item_info.iloc[kept].reset_index(drop=True)
    train, valid, test = cut(parts.train), cut(parts.valid), cut(parts.test)
    return replace(parts, train=train, valid=valid, test=test, auxiliary={}, item_info=info)


def _popular(parts: Split, part: Part) -> dict[str, float]:
    return _measured(parts, part, "popularity", None, 0) | {"twentieth": twentieth(parts)}


def _measured(parts: Split, part: Part, method: str, mu: float | None, seed: int) -> dict[str, float]:
    return {"ndcg": ndcg_on(parts, part, method, mu, seed)}


def _forecast(parts: Split, part: Part, reach: float) -> dict[str, float]:
    return asdict(shown(parts, part, reach))


def _public(parts: Split) -> dict[str, Any]:
    """What is known of a population before it takes part."""
    return {"items": parts.train.n_items, "history": round(len(parts.train) / parts.train.n_users, 2)}


def mu_of(epsilon: float, people: int) -> float:
    """The mu of one release at delta = people^-1.1."""
    return round(1 / solve_gaussian(epsilon, 1, 1.0, people**-1.1, thorough=False).budget.noise_multiplier, 4)


def measured(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for a population and an epsilon, with NDCG and its ratio to popularity's, means over seeds."""
    base = {(row["data"], row["users"]): row["ndcg"] for row in rows if row["method"] == "popularity"}
    groups: dict[tuple[str, int, float], list[dict[str, Any]]] = {}
    for row in rows:
        if row["method"] == "private-gram":
            groups.setdefault((row["data"], row["users"], row["epsilon"]), []).append(row)
    return [
        runs[0] | {"ndcg": (mean := float(np.mean([run["ndcg"] for run in runs]))), "popularity": base[data, users],
                   "ratio": mean / base[data, users]}
        for (data, users, _), runs in groups.items()
    ]  # fmt: skip


def coefficients(points: Sequence[dict[str, Any]]) -> Float64[np.ndarray, " 4"]:
    """Least squares of the logarithm of the ratio, with the same weight for every catalogue."""
    counts = Counter(point["data"] for point in points)
    weights = np.array([counts[point["data"]] ** -0.5 for point in points])
    wanted = np.log([max(point["ratio"], 1.0) for point in points])
    found: Float64[np.ndarray, " 4"] = np.linalg.lstsq(features(points) * weights[:, None], wanted * weights)[0]
    return found


def features(points: Sequence[dict[str, Any]]) -> Float64[np.ndarray, "points 4"]:
    """1, ln(n mu), ln(items) and ln(mean history)."""
    public = np.array([[p["users"] * p["mu"], p["items"], p["history"]] for p in points])
    return np.hstack([np.ones((len(points), 1)), np.log(public)])


def reached(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measured populations of the fit that have some signal."""
    return [point for point in measured(rows) if point["data"] in FIT and point["users"] * point["mu"] >= LEAST_REACH]


def left_out(points: Sequence[dict[str, Any]]) -> dict[str, Float64[np.ndarray, " points"]]:
    """Catalogue -> logarithm of measured over expected there, by a fit without it."""
    found = {}
    for data in dict.fromkeys(point["data"] for point in points):
        own = [point for point in points if point["data"] == data]
        rule = coefficients([point for point in points if point["data"] != data])
        expected = np.maximum(features(own) @ rule, 0.0)
        found[data] = np.log([max(point["ratio"], 1.0) for point in own]) - expected
    return found


def from_samples(rows: Sequence[dict[str, Any]], power: float = BY_SAMPLE) -> list[dict[str, Any]]:
    """Every forecast from a sample, as `privfed.forecast` makes it, beside what was measured on the whole population.

    Args:
        rows: of the file of results.
        power: of what is added where the sample limits what it shows.
    """
    whole: dict[tuple[str, float], dict[str, Any]] = {}
    for point in sorted(measured(rows), key=lambda point: int(point["users"])):
        whole[point["data"], point["epsilon"]] = point
    found = []
    for one in rows:
        if one["method"] == "forecast" and (one["data"], one["epsilon"]) in whole:
            point = whole[one["data"], one["epsilon"]]
            excess = sample_excess(one["users"], point["users"], one["reach"])
            expected = one["ndcg"] * excess**power
            found.append(
                point | {"sample": one["users"], "shown": one["ndcg"], "excess": excess, "forecast": expected,
                         "error": expected - point["ndcg"]}
            )  # fmt: skip
    return found


def sample_power(points: Sequence[dict[str, Any]]) -> float:
    """Least squares of ln(measured / shown by the sample) on the logarithm of the excess, as for the rule."""
    counts = Counter(point["data"] for point in points)
    weights = np.array([1 / counts[point["data"]] for point in points])
    excess = np.log([point["excess"] for point in points])
    missed = np.log([point["ndcg"] / point["shown"] for point in points])
    return float((weights * excess * missed).sum() / (weights * excess**2).sum())


def samples_left_out(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Forecasts on the catalogues of the fit, what is added to each fitted without its catalogue."""
    points = [point for point in from_samples(rows) if point["data"] in FIT]
    power = {data: sample_power([point for point in points if point["data"] != data]) for data in FIT}
    return [point for data in FIT for point in from_samples(rows, power[data]) if point["data"] == data]


def constants(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """All constants of `privfed.methods.private_gram.expected`."""
    points = reached(rows)
    names = ("INTERCEPT", "BY_REACH", "BY_ITEMS", "BY_HISTORY")
    found = dict(zip(names, (round(float(c), 4) for c in coefficients(points)), strict=True))
    power = round(sample_power([point for point in from_samples(rows) if point["data"] in FIT]), 3)
    off = [math.log(one["ndcg"] / one["forecast"]) for one in from_samples(rows, power)]
    heads = [row["twentieth"] / row["history"] ** 0.5 for row in rows if row["data"] in FIT and "twentieth" in row]
    return found | {
        "SPREAD": round(math.sqrt(np.mean([(miss**2).mean() for miss in left_out(points).values()])), 3),
        "BY_SAMPLE": power,
        "SAMPLE_SPREAD": round(math.sqrt(np.mean(np.square(off))), 3),
        "TWENTIETH": round(min(heads), 4),
    }


def rates() -> dict[str, float]:
    """All constants of `privfed.methods.private_gram.costs`, from devices and servers that were measured."""
    alone, masked = harness.results("private_gram_cost_ml-1m"), harness.results("private_populations_devices")
    masked = [row for row in masked if row["label"].startswith("masks")]
    numbers, ms = [row["up_numbers"] for row in alone], [row["client_cpu_ms"] for row in alone]
    by_number, open_ms = np.polyfit(numbers, [row["upload"] + row["scores"] for row in ms], 1)
    noise_by_number, noise_ms = np.polyfit(numbers, [row["shares of noise"] for row in ms], 1)
    sums = np.array([[1, row["clients"], row["up_bytes"]["ring elements"] / 4] for row in masked])
    weight = 1 / np.array([row["cpu_ms"]["all"] for row in masked])
    masks = np.linalg.lstsq(sums * weight[:, None], np.ones(len(sums)))[0]
    adding = sum(row["server_cpu_s_taking_self_masks_off"] for row in masked) / (sums[:, 1] @ sums[:, 2])
    fits = [row["server_fit_cpu_s"] for row in alone]
    power, fit = np.polyfit(np.log([row["head"] for row in alone]), np.log(fits), 1)
    found = {
        "OPEN_MS": open_ms, "OPEN_MS_PER_NUMBER": by_number, "NOISE_MS": noise_ms,
        "NOISE_MS_PER_NUMBER": noise_by_number, "MASKS_MS": masks[0], "MASKS_MS_PER_PERSON": masks[1],
        "MASKS_MS_PER_NUMBER": masks[2], "ADDING_S": adding, "FIT_S": math.exp(fit), "FIT_POWER": power,
    }  # fmt: skip
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def fitted(rows: Sequence[dict[str, Any]]) -> list[str]:
    """All constants, the rules' errors on catalogues left out of them, and forecasts from samples."""
    points = reached(rows)
    lines = [f"{name} = {value}" for name, value in (constants(rows) | rates()).items()]
    for data, miss in left_out(points).items():
        own = [point for point in points if point["data"] == data]
        ndcg = [point["ndcg"] * (1 - math.exp(-abs(off))) for point, off in zip(own, miss, strict=True)]
        lines.append(f"left out {data}: a factor of {math.exp(np.abs(miss).mean()):.2f}, NDCG by {np.mean(ndcg):.4f}")
    samples = samples_left_out(rows)
    alone, added = (
        np.mean([abs(one[forecast] - one["ndcg"]) for one in samples]) for forecast in ("shown", "forecast")
    )
    lines.append(f"samples of catalogues left out: NDCG off by {added:.4f}, by {alone:.4f} as the sample shows it")
    lines += [
        f"{one['data']}, {one['users']} people by {one['sample']}, epsilon {one['epsilon']:g}: {one['ndcg']:.4f}, "
        f"forecast {one['forecast']:.4f}, off by {one['error']:+.4f}"
        for one in from_samples(rows)
    ]
    return lines


if __name__ == "__main__":
    main()
