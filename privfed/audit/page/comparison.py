"""`render_comparison`: two audits as one HTML file that loads nothing."""

from typing import Any

from privfed.audit.page.charts.comparison import comparison_charts
from privfed.audit.page.palette import stylesheet
from privfed.audit.page.render import HELPERS, page_template, script, specs, text_of
from privfed.audit.report import formatting
from privfed.audit.report.compare import CellPair, Comparison, MetricChange, Mismatch
from privfed.evaluation import UNCOUNTED

HEADS = (
    "Quality",
    "Catalogue shown",
    "Epsilon claimed",
    "Measured lower bound",
    "Strongest attack (AUC)",
    "Sent per round",
)
MARK = '<meta name="generator" content="privfed compare">'
"""What tells a comparison from other pages."""


def render_comparison(comparison: Comparison, version: str) -> str:
    """The page of a comparison, complete and self-contained.

    Args:
        comparison: What `compare` found.
        version: Of privfed, for the foot of the page.
    """
    charts = comparison_charts(comparison)
    a, b = comparison.names
    return page_template("compare.html").render(
        a=a,
        b=b,
        lede=_lede(comparison),
        uncounted=UNCOUNTED,
        alarming=_of_weight(comparison, "measured differently"),
        differing=_of_weight(comparison, "run differently"),
        charts=charts,
        rows=[_line(pair) for pair in comparison.pairs],
        heads=HEADS,
        only_a=comparison.only_a,
        only_b=comparison.only_b,
        colours=stylesheet(),
        css=text_of("style.css"),
        specs=specs(charts),
        script=script(),
        version=version,
        short=0,
        **HELPERS,
    )


def cells(pair: CellPair) -> list[tuple[str, ...]]:
    """What stands under `HEADS` for one method and setting: both numbers, then small print."""
    up = [formatting.volume(cell.cost.up_bytes_per_client_round) for cell in (pair.a, pair.b)]
    return [
        _in_words(pair.utility, named=True),
        _in_words(pair.coverage),
        _in_words(pair.epsilon, as_epsilon=True),
        _in_words(pair.bound, as_epsilon=True),
        _in_words(pair.attack),
        (" → ".join(up),),
    ]


def _lede(comparison: Comparison) -> str:
    shared = formatting.count(len(comparison.pairs), "method and setting", "methods and settings")
    clear = [pair for pair in comparison.pairs if pair.utility and pair.utility.clear]
    text = f"{shared} in both."
    if comparison.comparable and comparison.pairs:
        text += (
            f" Quality differs clearly in {len(clear)}, that is by more than its interval."
            if clear
            else " Quality differs clearly in none: every interval of a difference holds zero."
        )
    return formatting.capital(text)


def _of_weight(comparison: Comparison, weight: str) -> list[Mismatch]:
    return [mismatch for mismatch in comparison.mismatches if mismatch.weight == weight]


def _line(pair: CellPair) -> dict[str, Any]:
    return {
        "name": f"{formatting.method_name(pair.a.method)}, {formatting.setting(pair.a.setting)}"
        + (f" ({pair.note})" if pair.note else ""),
        "colour": None,
        "baseline": False,
        "cells": cells(pair),
    }


def _in_words(change: MetricChange | None, *, as_epsilon: bool = False, named: bool = False) -> tuple[str, ...]:
    if change is None:
        return ("not in both",)
    show = formatting.epsilon if as_epsilon else formatting.share
    notes = [change.note] if change.note else []
    gap = change.difference
    if gap is not None and change.over is None and gap.value:
        notes.insert(0, formatting.signed(gap.value))
    elif gap is not None and change.over is not None:
        notes.insert(0, f"{formatting.signed(gap.value)} ({formatting.signed(gap.lo)} to {formatting.signed(gap.hi)})")
    name = f"{change.name} " if named else ""
    return f"{name}{show(change.a)} → {show(change.b)}", *notes
