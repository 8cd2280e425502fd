"""The index of all results of the five papers, and their numbers beside ours, from `benchmarks/papers` and the runs.

A file there has a paper's data sets, the methods that it compares with, what it claims, and every result table and
figure: what it shows, the paper's numbers (facts, as printed, which `scale` times a share of one), and how far we got:

    run whole    every row and data set that can be had was run, with three seeds or more; whatever came out
    in part      some of it was
    open         it can be run, and was not
    impossible   something is missing that nobody can make here; `reason` says what

`files` are the files of results with our runs. A method is here where it is registered.
"""

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from benchmarks.figures import figure
from benchmarks.five_tables import popularity, settings
from benchmarks.harness import RESULTS, ROOT, results
from benchmarks.markdown import table
from benchmarks.quality import defaults
from benchmarks.quality.defaults import ASIDE, CATALOGUES
from benchmarks.quality.paper_cells import PAPERS as LISTED
from benchmarks.quality.paper_cells import POPULARITY, SEEDS, expected_minutes
from privfed.methods.registry import entries

FOLDER = ROOT / "benchmarks" / "papers"
PAPERS = ("gpfedrec", "hetefedrec", "feddae", "fair", "dfmr")
STATUSES = ("run whole", "in part", "open", "impossible")
NEAR = 0.1
"""A number is met where ours differs from it by no more than this share of it."""
PROTOCOLS = ("published", "honest")
OF_THEIR_OWN = (
    ("hetefedrec", "hetefedrec_table_ncf", ("table-2", "table-4"), "MovieLens-1M", "Fed-NCF: "),
    ("hetefedrec", "hetefedrec_table_lightgcn", ("table-2", "table-4"), "MovieLens-1M", "Fed-LightGCN: "),
    ("fair", "fair_table_goodreads-100", ("table-2",), "Goodreads-100", ""),
    ("fair", "fair_loss_goodreads-100", ("table-3",), "Goodreads-100", ""),
)
"""Paper, file, results, data set and how rows begin, of main tables that scripts of their own have run."""
CUT = ("NDCG", "precision", "recall")
"""Metrics that a result names without a cut-off: a figure that shows them by cut-off."""


@cache
def paper(name: str) -> dict[str, Any]:
    """What a paper says."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def runs_file(name: str) -> str:
    """Name of the file with the runs of `benchmarks.quality.paper_runs`."""
    return f"paper_{name}"


def sources(name: str) -> tuple[str, ...]:
    """That file, where anything was run."""
    return (runs_file(name),) if (RESULTS / f"{runs_file(name)}.json").exists() else ()


# The index ------------------------------------------------------------------------------------------------------------


def counts() -> list[str]:
    """Cells, comparison methods and results by status."""
    papers = [paper(name) for name in PAPERS]
    cells = Counter(one["status"] for known in papers for one in known["data"])
    shown = Counter(one["status"] for known in papers for one in known["results"])
    here = sum(_here(one) for known in papers for one in known["methods"])
    methods = sum(len(known["methods"]) for known in papers)
    rows = [
        ["systems on data sets", str(cells.total()), *(str(cells[status]) for status in STATUSES)],
        ["result tables and figures", str(shown.total()), *(str(shown[status]) for status in STATUSES)],
        ["comparison methods", str(methods), str(here), "", str(methods - here), ""],
    ]
    pairs = [numbers_met(one, _of(one, runs)) for known, runs in _with_runs() for one in known["results"]]
    met, compared = (sum(side) for side in zip(*pairs, strict=True))
    said = f"Of {compared} printed numbers that we have means for, {met} are met."
    return [*table(["", "all", *STATUSES], rows), said, ""]


def _with_runs() -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Every paper, and its runs under its own protocol."""
    return [(paper(name), published_runs(name)) for name in PAPERS]


def _of(one: Mapping[str, Any], runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of one result."""
    return [run for run in runs if run["result"] == one["id"]]


def cells() -> list[str]:
    """Every system on every data set of its paper."""
    rows = [
        [known["name"], one["name"], one["here"] or "", one["status"], one["reason"]]
        for known in map(paper, PAPERS)
        for one in known["data"]
    ]
    return table(["paper", "data set", "here", "status", "why"], rows, "lllll")


def index() -> list[str]:
    """Every result of every paper."""
    rows = [
        [
            f"[{known['name']}](papers/{known['paper']}.md)",
            one["name"],
            one["shows"],
            one["status"],
            _share(rows_run(known, one, mine)),
            _share(numbers_met(one, mine)),
            hours_left(known["paper"], one, mine),
            "; ".join(filter(None, (one["found"], one["reason"]))),
        ]
        for known, runs in _with_runs()
        for one in known["results"]
        for mine in [_of(one, runs)]
    ]
    heads = ["paper", "result", "what it shows", "status", "rows", "met", "left", "what came out, and what is missing"]
    return table(heads, rows, "llllrrrl")


def hours_left(name: str, one: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    """CPU-hours of the runs that a result lacks for `SEEDS` seeds of every row, of those that the queue has.

    Rows whose cost is not known are taken to cost what the others of the result on that data set do.
    """
    if runs_file(name) not in one["files"]:
        return ""
    seeds = Counter((run["data"].partition(" (")[0], run["row"]) for run in runs)
    timed = results("paper_costs")
    lacking: dict[str, list[tuple[int, float | None]]] = {}
    for cell in LISTED[name]():
        missing = (1 if cell.row == POPULARITY else SEEDS) - seeds[cell.data.name, cell.row]
        if cell.result == one["id"] and cell.by == "published" and missing > 0:
            minutes = expected_minutes(cell, results(runs_file(name)), timed)
            lacking.setdefault(cell.data.here, []).append((missing, minutes))
    hours = 0.0
    for found in lacking.values():
        known = [minutes for _, minutes in found if minutes is not None]
        if not known:
            return "not timed"
        usual = statistics.fmean(known)
        hours += sum(missing * (usual if minutes is None else minutes) for missing, minutes in found) / 60
    return f"{hours:.1f} h" if lacking else ""


def rows_run(known: Mapping[str, Any], one: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Printed rows with `SEEDS` seeds, stand-ins included, of those on data that can be had.

    None of none where there is no run: other scripts may have their own form of it.
    """
    where = {data["name"]: data["status"] for data in known["data"]}
    seeds = Counter((run["data"].partition(" (")[0], run["row"]) for run in runs)
    wanted = [(data, label) for data, rows in one["numbers"].items() if where[data] != "impossible" for label in rows]
    wanted = wanted or [row for row in seeds if row[1] != POPULARITY]
    return (sum(seeds[row] >= SEEDS for row in wanted), len(wanted)) if runs else (0, 0)


def numbers_met(one: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Printed numbers that our means over seeds meet on the paper's own data, of those that we have means of."""
    means: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        for metric in one["metrics"]:
            if metric in run["metrics"]:
                means.setdefault((run["data"], run["row"], metric), []).append(one["scale"] * run["metrics"][metric])
    off = [
        abs(statistics.fmean(ours) - number) / abs(number)
        for (data, label, metric), ours in means.items()
        for printed in [one["numbers"].get(data, {}).get(label, {}).get(metric)]
        if (number := printed[0] if isinstance(printed, list) else printed)
    ]
    return sum(share <= NEAR for share in off), len(off)


def published_runs(name: str) -> list[dict[str, Any]]:
    """All runs under a paper's own protocol, those of other scripts included."""
    return [run for run in (*_runs(name), *_of_their_own(name)) if run["protocol"] == "published"]


def _of_their_own(name: str) -> list[dict[str, Any]]:
    """Runs in files of other forms."""
    return [
        {
            "result": result,
            "data": data,
            "row": start + re.sub(r" (\d+)%$", r", \1 %", run["variant"]),
            "protocol": "published",
            "seed": run["seed"],
            "metrics": {"NDCG@20": run.get("ndcg", run.get("ndcg all")), "Recall@20": run.get("recall")},
        }
        for paper_of, file, shown, data, start in OF_THEIR_OWN
        if paper_of == name
        for run in results(file)["runs"]
        for result in shown
    ]


def _share(counted: tuple[int, int]) -> str:
    return "{} of {}".format(*counted) if counted[1] else ""


def methods() -> list[str]:
    """Every comparison method of every paper."""
    rows = [
        [
            known["name"],
            one["name"],
            f"`{one['method']}`" if _here(one) else "not here",
            one["note"],
            str(sum(_stands_in(one["name"], result) for result in known["results"])),
        ]
        for known in map(paper, PAPERS)
        for one in known["methods"]
    ]
    return table(["paper", "method", "here", "", "tables with it"], rows, "llllr")


def _here(one: Mapping[str, Any]) -> bool:
    """Whether a comparison method is registered."""
    return str(one["method"]).partition(":")[0] in entries()


def _stands_in(method: str, result: Mapping[str, Any]) -> bool:
    """Whether a table has rows of this method."""
    return any(method in label for rows in result["numbers"].values() for label in rows)


# One paper ------------------------------------------------------------------------------------------------------------


def claims(name: str) -> list[str]:
    """What a paper claims, and what holds."""
    rows = [[one["claim"], one["verdict"], one["why"]] for one in paper(name)["claims"]]
    return table(["the paper claims", "here", "because"], rows, "lll")


def mechanisms(name: str) -> list[str]:
    """What attacks find and what is left of the recommender, by mechanism."""
    base = popularity()
    rows = [
        [
            one.label,
            one.guarantee,
            f"{figure(one.auc, 2)} / {figure(one.auc - one.excess, 2)}",
            one.attack,
            f"{100 * (one.ndcg / base - 1):+.0f} %",
        ]
        for one in settings()
        if one.system == name
    ]
    head = ["mechanism", "guaranteed", "strongest attack / popularity, AUC", "attack", "NDCG@10 against popularity"]
    return table(head, rows, "llrlr")


def numbers(name: str) -> list[str]:
    """The paper's numbers beside ours, for every result of which anything was run."""
    known, runs = paper(name), _runs(name)
    lines: list[str] = []
    for one in known["results"]:
        found = [run for run in runs if run["result"] == one["id"]]
        if found and {*one["metrics"]} <= {*CUT}:
            lines += [f"**{one['name']}**", "", *_by_cut_off(one, found)]
        elif found:
            lines += [f"**{one['name']}**: {one['shows']} ({' / '.join(one['metrics'])}).", ""]
            head = ["data", "row", "paper", *(f"ours, {protocol}" for protocol in PROTOCOLS), "why not"]
            lines += table(head, _rows(known, one, found), "llrrrl")
    return lines or ["Nothing of it was run yet by `benchmarks.quality.paper_runs`.", ""]


def _runs(name: str) -> list[dict[str, Any]]:
    return list(results(runs_file(name)).values()) if sources(name) else []


def _rows(known: Mapping[str, Any], one: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A row for each method on each data set: the paper's, ours under both protocols, why there is none."""
    where = {data["name"]: data for data in known["data"]}
    for data in dict.fromkeys([*one["data"], *(run["data"] for run in runs)]):
        of_paper = one["numbers"].get(data, {})
        ours = [run for run in runs if run["data"] == data]
        if of_paper and not any(run["data"].startswith(data) for run in runs):
            yield [data, f"{len(of_paper)} rows", "", *("" for _ in PROTOCOLS), _unmeasured(where[data])]
            continue
        for label in dict.fromkeys([POPULARITY, *of_paper, *(run["row"] for run in ours)]):
            mine = [run for run in ours if run["row"] == label]
            printed = of_paper.get(label, {})
            if not mine and not printed:
                continue
            shown = [_measured(one, [run for run in mine if run["protocol"] == by]) for by in PROTOCOLS]
            failed = next((run["failed"] for run in mine if run.get("failed")), "")
            missing = failed if mine else _reason(known, where.get(data, {}), label, any_run=bool(ours))
            theirs = [_printed(printed, metric) for metric in one["metrics"]]
            yield [data, label, " / ".join(theirs) if any(theirs) else "", *shown, missing]


def _by_cut_off(one: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Our rows under a metric at every cut-off; a figure has no numbers of the paper."""
    cuts = sorted({int(name.partition("@")[2]) for run in runs for name in run["metrics"] if name.startswith("NDCG@")})
    rows = [
        [run["data"], run["row"], metric, *(_measured({**one, "metrics": [f"{metric}@{k}"]}, mine) for k in cuts)]
        for run, mine in _by_row(runs)
        for metric in one["metrics"]
    ]
    return table(["data", "row", "metric", *(f"at {k}" for k in cuts)], rows, "lll" + "r" * len(cuts))


def _by_row(runs: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Runs of every row on every data set, and the first of them."""
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        rows.setdefault((run["data"], run["row"]), []).append(run)
    return [(mine[0], mine) for mine in rows.values()]


def _printed(numbers: Mapping[str, Any], metric: str) -> str:
    value = numbers.get(metric)
    if isinstance(value, list):
        return f"{value[0]:g} +-{value[1]:g}"
    return "" if value is None else f"{value:g}"


def _measured(one: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds and their standard deviation, metric by metric; of one seed, the interval over people."""
    if not runs:
        return ""
    digits = 2 if one["scale"] == 100 else 4
    cells = []
    for metric in one["metrics"]:
        values = [one["scale"] * run["metrics"][metric] for run in runs if metric in run["metrics"]]
        spread = ""
        if len(values) > 1:
            spread = f" +-{figure(statistics.stdev(values), digits)}"
        elif between := runs[0].get("intervals", {}).get(metric.lower()):
            spread = " [{}]".format(", ".join(figure(one["scale"] * end, digits) for end in between))
        cells.append(figure(statistics.fmean(values), digits) + spread if values else "")
    return " / ".join(cells) + (f" ({len(runs)})" if len(runs) > 1 else "")


def _unmeasured(data: Mapping[str, Any]) -> str:
    """Why nothing was run on a data set."""
    return str(data["reason"]) if data["reason"] and data["status"] != "run whole" else "not run yet"


def _reason(known: Mapping[str, Any], data: Mapping[str, Any], label: str, *, any_run: bool) -> str:
    """Why a row of the paper has no number of ours."""
    if data.get("status") == "impossible" or (not any_run and data.get("status") == "in part"):
        return str(data["reason"])
    by_name = {method["name"]: method for method in known["methods"]}
    if label in by_name and not _here(by_name[label]):
        return "not among the methods yet"
    return "not run yet"


def shipped() -> list[str]:
    """Every recommender as it is shipped, over popularity, by catalogue; `aside` chose no default."""
    rows = results("shipped")
    popular = {(row["data"], row["users"]): row["ndcg"] for row in rows if row["method"] == POPULARITY}
    over = {(row["method"], row["data"]): row["ndcg"] / popular[row["data"], row["users"]] - 1 for row in rows}
    names = dict.fromkeys(method for method, _ in over if method != POPULARITY)
    catalogues = [data for data in CATALOGUES | ASIDE if any((name, data) in over for name in names)]
    heads = [f"{data}, aside" if data in ASIDE else data for data in catalogues]
    most = {data: max(users for name, users in popular if name == data) for data in catalogues}
    first = [POPULARITY, *(figure_of(popular[data, users]) for data, users in most.items())]
    body = [
        [f"`{name}`", *(f"{over[name, data]:+.0%}" if (name, data) in over else "" for data in catalogues)]
        for name in names
    ]
    return table(["method", *heads], [first, *body])


def searched() -> list[str]:
    """Settings that one search compared for every method: the one before and the one it chose, over popularity."""
    rows, lines = results("defaults"), []
    for method, grid in defaults.GRIDS.items():
        found = defaults.ratios(rows, method, defaults.searched(method))
        before = defaults.label(method, grid[0])
        if before not in found:
            continue
        chosen = defaults.best(found, defaults.outside(method))
        shown = [f"{defaults.score(found[name]):.2f} / {min(found[name]):.2f}" for name in (before, chosen)]
        names = [f"`{name.removeprefix(method).strip()}`" for name in (before, chosen)]
        lines.append([f"`{method}`", names[0], shown[0], names[1] if chosen != before else "the same", shown[1]])
    heads = ["method", "before", "mean / worst", "chosen", "mean / worst"]
    return table(heads, lines)


def figure_of(ndcg: float) -> str:
    """A share of one in three digits."""
    return f"{ndcg:.3f}".lstrip("0")
