"""Tables of `docs/scale.md`: rounds out of core, and what a hundred million clients would cost by their slopes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.harness import results
from benchmarks.markdown import table
from benchmarks.speed.suite.page import seconds, size, slope

MILLION = 1_000_000
AIM = 100 * MILLION
NAMES = {"pfedrec": "PFedRec", "fedvae": "FedVAE"}
Row = Mapping[str, Any]


def runs() -> dict[str, list[Row]]:
    """The last run of every size, ascending, by method."""
    last = {(row["method"], row["users"]): row for row in results("out_of_core") if not row["in_memory"]}
    return {name: [last[key] for key in sorted(last) if key[0] == name] for name in NAMES}


def out_of_core() -> list[str]:
    """Rounds of everybody with private state in files."""
    head = ["method", "clients", "CPU-s", "wall, s", "clients per CPU-s", "process holds", "files", "checkpoint, s"]
    return table(
        head,
        [
            [
                NAMES[method],
                f"{row['users']:,}",
                seconds(row["cpu_s"]),
                seconds(row["wall_s"]),
                f"{row['clients_per_cpu_s']:,.0f}",
                size(row["largest_anonymous_bytes"]),
                size(row["file_bytes"]),
                f"{row['save_s']:.1f} + {row['load_s']:.1f}",
            ]
            for method, rows in runs().items()
            for row in rows
        ],
    )


def reached(rows: Sequence[Row], what: Callable[[Row], float]) -> tuple[float, float]:
    """What would be spent on `AIM` clients if the largest run went on growing as all of them did, and the slope."""
    line = [(row["users"], what(row)) for row in rows]
    by = slope(line) if len(line) > 1 else 1.0
    clients, spent = line[-1]
    return spent * (AIM / clients) ** by, by


def added(rows: Sequence[Row], what: Callable[[Row], float]) -> float:
    """Per client, by the line through the smallest and the largest run: a process holds something before the first."""
    first, last = rows[0], rows[-1]
    return (what(last) - what(first)) / max(float(last["users"] - first["users"]), 1.0)


def plan() -> list[str]:
    """Engines for a hundred million clients, what bounds each, and what a round would cost."""
    efficiency = scaling()
    found = []
    for method, rows in runs().items():
        name = NAMES[method]
        spent, by = reached(rows, lambda row: float(row["cpu_s"]))
        grown = f"slope {by:.2f}" if len(rows) > 1 else "one size measured, growth taken to be linear"
        found.append([name, "one process, out of core", "processor", f"{spent / 3600:.1f} CPU-hours ({grown})"])
        memory = added(rows, lambda row: float(row["largest_anonymous_bytes"]))
        if memory > 0:
            found.append([name, "one process, out of core", "memory: lists of interactions", size(AIM * memory)])
        if rows[-1]["file_bytes"]:
            files = AIM * rows[-1]["file_bytes"] / rows[-1]["users"]
            found.append([name, "one process, out of core", "disk: private state, twice", size(files)])
        wall = spent / 60 / (64 * efficiency)
        found.append([name, "64 processes", "processor", f"{wall:.1f} minutes at {100 * efficiency:.0f} % of linear"])
        last = rows[-1]
        up = AIM * last["up_bytes"]
        found.append([name, "nodes and devices", "the server's network", f"{size(up)} of uploads a round"])
        some = 10_000 * last["up_bytes"]
        found.append([name, "nodes and devices, cohorts of 10,000", "the server's network", f"{size(some)} a round"])
    return table(["method", "engine", "bottleneck", "a round of 100,000,000 clients"], found, "llll")


def scaling() -> float:
    """The least share of linear speed that two processes reached with a method whose server reads sums alone."""
    rows = [row for row in results("scale_out") if not row["case"].startswith("GPFedRec")]
    walls = {(row["case"], row["processes"]): float(row["wall_s"]) for row in rows}
    return min(walls[case, 1] / walls[case, 2] / 2 for case, processes in walls if processes == 1)
