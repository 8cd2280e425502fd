"""What the suite measures: methods, data sets, settings, and growth. Standard library only.

A case is a dictionary that a fresh process gets as JSON: `method`, `settings`, `data` (a name, or the size of made-up
lists), `privacy` (words of a plan; the unprotected plan of the method where left out), `wire`, `chunk`, `rounds`,
`seconds`.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any

Case = dict[str, Any]

DATA = ("ml-100k", "ml-1m", "goodreads-100", "jd-dfmr")
NAMES = {
    "ml-100k": "MovieLens-100K",
    "ml-1m": "MovieLens-1M",
    "goodreads-100": "Goodreads-100",
    "jd-dfmr": "JD",
}
PUBLISHED = {"hidden": [768, 512], "latent": 256, "local_steps": 10, "local_lr": 1e-4, "server_lr": 1e-3}
"""Widths and local steps of FedDAE's paper."""

EXTRA: dict[str, tuple[tuple[str, ...], Case]] = {
    "gpfedrec, no graph": (("ml-100k",), {"method": "gpfedrec", "settings": {"graph": None}}),
    "gpfedrec, sketch of 4096": (("ml-100k", "ml-1m"), {"method": "gpfedrec", "settings": {"sketch": 4096}}),
    "gpfedrec, graph in bfloat16": (
        ("ml-100k", "ml-1m"),
        {"method": "gpfedrec", "settings": {"precision": "bfloat16"}},
    ),
    "fedvae, published widths": (("ml-100k", "ml-1m"), {"method": "fedvae", "settings": PUBLISHED}),
    "feddae, published widths": (("ml-100k", "ml-1m"), {"method": "feddae", "settings": PUBLISHED}),
    "hetefedrec, 256 clients": (
        ("ml-1m",),
        {"method": "hetefedrec", "privacy": "none:release=total,sampling.kind=epoch,sampling.size=256"},
    ),
    "gpfedrec, local Laplace": (
        ("ml-100k",),
        {"method": "gpfedrec", "privacy": "local-laplace:epsilon0=1,clip_norm=1"},
    ),
    "pfedrec, local Laplace": (
        ("ml-100k",),
        {"method": "pfedrec", "privacy": "local-laplace:epsilon0=1,clip_norm=1"},
    ),
    "pfedrec, central Gaussian": (
        ("ml-100k",),
        {"method": "pfedrec", "privacy": "central-gaussian:clip_norm=1,noise_multiplier=5"},
    ),
    "pfedrec, ring words": (("ml-100k",), {"method": "pfedrec", "privacy": "secure-sum:clip_norm=1"}),
    "pfedrec, masked": (
        ("ml-100k",),
        {"method": "pfedrec", "privacy": "secure-sum:clip_norm=1", "fidelity": "protocol"},
    ),
    "fedvae, central Gaussian": (
        ("ml-100k",),
        {"method": "fedvae", "privacy": "central-gaussian:clip_norm=1,noise_multiplier=5"},
    ),
    "fedvae, Skellam noise of each": (
        ("ml-100k",),
        {
            "method": "fedvae",
            "privacy": "distributed-gaussian:clip_norm=1,noise_multiplier=5,n_min_honest=800",
        },
    ),
    "dfmr, two aggregators": (
        ("jd-dfmr",),
        {"method": "dfmr", "privacy": "shared-sum:padding.kind=no_padding", "fidelity": "protocol"},
    ),
}
"""Label -> where it is measured, and what differs from the method's defaults."""

DPSGD = "interaction-dpsgd:clip_norm=0.5,noise_multiplier=1"
RATIOS: dict[str, tuple[Case, str, Case]] = {
    "PFedRec, masked": (
        EXTRA["pfedrec, masked"][1],
        "its ring elements without masks",
        EXTRA["pfedrec, ring words"][1],
    ),
    "FedVAE, Skellam noise of each": (
        EXTRA["fedvae, Skellam noise of each"][1],
        "normal noise of the server",
        EXTRA["fedvae, central Gaussian"][1],
    ),
    "DFMR, shares of two aggregators": (
        EXTRA["dfmr, two aggregators"][1] | {"data": "jd-dfmr"},
        "its plain round",
        {"method": "dfmr", "data": "jd-dfmr"},
    ),
    "PFedRec, DP-SGD over interactions": (
        {"method": "pfedrec", "privacy": DPSGD},
        "noise in floating point",
        {"method": "pfedrec", "privacy": DPSGD, "noise": "floating point"},
    ),
}
"""Label -> case, what it is measured beside, and that case; on MovieLens-100K where nothing is said."""

STEPS: dict[str, dict[str, str]] = {
    "PFedRec, masked": {
        "keys agreed on": "secure_agg.primitives.keys:KeyPair.agree",
        "keys derived": "secure_agg.masking.key_derivation:derive",
        "secrets split": "secure_agg.shamir:split",
        "pairs of shares sealed": "secure_agg.masking.client:seal",
        "pairs of shares opened": "secure_agg.masking.sealed_pairs:unseal",
        "masks drawn and added": "secure_agg.primitives.prg:_add_segment",
    },
    "FedVAE, Skellam noise of each": {
        "uploads scaled and rotated": "secure_agg.noise.mechanism:DistributedMechanism._scaled_and_rotated",
        "uploads rounded": "secure_agg.noise.mechanism:conditional_round",
        "noise drawn and added": "secure_agg.noise.shares:DistributedNoise.add_to",
    },
    "DFMR, shares of two aggregators": {
        "shares drawn": "secure_agg.sparse.keystreams:KeyStreams.take",
        "shares added": "secure_agg.sparse.rows:RowSums.add",
    },
}
"""Label -> steps of its round whose CPU-seconds are measured besides, none of them within another: what does them."""

GOALS: tuple[tuple[str, str, str, str, float], ...] = (
    *(
        (label, "rounds", f"{data}/{method}", "limit", goal)
        for label, data, method, goal in (
            ("FedMF, MovieLens-100K", "ml-100k", "fedmf", 8.0),
            ("PFedRec, MovieLens-100K", "ml-100k", "pfedrec", 8.0),
            ("HeteFedRec, MovieLens-1M", "ml-1m", "hetefedrec", 3.0),
            ("FAIR, MovieLens-1M", "ml-1m", "fair", 3.0),
        )
    ),
    ("FedVAE, MovieLens-100K", "rounds", "ml-100k/fedvae", "cpu_s", 0.03),
    ("private-gram whole, MovieLens-1M", "rounds", "ml-1m/private-gram", "cpu_s", 1.0),
    ("GPFedRec with its exact graph, MovieLens-1M", "rounds", "ml-1m/gpfedrec", "cpu_s", 40.0),
    ("PFedRec, masked", "ratios", "PFedRec, masked", "cpu_s", 2.0),
    ("FedVAE, Skellam noise of each", "ratios", "FedVAE, Skellam noise of each", "cpu_s", 2.0),
    ("DFMR, shares of two aggregators", "ratios", "DFMR, shares of two aggregators", "ratio", 3.0),
    ("PFedRec, DP-SGD over interactions", "ratios", "PFedRec, DP-SGD over interactions", "ratio", 1.3),
)
"""Label, part, row, what counts (`limit`: times its counted limit), and the most that it should be."""

GROWING = ("pfedrec", "fedvae", "gpfedrec", "private-gram", "dfmr")
EACH = 20
"""Interactions of a made-up user."""
CLIENTS, ITEMS, DIMENSIONS = (
    (1_000, 10_000, 100_000, 1_000_000),
    (1_000, 10_000, 100_000, 1_000_000),
    (8, 16, 32, 64, 128, 256),
)
AT_CLIENTS, AT_ITEMS = 1_000, 2_000
"""Sizes of what is not varied."""
WIDTH = {"pfedrec": "dim", "gpfedrec": "dim", "fedvae": "latent", "private-gram": "head", "dfmr": "d"}
"""The setting that is a method's dimension; of private-gram it is the side of its matrix."""
LARGEST = {("gpfedrec", "clients"): 10_000, ("gpfedrec", "items"): 10_000, ("private-gram", "clients"): 1_000_000}
"""Sizes beyond which a method is known to need more memory than is given: every client's whole table, three times."""
FIXED = {"private-gram": {"head": 256}, "dfmr": {"bits": 26}}
"""What keeps a method's dimension when others grow, and what holds a million clients."""


def methods() -> list[str]:
    """Names of all registered methods."""
    return sorted(entry.name for entry in entry_points(group="privfed.methods"))


def rounds(data: Iterable[str]) -> dict[str, Case]:
    """Every registered method on every data set, and `EXTRA`; data set by data set."""
    cases: dict[str, Case] = {}
    for name in data:
        for method in methods():
            cases[f"{name}/{method}"] = {"label": method, "method": method, "data": name}
        for label, (where, case) in EXTRA.items():
            if name in where:
                cases[f"{name}/{label}"] = {"label": label, "data": name, **case}
    return cases


def ratios() -> dict[str, tuple[Case, Case]]:
    """Pairs of cases that take turns."""
    usual = {"data": "ml-100k"}
    return {
        label: (usual | case | {"steps": STEPS.get(label, {})}, usual | other)
        for label, (case, _, other) in RATIOS.items()
    }


def growth() -> dict[str, Case]:
    """One size grows, the others stay; made-up lists of `EACH` items per user."""
    cases: dict[str, Case] = {}
    sizes = {"clients": CLIENTS, "items": ITEMS, "dimension": DIMENSIONS}
    for axis, values in sizes.items():
        for method in GROWING:
            for size in values:
                if size > LARGEST.get((method, axis), size):
                    continue
                settings = dict(FIXED.get(method, {})) | ({WIDTH[method]: size} if axis == "dimension" else {})
                data = {
                    "users": size if axis == "clients" else AT_CLIENTS,
                    "items": size if axis == "items" else AT_ITEMS,
                    "each": EACH,
                }
                cases[f"{axis}/{method}/{size}"] = {
                    "label": method, "method": method, "settings": settings, "data": data,
                    "axis": axis, "size": size, "rounds": 3, "seconds": 5,
                }  # fmt: skip
    return cases


def million() -> dict[str, Case]:
    """One round of a million FedVAE clients over ten thousand items."""
    data = {"users": 1_000_000, "items": 10_000, "each": EACH}
    return {"million/fedvae": {"label": "fedvae", "method": "fedvae", "data": data, "rounds": 1, "warm": 0}}


WHY: dict[str, str] = {
    "FedMF, MovieLens-100K": "the limit counts neither exponentials nor the order and the places of samples",
    "PFedRec, MovieLens-100K": "the same",
    "HeteFedRec, MovieLens-1M": "the limit counts neither exponentials nor samples nor how rows are laid out, and "
    "fuses products with sums, which compiled loops round one by one, for the same bits on every machine, at half the "
    "rate at most",
    "FAIR, MovieLens-1M": "the same, and look-ups of hashed slots",
    "FedVAE, MovieLens-100K": "the limit counts neither exponentials nor how ragged rows are laid out and summed",
    "private-gram whole, MovieLens-1M": "the limit counts the sum alone, and not the inverse that learns from it",
    "GPFedRec with its exact graph, MovieLens-1M": "its limit in float32 is above the goal; products in bfloat16 take "
    "three times the operations for 16 of the 24 bits, and are slower here",
    "DFMR, shares of two aggregators": "every client's shares are drawn from the cipher and added row by row",
    "PFedRec, masked": "the protocol: agreeing on keys for all pairs of neighbours takes about as long by itself, and "
    "every mask is drawn at both ends (steps below)",
    "FedVAE, Skellam noise of each": "every client draws and rounds a number for each weight, and drawing alone takes "
    "most of the goal (steps below)",
}
"""Label -> what stands between a goal and what was measured, where that is known."""
