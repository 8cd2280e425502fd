"""What a mechanism costs in bytes and seconds: a lane for each setting, a mark for each number."""

import math
from collections.abc import Callable
from typing import Any

import altair as alt

from privfed.audit.page.charts.drawing import PANEL, Chart, LabelRows, Row, data, finished, named, setting_colour
from privfed.audit.report import formatting
from privfed.audit.report.headline import protected_cells
from privfed.audit.report.records import AuditReport, CostRow

_RATIO_OF_A_LOG_AXIS = 20
_Numbers = Callable[[CostRow], tuple[float, float]]


def cost_charts(report: AuditReport) -> list[Chart]:
    """Bytes of one client and round, and seconds of one run; none where nothing differs by setting or method."""
    if len(protected_cells(report)) < 2:
        return []
    return [
        _chart(
            report,
            "bytes",
            "Bytes of one client in one round",
            ("sent", "received"),
            lambda cost: (cost.up_bytes_per_client_round, cost.down_bytes_per_client_round),
            formatting.volume,
        ),
        _chart(
            report,
            "seconds",
            "Seconds of one run",
            ("training with its privacy layer", "attacks"),
            lambda cost: (cost.train_s + cost.privacy_s, cost.attack_s),
            formatting.seconds,
        ),
    ]


def _chart(
    report: AuditReport,
    slug: str,
    title: str,
    kinds: tuple[str, str],
    numbers: _Numbers,
    formatted: Callable[[float], str],
) -> Chart:
    cells = protected_cells(report)
    rows: list[Row] = [
        named(cell) | {"x": value, "kind": kind, "said": formatted(value)}
        for cell in cells
        for kind, value in zip(kinds, numbers(cell.cost), strict=True)
        if value > 0
    ]
    values = [float(row["x"]) for row in rows] or [1.0]
    lanes = LabelRows.from_rows(rows)
    colour = setting_colour(report, cells)
    tooltip = [
        alt.Tooltip("method:N"),
        alt.Tooltip("setting:N"),
        alt.Tooltip("kind:N"),
        alt.Tooltip("said:N", title=slug),
    ]
    marks: tuple[dict[str, Any], ...] = ({"filled": True}, {"fill": PANEL, "strokeWidth": 1.8})
    layers = [
        alt.Chart(data([row for row in rows if row["kind"] == kind]))
        .mark_point(size=85, opacity=1, **mark)
        .encode(**lanes.encodings, x=_axis(slug, values), color=colour, tooltip=tooltip)
        for kind, mark in zip(kinds, marks, strict=True)
    ]
    description = "; ".join(f"{r['method']}, {r['setting']}: {r['kind']} {r['said']}" for r in rows)
    return finished(
        alt.layer(*layers).properties(height=lanes.height),
        f"cost_{slug}",
        title,
        f"{title}. {description}.",
        key=f"filled: {kinds[0]}; ring: {kinds[1]}",
    )


def _axis(slug: str, values: list[float]) -> alt.X:
    ticks: Any = alt.Undefined
    if max(values) > _RATIO_OF_A_LOG_AXIS * min(values):
        domain = [10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(1.05 * max(values)))]
        decades = range(round(math.log10(domain[0])), round(math.log10(domain[1])) + 1)
        ticks = [10.0**power for power in decades]
        scale = alt.Scale(type="log", domain=domain, nice=False)
    else:
        scale = alt.Scale(domain=[0, 1.08 * max(values)], nice=True)
    label = "replace(format(datum.value, '.3~s'), 'k', ' k')" if slug == "bytes" else "format(datum.value, ',~g')"
    return alt.X("x:Q", scale=scale, axis=alt.Axis(title=slug, values=ticks, tickCount=5, labelExpr=label, grid=True))
