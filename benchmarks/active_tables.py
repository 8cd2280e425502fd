"""Tables of lying servers and malicious clients: what a lie reads, what ranges and links say, whom poison reaches."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import figure
from benchmarks.harness import results
from benchmarks.markdown import table
from privfed.methods import method

COLUMNS = (
    "uploads, curious",
    "uploads, active",
    "sums, curious",
    "sums, one model",
    "sums, small roster",
    "sums, unequal models",
    "noise, curious",
    "noise, active",
)
RANGES = ("uploads", "sums, unequal models", "noise, unequal models", "noise, lit rows")
INVERSIONS = ("as sent, ridge", "as sent, gradient", "sketched, ridge", "sketched, gradient")
PROTECTIONS = ("none", "long dropped", "clip", "secure sum", "noise")

Row = Mapping[str, Any]


def active_servers() -> list[str]:
    """AUC of every method by what the server sees and sends."""
    found: Mapping[str, Row] = results("active_servers")
    popular = figure(next(iter(found.values()))["popularity"], 3)
    rows = [["*popularity*", *[popular] * len(COLUMNS)]]
    for name in sorted(found, key=lambda name: method(name).display_name.lower()):
        columns = found[name]["columns"]
        rows.append([method(name).display_name, *(_auc(columns.get(column)) for column in COLUMNS)])
    return table(["method", *COLUMNS], rows)


def _auc(column: Row | None) -> str:
    return "" if column is None else figure(column["auc"][0], 3)


def ranges_and_links() -> list[str]:
    """AUC of ranges and of neighbours, and shares of people who are linked."""
    found: Mapping[str, Row] = results("ranges_and_links")["methods"]
    tables: Mapping[str, Row] = results("ranges_and_links")["tables"]
    neighbours = ["neighbours", "neighbours, from tables", "graph, from tables"]
    head = ["method", "popularity", *RANGES, "another run", "another service", *neighbours]
    rows = [
        [
            method(name).display_name,
            figure(row["popularity"], 3),
            *(figure(row["ranges"][place][0], 3) if place in row["ranges"] else "" for place in RANGES),
            *(f"{row['linked'][where]:.0%}" for where in ("another run", "another service")),
            figure(row["neighbours"][0], 3),
            *(figure(tables[name][truth][0], 3) if name in tables else "" for truth in ("histories", "graph")),
        ]
        for name, row in found.items()
    ]
    return table(head, rows)


def inversion() -> list[str]:
    """AUC of items by attacks that look at no row."""
    found: Mapping[str, Row] = results("gradient_inversion")
    ridge: Mapping[str, Row] = results("ranges_and_links")["inversion"]
    rows = [
        [
            method(name).display_name,
            figure(row["popularity"], 3),
            *(figure(row["auc"][place][0], 3) for place in INVERSIONS),
        ]
        for name, row in found.items()
    ]
    rows += [
        [method(name).display_name, figure(row["popularity"], 3), figure(row["auc"][0], 3)]
        + [""] * (len(INVERSIONS) - 1)
        for name, row in ridge.items()
        if name not in found
    ]
    return table(["method", "popularity", *INVERSIONS], rows)


def poisoning() -> list[str]:
    """Exposure of targets, and HR@10 of honest people, by attack, share of malicious clients, and protection."""
    found: Sequence[Row] = results("poisoning")
    cells = list(dict.fromkeys((row["attack"], row["share"]) for row in found if row["protection"] in PROTECTIONS))
    popular = next(row for row in found if row["protection"] == "popularity")
    rows = [["*popularity*", "", *[f"{popular['exposure']:.0%} / {figure(popular['hit'], 3)}"] * len(PROTECTIONS)]]
    for attack, share in cells:
        own = [row for row in found if (row["attack"], row["share"]) == (attack, share)]
        rows.append([attack, f"{share:.1%}", *(_reached(own, protection) for protection in PROTECTIONS)])
    return table(["attack", "malicious", *PROTECTIONS], rows, "lr" + "r" * len(PROTECTIONS))


def _reached(rows: Sequence[Row], protection: str) -> str:
    own = [row for row in rows if row["protection"] == protection]
    if not own:
        return ""
    return " / ".join(
        (f"{statistics.fmean(row['exposure'] for row in own):.0%}", figure(statistics.fmean(r["hit"] for r in own), 3))
    )
