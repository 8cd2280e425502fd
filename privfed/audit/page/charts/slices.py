"""Whose leak it is: the strongest attack by tenths of items, rare to popular, and of people, quiet to active."""

from typing import Literal

import altair as alt

from privfed.audit.page.charts.drawing import INK, SOFT, Chart, Row, data, finished, named, setting_colour
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.headline import protected_cells, sliced_attack
from privfed.audit.report.records import AttackCell, AuditReport, Cell, SliceRow

By = Literal["popularity", "activity"]
BY: tuple[By, ...] = ("popularity", "activity")
SLICED = {"popularity": "items from rare to popular", "activity": "people from quiet to active"}

_HEIGHT = 200


def slice_charts(report: AuditReport) -> list[Chart]:
    """AUC by tenths, one chart per method and way of slicing, items first."""
    pairs = [(cell, best) for cell in protected_cells(report) if (best := sliced_attack(cell)) is not None]
    return [
        _chart(report, method, by, same)
        for by in BY
        for method, some in grouped(pairs, lambda pair: pair[0].method).items()
        if (same := [(cell, best) for cell, best in some if tenths(best, by)])
    ]


def tenths(attack: AttackCell, by: By) -> list[SliceRow]:
    """The slices of one kind, in ascending order."""
    return sorted((part for part in attack.slices if part.by == by), key=lambda part: part.group)


def _chart(report: AuditReport, method: str, by: By, pairs: list[tuple[Cell, AttackCell]]) -> Chart:
    rows: list[Row] = [
        named(cell)
        | {
            "tenth": part.group + 1,
            "auc": part.auc.value,
            "lo": part.auc.lo,
            "hi": part.auc.hi,
            "range": f"{part.lowest:g} to {part.highest:g}",
        }
        for cell, best in pairs
        for part in tenths(best, by)
    ]
    guesses = grouped((part for _, best in pairs for part in tenths(best, by)), lambda part: part.group)
    popular = [
        {"tenth": group + 1, "auc": sum(p.popularity_auc for p in same) / len(same)} for group, same in guesses.items()
    ]
    low = min(0.4, *(row["lo"] for row in rows), *(row["auc"] for row in popular))
    x = alt.X(
        "tenth:Q",
        scale=alt.Scale(domain=[0.6, 10.4], nice=False),
        axis=alt.Axis(title=f"tenths of {SLICED[by]}", values=[1, 4, 7, 10], format="d", grid=False),
    )
    y = alt.Y(
        "auc:Q",
        scale=alt.Scale(domain=[low, 1.0], nice=False, clamp=True),
        axis=alt.Axis(title="AUC", values=[0.4, 0.6, 0.8, 1.0], format=".1f"),
    )
    base = alt.Chart(data(rows)).encode(x=x, color=setting_colour(report, [cell for cell, _ in pairs]))
    layers = [
        alt.Chart(data([{"auc": 0.5}])).mark_rule(color=SOFT).encode(y=y),
        alt.Chart(data(popular)).mark_line(color=INK, strokeDash=[5, 4], strokeWidth=1.4, opacity=0.9).encode(x=x, y=y),
        base.mark_rule(strokeWidth=2, opacity=0.45).encode(y=alt.Y("lo:Q", title="AUC"), y2="hi:Q"),
        base.mark_line(strokeWidth=2, point={"filled": True, "size": 34}).encode(
            y=y,
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("range:N", title="interactions of an item" if by == "popularity" else "items of a person"),
                alt.Tooltip("auc:Q", title="AUC", format=".3f"),
            ],
        ),
    ]
    name = formatting.method_name(method)
    ends = [
        f"{formatting.setting(cell.setting)} from {parts[0].auc.value:.3f} to {parts[-1].auc.value:.3f}"
        for cell, best in pairs
        if (parts := tenths(best, by))
    ]
    return finished(
        alt.layer(*layers).properties(height=_HEIGHT),
        f"slices_{formatting.file_name(method)}_{by}",
        f"{name}: {SLICED[by]}",
        f"AUC of the strongest attack by tenths of {SLICED[by]}: {'; '.join(ends)}; chance 0.5.",
    )
