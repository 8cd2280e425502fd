"""Quality against what it costs in privacy: against epsilon, and against what the strongest attack recovers.

One pair of panels for each trust and unit, because an epsilon of one kind must never be read beside another.
"""

import math
from collections.abc import Sequence

import altair as alt
import numpy as np

from privfed.audit.page.charts.drawing import (
    HEIGHT,
    INK,
    PANEL,
    SOFT,
    WASH,
    Chart,
    Row,
    XChannel,
    data,
    finished,
    method_shapes,
    named,
    setting_colour,
    upright,
)
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.frontier import dominated
from privfed.audit.report.headline import headline_row, main_utility, popularity_utility, protected_cells
from privfed.audit.report.records import POPULARITY, AttackCell, AuditReport, Cell
from privfed.privacy.statements import WEAK_EPSILON

_MOST_LABELS = 4
"""Points that are labelled with their epsilon; more would lie over each other."""
_APART = 0.028
"""Distance of points of equal epsilon, as a share of the axis."""


def utility_charts(report: AuditReport) -> list[Chart]:
    """Utility against epsilon, one chart per (trust, unit), each with the settings that protect nothing."""
    return [_against_epsilon(report, trust, unit, cells) for (trust, unit), cells in _panels(report).items()]


def frontier_charts(report: AuditReport) -> list[Chart]:
    """Utility against the strongest attack, in the same panels; none for a panel in which nothing was attacked."""
    charts = []
    for (trust, unit), cells in _panels(report).items():
        attacked = [(cell, attack) for cell in cells if (attack := headline_row(cell)) is not None]
        if len(attacked) > 1:
            charts.append(_against_attack(report, trust, unit, attacked))
    return charts


def _panels(report: AuditReport) -> dict[tuple[str, str], list[Cell]]:
    cells = [cell for cell in protected_cells(report) if main_utility(cell) is not None]
    panels = grouped(cells, lambda cell: (cell.guarantee.trust, cell.guarantee.unit))
    free = [cell for (trust, _), same in panels.items() if trust == "none" for cell in same]
    claims = {key: same for key, same in panels.items() if key[0] != "none"} or panels
    return {key: same if key[0] == "none" else free + same for key, same in claims.items()}


def _where(trust: str, unit: str) -> str:
    return f"Trusted: {formatting.named(formatting.TRUST, trust)}. Unit: {formatting.named(formatting.UNITS, unit)}."


def _utility_row(cell: Cell) -> Row:
    utility = main_utility(cell)
    if utility is None:
        raise ValueError(f"{cell.method} under {cell.setting.slug} has no test metric to draw")
    return named(cell) | {
        "value": utility.seeds.mean,
        "lo": utility.users.lo,
        "hi": utility.users.hi,
        "metric": formatting.metric(utility.name, utility.k),
    }


def _points(
    report: AuditReport, cells: Sequence[Cell], rows: list[Row], x: alt.X, tooltip: alt.Tooltip
) -> list[alt.Chart]:
    """The points of a panel with their intervals and the popularity recommender; dominated ones are pale."""
    utility = main_utility(cells[0])
    popularity = popularity_utility(report, utility) if utility else None
    name = str(rows[0]["metric"])
    shapes = {formatting.method_name(m): s for m, s in method_shapes(report).items()}
    base = alt.Chart(data(rows)).encode(x=x, color=setting_colour(report, cells))
    return [
        *_popularity_line(popularity.seeds.mean if popularity else None),
        base.mark_rule(strokeWidth=2).encode(
            y=alt.Y("lo:Q", title=name),
            y2="hi:Q",
            opacity=alt.condition(alt.datum.pale, alt.value(0.25), alt.value(0.6)),
        ),
        base.mark_point(filled=True, size=130, stroke=PANEL, strokeWidth=1.5).encode(
            y=alt.Y("value:Q", scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(title=name, tickCount=5)),
            opacity=alt.condition(alt.datum.pale, alt.value(0.32), alt.value(1)),
            shape=alt.Shape(
                "method:N",
                scale=alt.Scale(domain=list(shapes), range=list(shapes.values())),
                title=None,
                legend=alt.Undefined if len(shapes) > 1 else None,
            ),
            tooltip=[
                alt.Tooltip("method:N"),
                alt.Tooltip("setting:N"),
                tooltip,
                alt.Tooltip("value:Q", title=name, format=".3f"),
            ],
        ),
    ]


def _mark_dominated(rows: list[Row], costs: list[float]) -> None:
    points = [(cost, float(row["value"])) for cost, row in zip(costs, rows, strict=True)]
    for row, pale in zip(rows, dominated(points), strict=True):
        row["pale"] = pale


def _spread(rows: list[Row], decades: float) -> None:
    """Move points of equal epsilon a little apart, so that none hides another."""
    for same in grouped(rows, lambda row: float(row["x"])).values():
        for index, row in enumerate(same):
            row["x"] *= 10 ** (_APART * decades * (index - (len(same) - 1) / 2))


def _description(report: AuditReport, rows: list[Row], cells: Sequence[Cell], cost: str) -> str:
    description = "; ".join(
        f"{r['method']}, {r['setting']}: {cost} {r['cost']}, {r['metric']} {r['value']:.3f}"
        + (" (dominated)" if r["pale"] else "")
        for r in rows
    )
    utility = main_utility(cells[0])
    popularity = popularity_utility(report, utility) if utility else None
    return description + (f"; popularity: {popularity.seeds.mean:.3f}" if popularity else "")


def _against_epsilon(report: AuditReport, trust: str, unit: str, cells: list[Cell]) -> Chart:
    finite = [epsilon for cell in cells if cell.guarantee.finite and (epsilon := cell.guarantee.epsilon) > 0]
    low = 10.0 ** min(0, math.floor(math.log10(min([*finite, 1.0]))))
    edge = 10.0 ** max(2, math.ceil(math.log10(max([*finite, 1.0])) + 0.05))
    lane = 0.4 * math.log10(edge / low)
    positions = iter(np.linspace(0, lane, sum(not cell.guarantee.finite for cell in cells) + 2)[1:-1])
    rows: list[Row] = []
    for cell in cells:
        claim = cell.guarantee
        label = formatting.epsilon(claim.epsilon)
        position = max(claim.epsilon, low) if claim.finite else edge * 10 ** float(next(positions))
        rows.append(
            _utility_row(cell) | {"x": position, "cost": label, "label": f"ε = {label}" if claim.finite else ""}
        )
    _spread(rows, math.log10(edge / low))
    _mark_dominated(rows, [cell.guarantee.epsilon for cell in cells])
    top = edge * 10**lane
    decades = [10.0**power for power in range(round(math.log10(low)), round(math.log10(edge)) + 1)]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", domain=[low, top], nice=False),
        axis=alt.Axis(
            title="epsilon (smaller is a stronger guarantee)",
            values=[*decades, edge * 10 ** (lane / 2)],
            labelExpr=f"datum.value > {1.01 * edge} ? '∞' : format(datum.value, '~g')",
            labelOverlap=False,
            grid=False,
        ),
    )
    layers = [
        alt.Chart(data([{"from": edge, "to": top}])).mark_rect(color=WASH).encode(x=alt.X("from:Q"), x2="to:Q"),
        alt.Chart(data([{"x": edge * 10 ** (lane / 2)}]))
        .mark_text(fontSize=11, dy=-10)
        .encode(x="x:Q", y=alt.value(HEIGHT), text=alt.value("no guarantee")),
        *_weak_line(),
        *_points(report, cells, rows, x, alt.Tooltip("cost:N", title="epsilon")),
    ]
    if len(finite) <= _MOST_LABELS:
        layers.append(
            alt.Chart(data(rows))
            .mark_text(align="right", dx=-12, fontSize=13, color=INK)
            .encode(x=x, y=alt.Y("value:Q"), text=alt.Text("label:N"))
        )
    return finished(
        alt.layer(*layers).properties(height=HEIGHT),
        f"utility_{trust}_{unit}",
        f"{rows[0]['metric']} against epsilon. {_where(trust, unit)}",
        f"Recommendation quality against epsilon. {_description(report, rows, cells, 'epsilon')}.",
    )


def _against_attack(report: AuditReport, trust: str, unit: str, attacked: list[tuple[Cell, AttackCell]]) -> Chart:
    cells = [cell for cell, _ in attacked]
    rates = [attack.tpr_at_1pct.mean if attack.tpr_at_1pct else None for _, attack in attacked]
    by_rate = all(rate is not None for rate in rates)
    costs = (
        [rate for rate in rates if rate is not None]
        if by_rate
        else [cell.headline.auc.value for cell in cells if cell.headline]
    )
    what = "items found at 1 % false alarms" if by_rate else "AUC of the strongest attack"
    rows = [
        _utility_row(cell)
        | {"x": max(cost, 0.001) if by_rate else cost, "cost": f"{cost:.1%}" if by_rate else formatting.share(cost)}
        | {"attack": attack.attack}
        for (cell, attack), cost in zip(attacked, costs, strict=True)
    ]
    _mark_dominated(rows, costs)
    x = _rate_axis(costs, what) if by_rate else _auc_axis(costs, what)
    layers = upright(0.01 if by_rate else 0.5, "chance", "left", x)
    popular = _popularity_guess(attacked, by_rate=by_rate)
    if popular is not None:
        left = popular <= (0.1 if by_rate else 0.75)
        layers += upright(popular, "popularity guess", "left" if left else "right", x, [5, 4])
    layers += _points(report, cells, rows, x("x:Q"), alt.Tooltip("cost:N", title=what))
    return finished(
        alt.layer(*layers).properties(height=HEIGHT),
        f"frontier_{trust}_{unit}",
        f"{rows[0]['metric']} against the strongest attack. {_where(trust, unit)}",
        f"Recommendation quality against what the strongest attack finds. {_description(report, rows, cells, what)}.",
    )


def _rate_axis(costs: list[float], title: str) -> XChannel:
    low = 0.001 if min(costs) < 0.005 else 0.005
    ticks = [rate for rate in (0.001, 0.01, 0.1, 1) if rate >= low]
    scale = alt.Scale(type="log", domain=[low, 1.0], nice=False, clamp=True)
    axis = alt.Axis(title=title, values=ticks, format=".1~%", grid=False)
    return lambda field: alt.X(field, scale=scale, axis=axis)


def _auc_axis(costs: list[float], title: str) -> XChannel:
    scale = alt.Scale(domain=[min(0.45, *costs), 1.0], nice=False, clamp=True)
    axis = alt.Axis(title=title, tickCount=6, format=".1f", grid=False)
    return lambda field: alt.X(field, scale=scale, axis=axis)


def _popularity_guess(attacked: list[tuple[Cell, AttackCell]], *, by_rate: bool) -> float | None:
    """What the popularity guesser reaches beside these attacks, on average."""
    if not by_rate:
        return float(np.mean([attack.popularity_auc for _, attack in attacked]))
    rates = [
        row.tpr_at_1pct.mean
        for cell, attack in attacked
        for row in cell.attacks
        if row.attack == POPULARITY
        and row.tpr_at_1pct
        and (row.tap, row.game, row.scope) == (attack.tap, attack.game, attack.scope)
    ]
    return float(np.mean(rates)) if rates else None


def _weak_line() -> list[alt.Chart]:
    base = alt.Chart(data([{"x": WEAK_EPSILON}])).encode(x="x:Q")
    return [
        base.mark_rule(strokeDash=[1, 4], color=SOFT),
        base.mark_text(align="left", dx=6, dy=12).encode(
            y=alt.value(0), text=alt.value(f"weak above {WEAK_EPSILON:g}")
        ),
    ]


def _popularity_line(value: float | None) -> list[alt.Chart]:
    if value is None:
        return []
    base = alt.Chart(data([{"value": value}]))
    return [
        base.mark_rule(strokeDash=[5, 4], color=SOFT).encode(y="value:Q"),
        base.mark_text(align="left", dx=6, dy=10).encode(
            y="value:Q", x=alt.value(0), text=alt.value(f"popularity {value:.3f}")
        ),
    ]
