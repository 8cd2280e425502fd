"""Tables of `docs/from_real_numbers_to_bits.md`, from the files of three benchmarks.

python benchmarks/bits_page.py
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "from_real_numbers_to_bits.md"
RESULTS = HERE / "results"
NAMES = {
    "local-laplace": "uploads, local Laplace, epsilon0 = 0.1",
    "local-gaussian": "uploads, local Gaussian, z = 30",
    "central": "sum of one user or nobody, central Gaussian, z = 100",
    "central-known": "the same with ten others whose sum is known",
}
GRAM = "private-gram"


def load(name: str) -> dict[str, Any]:
    """A file of results."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def spread(values: list[float], digits: int) -> str:
    """Smallest and largest, or the one value."""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def bounds(rows: list[Mapping[str, Any]]) -> str:
    """What both adversaries proved, best of them for every seed."""
    return spread([max(one["lower_bound"] for one in row["adversaries"].values()) for row in rows], 2)


def float_noise() -> list[str]:
    """What released bits gave away."""
    old, new = load("float_noise_before")["experiments"], load("float_noise_after")["experiments"]
    lines = [
        "| released | claimed | at least, before | at least, now | denied, before | denied, now |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for key, name in NAMES.items():
        denied = [
            f"{sum(any(one['denied'] for one in row['adversaries'].values()) for row in rows)} of {len(rows)}"
            for rows in (old[key], new[key])
        ]
        claimed = f"{old[key][0]['claimed']:.3g}"
        lines.append(f"| {name} | {claimed} | {bounds(old[key])} | {bounds(new[key])} | {denied[0]} | {denied[1]} |")
    shares = {
        who: [
            spread([100 * row["adversaries"]["knows the sampler"][f"flagged_of_{who}"] for row in rows], 0)
            for rows in (old[GRAM], new[GRAM])
        ]
        for who in ("one", "nobody")
    }
    return [
        *lines,
        "",
        f"Epsilon of one person with 95 % confidence, smallest and largest over {len(old[GRAM])} seeds before and "
        f"{len(new[GRAM])} now, of the better of two adversaries: one knows the sampler, the other only compares bits. "
        f"private-gram on MovieLens-100K at z = 4.6: of the items that exactly one person has, the adversary said "
        f"that somebody has them of {shares['one'][0]} % before and {shares['one'][1]} % now; of the items that nobody "
        f"has, of {shares['nobody'][0]} % before, which made it a proof, and {shares['nobody'][1]} % now.",
    ]


def grid_cost() -> list[str]:
    """CPU-seconds before and after."""
    rows = load("grid_noise_cost")["rows"]
    return [
        "| case | before | now | ratio |",
        "|---|---:|---:|---:|",
        *(
            f"| {row['case']} | {row['before_s']:.3f} | {row['after_s']:.3f} | {row['after_s'] / row['before_s']:.2f} |"
            for row in rows
        ),
    ]


def planted_faults() -> list[str]:
    """Fault by fault, which check caught it."""
    rows = load("planted_faults")["faults"]
    return [
        "| fault | planted in | caught by |",
        "|---|---|---|",
        *(f"| {row['fault']} | {row['planted in']} | {', '.join(row['caught by']) or 'nothing'} |" for row in rows),
        "",
        f"{sum(row['caught'] for row in rows)} of {len(rows)} end the audit with a contradiction that says what is "
        "wrong. Whether the test suite without any audit would fail was not measured.",
    ]


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "float noise": float_noise,
    "grid cost": grid_cost,
    "planted faults": planted_faults,
}


def written(text: str) -> str:
    """The page with every table as the files have it."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        text = before + begin + "\n".join([*table(), ""]) + end + rest.split(end, 1)[1]
    return text


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
