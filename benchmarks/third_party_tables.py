"""Table of other packages' mechanisms against their claims."""

from benchmarks.harness import results
from benchmarks.markdown import table
from benchmarks.privacy.third_party import DISTRIBUTIONS, ROWS

EXTREMES = {"pass": "passes", "nothing seen": "no worse", "not tried": "not tried"}
"""Verdict -> word of the table."""


def third_party() -> list[str]:
    """Every row, what was read in the package's code, and what is not there."""
    found = results("third_party")
    alarms = results("mechanism_false_alarms")
    rows = [found[row.name] for row in ROWS]
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
            f"{row['cpu_s']:.0f}",
        ]
        for row in rows
    ]
    return [
        *table([*head, "NaN or infinity", "CPU-s"], cells, "lllllllr"),
        "Each mechanism is made by `attacks.mechanism.adapters`, which runs the package's own code. "
        "Neighbours: one user or record more, zeroed, or replaced, as `claimed by` and the file say. Where nobody "
        "claims anything, the epsilon is what the noise would give, without a verdict. The file has two lines for "
        "each row that audit it again, and what the audit cannot see.",
        "",
        f"The audit rejected {alarms['alarms']} of {alarms['mechanisms']} right mechanisms with tight claims, where it "
        f"states at most {alarms['stated']:.0%} (`python -m benchmarks.privacy.mechanism_false_alarms`); each took "
        f"{alarms['cpu_s'] / alarms['mechanisms']:.1f} CPU-s on average.",
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
