"""Tables of lying servers and malicious clients: what a lie reads, what ranges and links say, whom poison reaches."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import figure
from benchmarks.harness import results
from benchmarks.markdown import table
from privfed.audit.active.lies import LIES, DeviceTerms
from privfed.methods import method
from privfed.privacy import PrivacyPlan

COHORT = 32
"""People in a sum (`benchmarks.privacy.active_servers.COHORT`)."""
LIES_OF = {
    "sums, one model": LIES[:1],
    "sums, small roster": LIES[1:2],
    "sums, unequal models": LIES[2:],
    "noise, active": LIES,
}
"""What a server does besides sending a crafted model; curious ones, and those that see uploads, need none of it."""
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
LINKS = {
    "another run: uploads": "another run, uploads",
    "another run: sums, unequal models": "sums, unequal models",
    "another run: noise, unequal models": "noise, unequal models",
    "disjoint halves; as scored": "halves, as scored",
    "disjoint halves": "halves, best",
    "independent coins": "coins, best",
}
TERMS = {f"under min_users = {COHORT}": DeviceTerms(min_users=COHORT), "under signed terms": DeviceTerms(signed=True)}
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
    return table(["method", *COLUMNS], [*(_left_by(name, terms) for name, terms in TERMS.items()), *rows])


def _left_by(name: str, terms: DeviceTerms) -> list[str]:
    """What devices leave of every column that insist on these terms."""
    cells = []
    for column in COLUMNS:
        plan = PrivacyPlan.parse("none" if column.startswith("uploads") else "secure-sum:clip_norm=1")
        lies = LIES_OF.get(column, LIES[:1])
        left = [lie.name for lie in lies if lie.refusal(plan, terms, COHORT) is None]
        cells.append("stays" if len(left) == len(lies) else ", ".join(left) or "refused")
    return [f"*{name}*", *cells]


def _auc(column: Row | None) -> str:
    return "" if column is None else figure(column["auc"][0], 3)


def ranges_and_links() -> list[str]:
    """AUC of ranges and of neighbours."""
    found: Mapping[str, Row] = results("ranges_and_links")["methods"]
    tables: Mapping[str, Row] = results("ranges_and_links")["tables"]
    neighbours = ["neighbours", "neighbours, from tables", "graph, from tables"]
    head = ["method", "popularity", *RANGES, *neighbours]
    rows = [
        [
            method(name).display_name,
            figure(row["popularity"], 3),
            *(figure(row["ranges"][place][0], 3) if place in row["ranges"] else "" for place in RANGES),
            figure(row["neighbours"][0], 3),
            *(figure(tables[name][truth][0], 3) if name in tables else "" for truth in ("histories", "graph")),
        ]
        for name, row in found.items()
    ]
    return table(head, rows)


def links() -> list[str]:
    """Share of people who were named in another run or service with its interval, and AUC."""
    found: Mapping[str, Row] = results("ranges_and_links")["links"]
    alone = found["none"]
    chance = f"{alone['chance']:.0%}, .500"
    rows = [["*chance, and popularity*", *[chance] * len(LINKS)]]
    for name in ("history length", "true histories"):
        at = {"another run: uploads": alone[name]["another run"]} | alone[name]
        rows.append([f"*{name}*", *(_linked(at, column) for column in LINKS)])
    rows += [
        [method(name).display_name, *(_linked(row, column) for column in LINKS)]
        for name, row in found.items()
        if name != "none"
    ]
    return table(["method", *LINKS.values()], rows)


def _linked(row: Row, column: str) -> str:
    """One cell, empty where nothing was measured."""
    design, _, way = column.partition("; ")
    cell = row.get(design, {})
    cell = cell.get(way) if way else cell
    if not cell:
        return ""
    share, low, high = cell["accuracy"]
    return f"{share:.0%} [{low:.0%}, {high:.0%}], {figure(cell['auc'][0], 3)}"


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
