"""Tables of `docs/results/private_recommender.md` and `docs/results/bridge.md`, from the files of results."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.figures import Row, difference, figure, mean, named, only, signed, values
from benchmarks.harness import RESULTS, results
from benchmarks.markdown import table
from benchmarks.quality.floor import below, over_draws
from benchmarks.quality.forecast import FIT, from_samples, left_out, reached, samples_left_out

TIERED = tuple(
    data
    for data in ("ml-1m", "ml-100k", "lastfm-2k", "tenrec-qba-small")
    if (RESULTS / f"personal_budgets_test_{data}.json").exists()
)
DONATED = tuple(data for data in ("ml-1m", "ml-100k") if (RESULTS / f"donors_{data}.json").exists())
MIXED = {
    "all at 1": "1 in 5",
    "all at 2": "1 in 5",
    "1 in 5 at 8, others at 1": "1 in 5",
    "only 1 in 5 at 8": "1 in 5",
    "1 in 2 at 8, others at 1": "1 in 2",
    "all at 4": "1 in 2",
    "all at 8": "1 in 2",
    "1 in 2 at 16, others at 1": "1 in 2",
    "1 in 2 at 32, others at 1": "1 in 2",
}
DRAWN = {
    "random": "anybody, 5 %",
    "heavy": "the most active fifth",
    "one gender": "one gender",
    "one genre": "who likes one genre most",
    "strangers": "strangers: items renamed",
}
BEYOND = tuple(data for data in ("ml-1m", "lastfm-2k") if (RESULTS / f"private_gram_beyond_{data}.json").exists())
EVALUATED = tuple(
    name for name in ("private_evaluation_ml-1m", "private_evaluation_ml-100k") if (RESULTS / f"{name}.json").exists()
)
_PROTOCOL = (
    "Test part, whole catalogue ranked, means over three seeds; noise of a trusted server, one person present or "
    "absent, delta = people^-1.1."
)
_A_TENTH = 0.22
"""Samples of a tenth are smaller shares of the people than this, and those of three tenths larger."""

CATALOGUES = {
    "amazon-instant-video": "Amazon video",
    "jd-dfmr": "JD purchases",
    "lastfm-2k": "Lastfm-2k",
    "tenrec-qba-small": "Tenrec QB-article",
    "gowalla": "Gowalla",
}
SYSTEMS = {"fedvae": "FedVAE", "feddae": "FedDAE", "hetefedrec": "HeteFedRec", "fair": "FAIR", "gpfedrec": "GPFedRec"}
BRIDGE = {
    "DP popularity": "DP popularity",
    "the Gram alone": "the Gram matrix alone",
    "alone": "the system alone",
    "started, half in the Gram": "started, half of mu^2 in the Gram matrix",
    "started, nine tenths in the Gram": "started, nine tenths",
    "started, only devices train": "started with all of it, only devices train",
    "started, nobody trains": "started with all of it, nobody trains",
}
NOT_MEASURED = "not measured"
WITHOUT = {
    ("fedvae", "started, only devices train"): "nothing private to train",
    **{("gpfedrec", variant): "refused" for variant in list(BRIDGE)[2:5]},
}
"""What cannot be measured, and why: GPFedRec's server reads single uploads, which plans of sums refuse."""


def found(rows: Sequence[Row], **key: object) -> Row | None:
    """The row that says this, where it was measured."""
    return next(iter(named(rows, **key)), None)


def ndcg(rows: Sequence[Row], label: str, digits: int = 3) -> str:
    """NDCG@20 of the row of this label."""
    row = found(rows, label=label)
    if row is None:
        return NOT_MEASURED
    return figure((row["metrics"]["ndcg"] if "metrics" in row else row["ndcg"])[0], digits)


def budgets() -> list[str]:
    """What every epsilon buys on MovieLens-1M."""
    rows = results("private_gram_table_ml-1m")
    variants = ("with metadata", "without metadata", "metadata only")

    def of_budget(suffix: str, popularity: str) -> list[str]:
        return [*(ndcg(rows, f"{variant}, {suffix}") for variant in variants), ndcg(rows, popularity)]

    body = [
        [
            f"{epsilon}",
            ndcg(rows, f"with metadata, in shares, epsilon {epsilon}"),
            *of_budget(f"epsilon {epsilon}", f"popularity alone, epsilon {epsilon}"),
        ]
        for epsilon in (1, 2, 4, 8)
    ]
    head = ["epsilon", "noise in shares", "of a trusted server", "without metadata", "metadata and five numbers only"]
    exact = of_budget("no noise", "popularity")
    return table([*head, "popularity, all of epsilon"], [*body, ["none", exact[0], *exact]])


def populations() -> list[str]:
    """Subsets of MovieLens-1M's people."""
    rows, body = results("private_populations_scaling"), []
    whole = results("private_gram_table_ml-1m")
    for n in (750, 1500, 3000):
        cells = [f"{n:,}", ndcg(rows, f"{n} users, popularity")]
        for epsilon in (1, 8):
            pair = [f"{n} users, {name}, epsilon {epsilon}" for name in ("with metadata", "no metadata")]
            cells += [" / ".join(ndcg(rows, label) for label in pair), f"{only(rows, label=pair[0])['n_mu']:,}"]
        body.append([*cells, ndcg(rows, f"{n} users, EASE")])
    everybody = ["6,040", ndcg(whole, "popularity")]
    for epsilon in (1, 8):
        pair = [f"{name}, epsilon {epsilon}" for name in ("with metadata", "without metadata")]
        mu = only(results("private_populations_refreshes"), label=f"year, epsilon {epsilon}, 1 refreshes")["mu_of_each"]
        everybody += [" / ".join(ndcg(whole, label) for label in pair), f"{6040 * mu:,.0f}"]
    ease = next(
        row
        for row in results("references")
        if row["data"] == "ml-1m" and row["method"]["name"] == "ease" and row["part"] == "test"
    )
    body.append([*everybody, figure(ease["metrics"]["ndcg@20"][0], 3)])
    head = ["people", "popularity", "epsilon 1, with / without metadata", "n mu", "epsilon 8, with / without", "n mu"]
    return table([*head, "EASE, no privacy"], body)


def larger_populations() -> list[str]:
    """Simulated larger populations."""
    rows = results("private_populations_larger")
    body = []
    for n in (20_000, 100_000, 1_000_000):
        pair = [only(rows, label=f"SIMULATION of {n} users, with metadata, epsilon {e}") for e in (1, 8)]
        body.append([f"{n:,}", *(cell for row in pair for cell in (figure(row["ndcg"][0], 3), f"{row['n_mu']:,}"))])
    exact = ndcg(results("private_gram_table_ml-1m"), "with metadata, no noise")
    head = ["people, simulated", "epsilon 1, with metadata", "n mu", "epsilon 8, with metadata", "n mu"]
    return table(head, [*body, ["no noise", exact, "", exact, ""]])


def beyond_accuracy() -> list[str]:
    """Coverage, popularity of what is listed, NDCG by activity, and NDCG of held-out items off the head."""
    body = []
    for data in BEYOND:
        for row in results(f"private_gram_beyond_{data}"):
            tenths, outside = row["by_activity"], row["outside_head"]
            off = [
                "" if not outside else f"{figure(outside[way][0])} / {figure(outside[f'{way}, by popularity'][0])}"
                for way in ("whole", "among themselves")
            ]
            body.append([
                data, row["label"], str(row["seeds"]), figure(row["ndcg"][0], 3), f"{100 * row['coverage']:.0f} %",
                f"{row['popularity_lift'][0]:.2f}", *(_ends(tenths[place]) for place in (0, 4, 9)), *off,
            ])  # fmt: skip
    head = [
        "data",
        "recommender",
        "noise seeds",
        "NDCG@20",
        "coverage",
        "popularity lift",
        "least active tenth",
        "fifth tenth",
    ]
    more = ["most active tenth", "off the head, whole ranking / by popularity", "off the head alone / by popularity"]
    return table([*head, *more], body, "ll" + "r" * 9)


def _ends(interval: Sequence[float]) -> str:
    value, low, high = interval
    return f"{figure(value, 3)} [{figure(low, 3)}, {figure(high, 3)}]"


def field() -> list[str]:
    """Private recommenders beside popularity, by NDCG@20 and by the metric that DPALS was published with."""
    rows = [*results("private_gram_table_ml-1m"), *results("private_field_ml-1m")]

    def cells(label: str) -> list[str]:
        metrics = named(rows, label=label)[0]["metrics"]
        return [figure(metrics[name][0], 3) for name in ("ndcg", "recall")]

    body = [[name, *cells(label) * 2] for label, name in REFERENCES.items()]
    body += [[name, *cells(f"{label}, epsilon 1"), *cells(f"{label}, epsilon 8")] for label, name in PRIVATELY.items()]
    head = ["recommender", "epsilon 1: NDCG@20", "Recall@20", "epsilon 8: NDCG@20", "Recall@20"]
    return table(head, body)


REFERENCES = {"popularity": "popularity, no noise", "ease": "EASE, no privacy"}
PRIVATELY = {
    "popularity alone": "popularity, all of epsilon",
    "with metadata": "private-gram",
    "without metadata": "private-gram, without metadata",
    "DPALS": "DPALS, one Gram matrix of all users",
    "DPALS, a Gram matrix per item": "DPALS, a Gram matrix per item, as published",
    "autoencoder, DP-FedAvg": "an autoencoder by DP-FedAvg",
}


def targets() -> list[str]:
    """What was aimed at on MovieLens-1M, what was reached, and why not more."""
    whole, gave, chose = (
        results(name) for name in ("private_gram_table_ml-1m", "donors_ml-1m", "personal_budgets_test_ml-1m")
    )
    (measured,) = named(results("private_evaluation_ml-1m"), mu=0.05)
    random = {row["epsilon"]: row["metrics"]["ndcg"][0] for row in named(gave, draw="random", variant="donors")}
    careful = values(named(chose["runs"], variant="1 in 5 at 8, others at 1"), "ndcg on those at 1 of 1 in 5")
    pairs = [row for row in results("floor_test") if row["epsilon"] is not None]
    ease = only(results("private_field_ml-1m"), label="ease")["metrics"]["ndcg"][0]
    ndcg10 = measured["ndcg@10"]
    rows = [
        [
            "5 % donors, epsilon 1 / 2 / 4 / 8",
            ".355 / .378 / .392 / .408",
            " / ".join(figure(random[epsilon], 3) for epsilon in sorted(random)),
            "what a few open histories add is worth most where noise is large; then the estimator limits",
        ],
        ["at epsilon 1, one in five at 8", ".365", mean(careful, 3), "quality follows the sum of mu, and this is its"],
        [
            "below popularity under the same epsilon, from .5 on",
            "nowhere",
            f"{sum(map(below, pairs))} of {len(pairs)}",
            "where too little stands out of the noise, it recommends popularity",
        ],
        [
            "noise in shares as good as a trusted server's, epsilon 1 / 8",
            "equal",
            " / ".join(
                f"{ndcg(whole, f'with metadata, in shares, epsilon {epsilon}')} and "
                f"{ndcg(whole, f'with metadata, epsilon {epsilon}')}"
                for epsilon in (1, 8)
            ),
            "what is left is room for devices that do not answer",
        ],
        [
            "private NDCG@10 of 6,040 people at mu = .05",
            "+- .003",
            f"standard deviation {figure(ndcg10['deviation'])}, half of the interval {figure(ndcg10['half_interval'])}",
            "one vector of bounded length also counts people and has HR, popularity and exposure in it; the interval "
            "also holds how people vary",
        ],
        [
            "without noise, EASE's quality",
            figure(ease, 3),
            ndcg(whole, "with metadata, no noise"),
            "where there is little noise the form of EASE is tried, on the head alone, which has 2,048 items at most",
        ],
    ]
    return table(["MovieLens-1M, NDCG@20", "aim", "measured", "because"], rows, "lrrl")


def refreshes() -> list[str]:
    """Equal releases, several in a year."""
    rows, body = results("private_populations_refreshes"), []
    for k in (1, 4, 12, 52):
        years = [only(rows, label=f"year, epsilon {epsilon}, {k} refreshes") for epsilon in (8, 1)]
        cells = [" / ".join(figure(year["mu_of_each"], 3) for year in years)]
        cells += [" / ".join(figure(year["epsilon_after"]["1"], 3) for year in years)]
        for name in ("pooled_mu_if_nothing_changes", "pooled_mu_if_half_changes_in_a_year"):
            cells.append(" / ".join(figure(year[name], 3) for year in years))
        body.append([str(k), *cells])
    head = ["refreshes a year", "mu of each, epsilon 8 / 1", "epsilon after the first, 8 / 1"]
    return table([*head, "mu of all pooled, nothing changes", "half of it changes in a year"], body)


def refreshed_quality() -> list[str]:
    """NDCG@20 after the first and the last refresh of a year."""
    rows, body = results("private_populations_refreshes"), []
    for epsilon in (8, 1):
        cells = []
        for way in ("fresh", "pooled"):
            row = only(rows, label=f"{way}, with metadata, epsilon {epsilon}, 4 refreshes")
            cells.append(" / ".join(figure(row[when]["ndcg"][0], 3) for when in ("first", "last")))
        body.append(["4", str(epsilon), *cells])
    return table(["refreshes", "epsilon", "alone, first / last", "pooled, first / last"], body)


def running_totals() -> list[str]:
    """NDCG@20 refresh by refresh, of running totals and beside them."""
    body, at = [], ("8", "13", "26", "39", "52")
    for data, epsilon in (("ml-1m", 2), ("ml-100k", 4)):
        rows = results(f"refreshes_test_{data}")
        for label in ("popularity", "independent", "year", "one release"):
            row = only(rows, label=label if label == "popularity" else f"{label}, epsilon {epsilon}")
            cells = [figure(row["at"][refresh]["ndcg"][0], 3) for refresh in at]
            body.append([f"{data}, epsilon {epsilon}", _OF_A_YEAR[label], *cells])
    return table(["data", "after so many of 52 refreshes", *at], body)


_OF_A_YEAR = {
    "popularity": "popularity, no noise",
    "independent": "52 independent releases",
    "year": "running totals",
    "one release": "a single release then, and no other",
}


def cohorts() -> list[str]:
    """Cohorts that are private by themselves."""
    rows, body = results("private_populations_cohorts"), []
    for count in (1, 4, 9, 16):
        cells = []
        for epsilon in (1, 8):
            row = only(rows, label=f"{count} cohorts, with metadata, epsilon {epsilon}")
            cells += [figure(row["ndcg"][0], 3), figure(row["as_good_as_one_sum_at_epsilon"], 2)]
        body.append([str(count), *cells])
    return table(["cohorts", "epsilon 1", "as good as one sum at", "epsilon 8", "as good as one sum at"], body)


def masked_sums() -> list[str]:
    """What one sum over everybody costs a device."""
    rows, body = results("private_populations_devices"), []
    for n in (6040, 100_000, 1_000_000):
        pair = [only(rows, label=f"masks, {n} clients, {name}") for name in LENGTHS]
        up = " / ".join(f"{row['up_bytes']['all'] / 1e3:,.0f}" for row in pair)
        cpu, server = (
            " / ".join(f"{value:,.1f}" for value in some)
            for some in (
                [row["cpu_ms"]["all"] for row in pair],
                [row["server_cpu_s_taking_self_masks_off"] for row in pair],
            )
        )
        down = f"{pair[0]['down_bytes']['all'] / 1e3:,.0f}"
        body.append([f"{n:,}", str(pair[0]["neighbours"]), up, down, cpu, server])
    head = ["people in one sum", "neighbours", "kB up, epsilon 1 / 8", "kB down", "device, CPU-ms"]
    return table([*head, "server, CPU-s to take own masks off"], body)


LENGTHS = ("epsilon 1 (head 429)", "epsilon 8 (head 1045)")


def dropouts() -> list[str]:
    """Masked sums that lose clients, next to central noise."""
    rows = results("private_populations_wire")

    def spread(row: Row) -> str:
        low, high = min(row["by_seed"]), max(row["by_seed"])
        return f"{figure(row['ndcg'][0], 3)} ({figure(low, 3)} to {figure(high, 3)})"

    body = []
    for row in rows:
        label = row["label"]
        fidelity = next((word for word in ("protocol", "exact") if f", {word}" in label), None)
        if fidelity is None:
            continue
        same = only(rows, label=label.replace(f", {fidelity}", ", central, same noise and losses"))
        body.append(
            [
                label.replace(f", {fidelity}", ""),
                fidelity,
                ", ".join(f"{n:,}" for n in row["survivors"]),
                str(row["head"]),
                figure(row["masked_sum"]["ndcg"][0], 3),
                spread(same),
                spread(row["central, same noise"]),
                figure(row["central, same epsilon"]["ndcg"][0], 3),
            ]
        )
    head = ["data", "fidelity", "survivors", "head", "NDCG@20 through shares", "central, same noise and losses"]
    return table([*head, "central, same noise, nobody lost", "central, same epsilon"], body)


def catalogues() -> list[str]:
    """The same method on other data."""
    tables = {data: results(f"private_gram_table_{data}") for data in CATALOGUES}

    def across(label: str, *more: str) -> list[str]:
        return [" / ".join(ndcg(rows, name, 4) for name in (label, *more)) for rows in tables.values()]

    def at(rows: Sequence[Row], epsilon: int) -> Row:
        return only(rows, label=f"without metadata, epsilon {epsilon}")

    def share(row: Row, name: str) -> str:
        return f"{100 * row['head'][name]:.0f} %" if row["head"] else "no head"

    both = {data: (at(rows, 1), at(rows, 8)) for data, rows in tables.items()}
    body = [
        ["popularity", *across("popularity")],
        ["popularity, all of epsilon 1 / 8", *across("popularity alone, epsilon 1", "popularity alone, epsilon 8")],
        *([f"epsilon {epsilon}", *across(f"without metadata, epsilon {epsilon}")] for epsilon in (1, 2, 4, 8)),
        ["no noise", *across("without metadata, no noise")],
        ["head, epsilon 1 / 8", *(" / ".join(str(row["constants"]["head"]) for row in pair) for pair in both.values())],
        ["tested items on it", *(" / ".join(share(row, "held_out_on_head") for row in pair) for pair in both.values())],
        [
            "people with fewer than two of its items",
            *(" / ".join(share(row, "fewer_than_two") for row in pair) for pair in both.values()),
        ],
    ]
    return table(["NDCG@20", *CATALOGUES.values()], body)


def floors() -> list[str]:
    """Popularity under the whole budget beside the method, on the test parts, and whether it is ever better."""
    rows = results("floor_test")
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    body = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = {row["epsilon"]: row for row in named(rows, data=data)}
        cells = [" / ".join(figure(own[e][name][0], 3) for name in ("floor", "private_gram")) for e in epsilons]
        body.append([data, f"{own[epsilons[0]]['people']:,}", figure(own[None]["popularity"][0], 3), *cells])
    head = ["catalogue", "people", "popularity, no noise", *(f"epsilon {e:g}" for e in epsilons)]
    return [*table(head, body), _below("test", rows), _below("validation", results("floor_valid")), ""]


def _below(part: str, rows: Sequence[Row]) -> str:
    """One sentence for a part."""
    measured = [row for row in rows if row["epsilon"] is not None]
    found = [
        f"{row['data']} at epsilon {row['epsilon']:g} ({difference(over_draws(row), 4)})"
        for row in measured
        if below(row)
    ]
    said = ", ".join(found) or "nowhere"
    pairs = f"{len(measured)} pairs of catalogue and epsilon"
    return f"Below by more than people and draws of noise explain on {part} parts, {pairs}: {said}."


def correlated_rounds() -> list[str]:
    """Noise of totals over that of independent noise, and what it does to FedVAE and FedDAE."""
    bounds, runs = results("correlated_rounds_bounds"), results("correlated_rounds_runs")
    rounds = 30
    body = [["popularity, no noise", "", "", *[figure(100 * only(runs, method="popularity")["ndcg"][0], 2)] * 4]]
    for name in ("independent", "square root", "independent, less in early rounds", "no way gets below"):
        cells = [figure(only(bounds, rounds=rounds, way=name)[key], 2) for key in ("last", "over_all")]
        for method, epsilon in (("fedvae", 8.0), ("fedvae", 1.0), ("feddae", 8.0), ("feddae", 1.0)):
            found = named(runs, method=method, epsilon=epsilon, way=name)
            cells.append("" if not found else figure(100 * found[0]["ndcg"][0], 2))
        body.append([name, *cells])
    head = [f"noise in {rounds} rounds", "on the last total", "on all totals", "FedVAE, epsilon 8", "epsilon 1"]
    return table([*head, "FedDAE, epsilon 8", "epsilon 1"], body)


def bridge() -> list[str]:
    """HR@20 / NDCG@20 of systems that start from the Gram matrix."""
    kept = {system: results(f"bridge_ml-100k_{system}")["runs"] for system in SYSTEMS}

    def cell(system: str, variant: str, epsilon: int) -> str:
        runs = named(kept[system], variant=f"{variant}, epsilon {epsilon}")
        if not runs:
            return WITHOUT.get((system, variant), NOT_MEASURED)
        return " / ".join(
            figure(100 * float(mean(values(runs, name), 6)), digits) for name, digits in (("hr", 1), ("ndcg", 2))
        )

    body = [
        [str(epsilon), name, *(cell(system, variant, epsilon) for system in SYSTEMS)]
        for epsilon in (8, 1)
        for variant, name in BRIDGE.items()
    ]
    return table(["epsilon", "variant", *SYSTEMS.values()], body, "ll" + "r" * len(SYSTEMS))


def bridge_differences() -> list[str]:
    """Differences of NDCG@20 from the system alone and from the Gram matrix alone."""
    body = []
    for system in ("fedvae", "feddae"):
        paired = results(f"bridge_ml-100k_{system}")["paired"]
        for epsilon in (8, 1):
            for variant, name in BRIDGE.items():
                one = f"{variant}, epsilon {epsilon}"
                pairs = [f"{one} less {other}, epsilon {epsilon}" for other in ("alone", "the Gram alone")]
                if all(pair in paired for pair in pairs):
                    cells = [difference([100 * end for end in paired[pair]], 2) for pair in pairs]
                    body.append([SYSTEMS[system], str(epsilon), name, *cells])
    head = ["system", "epsilon", "variant", "less the system alone", "less the Gram matrix alone"]
    return table(head, body, "lllrr")


def _forecast() -> list[dict[str, Any]]:
    """Forecasts from three tenths of the people, catalogues that nothing was fitted on first."""
    points = [one for one in from_samples(results("forecast")) if one["sample"] > _A_TENTH * one["users"]]
    return sorted(points, key=lambda one: one["data"] in FIT)


def forecasts() -> list[str]:
    """NDCG@20 as measured, and how far off a forecast from three tenths of the people was, by epsilon."""
    points = _forecast()
    epsilons = sorted({one["epsilon"] for one in points})
    rows = []
    for data in dict.fromkeys(one["data"] for one in points):
        own = {one["epsilon"]: one for one in points if one["data"] == data}
        first = next(iter(own.values()))
        cells = [f"{figure(own[e]['ndcg'], 3)}, {signed(own[e]['error'], 3)}" if e in own else "" for e in epsilons]
        fitted = "yes" if data in FIT else "no"
        rows.append(
            [data, fitted, f"{first['users']:,}", f"{first['sample']:,}", figure(first["popularity"], 3), *cells]
        )
    head = ["catalogue", "of the fit", "people", "open histories", "popularity", *(f"epsilon {e:g}" for e in epsilons)]
    return table(head, rows, "ll" + "r" * (len(head) - 2))


def forecast_errors() -> list[str]:
    """How often forecasts are near, and how far off the rule is without any history."""
    points, sentences = _forecast(), []
    for fitted, words in ((False, "that nothing was fitted on"), (True, "of the fit")):
        own = [one for one in points if (one["data"] in FIT) == fitted]
        off, names = [abs(one["error"]) for one in own], {one["data"] for one in own}
        factor = float(np.exp(np.mean([abs(np.log(one["forecast"] / one["ndcg"])) for one in own])))
        near = sum(error <= 0.01 for error in off)
        sentences.append(
            f"On the {len(names)} catalogues {words}, {near} of {len(off)} forecasts are within .01 of what was "
            f"measured; the mean error is {figure(float(np.mean(off)), 4)}, or a factor of {figure(factor, 2)}, the "
            f"largest {figure(max(off), 3)}."
        )
    rows = results("forecast")
    earlier, left = [row["commit"] for row in rows if "commit" in row], samples_left_out(rows)
    shown, added = (
        figure(float(np.mean([abs(one[of] - one["ndcg"]) for one in left])), 4) for of in ("shown", "forecast")
    )
    rule = [float(np.exp(np.abs(miss).mean())) for miss in left_out(reached(rows)).values()]
    return [
        *sentences,
        f"What is added where the sample limits brings the mean error on catalogues of the fit, samples of a tenth "
        f"included and each catalogue left out in turn, from {shown} to {added}. The rule of public numbers alone is "
        f"off by a factor of {figure(float(np.mean(rule)), 2)} there.",
        *(
            [
                f"{len(earlier)} of {len(rows)} rows were measured by earlier code, without the second sum of "
                f"popularity (commit {', '.join(sorted(set(earlier)))})."
            ]
            if earlier
            else []
        ),
        "",
    ]


def chosen_budgets() -> list[str]:
    """What everybody gets, and what people at epsilon 1 get, by what the others choose."""
    rows = []
    for data in TIERED:
        kept = results(f"personal_budgets_test_{data}")
        popular = only(results(f"private_gram_table_{data}"), label="popularity")["metrics"]["ndcg"][0]
        rows.append([data, "popularity, no noise", "", figure(popular, 3), "", ""])
        for variant, mixture in MIXED.items():
            runs = named(kept["runs"], variant=variant)
            if not runs:
                continue
            careful, pair = f"ndcg on those at 1 of {mixture}", f"{variant}, on those at 1 of {mixture}"
            gain = kept["paired"].get(f"{pair} less all at 1, on those at 1 of {mixture}")
            rows.append([
                data, variant, f"{float(np.mean(values(runs, 'sum_of_mu'))):,.0f}", mean(values(runs, "ndcg"), 3),
                mean(values(runs, careful), 3), "" if gain is None else difference(gain, 3),
            ])  # fmt: skip
    head = ["data", "who chooses what", "sum of mu", "NDCG@20 of all", "of those at epsilon 1", "more than all at 1"]
    return [_PROTOCOL, "", *table(head, rows, "llrrrr")]


def donors() -> list[str]:
    """NDCG@20 of everybody else with and without donors, by who the donors are."""
    rows = []
    for data in DONATED:
        kept = results(f"donors_{data}")
        popular = only(kept, draw="random", variant="popularity")["metrics"]["ndcg"][0]
        rows.append([data, "popularity, no noise", *[figure(popular, 3)] * 4])
        for draw, words in DRAWN.items():
            for variant, how in (("base", "nobody"), ("donors", words)):
                if variant == "base" and draw != "random":
                    continue
                found = {row["epsilon"]: row for row in named(kept, draw=draw, variant=variant)}
                cells = [figure(found[epsilon]["metrics"]["ndcg"][0], 3) for epsilon in sorted(found)]
                rows.append([data, how, *cells])
    return [_PROTOCOL, "", *table(["data", "who opens", *(f"epsilon {e}" for e in (1, 2, 4, 8))], rows, "llrrrr")]


def private_evaluations() -> list[str]:
    """How far private measurements of NDCG@10 are from the exact one, over draws of the noise."""
    rows = []
    for name in EVALUATED:
        for one in results(name):
            ndcg = one["ndcg@10"]
            cells = [ndcg[key] for key in ("exact", "mean_error", "deviation", "claimed_deviation", "half_interval")]
            figures = [figure(cells[0], 3), signed(cells[1], 4), *(figure(cell, 4) for cell in cells[2:])]
            rows.append([name.removeprefix("private_evaluation_"), f"{one['people']:,}", str(one["mu"]), *figures])
    head = ["data", "people", "mu", "exact NDCG@10", "mean error", "deviation", "claimed", "half of the interval"]
    return table(head, rows)


TRIED = {
    "estimates": "the same release",
    "doubting": "the same, four draws",
    "learned": "without metadata",
    "tail": "a block of tail by head",
    "donors": "5 % donors",
}


def gram_trials() -> list[str]:
    """What was tried on validation parts: NDCG@20 over that of the shipped method, at epsilon 1 and 8."""
    rows = results("gram_trials")
    catalogues = list(dict.fromkeys(row["data"] for row in rows))

    def across(key: str, show: Callable[[Sequence[float]], str], **which: str) -> list[str]:
        cells = []
        for data in catalogues:
            found = [named(rows, data=data, epsilon=epsilon, **which) for epsilon in (1.0, 8.0)]
            shown = [show(one[0][key]) if one else "-" for one in found]
            cells.append("" if shown == ["-", "-"] else " / ".join(shown))
        return cells

    popular = [figure(only(rows, data=data, part="popularity")["ndcg"][0], 3) for data in catalogues]
    body = [["", "popularity, no noise", *popular]]
    for part, words in TRIED.items():
        own = named(rows, part=part)
        for trial in dict.fromkeys(row["trial"] for row in own):
            if part == "donors" and not trial.startswith(("shipped", "chosen", "best")):
                continue
            if trial == "shipped":
                body.append([words, trial, *across("ndcg", lambda v: figure(v[0], 4), part=part, trial=trial)])
            else:
                body.append(["", trial, *across("over_shipped", lambda v: signed(v[0], 4), part=part, trial=trial)])
    halves = [(row["over_shipped"][2] - row["over_shipped"][1]) / 2 for row in rows if "over_shipped" in row]
    seeds = {data: min(row["seeds"] for row in named(rows, data=data) if row["epsilon"]) for data in catalogues}
    drawn = ", ".join(f"{data} {count}" for data, count in seeds.items())
    return [
        *table(["", "NDCG@20, epsilon 1 / 8", *catalogues], body, "ll" + "r" * len(catalogues)),
        "Rows below *shipped* are differences from it; the median 95 % half-width over people is "
        f"{figure(float(np.median(halves)), 4)}. Noise seeds: {drawn}.",
        "",
    ]
