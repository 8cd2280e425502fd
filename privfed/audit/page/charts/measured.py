"""Claimed and measured epsilon on one axis, a chart per unit: claims are bars, measurements lie in or beyond them."""

import math
from collections.abc import Callable
from typing import Any

import altair as alt

from privfed.audit.page.charts.drawing import (
    PANEL,
    SOFT,
    WASH,
    Chart,
    LabelRows,
    Row,
    data,
    finished,
    named,
    setting_colour,
)
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.headline import PROTECTED_TAPS, protected_cells
from privfed.audit.report.records import AuditReport, Cell, EmpiricalRow

SYMBOLS = {"claim": "▬", "lower bound": "▶", "estimate": "○", "credible bound": "◇", "placebo floor": "|"}
_SHAPES = {
    "claim": "bar",
    "lower bound": "triangle",
    "estimate": "ring",
    "credible bound": "diamond",
    "placebo floor": "thin line",
}
UNIT_ORDER = ("user", "interaction", "upload")

_MARKS: dict[str, dict[str, Any]] = {
    "lower bound": {"shape": "triangle-right", "filled": True},
    "estimate": {"shape": "circle", "fill": PANEL, "strokeWidth": 2},
    "credible bound": {"shape": "diamond", "fill": PANEL, "strokeWidth": 2},
}
_TICKS = (1, 3, 10, 30, 100, 300, 1000, 10_000, 100_000)
_LANE = 0.16
"""Width of the lane for claims of nothing, as a share of the rest."""


def measured_charts(report: AuditReport) -> list[Chart]:
    """One chart per unit that was measured behind a mechanism; units must never be compared."""
    pairs = _measured(report)
    units = grouped(pairs, lambda pair: pair[1].unit)
    return [_chart(report, unit, units[unit]) for unit in UNIT_ORDER if unit in units]


def kinds_shown(report: AuditReport) -> list[str]:
    """What has a mark of its own in these charts, in the order of a key."""
    rows = [row for _, row in _measured(report)]
    shown = {"claim"} | {row.kind for row in rows} | {"placebo floor" for row in rows if row.placebo is not None}
    return [kind for kind in SYMBOLS if kind in shown]


def _measured(report: AuditReport) -> list[tuple[Cell, EmpiricalRow]]:
    cells = protected_cells(report)
    return [(cell, row) for cell in cells for row in cell.empirical if row.tap in PROTECTED_TAPS]


def _chart(report: AuditReport, unit: str, pairs: list[tuple[Cell, EmpiricalRow]]) -> Chart:
    values = [v for _, row in pairs for v in (row.accounted, row.value, row.hi, row.placebo) if v is not None]
    edge = math.log1p(1.15 * max([*(v for v in values if math.isfinite(v)), 1.0]))
    unclaimed = any(math.isinf(row.accounted) for _, row in pairs)
    top = edge * (1 + _LANE) if unclaimed else edge

    def place(value: float | None) -> float | None:
        return None if value is None else min(math.log1p(max(value, 0.0)), top)

    claims = list(
        {(cell.method, cell.setting.slug, row.accounted): _claim(cell, row, place) for cell, row in pairs}.values()
    )
    rows = [_measurement(cell, row, place) for cell, row in pairs]
    floors = [row for row in rows if row["floor"] is not None]
    lanes = LabelRows.from_rows([*claims, *rows])
    x = _axis(edge, top)
    colour = setting_colour(report, [cell for cell, _ in pairs])
    tooltip = [alt.Tooltip("method:N"), alt.Tooltip("setting:N"), alt.Tooltip("said:N", title="epsilon")]
    how = [*tooltip, alt.Tooltip("estimator:N"), alt.Tooltip("audited:N")]
    bars = alt.Chart(data(claims)).encode(**lanes.encodings, color=colour, tooltip=tooltip)
    lane = alt.Chart(data([{"from": edge, "to": top}])).mark_rect(color=WASH).encode(x=alt.X("from:Q"), x2="to:Q")
    layers = [
        *([lane] if unclaimed else []),
        bars.mark_bar(opacity=0.18).encode(x=x, x2="zero:Q"),
        bars.mark_tick(thickness=4, opacity=1).encode(x=x),
        *(
            [
                alt.Chart(data(floors))
                .mark_tick(color=SOFT, thickness=1.5, opacity=1)
                .encode(**lanes.encodings, x=alt.X("floor:Q"), tooltip=how)
            ]
            if floors
            else []
        ),
        alt.Chart(data(rows))
        .mark_rule(strokeWidth=2.5, opacity=0.6)
        .encode(**lanes.encodings, color=colour, x=alt.X("lo:Q"), x2="hi:Q"),
        *(
            alt.Chart(data(same))
            .mark_point(size=90, opacity=1, **_MARKS[kind])
            .encode(**lanes.encodings, color=colour, x=x, tooltip=how)
            for kind, same in grouped(rows, lambda row: str(row["kind"])).items()
        ),
    ]
    description = "; ".join(f"{r['method']}, {r['setting']}: {r['said']}" for r in [*claims, *rows])
    return finished(
        alt.layer(*layers).properties(height=lanes.height),
        f"measured_{unit}",
        f"Epsilon of {formatting.named(formatting.UNITS, unit)}",
        f"Claimed and measured epsilon of {formatting.named(formatting.UNITS, unit)}. {description}.",
        key="; ".join(f"{_SHAPES[kind]}: {kind}" for kind in kinds_shown(report)),
    )


def _claim(cell: Cell, row: EmpiricalRow, position: Callable[[float | None], float | None]) -> Row:
    label = f"claimed {formatting.epsilon(row.accounted)}"
    return named(cell) | {"x": position(row.accounted), "zero": 0.0, "said": label}


def _measurement(cell: Cell, row: EmpiricalRow, position: Callable[[float | None], float | None]) -> Row:
    label = f"{row.kind} {formatting.epsilon(row.value)}"
    if row.lo is not None and row.hi is not None:
        label += f" ({formatting.epsilon(row.lo)} to {formatting.epsilon(row.hi)})"
    if row.placebo is not None:
        label += f", placebo floor {formatting.epsilon(row.placebo)}"
    return named(cell) | {
        "x": position(row.value),
        "lo": position(row.lo),
        "hi": position(row.hi),
        "floor": position(row.placebo),
        "kind": row.kind,
        "said": label,
        "estimator": row.estimator,
        "audited": row.audited,
    }


def _axis(edge: float, top: float) -> alt.X:
    """Epsilon from 0 on, drawn as log(1 + epsilon), with a lane for infinity where `top` leaves room."""
    ticks = [math.log1p(tick) for tick in (0, *_TICKS) if math.log1p(tick) <= edge]
    lane = [(edge + top) / 2] if top > edge else []
    return alt.X(
        "x:Q",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(
            title="epsilon",
            values=[*ticks, *lane],
            labelExpr=f"datum.value > {edge} ? '∞' : format(exp(datum.value) - 1, '.6~g')",
            labelOverlap=False,
            grid=False,
        ),
    )
