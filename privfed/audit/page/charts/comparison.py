"""Two audits in one picture: a line from the number of the first to that of the second, for all that both have."""

import math
from collections.abc import Callable

import altair as alt

from privfed.audit.page.charts.drawing import (
    INK,
    PANEL,
    SOFT,
    WASH,
    Chart,
    Row,
    data,
    finished,
    label_axis,
    upright,
    wrapped,
)
from privfed.audit.report import formatting
from privfed.audit.report.compare import CellPair, Comparison, MetricChange

_Numbers = Callable[[CellPair], MetricChange | None]


def comparison_charts(comparison: Comparison) -> list[Chart]:
    """Quality, epsilon and the strongest attack, each where both audits have it for some method and setting."""
    charts = [
        _chart(comparison, "quality", lambda pair: pair.utility),
        _epsilon_chart(comparison),
        _chart(comparison, "attack", lambda pair: pair.attack),
    ]
    return [chart for chart in charts if chart is not None]


def _row(pair: CellPair, change: MetricChange) -> Row:
    label = f"{formatting.method_name(pair.a.method)}, {formatting.setting(pair.a.setting)}"
    return {
        "label": wrapped(label),
        "a": change.a,
        "b": change.b,
        "clear": change.clear,
        "said": f"{change.a:.3g} and {change.b:.3g}",
        "note": change.note,
    }


def _height(rows: list[Row]) -> int:
    lines = max(str(row["label"]).count("\n") + 1 for row in rows)
    return len(rows) * max(30, 16 * lines + 4)


def _chart(comparison: Comparison, slug: str, number: _Numbers) -> Chart | None:
    changes = [(pair, change) for pair in comparison.pairs if (change := number(pair)) is not None]
    names = list(dict.fromkeys(change.name for _, change in changes))
    if not names:
        return None
    rows = [_row(pair, change) for pair, change in changes if change.name == names[0]]
    is_auc = slug == "attack"
    low = min(0.4, *(row[end] for row in rows for end in "ab")) if is_auc else 0.0
    high = 1.0 if is_auc else 1.12 * max(0.01, *(row[end] for row in rows for end in "ab"))

    def x(field: str) -> alt.X:
        return alt.X(
            field,
            scale=alt.Scale(domain=[low, high], nice=False),
            axis=alt.Axis(title=names[0], tickCount=6, grid=True),
        )

    layers = [*(upright(0.5, "chance", "right", x) if is_auc else []), *_dumbbells(rows, x)]
    return _finished(comparison, rows, layers, f"compare_{slug}", formatting.capital(names[0]))


def _epsilon_chart(comparison: Comparison) -> Chart | None:
    """Epsilon as log(1 + epsilon), with a lane for infinity; where neither audit claims anything there is none."""
    rows = [_row(pair, pair.epsilon) for pair in comparison.pairs]
    finite = [row[end] for row in rows for end in "ab" if math.isfinite(row[end])]
    if not finite:
        return None
    edge = math.log1p(1.15 * max([*finite, 1.0]))
    top = 1.16 * edge
    middle = (edge + top) / 2
    for row in rows:
        row["said"] = f"{formatting.epsilon(row['a'])} and {formatting.epsilon(row['b'])}"
        row |= {end: math.log1p(row[end]) if math.isfinite(row[end]) else middle for end in "ab"}
    ticks = [math.log1p(tick) for tick in (0, 1, 3, 10, 30, 100, 300, 1000) if math.log1p(tick) <= edge]

    def x(field: str) -> alt.X:
        return alt.X(
            field,
            scale=alt.Scale(domain=[0, top], nice=False),
            axis=alt.Axis(
                title="epsilon",
                values=[*ticks, middle],
                labelExpr=f"datum.value > {edge} ? '∞' : format(exp(datum.value) - 1, '.6~g')",
                labelOverlap=False,
                grid=True,
            ),
        )

    lane = alt.Chart(data([{"from": edge, "to": top}])).mark_rect(color=WASH).encode(x=alt.X("from:Q"), x2="to:Q")
    return _finished(comparison, rows, [lane, *_dumbbells(rows, x)], "compare_epsilon", "Epsilon claimed")


def _dumbbells(rows: list[Row], x: Callable[[str], alt.X]) -> list[alt.Chart]:
    y = label_axis("label:N", list(dict.fromkeys(row["label"] for row in rows)))
    tooltip = [alt.Tooltip("label:N", title="setting"), alt.Tooltip("said:N", title="first and second")]
    base = alt.Chart(data(rows)).encode(y=y, tooltip=tooltip)
    return [
        base.mark_rule(strokeWidth=2.5, color=SOFT).encode(
            x=x("a:Q"), x2="b:Q", opacity=alt.condition(alt.datum.clear, alt.value(1), alt.value(0.45))
        ),
        base.mark_point(size=190, opacity=1, fill=PANEL, color=INK, strokeWidth=1.8).encode(x=x("a:Q")),
        base.mark_point(size=70, opacity=1, filled=True, color=INK).encode(x=x("b:Q")),
    ]


def _finished(comparison: Comparison, rows: list[Row], layers: list[alt.Chart], slug: str, title: str) -> Chart:
    a, b = comparison.names
    description = "; ".join(f"{' '.join(row['label'].split())}: {row['said']}" for row in rows)
    return finished(
        alt.layer(*layers).properties(height=_height(rows)),
        slug,
        title,
        f"{title} in {a} and in {b}. {description}.",
        key=f"ring: {a}; filled: {b}",
    )
