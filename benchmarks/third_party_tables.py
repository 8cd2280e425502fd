"""Table of other packages' mechanisms against their claims."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table

EXTREMES = {"pass": "passes", "nothing seen": "not seen", "not tried": "not tried"}
"""Verdict -> word of the table."""


def third_party() -> list[str]:
    """Every row, what was read in the package's code, and what is not there."""
    rows = list(results("third_party").values())
    head = ["package", "mechanism, setting", "epsilon, delta", "claimed by", "measured, at least", "verdict"]
    cells = [
        [
            f"{row['package']} {row['version']}",
            f"{row['mechanism']}: {row['setting']}",
            f"{row['claim']['epsilon']:.3g}, {row['claim']['delta']:g}",
            row["source"] or "nobody",
            f"{row['bound']:.2f}" if row["bound"] < 1e4 else "no noise",
            row["verdict"],
            EXTREMES[row["extremes"]],
            f"{row['seconds']:.0f}",
        ]
        for row in rows
    ]
    return [
        *table([*head, "NaN or infinity", "s"], cells, "lllllllr"),
        "Neighbours: one user or record more, zeroed, or replaced, as `claimed by` and the file say. Where nobody "
        "claims anything, the epsilon is what the noise would give. Each row is audited again by the two lines that the file "
        "has of it, with `rows` of small random numbers; what an audit cannot see is listed there too.",
        "",
        *(f"- {row['package']}, {row['mechanism']}, {row['setting']}: {row['checked']}." for row in read(rows)),
    ]


def read(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows about which something was read in the code."""
    return [row for row in rows if row["checked"]]
