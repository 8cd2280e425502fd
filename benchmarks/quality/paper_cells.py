"""Every cell of the papers' tables that can be run: a row on a data set, under the paper's protocol and an honest one.

Rows have the names that `benchmarks/papers` gives them, so that ours stand next to the paper's. Settings are those of
the presets `NAME:published`, changed where a row says so. Methods that are not registered (yet), and settings that a
method does not take (yet), are skipped by name when the runner comes to them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from privfed.data import SplitSpec
from privfed.evaluation import HONEST, PAPER, Protocol
from privfed.setup.controls import CONTROLS, Control

NEWEST_LAST = SplitSpec()
NEWEST = SplitSpec(ties="earlier_row_is_newer")
POPULARITY = "popularity"
SEEDS = 3
"""Of every row."""
EXPECTED = {("gpfedrec", "ml-1m"): 265.0, ("gpfedrec", "lastfm-2k-tags"): 110.0}
"""(method, data set) -> CPU-minutes of 100 rounds, where two rounds take too long to time: the graph of users."""


@dataclass(frozen=True)
class Data:
    """A data set of a paper as it is here.

    Attributes:
        name: as the paper calls it.
        here: as privfed calls it.
        split: how items are held out.
        min_per_user: users with fewer rows are left out, as in the paper.
        stand_in: whether it is another one in its place.
    """

    name: str
    here: str
    split: SplitSpec = NEWEST_LAST
    min_per_user: int = 1
    stand_in: bool = False

    @property
    def label(self) -> str:
        """Name in the table; a stand-in says so."""
        return f"{self.name} ({self.here} in its place)" if self.stand_in else self.name


@dataclass(frozen=True)
class Cell:
    """One row of one table on one data set under one protocol; seeds make runs of it.

    Attributes:
        paper: name of the file in `benchmarks/papers`.
        result: `id` there.
        data: data set.
        row: name of the row there.
        method: name and settings.
        by: "published" or "honest".
        protocol: how it is evaluated.
        rounds: rounds of training.
        privacy: plan in words.
        options: further fields of `ExperimentConfig`.
        select: metric and cut-off on the validation part that choose the round; None where the protocol does.
        value: what a CPU-minute on it is worth, next to others: rows of main tables first.
    """

    paper: str
    result: str
    data: Data
    row: str
    method: dict[str, Any]
    by: str
    protocol: Protocol
    rounds: int = 100
    privacy: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    select: tuple[str, int] | None = None
    value: float = 1.0

    def key(self, seed: int) -> str:
        """Name of a run."""
        return " / ".join((self.result, self.data.here, self.row, self.by, str(seed)))

    @property
    def cost_key(self) -> str:
        """What its cost depends on."""
        return " / ".join((self.data.here, self.by, str(self.rounds), json.dumps(self.method, sort_keys=True)))


def expected_minutes(cell: Cell, ran: Mapping[str, Any], timed: Mapping[str, float]) -> float | None:
    """CPU-minutes of one more run: as its other seeds took, by `EXPECTED`, or as two rounds were timed; or unknown."""
    others: list[float] = [ran[cell.key(seed)]["cpu_s"] for seed in range(SEEDS) if cell.key(seed) in ran]
    if others:
        return sum(others) / len(others) / 60
    known = EXPECTED.get((str(cell.method["name"]).partition(":")[0], cell.data.here))
    return timed.get(cell.cost_key) if known is None else known


def rows(*names: str, **settings: Any) -> dict[str, dict[str, Any]]:
    """Row -> method for rows that are whole methods, given as "Row=method"."""
    return {row: {"name": name, **settings} for row, _, name in (one.partition("=") for one in names)}


# GPFedRec -------------------------------------------------------------------------------------------------------------

GPFEDREC_DATA = (
    Data("MovieLens-100K", "ml-100k", NEWEST),
    Data("MovieLens-1M", "ml-1m", NEWEST),
    Data("Lastfm-2K", "lastfm-2k-tags", NEWEST, min_per_user=5),
)
GPFEDREC = {"name": "gpfedrec:published"}
GPFEDREC_ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "table-3": rows(
        "PFedRec=pfedrec:published",
        "FedMF=fedmf:published",
        "FedNCF=fedncf:published",
        "FedRecon=fedrecon:published",
        "MetaMF=metamf:published",
        "FedLightGCN=fedlightgcn:published",
        "FedPerGNN=fedpergnn:published",
        "MF=mf:published",
        "NCF=neumf:published",
        "SGL=sgl:published",
    )
    | {
        "GPFedRec": GPFEDREC,
        "GPFedRec, released settings": {"name": "gpfedrec:released"},
        "GPFedRec, tuned": {"name": "gpfedrec"},
        "GPFedRec, plain mean": GPFEDREC | {"graph": None},
        "Light_GPFedRec": GPFEDREC | {"refresh_every": 10},
        "FedRAP": {"name": "fedrap:published"},
        "CoLR": {"name": "colr:published"},
        "FedCIA": {"name": "fedcia:published"},
        # Where the papers' settings fail on so small a catalogue: what these two can do.
        "FedLightGCN, tuned": {"name": "fedlightgcn"},
        "SGL, tuned": {"name": "sgl"},
    },
    "table-4": {
        "FedNCF": {"name": "fedncf:published"},
        "FedNCF w/ PSF": GPFEDREC | {"graph": None, "reg": 0.0, "start": "everybody"},
        "GPFedRec w/ PSF and Init": GPFEDREC | {"reg": 0.0},
        "GPFedRec w/ PSF and Reg": GPFEDREC | {"start": "everybody"},
        "GPFedRec": GPFEDREC,
    },
    "table-5": rows("FedMF=fedmf:published", "FedRecon=fedrecon:published", "PFedRec=pfedrec:published")
    | {f"{row} with GraphAgg": GPFEDREC | {"score_function": row.lower()} for row in ("FedRecon", "PFedRec")}
    # Rates and start of FedMF, nearly: under GPFedRec's, scores of a product of two vectors leave all bounds.
    | {"FedMF with GraphAgg": GPFEDREC | {"score_function": "fedmf", "eta": 11.0, "initial_scale": 0.1}},
    "figure-1": {
        f"PFedRec, {named} graph": GPFEDREC | {"score_function": "pfedrec"} | graph
        for named, graph in {
            "random": {"graph": "barabasi-albert", "density": 0.5},
            "interaction": {"graph": "jaccard", "density": 0.5},
            "GPFedRec's": {},
        }.items()
    }
    | rows("PFedRec=pfedrec:published"),
    "figure-3": {f"threshold {gamma:g}": GPFEDREC | {"gamma": gamma} for gamma in (0.0, 0.5, 1.0, 1.5, 2.0)},
    "figure-4": {f"weight {reg:g}": GPFEDREC | {"reg": reg} for reg in (0.0, 0.5, 1.0, 1.5, 2.0)},
    "figure-5": {f"width {dim}": GPFEDREC | {"dim": dim} for dim in (16, 32, 64, 128)},
}
GRAPHS = {
    "Barabasi-Albert": "barabasi-albert",
    "Watts-Strogatz": "watts-strogatz",
    "Erdos-Renyi": "erdos-renyi",
    "regular": "regular",
    "cosine": "cosine",
    "Euclidean": "euclidean",
    "Jaccard": "jaccard",
    "Pearson": "pearson",
}
NOISES = (0, 0.1, 0.2, 0.3, 0.4, 0.5)
HR_AND_NDCG_10 = {"published": PAPER.model_copy(update={"k": (10,)}), "honest": HONEST}


def gpfedrec() -> Iterator[Cell]:
    """Tables 3 to 7, figures 1 and 3 to 5; figure 6 comes with table 3."""
    for data in GPFEDREC_DATA:
        for result, methods in GPFEDREC_ROWS.items():
            if result.startswith("figure") and data.here != "ml-100k":
                continue
            both = HR_AND_NDCG_10 if result == "table-3" else {"published": HR_AND_NDCG_10["published"]}
            for by, protocol in both.items():
                for row, method in ({POPULARITY: {"name": POPULARITY}} | methods).items():
                    value = {"table-3": 3.0, "table-4": 2.0, "table-5": 2.0}.get(result, 1.0)
                    yield Cell("gpfedrec", result, data, row, method, by, protocol, value=value)
    published = HR_AND_NDCG_10["published"]
    for result in ("table-6", "table-7"):
        yield Cell("gpfedrec", result, GPFEDREC_DATA[0], POPULARITY, {"name": POPULARITY}, "published", published)
    for name, graph in GRAPHS.items():
        for tenths in range(1, 10):
            row, method = f"{name}, {tenths}0 %", GPFEDREC | {"graph": graph, "density": tenths / 10}
            yield Cell("gpfedrec", "table-7", GPFEDREC_DATA[0], row, method, "published", published, value=0.5)
    for scale in NOISES:
        words = f"published-noise:law=laplace,scale={scale}" if scale else "none"
        name = f"noise {scale:g}".replace("0.", ".")
        yield Cell("gpfedrec", "table-6", GPFEDREC_DATA[0], name, GPFEDREC, "published", published, privacy=words)


# FedDAE ---------------------------------------------------------------------------------------------------------------

FEDDAE_DATA = (
    Data("ML-100K", "ml-100k"),
    Data("ML-1M", "ml-1m"),
    Data("Video", "amazon-instant-video", min_per_user=10),
)
TRAINED_ITEMS = Protocol(k=(20,), catalogue="trained", when_testing="valid_ranked", state="received")
"""As the released code ranks: items that somebody trained on, less the user's training items alone."""
FEDDAE_BOTH = {"published": TRAINED_ITEMS, "honest": HONEST.model_copy(update={"state": "received"})}
VARIANCES = (0.2, 0.5, 0.8, 1.0)
GATES: dict[str, dict[str, Any]] = {"FedDAE": {}} | {
    f"fixed weight {w}".replace("0.", "."): {"fixed_gate": w} for w in (0.25, 0.5, 0.75)
}


def feddae() -> Iterator[Cell]:
    """Tables 2 to 4; figure 2 comes with table 2."""
    released = {"released settings": {"name": "feddae:released"}, "tuned": {"name": "feddae"}}
    main = rows(
        "Mult-VAE=multvae:published",
        "RecVAE=recvae:published",
        "LightGCN=lightgcn:published",
        "CentDAE=centdae:published",
        "FedVAE=fedvae:published",
        "PFedRec=pfedrec:published",
        "FedRAP=fedrap:published",
        "FedDAE=feddae:published",
    ) | {f"FedDAE, {name}": method for name, method in released.items()}
    for data in FEDDAE_DATA:
        for by, protocol in FEDDAE_BOTH.items():
            for row, method in ({POPULARITY: {"name": POPULARITY}} | main).items():
                yield Cell("feddae", "table-2", data, row, method, by, protocol, value=3.0)
    for result in ("table-3", "table-4"):
        yield Cell("feddae", result, FEDDAE_DATA[0], POPULARITY, {"name": POPULARITY}, "published", TRAINED_ITEMS)
    for row, gate in GATES.items():
        for preset, suffix in (("feddae:published", ""), ("feddae", ", tuned")):
            method = {"name": preset} | gate
            yield Cell("feddae", "table-3", FEDDAE_DATA[0], row + suffix, method, "published", TRAINED_ITEMS, value=2.0)
        for variance in VARIANCES:
            named = f"{row}, noise variance {variance:g}".replace("0.", ".")
            words = f"published-noise:law=gaussian,scale={variance**0.5 * 1e-3:.6g}"
            method = {"name": "feddae:published"} | gate
            yield Cell("feddae", "table-4", FEDDAE_DATA[0], named, method, "published", TRAINED_ITEMS, privacy=words)


# HeteFedRec -----------------------------------------------------------------------------------------------------------

HETEFEDREC_DATA = (
    Data("MovieLens-1M", "ml-1m", SplitSpec(kind="published")),
    Data("MovieLens-1M", "ml-100k", SplitSpec(kind="ratio", valid_fraction=0.1, test_fraction=0.2), stand_in=True),
)
HETEFEDREC = {"name": "hetefedrec:published"}
BASES = {"Fed-NCF": "ncf", "Fed-LightGCN": "lightgcn"}
VARIANTS: dict[str, dict[str, Any]] = {
    "All Small": {"variant": "all_small"},
    "All Large": {"variant": "all_large"},
    "All Large, exclusive": {"variant": "exclusive"},
    "Standalone": {"variant": "standalone", "standalone_steps": 40},
    "Clustered": {"variant": "clustered"},
    "Direct": {"variant": "direct"},
    "HeteFedRec": {},
}
PARTS: dict[str, dict[str, Any]] = {
    "HeteFedRec": {},
    "less distillation": {"distillation": 0},
    "less distillation and decorrelation": {"distillation": 0, "decorrelation": 0.0},
    "Direct": {"variant": "direct"},
}
DIVISIONS = {"5:3:2": [0.5, 0.3, 0.2], "1:1:1": [0.34, 0.33, 0.33], "2:3:5": [0.2, 0.3, 0.5]}
WIDTHS = {"2/4/8": [2, 4, 8], "8/16/32": [8, 16, 32], "32/64/128": [32, 64, 128]}
ALPHAS = (0.5, 1.0, 1.5, 2.0)
COHORT, EPOCHS = 256, 12
RECEIVED = Protocol(k=(20,), state="received", when_testing="valid_ranked")


def hetefedrec() -> Iterator[Cell]:
    """Tables II, IV, VI and VII, figure 8; figure 7 comes with table II."""
    methods: dict[str, dict[str, dict[str, Any]]] = {
        "table-2": VARIANTS,
        "table-4": PARTS,
        "table-6": {"All Small": VARIANTS["All Small"], "All Large": VARIANTS["All Large"]}
        | {row: {"shares": shares} for row, shares in DIVISIONS.items()},
        "table-7": {
            f"{row}, {widths}": VARIANTS[row] | {"widths": numbers}
            for row in ("All Small", "All Large", "HeteFedRec")
            for widths, numbers in WIDTHS.items()
        },
        "figure-8": {f"weight {alpha:g}": {"decorrelation": alpha} for alpha in ALPHAS},
    }
    for data in HETEFEDREC_DATA:
        cohorts = 24 if data.here == "ml-1m" else 4
        shared: dict[str, Any] = {
            "rounds": EPOCHS * cohorts,
            "privacy": f"none:release=total,sampling.kind=epoch,sampling.size={COHORT}",
            "options": {"evaluate_every": cohorts},
            "select": ("ndcg", 20),
        }
        for result, settings in methods.items():
            value = {"table-2": 3.0, "table-4": 2.0}.get(result, 1.0)
            method = {"name": POPULARITY}
            yield Cell("hetefedrec", result, data, POPULARITY, method, "published", RECEIVED, rounds=1, value=value)
            for base, name in BASES.items():
                for row, changes in settings.items():
                    method = HETEFEDREC | {"base": name} | changes
                    named = f"{base}: {row}"
                    yield Cell("hetefedrec", result, data, named, method, "published", RECEIVED, value=value, **shared)


# FAIR -----------------------------------------------------------------------------------------------------------------

GOODREADS = Data("Goodreads-100", "goodreads-100", SplitSpec(kind="published", valid_from_train=True))
STARS = Data(
    "Goodreads-100",
    "ml-100k",
    SplitSpec(kind="user_time", valid_fraction=0.1, test_fraction=0.1),
    stand_in=True,
)
FAIR: dict[str, Any] = {"name": "fair:published"}
RATED: dict[str, Any] = {"name": "fair:published", "task": "rating", "rating_offset": 3.0, "dim": 16, "rank": "width"}
"""Width 16 is our reading: the page at hand has lost the number, and FedHM goes to 16x and no further."""
SCHEMES = ("1x-2x", "1x-4x", "1x-8x", "1x-16x")
LADDERS = {
    "hom": ("2x", "4x", "8x", "16x", "32x", "64x"),
    "fair": (
        *("2x-4x", "4x-8x", "8x-16x", "16x-32x", "32x-64x"),
        *("2x-4x-8x-16x-32x-64x", "2x-4x-8x", "4x-8x-16x", "8x-16x-32x", "16x-32x-64x"),
    ),
    "fedhm": ("16x", "8x-16x", "4x-8x-16x"),
}
"""Variant -> schemes of appendix E's second and third table."""
RATING_SCHEMES = ("8x-16x", "16x-32x", "32x-64x", "4x-8x-16x", "8x-16x-32x", "16x-32x-64x")
KINDS = {"FAIR-HET": "fair", "FAIR-HOM": "hom", "FedHM": "fedhm"}
SERVER = Protocol(k=(20,), state="received")
ERRORS = Protocol(task="rating", state="received", select="best_valid")


def fair() -> Iterator[Cell]:
    """Tables 2 to 4, figure 4 on books, and appendix E."""
    ranked: dict[str, Any] = {"rounds": 200, "options": {"evaluate_every": 20}, "select": ("ndcg", 20), "value": 2.0}
    of_ten = "none:release=total,sampling.kind=fixed,sampling.size={}".format
    methods: dict[str, dict[str, Any]] = {"FedAvg": {"variant": "fedavg"}} | {
        f"{row} {scheme}": {"variant": kind, "scheme": scheme}
        for scheme in SCHEMES
        for row, kind in KINDS.items()
        if kind != "fedhm" or scheme != "1x-16x"
    }
    counted = {"name": POPULARITY}
    method: dict[str, Any]
    for result in ("table-2", "table-3", "figure-4"):
        yield Cell("fair", result, GOODREADS, POPULARITY, counted, "published", SERVER, rounds=1, value=2.0)
    for row, settings in methods.items():
        yield Cell(
            "fair", "table-2", GOODREADS, row, FAIR | settings, "published", SERVER, privacy=of_ten(10), **ranked
        )
    for share in (0.01, 0.2, 0.3, 0.5):
        scheme = f"1x:{share:g}-4x:{1 - share:g}"
        for row, kind, size in (("FULL-TRN", "full_trn", min(99, round(10 / share))), ("FAIR-HET", "fair", 10)):
            method, named = FAIR | {"variant": kind, "scheme": scheme}, f"{row}, {share:.0%}".replace("%", " %")
            plan = of_ten(size)
            yield Cell("fair", "table-3", GOODREADS, named, method, "published", SERVER, privacy=plan, **ranked)
    for row, scheme in (("one compression", "4x"), ("two compressions", "2x-4x"), ("three compressions", "2x-4x-8x")):
        for consistent in (True, False):
            method = FAIR | {"scheme": scheme} | ({} if consistent else {"hashes": 99})
            named = f"{'consistent' if consistent else 'inconsistent'}, {row}"
            yield Cell("fair", "figure-4", GOODREADS, named, method, "published", SERVER, privacy=of_ten(10), **ranked)
    stars: dict[str, Any] = {"rounds": 600, "privacy": of_ten(100), "options": {"evaluate_every": 20}}
    for scheme in RATING_SCHEMES:
        for row, kind in KINDS.items():
            if kind != "fedhm" or scheme in ("8x-16x", "4x-8x-16x"):
                method = RATED | {"variant": kind, "scheme": scheme}
                yield Cell("fair", "table-4", STARS, f"{row} {scheme}", method, "published", ERRORS, **stars)
    names = {kind: row for row, kind in KINDS.items()}
    for kind, schemes in LADDERS.items():
        result = "appendix-fedhm" if kind == "fedhm" else "appendix-ladders"
        for scheme in schemes:
            method = RATED | {"variant": kind, "scheme": scheme}
            yield Cell("fair", result, STARS, f"{names[kind]} {scheme}", method, "published", ERRORS, **stars)
    for dim in (2, 4, 8, 16, 32):
        method = RATED | {"variant": "fedavg", "dim": dim}
        yield Cell("fair", "appendix-widths", STARS, f"width {dim}", method, "published", ERRORS, **stars)


# DFMR -----------------------------------------------------------------------------------------------------------------

BOUGHT = SplitSpec(kind="published", target="buy")
LIKED = SplitSpec(kind="user_time", target="buy", valid_fraction=0.1, test_fraction=0.1)
DFMR_DATA = (
    Data("JD", "jd-dfmr", BOUGHT),
    Data("Tmall", "tmall-dfmr", BOUGHT),
    Data("UB", "ub-dfmr", BOUGHT),
    Data("ML10M", "ml-100k-behaviours", LIKED, stand_in=True),
)
PURCHASES = Protocol(k=(5, 10, 15, 20), state="received", precision=True)
EXAMINED = {"tmall-dfmr": ["fav"], "ub-dfmr": ["cart"]}
"""What counts as an examination where the views are missing."""


def dfmr() -> Iterator[Cell]:
    """Quality on the three shops and on films, as published and with our defaults; cut-offs are of the same runs."""
    for data in DFMR_DATA:
        views = {"examinations": EXAMINED[data.here]} if data.here in EXAMINED else {}
        methods: dict[str, tuple[dict[str, Any], int]] = {
            POPULARITY: ({"name": POPULARITY}, 1),
            "DCF": ({"name": "dcf:published"}, 2),
            "DFMR": ({"name": "dfmr:published"} | views, 6),
            "DCF, tuned": ({"name": "dcf"}, 10),
            "DFMR, tuned": ({"name": "dfmr"} | views, 10),
            "eALS": ({"name": "eals:published"}, 15),
            "VALS": ({"name": "vals:published"} | views, 15),
            "MF": ({"name": "logmf:published"}, 30),
            "MF_FedAVG": ({"name": "fedmf:published"}, 100),
            "FedGNN": ({"name": "fedpergnn:published"}, 3),
        }
        for row, (method, rounds) in methods.items():
            last: dict[str, Any] = {"rounds": rounds, "options": {"evaluate_every": rounds}}
            for result, value in (("quality", 3.0), ("cut-offs", 1.0)):
                name = f"{result}-{data.name.lower()}"
                yield Cell("dfmr", name, data, row, method, "published", PURCHASES, value=value, **last)


# Controls -------------------------------------------------------------------------------------------------------------

CONTROLLED: tuple[tuple[str, str, str, tuple[Control, ...]], ...] = (
    ("table-3", "ml-100k", "GPFedRec", ("shuffled", "untrained")),
    ("table-2", "ml-1m", "Fed-NCF: HeteFedRec", ("shuffled", "untrained")),
    ("table-2", "ml-100k", "FedDAE, tuned", ("no-communication", "shuffled", "untrained")),
    ("table-2", "goodreads-100", "FAIR-HET 1x-4x", ("no-communication", "shuffled", "untrained")),
    ("quality-jd", "jd-dfmr", "DFMR, tuned", ("shuffled", "untrained")),
    ("quality-ml10m", "ml-100k-behaviours", "DFMR, tuned", ("shuffled", "untrained")),
)
"""Result, data set, row, and the controls beside it, under the published protocol.

HeteFedRec's own table has devices that train alone as Standalone, `controls.py` has those of GPFedRec's family, and
DFMR's purchases are public, so that its devices cannot train alone.
"""


def controlled(cells: Iterator[Cell]) -> Iterator[Cell]:
    """Cells, and behind those of `CONTROLLED` their controls."""
    wanted = {(result, data, row): controls for result, data, row, controls in CONTROLLED}
    for cell in cells:
        yield cell
        for control in wanted.get((cell.result, cell.data.here, cell.row), ()) if cell.by == "published" else ():
            options = {**cell.options, "control": control}
            yield replace(cell, row=f"{cell.row}: {CONTROLS[control]}", options=options)


PAPERS: dict[str, Callable[[], Iterator[Cell]]] = {
    "gpfedrec": lambda: controlled(gpfedrec()),
    "feddae": lambda: controlled(feddae()),
    "hetefedrec": lambda: controlled(hetefedrec()),
    "fair": lambda: controlled(fair()),
    "dfmr": lambda: controlled(dfmr()),
}
