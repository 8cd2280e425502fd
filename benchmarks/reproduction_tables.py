"""Tables of the pages of papers, `docs/results/papers`, that have files of results of their own."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import (
    Row,
    difference,
    figure,
    grouped,
    in_order,
    mean,
    named,
    only,
    values,
    with_deviation,
    with_each,
    with_range,
)
from benchmarks.harness import RESULTS, results
from benchmarks.markdown import table
from benchmarks.paper_tables import paper
from privfed.setup.controls import CONTROLS

BOOSTED = {
    "jd-dfmr": "JD, views",
    "ub-dfmr": "UB, carts",
    "tmall-dfmr": "Tmall, favourites",
    "ml-100k-behaviours": "films, low ratings",
    "retailrocket-small": "RetailRocket, views",
}

FEDDAE = {
    "FedVAE": "FedVAE, one layer of 64",
    "FedDAE, embedding": "FedDAE, one layer of 64, a vector per user",
    "FedDAE, own first layer": "FedDAE, own first layer",
    "FedDAE, embedding, forgotten every round": "FedDAE, a vector per user, forgotten after every round",
}
DFMR = {
    "popularity": "popularity",
    "LightFR-like": "LightFR-like: no proximal term, random start",
    "DCF": "DCF, own start",
    "DFMR, E empty": "DFMR, no views",
    "DFMR": "DFMR, own start (the default)",
    "DCF, server start": "DCF, server start",
    "DFMR, server start": "DFMR, server start",
    "eALS": "eALS, central",
    "VALS": "VALS, central",
    "ALS, views as a level": "ALS, views as a second level, central",
}
SLIDES = {"DCF": ".0686 / .1039", "DFMR": ".0712 / .1095", "eALS": ".0768 / .1195", "VALS": ".0775 / .1210"}
"""NDCG and recall at 10 that the authors' slides give."""
HETEFEDREC = {
    "All Small": ".0433", "All Large": ".0403", "All Large, exclusive": ".0175", "Standalone": ".0111",
    "Clustered": ".0224", "Direct": ".0221", "HeteFedRec": ".0478", "less distillation": ".0464",
    "less distillation and decorrelation": ".0433",
}  # fmt: skip
"""NDCG of the paper's Tables II and IV."""
SPREAD = {"HeteFedRec": "with decorrelation", "less decorrelation": "without decorrelation"}
"""Rows of HeteFedRec's table V."""
GOOD = {
    "popularity": "popularity",
    "default": "default: widths 16 / 32 / 64 by capacity",
    "default, NCF": "base NCF: user vectors of their own, ten local steps",
    "default, all small": "all small (width 16)",
    "default, all large": "all large (width 64)",
    "default, own head only": "a client trains its own head only",
    "default, groups by activity": "groups by activity",
}


def last(row: Row, metric: str) -> float:
    """A metric on the test part after the last evaluated round, in per cent."""
    curve = row["curve"]
    return 100 * float(curve[max(curve, key=int)]["test"][metric])


def personalisation() -> list[str]:
    """FedVAE and FedDAE at equal numbers of rounds and local steps."""
    rows = []
    for label, runs in grouped(results("feddae_personalisation_ml-100k"), "label").items():
        name, _, steps = label.partition(", E = ")
        hr, ndcg = ([last(run, metric) for run in runs] for metric in ("hr", "ndcg"))
        cost = "" if name == "popularity" else mean(values(runs, "cpu_s"), 0)
        rows.append([FEDDAE.get(name, name), steps, str(len(runs)), mean(hr, 1), mean(ndcg, 1), cost])
    return table(["method", "local steps", "seeds", "HR@20", "NDCG@20", "CPU-s, 100 rounds"], rows)


def gate() -> list[str]:
    """Tables 3 and 4 of FedDAE, in our one layer."""
    found = grouped(results("feddae_gate_ml-100k"), "label")
    variances = list(dict.fromkeys(label.partition(", variance ")[2] for label in found if label != "popularity"))

    def cell(label: str) -> str:
        if not (runs := found.get(label)):
            return ""
        return " / ".join(mean([last(run, metric) for run in runs], 1) for metric in ("hr", "ndcg"))

    rows = [["popularity, no noise", cell("popularity")]]
    for weights in dict.fromkeys(label.partition(", variance ")[0] for label in found if label != "popularity"):
        rows.append([weights, *(cell(f"{weights}, variance {variance}") for variance in variances)])
    head = [
        "weights of the encoders",
        *("no noise" if v == "0" else f"variance {figure(float(v), 1)}" for v in variances),
    ]
    return table(head, [row + [""] * (len(head) - len(row)) for row in rows])


def encoders() -> list[str]:
    """Figure 3 of FedDAE: how well each encoder's item representations part a user's items from all others."""
    begun, trained = (named(results("feddae_encoders_ml-100k"), rounds=rounds) for rounds in (0, 100))
    rows = []
    for encoder in trained[0]["auc"]:
        at = [
            [run["auc"][encoder][kind] for run in runs]
            for runs in (trained, begun)
            for kind in ("training", "held out")
        ]
        rows.append([encoder, *(with_deviation(aucs, 2) for aucs in at)])
    when = [f"{kind}, {time}" for time in ("trained", "at random") for kind in ("training items", "held-out items")]
    return table(["items ranked by", *when], rows)


def gates_by_activity() -> list[str]:
    """Weight of FedDAE's shared encoder, and quality, by how active people are."""
    runs = grouped(results("feddae_gates_ml-100k"), "form")
    popular, rows = runs["popularity"], []
    for form, found in runs.items():
        for index, group in enumerate(popular[0]["groups"]):
            here = [run["groups"][index] for run in found]
            weight = "" if form == "popularity" else with_deviation([one["weight"][0] for one in here], 2)
            people = "" if form == "popularity" else mean([one["weight"][1] for one in here])
            items = "{} to {}".format(*group["items"])
            quality = figure(100 * statistics.fmean(one["ndcg@20"] for one in here), 1)
            rows.append([form, items, weight, people, quality])
    head = ["form", "items a person has", "weight of the shared encoder", "deviation over people", "NDCG@20, per cent"]
    return table(head, rows, "llrrr")


def depth() -> list[str]:
    """HR@20 on the way, one cause at a time."""
    rounds = ("20", "40", "60", "80", "100")
    rows = []
    for row in results("feddae_depth_ml-100k"):
        curve = row["curve"]
        popularity = row["label"] == "popularity"
        cells = [figure(100 * curve[t]["test"]["hr"], 1) if t in curve else "" for t in rounds]
        if popularity:
            cells[0] = figure(last(row, "hr"), 1)
        rows.append([row["label"], *cells, "" if popularity else figure(row["cpu_s"], 0)])
    return table(["variant", *(f"round {t}" for t in rounds), "CPU-s"], rows)


def user_level() -> list[str]:
    """Quality under every plan, and the best attack on uploads."""
    small, large = results("feddae_privacy_ml-100k"), results("feddae_privacy_ml-1m")
    plans = list(dict.fromkeys(row["label"].split(", ", 1)[-1] for row in small))
    rows = []
    for plan in plans:
        groups = [
            [row for row in data if row["label"] in (f"{method}, {plan}", plan)]
            for data, method in ((small, "fedvae"), (small, "feddae"), (large, "feddae"))
        ]
        guarantee = groups[0][0]["guarantee"]
        epsilon = guarantee["epsilon"]
        quality = [""] * 3 if not groups[0] else [hr_and_ndcg(group) for group in groups]
        if plan == "popularity":
            quality[1] = ""
        seen = [strongest(data, plan) for data in (small, large)]
        shown = "inf" if epsilon == "inf" else figure(float(epsilon), 2)
        rows.append([plan, shown, guarantee["trust"], *quality, " / ".join(cell for cell in seen if cell)])
    head = ["privacy mechanism", "epsilon", "trust", "FedVAE, ML-100K", "FedDAE, ML-100K", "FedDAE, ML-1M"]
    return table([*head, "best attack on uploads, ML-100K / ML-1M"], rows, "lllllll")


def hr_and_ndcg(runs: Sequence[Row]) -> str:
    """HR@20 with its standard deviation over seeds, and NDCG@20, in per cent."""
    hr, ndcg = ([last(run, metric) for run in runs] for metric in ("hr", "ndcg"))
    spread = f" ({figure(statistics.stdev(hr), 1)})" if len(hr) > 1 else ""
    return f"{figure(statistics.fmean(hr), 1)}{spread} / {figure(statistics.fmean(ndcg), 1)}"


def strongest(rows: Sequence[Row], plan: str) -> str:
    """The largest AUC of an attack on uploads: mean over runs of the best attack of each."""
    best = [max(row["attacks"].values()) for row in rows if row["label"].endswith(f", {plan}") and row.get("attacks")]
    return figure(statistics.fmean(best), 3) if best else ""


def dfmr_quality() -> list[str]:
    """DFMR and what it is compared with, on JD."""
    runs, rows = grouped(results("dfmr_quality_jd-dfmr")["runs"], "variant"), []
    for variant, name in DFMR.items():
        found = runs[variant]
        cells = [with_deviation(values(found, "test A ndcg")) if len(found) > 1 else mean(values(found, "test A ndcg"))]
        cells += [mean(values(found, field)) for field in ("test A recall", "test B ndcg", "test B recall")]
        rows.append([name, mean(values(found, "valid A ndcg")), *cells, SLIDES.get(variant, "")])
    head = ["variant", "valid A", "test A NDCG", "test A recall", "test B NDCG", "test B recall", "slides (B)"]
    return table(head, rows)


def dfmr_differences() -> list[str]:
    """Differences of test NDCG under convention A."""
    rows = [
        [f"{DFMR[row['of']]} less {DFMR[row['less']]}", difference(row["ndcg"])]
        for row in results("dfmr_quality_jd-dfmr")["paired"]
        if row["convention"] == "A"
    ]
    return table(["difference of", "test NDCG"], rows)


def boosted() -> tuple[str, ...]:
    """Files of results about boosts, in the order of the table."""
    files = tuple(f"boosts_{data}" for data in BOOSTED)
    return tuple(name for name in files if (RESULTS / f"{name}.json").exists())


def boosts() -> list[str]:
    """What a device gains by lifting items that its user viewed, carted or favoured."""
    rows = []
    for name in boosted():
        kept = results(name)
        for variant, runs in grouped(kept["runs"], "variant").items():
            if (pair := f"{variant}, boosted less {variant}") in kept["paired"]:
                lifted = named(kept["runs"], variant=f"{variant}, boosted")
                cells = [mean(values(found, "ndcg")) for found in (runs, lifted)]
                sizes = mean(values(lifted, "size"), 1)
                data = BOOSTED[name.removeprefix("boosts_")]
                rows.append([data, variant, str(len(runs)), *cells, sizes, difference(kept["paired"][pair])])
    return table(["data", "variant", "seeds", "NDCG@10", "boosted", "size chosen on validation", "difference"], rows)


def controls() -> list[str]:
    """Methods beside their controls, under released negatives and under honest ones."""
    rows = []
    for row in results("controls"):
        cells = [
            f"{100 * row[name]['hr@10'][0]:.1f} / {100 * row[name]['ndcg@10'][0]:.1f}"
            for name in ("method itself", *CONTROLS, "popularity")
        ]
        offered = "never held out" if row["negatives"] == "all" else "any unseen item"
        rows.append([row["method"], offered, str(row["rounds"]), *cells])
    head = ["method", "training negatives", "rounds", "HR@10 / NDCG@10"]
    return table(
        [*head, *(words.removeprefix("the ") for words in CONTROLS.values()), "popularity"], rows, "ll" + "r" * 6
    )


def open_settings() -> list[str]:
    """What a preset could be where its paper is silent, by validation."""
    rows = [
        [
            row["row"],
            *(f"{row[name]:g}" if name in row else "" for name in ("user_lr_factor", "initial_scale")),
            *(f"{100 * row[f'{which} hr@10']:.1f}" for which in ("best", "last")),
        ]
        for row in results("open_settings")
    ]
    return table(["row", "factor of both rates", "initial scale", "validation HR@10, best round", "last"], rows)


def dfmr_films() -> list[str]:
    """Ratings of 4 and more as purchases."""
    runs, rows = grouped(results("dfmr_quality_ml-100k-behaviours")["runs"], "variant"), []
    for variant, found in runs.items():
        fields = ("test A recall", "test B ndcg")
        cells = [with_deviation(values(found, "test A ndcg")), *(mean(values(found, field)) for field in fields)]
        rows.append([variant.replace("E empty", "no examinations"), str(len(found)), *cells])
    return table(["variant", "starts", "test A NDCG", "test A recall", "test B NDCG"], rows)


def dfmr_shops() -> list[str]:
    """Test NDCG@10 on Tmall and UB."""
    variants, rows = ("popularity", "DCF", "DFMR, E empty", "DFMR", "eALS"), []
    for data, name in (("tmall-dfmr", "Tmall, favourites"), ("ub-dfmr", "UB, carts")):
        kept = results(f"dfmr_quality_{data}")
        cells = [mean(values(named(kept["runs"], variant=variant), "test A ndcg")) for variant in variants]
        for less in ("DCF", "DFMR, E empty"):
            cells.append(difference(only(kept["paired"], of="DFMR", less=less, convention="A")["ndcg"]))
        rows.append([name, *cells])
    head = [variant.replace("E empty", "no examinations") for variant in variants]
    return table(["data", *head, "DFMR less DCF", "DFMR less no examinations"], rows)


def hetefedrec_ncf() -> list[str]:
    """Tables II and IV on Fed-NCF."""
    rows = []
    for variant, runs in grouped(results("hetefedrec_table_ncf")["runs"], "variant").items():
        name = variant if variant == "popularity" else f"{variant} ({runs[0]['reading']})"
        recall, ndcg = mean(values(runs, "recall")), with_range(values(runs, "ndcg"))
        rows.append([name, str(len(runs)), recall, ndcg, HETEFEDREC.get(variant, "")])
    return table(["variant (reading chosen)", "seeds", "Recall@20", "NDCG@20, mean (range)", "paper"], rows)


def hetefedrec_lightgcn() -> list[str]:
    """The same on Fed-LightGCN."""
    rows = []
    for variant, runs in grouped(results("hetefedrec_table_lightgcn")["runs"], "variant").items():
        rows.append([variant, str(len(runs)), mean(values(runs, "recall")), with_each(values(runs, "ndcg"))])
    return table(["Fed-LightGCN, variant", "seeds", "Recall@20", "NDCG@20, mean (each seed)"], rows)


def hetefedrec_differences() -> list[str]:
    """HeteFedRec less other variants, on both bases."""
    ncf, graph = (results(f"hetefedrec_table_{base}")["paired"] for base in ("ncf", "lightgcn"))
    rows = [
        [
            pair.removeprefix("HeteFedRec less "),
            *(difference(kept[pair]) if pair in kept else "" for kept in (ncf, graph)),
        ]
        for pair in ncf
        if pair.startswith("HeteFedRec less ")
    ]
    return table(["HeteFedRec less", "on Fed-NCF", "on Fed-LightGCN"], rows)


def hetefedrec_groups() -> list[str]:
    """Figure 6 and table V."""
    known = next(one for one in paper("hetefedrec")["results"] if one["id"] == "table-5")["numbers"]["MovieLens-1M"]
    rows = []
    for base, name in (("ncf", "Fed-NCF"), ("lightgcn", "Fed-LightGCN")):
        for variant, runs in grouped(results(f"hetefedrec_groups_{base}"), "variant").items():
            if variant == "popularity" and base == "lightgcn":
                continue
            by_group = [with_deviation([run["groups"][group] for run in runs]) for group in range(3)]
            spread = with_each(values(runs, "variance"), 3) if "variance" in runs[0] else ""
            printed = figure(known[f"{name}: {SPREAD[variant]}"]["variance"]) if variant in SPREAD else ""
            label = variant if variant == "popularity" else f"{name}: {variant}"
            rows.append([label, str(len(runs)), *by_group, spread, printed])
    head = ["variant", "seeds", *(f"NDCG@20, {group}" for group in ("least active", "middle", "most active"))]
    return [
        "`groups --base ncf --seeds 3` and `--base lightgcn`, figure 6 and table V: NDCG by group of activity (5:3:2), "
        "and the variance of the singular values of the covariance of the largest item table, at the best validation "
        "epoch.",
        "",
        *table([*head, "variance (each seed)", "paper"], rows),
    ]


def hetefedrec_good() -> list[str]:
    """The default of this package."""
    runs = results("hetefedrec_good")["runs"]
    rows = [
        [name, str(len(found)), mean(values(found, "recall")), with_range(values(found, "ndcg"))]
        for variant, name in GOOD.items()
        if (found := named(runs, variant=variant))
    ]
    return table(["variant", "seeds", "Recall@20", "NDCG@20, mean (range)"], rows)


def hetefedrec_private() -> list[str]:
    """The default behind noise."""
    popularity = only(results("hetefedrec_good")["runs"], variant="popularity")
    rows = [["popularity", "", figure(popularity["recall"]), figure(popularity["ndcg"])]]
    for row in results("hetefedrec_private")["runs"]:
        epsilon = "inf" if row["claimed"] == float("inf") else figure(row["claimed"], 2)
        rows.append([row["variant"], epsilon, figure(row["recall"]), figure(row["ndcg"])])
    return table(["variant", "epsilon", "Recall@20", "NDCG@20"], rows)


def fair_quality() -> list[str]:
    """FAIR and what it is compared with, on Goodreads-100."""
    rows = []
    for variant, runs in grouped(results("fair_table_goodreads-100")["runs"], "variant").items():
        best, final = with_each(values(runs, "ndcg all")), mean(values(runs, "ndcg last"))
        when = "" if variant == "popularity" else ", ".join(str(run["round"]) for run in runs)
        rows.append([variant, str(len(runs)), when, best, final, f"{statistics.fmean(values(runs, 'down_kB')):,.0f}"])
    head = ["variant", "seeds", "best validation round", "NDCG@20 there, mean (each seed)", "NDCG@20 in the last round"]
    return table([*head, "kB received per client and round"], rows)


def fair_differences() -> list[str]:
    """FAIR-HET less other variants, scheme by scheme."""
    paired = results("fair_table_goodreads-100")["paired"]
    schemes, others = ("1x-2x", "1x-4x", "1x-8x", "1x-16x"), ("FAIR-HOM", "FedHM", "HeteroFL", "FedAvg", "popularity")

    def cell(scheme: str, other: str) -> str:
        for name in (f"{other} {scheme}", other):
            if (pair := f"FAIR-HET {scheme} less {name}") in paired:
                return difference(paired[pair])
        return "not measured"

    rows = [[other, *(cell(scheme, other) for scheme in schemes)] for other in others]
    return table(["FAIR-HET less", *schemes], rows)


def fair_loss() -> list[str]:
    """What excluding small devices costs."""
    kept, rows = results("fair_loss_goodreads-100"), []
    for share in (1, 20, 30, 50):
        one, other = (f"{name} {share}%" for name in ("FAIR-HET", "FULL-TRN"))
        cells = [mean(values(named(kept["runs"], variant=variant), "ndcg all")) for variant in (one, other)]
        rows.append([f"{share} %", *cells, difference(kept["paired"][f"{one} less {other}"])])
    return table(["share of whole devices", "FAIR-HET", "FULL-TRN", "difference, paired by user"], rows)


def fair_ladder() -> list[str]:
    """What a device can hold."""
    rows = []
    for row in results("fair_ladder_goodreads-100")["runs"]:
        when = "" if row["variant"] == "popularity" else str(row["round"])
        rows.append(
            [row["variant"], f"{row['down_kB']:,.0f}", when, *(figure(row[name]) for name in ("ndcg all", "ndcg last"))]
        )
    head = ["memory of a device", "kB received per client and round", "best validation round", "NDCG@20 there"]
    return table([*head, "NDCG@20 at round 200"], rows)


def fair_ratings() -> list[str]:
    """MSE of predicted ratings."""
    runs = results("fair_ratings_ml-100k")
    rows = [
        [variant, str(len(found)), with_range(values(found, "mse"), 3)]
        for variant, found in grouped(runs, "variant").items()
    ]
    means = ", ".join(f"{name} {figure(value, 3)}" for name, value in runs[0]["mse of means"].items())
    return [*table(["variant", "seeds", "MSE"], rows), f"Means of training ratings: {means}."]


def imia() -> list[str]:
    """F1 of attacks on the rows of one upload."""
    kept = results("imia")
    settings = {"small": "width 16", "released": "settings as released"}
    rows = [
        [
            f"{kept[key]['users']} people, {name}, round {kept[key]['round']}",
            *(figure(row["f1"], 3) for row in kept[key]["f1"].values()),
        ]
        for key, name in settings.items()
    ]
    return table(["people", *kept["small"]["f1"]], rows)


def canaries() -> list[str]:
    """Estimates and lower bounds from canary clients, all other uploads known."""
    runs = results("canaries")["canaries"]
    columns = (("fedmf", 200), ("fedmf", 1000), ("fedvae", 200), ("fedvae", 1000))

    def cell(plan: str, method: str, k: int) -> str:
        (run,) = named(runs, plan=plan, method=method, canaries=k)
        (read,) = (read for read in run["reads"] if "else's uploads known" in read["audited"])
        low, high = read["interval"]
        return f"{read['estimate']:.2f} [{low:.1f}, {high:.1f}] / {read['lower_bound']:.2f}"

    rows: list[list[Any]] = []
    for plan in in_order(runs, "plan"):
        if plan.startswith("none"):
            continue
        accounted = only(runs, plan=plan, method="fedmf", canaries=200)["accounted"]
        shown = accounted if accounted == "inf" else figure(float(accounted), 2)
        rows.append([plan, shown, *(cell(plan, method, k) for method, k in columns)])
    names = (f"{name}, {k:,}" for name, k in (("FedMF", 200), ("FedMF", 1000), ("FedVAE", 200), ("FedVAE", 1000)))
    return table(["plan", "accounted epsilon", *names], rows)


def leakage() -> list[str]:
    """What every kind of padding costs and hides."""
    rows = []
    for row in results("dfmr_leakage_jd-dfmr"):
        leak, claim = row["leak"], row["leak"]["claim"]
        found = {name.split(": ")[1]: figure(auc, 3) for name, auc in row["auc"].items() if "vs padding" in name}
        sent, posterior, read_off = "the whole catalogue", "nothing seen", ""
        if leak["private_rows"] is not None:
            sent = " + ".join(f"{leak[name]:,.1f}" for name in ("public_rows", "private_rows", "padding_rows"))
            posterior = f"{figure(leak['posterior']['value'], 3)} / {figure(leak['posterior_over_rows'], 3)}"
            read_off = f"{100 * leak['count_exact']['value']:.1f} %, {leak['count_error']['value']:.1f} off"
        epsilons = " / ".join("inf" if e == "inf" else f"{e:.3g}" for e in (claim["epsilon"], claim["epsilon_swap"]))
        rows.append(
            [
                row["padding"],
                sent,
                f"{leak['up_bytes_per_client_round'] / 1e3:,.1f} kB",
                figure(row["test A ndcg"]),
                posterior,
                *(found.get(name, "") for name in ("popularity", "estimated examined share", "affinity")),
                read_off,
                epsilons,
            ]
        )
    head = ["padding", "rows sent: public + views + padding", "upload a round", "test NDCG"]
    head += ["posterior, by user / over rows", "AUC popularity", "examined share, estimated"]
    head += ["affinity of rebuilt codes", "number of views read off: users, mean error", "epsilon: one item / a swap"]
    return table(head, rows)


def unequal_uploads() -> list[str]:
    """AUC of the strongest attack in one round, on single uploads, sums, and sums by tier."""
    rows = []
    for run in results("unequal_attacks"):
        single = [row for row in run["rows"] if row["rounds"] == "one"]
        uploads = [row for row in single if row["tap"] in ("raw", "wire")]
        sums = [row for row in single if row["tap"] == "sum"]
        by_scope = {row["scope"].removeprefix("all items, sum of "): row for row in sums if row["scope"] != "all items"}
        whole = [row for row in sums if row["scope"] == "all items"]
        best = max(uploads, key=lambda row: float(row["auc"][0]), default=None)
        rows.append(
            [
                run["variant"],
                "none seen" if best is None else f"{figure(best['auc'][0], 3)} {best['attack']}",
                ", ".join(figure(row["auc"][0], 3) for row in whole),
                ", ".join(f"{figure(row['auc'][0], 3)} ({scope})" for scope, row in by_scope.items()),
            ]
        )
    return table(["clients", "single upload", "sum of 64", "sums by group or tier"], rows, "llll")
