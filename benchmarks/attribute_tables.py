"""What uploads say of gender and age, from `benchmarks/results/attributes.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import figure
from benchmarks.harness import results
from benchmarks.markdown import table

BASELINES = ("true interactions", "true interactions, blind to popularity", "number of interactions")
EVIDENCE = ("items recovered", "item rows as sent", "blocks without item rows", "what stays on the device")


def attributes() -> list[str]:
    """AUC of gender and of being 35 or older, for every method, mechanism and piece of evidence."""
    cells = results("attributes")
    rows = [[f"*{name}*", "", _both(cells[0]["rows"], name), "", "", ""] for name in BASELINES]
    rows += [[cell["method"], f"`{cell['plan']}`", *(_both(cell["rows"], name) for name in EVIDENCE)] for cell in cells]
    return table(["method, or *baseline*", "mechanism", *EVIDENCE], rows, "llrrrr")


def _both(rows: Sequence[Mapping[str, Any]], evidence: str) -> str:
    """Gender / age, of the evidence at the first place at which it was seen."""
    found: dict[str, float] = {}
    for row in rows:
        named = row["evidence"] == evidence or (evidence == EVIDENCE[0] and row["evidence"].startswith(evidence))
        if named:
            found.setdefault(row["attribute"], row["auc"][0])
    return " / ".join(figure(found[name], 3) for name in ("gender", "age")) if len(found) == 2 else ""
