"""`privfed compare`: two audits side by side, on the terminal and on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel

from privfed.cli import options
from privfed.cli.failures import CommandError
from privfed.cli.report import report_of
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.audit.report.compare import Comparison, MetricChange

EXAMPLE = "Example: privfed compare audits/before audits/after --out comparison.html"


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="The folder of an audit.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="The folder of another audit.", show_default=False)],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write the page.", show_default="no page")
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare what two audits have in common: quality, catalogue shown, epsilon, strongest attack, traffic.

    Differences come with 95 % intervals. Where data, split or protocol are not the same, a box says so first: such
    differences are no effect of a method or a mechanism.
    """
    files = [report_of(folder) for folder in (first, second)]

    from privfed import __version__
    from privfed.audit.page.comparison import HEADS, cells, render_comparison
    from privfed.audit.report.compare import compare as lay_side_by_side
    from privfed.audit.report.conclusions import conclude
    from privfed.audit.report.records import read_report
    from privfed.cli.tables import plain_table
    from privfed.evaluation import UNCOUNTED
    from privfed.experiment.folder import write_text

    screen = Screen(as_json, quiet)
    a, b = map(conclude, map(read_report, files))
    if out is not None:
        _refuse_to_harm(out)
    comparison = lay_side_by_side(a, b, _names(first, second))
    if out is not None:
        with screen.working("Drawing"):
            write_text(out, render_comparison(comparison, __version__))
    screen.result(*_box(comparison))
    lines = [
        [f"{pair.a.method}, {pair.a.setting.name}", *("\n".join(cell) for cell in cells(pair))]
        for pair in comparison.pairs
    ]
    title = f"{comparison.names[0]} → {comparison.names[1]}"
    screen.result(
        plain_table(title, ("method, setting", *HEADS), lines)
        if lines
        else "No method is behind the same setting in both audits."
    )
    screen.result(*([UNCOUNTED] if lines else []))
    run = [f"{m.what} {m.a} → {m.b}" for m in comparison.mismatches if m.weight == "run differently"]
    screen.explain(*([f"Run differently: {'; '.join(run)}."] if run else []))
    for name, only in zip(comparison.names, (comparison.only_a, comparison.only_b), strict=True):
        screen.explain(*([f"Only in {name}: {'; '.join(only)}."] if only else []))
    if out is not None:
        screen.result(f"The page: {out}")
    screen.document(
        {
            "a": str(first),
            "b": str(second),
            "page": None if out is None else str(out),
            "comparable": comparison.comparable,
            "mismatches": [{"weight": m.weight, "what": m.what, "a": m.a, "b": m.b} for m in comparison.mismatches],
            "pairs": [
                {
                    "method": pair.a.method,
                    "setting": pair.a.setting.slug,
                    "note": pair.note,
                    "utility": _document(pair.utility),
                    "coverage": _document(pair.coverage),
                    "epsilon": _document(pair.epsilon),
                    "lower_bound": _document(pair.bound),
                    "attack": _document(pair.attack),
                }
                for pair in comparison.pairs
            ],
            "only_a": comparison.only_a,
            "only_b": comparison.only_b,
        }
    )


def _box(comparison: "Comparison") -> list[Panel]:
    """What is not the same, where that keeps the numbers from being comparable."""
    differences = [f"- {m.what}: {m.a} and {m.b}" for m in comparison.mismatches if m.weight == "measured differently"]
    if not differences:
        return []
    text = "\n".join([*differences, "", "Differences below are no effect of a method or a mechanism."])
    return [Panel(text, title="These two audits were not measured alike", title_align="left")]


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The names of the two folders, or their paths where these are the same."""
    short = first.resolve().name, second.resolve().name
    return short if short[0] != short[1] else (str(first), str(second))


def _document(change: "MetricChange | None") -> dict[str, object] | None:
    """A change as JSON, infinities as words."""
    if change is None:
        return None
    ends = {end: value if value - value == 0 else str(value) for end, value in (("a", change.a), ("b", change.b))}
    gap = change.difference
    return {
        "name": change.name,
        **ends,
        "difference": None if gap is None else gap.model_dump(mode="json"),
        "interval_over": change.over,
        "note": change.note,
    }


def _refuse_to_harm(file: Path) -> None:
    """A comparison may replace a comparison, and no other file."""
    from privfed.audit.page.comparison import MARK

    if file.is_dir() or not file.parent.is_dir():
        what = f"{file} is a folder" if file.is_dir() else f"there is no folder {file.parent} to write {file.name} to"
        raise CommandError(f"{what}: choose another --out")
    if file.exists() and MARK.encode() not in file.read_bytes()[:2000]:
        raise CommandError(f"{file} is there already and holds no comparison: choose another --out")
