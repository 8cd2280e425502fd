"""Tables of what audits said of other packages' mechanisms, of faults they shipped, and of right mechanisms."""

from statistics import mean
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table
from benchmarks.privacy.third_party import DISTRIBUTIONS, ROWS

EXTREMES = {"pass": "yes", "nothing seen": "no", "not tried": "not tried"}
"""Verdict -> word of the table."""
NEIGHBOURS = {"add_or_remove": "one more", "zero_out": "one zeroed", "replace": "one replaced"}
"""Relation of a claim -> word of the table."""
TARGET = 60.0
"""Seconds of the wall that a typical audit may take."""


def third_party() -> list[str]:
    """Every row, what was read in the package's code, and what is not there."""
    found = results("third_party")
    rows = [found[row.name] for row in ROWS]
    head = [
        "package",
        "mechanism, setting",
        "epsilon, delta",
        "neighbours",
        "claimed by",
        "measured, at least",
        "verdict",
    ]
    cells = [
        [
            f"{row['package']} {row['version']}",
            f"{row['mechanism']}: {row['setting']}",
            f"{row['claim']['epsilon']:.3g}, {row['claim']['delta']:g}",
            NEIGHBOURS[row["claim"]["neighbours"]],
            row["source"] or "nobody",
            f"{row['bound']:.2f}" if row["bound"] < 1e4 else "no noise",
            row["verdict"],
            EXTREMES[row["extremes"]],
            f"{row['cpu_s']:.0f}",
        ]
        for row in rows
    ]
    wrong = [row["reproduction"] for row in rows if row["verdict"] == "violation"]
    trials = [row["trials"] for row in rows]
    return [
        *table([*head, "NaN or infinity gets out", "CPU-s"], cells, "llllllllr"),
        "Each mechanism is made by `attacks.mechanism.adapters`, which runs the package's own code. "
        "Neighbours: one user or record more, zeroed, or replaced. Where nobody claims anything, the epsilon is what "
        f"the noise would give, without a verdict. {min(trials):,} to {max(trials):,} fresh trials in each world; the "
        f"longest audit took {max(row['seconds'] for row in rows):.0f} s of the wall, with the search, where the aim "
        f"was {TARGET:.0f}. The file has two lines for each row that audit it again, and what the audit cannot see; "
        "those of the violations, with `Claim` and `audit_mechanism` from `attacks.mechanism` and the package's module "
        "from its `adapters`:",
        "",
        "```text",
        "\n\n".join("\n".join(lines) for lines in wrong),
        "```",
        "",
        *(
            f"- {DISTRIBUTIONS[row.adapter]}, {row.mechanism}, {row.setting}: {row.checked}."
            for row in ROWS
            if row.checked
        ),
        "",
        "Not audited: Flower's SecAgg+, which claims no epsilon; a Gaussian filter of NVFlare, as 2.9.0 has none; "
        "`opake.accounting` 0.16.1, which Python 3.11.7 and 3.12.1 cannot import, so that claims of opake's rows are "
        "those of its noise multiplier; `dp_accounting`, which releases nothing.",
        "",
        'NVFlare 2.9.0 compares names of tasks where a job names filters: a chain for `tasks=["*"]` is applied to no '
        "task, whatever the filter (`tests/guard/test_nvflare_filter.py`).",
    ]


def historical_faults() -> list[str]:
    """What users found in shipped packages, planted, and which finding catches it."""
    rows = results("historical_faults")["faults"]
    cells = [
        [
            row["subject"],
            f"{row['told']} (`{row['planted']}`)",
            f"{row['claim']['epsilon']:g}, {row['claim']['delta']:g}",
            f"{row['claim']['steps']}",
            f"{row['bound']:,.1f}",
            ", ".join(row["caught_by"]) or "nothing",
            f"{row['cpu_s']:.1f}",
        ]
        for row in rows
    ]
    head = ["tracker", "what it tells (planted as)", "claimed epsilon, delta", "calls", "measured, at least"]
    return [
        *table([*head, "caught by", "CPU-s"], cells, "lllrrlr"),
        "The fault of each thread in a few lines of our own (`benchmarks/privacy/historical_faults.py`), not the "
        "project's code of that time.",
    ]


def false_alarms() -> list[str]:
    """How often a true claim was rejected, and how near to the claims the bounds came."""
    found = results("mechanism_false_alarms")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        kinds.setdefault(row["kind"], []).append(row)
    cells = [
        [
            kind,
            str(len(rows)),
            f"{mean(row['bound'] / row['epsilon'] for row in rows):.2f}",
            str(sum(row["alarm"] for row in rows)),
        ]
        for kind, rows in kinds.items()
    ]
    calls = [row for row in found["rows"] if "one_call" in row]
    above = sum(row["one_call"] > row["epsilon"] for row in calls)
    return [
        *table(["right mechanism", "audits", "bound / claim, mean", "claims rejected"], cells),
        f"{found['alarms']} of {found['mechanisms']} true claims were rejected, where at most {found['stated']:.0%} "
        f"may be; {found['cpu_s'] / found['mechanisms']:.1f} CPU-s an audit, on average."
        + (f" {above} of {len(calls)} bounds from one call lay above the claim." if calls else ""),
    ]
