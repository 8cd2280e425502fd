"""The charts of an audit, as Vega-Lite specifications built with Altair.

Each chart is one view that fills the width of its place, so that a page lays them out and a phone stacks
them. Colours are CSS variables (see `palette`); the same specification is drawn in the page and written to a
file.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import altair as alt
import numpy as np
import vl_convert
from jaxtyping import Float64

from attacks.view import ALL_ITEMS
from privfed.audit.aggregates import grouped
from privfed.audit.headline import (
    at_main_tap,
    main_attack,
    main_utility,
    popularity_utility,
    protected_cells,
)
from privfed.audit.page import words
from privfed.audit.page.palette import in_light, setting_colours, variable
from privfed.audit.report import POPULARITY, AttackCell, AuditReport, Cell, Roc
from privfed.privacy.statements import WEAK_EPSILON

INK, SOFT, LINE, WASH = "var(--ink)", "var(--soft)", "var(--line)", "var(--wash)"
SHAPES = {"circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "triangle-down": "▼"}
SANS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
HEIGHT = 300
ROC_GRID: Float64[np.ndarray, " points"] = np.logspace(-3, 0, 46)

_AXIS = {
    "domainColor": LINE,
    "gridColor": LINE,
    "gridOpacity": 0.6,
    "tickColor": LINE,
    "labelColor": SOFT,
    "titleColor": SOFT,
    "labelFont": SANS,
    "titleFont": SANS,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "titlePadding": 10,
}
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": SANS,
    "view": {"stroke": None},
    "axis": _AXIS,
    "text": {"font": SANS, "fontSize": 12, "color": SOFT},
    "legend": {
        "orient": "bottom",
        "columns": 1,
        "labelFont": SANS,
        "titleFont": SANS,
        "labelColor": INK,
        "titleColor": SOFT,
        "labelLimit": 260,
    },
    "title": {"font": SANS, "color": INK, "anchor": "start", "fontWeight": "normal", "fontSize": 14},
}


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: `slug` names its file, `title` heads it, `description` says in words what it shows."""

    slug: str
    title: str
    description: str
    spec: dict[str, Any]


def method_shapes(report: AuditReport) -> dict[str, str]:
    """Mark shape of each method, in the order of the report."""
    methods = dict.fromkeys(cell.method for cell in protected_cells(report))
    shapes = list(SHAPES)
    return {method: shapes[i % len(shapes)] for i, method in enumerate(methods)}


def utility_charts(report: AuditReport) -> list[Chart]:
    """Utility against epsilon, one chart per (trust, unit), each with the settings that protect nothing."""
    cells = [cell for cell in protected_cells(report) if main_utility(cell) is not None]
    panels = grouped(cells, lambda cell: (cell.guarantee.trust, cell.guarantee.unit))
    free = [cell for (trust, _), same in panels.items() if trust == "none" for cell in same]
    claims = {key: same for key, same in panels.items() if key[0] != "none"} or panels
    return [
        _utility_chart(report, trust, unit, same if trust == "none" else free + same)
        for (trust, unit), same in claims.items()
    ]


def attack_charts(report: AuditReport) -> list[Chart]:
    """AUC of every attack under every setting behind the protection, one chart per method and game."""
    charts = []
    for method, cells in grouped(protected_cells(report), lambda cell: cell.method).items():
        rows = [(cell, row) for cell in cells for row in at_main_tap(cell) if row.scope == ALL_ITEMS]
        charts += [
            _attack_chart(report, method, game, same) for game, same in grouped(rows, lambda pair: pair[1].game).items()
        ]
    return charts


def roc_charts(report: AuditReport) -> list[Chart]:
    """Log-log ROC curves behind the protection, one small chart per method and setting."""
    pairs = ((cell, main_attack(cell)) for cell in protected_cells(report))
    return [_roc_chart(report, cell, best) for cell, best in pairs if best is not None]


def write_charts(report: AuditReport, folder: Path) -> list[Path]:
    """Write every chart as an SVG file, in light colours and with a legend; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for chart in [*utility_charts(report), *attack_charts(report), *roc_charts(report)]:
        spec = chart.spec | {"title": chart.title, "width": 620, "padding": 16}
        path = folder / f"{chart.slug}.svg"
        path.write_text(vl_convert.vegalite_to_svg(in_light(json.dumps(spec), report)), encoding="utf-8")
        paths.append(path)
    return paths


def _colour(report: AuditReport, cells: Sequence[Cell]) -> alt.Color:
    order = list(setting_colours(report))
    names = {cell.setting.slug: words.setting(cell.setting) for cell in cells}
    return alt.Color(
        "setting:N",
        scale=alt.Scale(domain=list(names.values()), range=[f"var({variable(order.index(slug))})" for slug in names]),
        title=None,
    )


def _finished(chart: alt.LayerChart | alt.FacetChart, slug: str, title: str, description: str) -> Chart:
    spec = chart.properties(width="container").to_dict() | {"description": description, "config": _CONFIG}
    return Chart(slug=words.slug(slug), title=title, description=description, spec=spec)


def _data(rows: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=rows)


def _utility_chart(report: AuditReport, trust: str, unit: str, cells: list[Cell]) -> Chart:
    finite = [epsilon for cell in cells if cell.guarantee.finite and (epsilon := cell.guarantee.epsilon) > 0]
    low = 10.0 ** min(0, math.floor(math.log10(min([*finite, 1.0]))))
    edge = 10.0 ** max(2, math.ceil(math.log10(max([*finite, 1.0])) + 0.05))
    lane = 0.4 * math.log10(edge / low)
    places = iter(np.linspace(0, lane, sum(not cell.guarantee.finite for cell in cells) + 2)[1:-1])
    rows: list[dict[str, Any]] = []
    for cell in cells:
        utility = main_utility(cell)
        if utility is None:
            continue
        claim = cell.guarantee
        rows.append(
            {
                "x": max(claim.epsilon, low) if claim.finite else edge * 10 ** float(next(places)),
                "epsilon": words.epsilon(claim.epsilon),
                "label": f"ε = {words.epsilon(claim.epsilon)}",
                "value": utility.seeds.mean,
                "lo": utility.users.lo,
                "hi": utility.users.hi,
                "setting": words.setting(cell.setting),
                "method": words.named(words.METHODS, cell.method),
            }
        )
        name, popularity = words.metric(utility.name, utility.k), popularity_utility(report, utility)
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
    y = alt.Y("value:Q", scale=alt.Scale(zero=True, nice=True), axis=alt.Axis(title=name, tickCount=5))
    shapes = {words.named(words.METHODS, m): s for m, s in method_shapes(report).items()}
    base = alt.Chart(_data(rows)).encode(x=x, color=_colour(report, cells))
    layers: list[alt.Chart] = [
        alt.Chart(_data([{"from": edge, "to": top}])).mark_rect(color=WASH).encode(x=alt.X("from:Q"), x2="to:Q"),
        alt.Chart(_data([{"x": edge * 10 ** (lane / 2)}]))
        .mark_text(fontSize=11, dy=-10)
        .encode(x="x:Q", y=alt.value(HEIGHT), text=alt.value("no guarantee")),
        *_weak_line(),
        *_popularity_line(popularity.seeds.mean if popularity else None),
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(y=alt.Y("lo:Q", title=name), y2="hi:Q"),
        base.mark_point(filled=True, size=130, opacity=1, stroke="var(--panel)", strokeWidth=1.5).encode(
            y=y,
            shape=alt.Shape(
                "method:N",
                scale=alt.Scale(domain=list(shapes), range=list(shapes.values())),
                title=None,
                legend=alt.Undefined if len(shapes) > 1 else None,
            ),
            tooltip=[
                alt.Tooltip("method:N"),
                alt.Tooltip("setting:N"),
                alt.Tooltip("epsilon:N"),
                alt.Tooltip("value:Q", title=name, format=".3f"),
            ],
        ),
    ]
    layers.append(
        base.transform_filter(alt.datum.x <= edge)
        .mark_text(align="right", dx=-12, fontSize=13)
        .encode(y=y, text=alt.Text("label:N"), color=alt.value(INK))
    )
    told = "; ".join(f"{r['method']}, {r['setting']}: epsilon {r['epsilon']}, {name} {r['value']:.3f}" for r in rows)
    told += f"; popularity: {popularity.seeds.mean:.3f}" if popularity else ""
    who, what = words.named(words.TRUST, trust), words.named(words.UNITS, unit)
    title = f"{name} against epsilon. Trusted: {who}. Unit: {what}."
    return _finished(
        alt.layer(*layers).properties(height=HEIGHT),
        f"utility_{trust}_{unit}",
        title,
        f"Recommendation quality against epsilon. {told}.",
    )


def _weak_line() -> list[alt.Chart]:
    base = alt.Chart(_data([{"x": WEAK_EPSILON}])).encode(x="x:Q")
    label = f"weak above {WEAK_EPSILON:g}"
    return [
        base.mark_rule(strokeDash=[1, 4], color=SOFT),
        base.mark_text(align="left", dx=6, dy=12).encode(y=alt.value(0), text=alt.value(label)),
    ]


def _popularity_line(value: float | None) -> list[alt.Chart]:
    if value is None:
        return []
    base = alt.Chart(_data([{"value": value}]))
    return [
        base.mark_rule(strokeDash=[5, 4], color=SOFT).encode(y="value:Q"),
        base.mark_text(align="left", dx=6, dy=-8).encode(
            y="value:Q", x=alt.value(0), text=alt.value(f"popularity {value:.3f}")
        ),
    ]


def _attack_chart(report: AuditReport, method: str, game: str, pairs: list[tuple[Cell, AttackCell]]) -> Chart:
    real = [(cell, row) for cell, row in pairs if row.attack != POPULARITY]
    popularity = float(np.mean([row.popularity_auc for _, row in pairs]))
    rows: list[dict[str, Any]] = [
        {
            "attack": _attack_label(row),
            "setting": words.setting(cell.setting),
            "auc": row.auc.mean,
            "lo": row.users.lo,
            "hi": row.users.hi,
            "gain": row.gain.value,
        }
        for cell, row in real
    ]
    settings = list(dict.fromkeys(words.setting(cell.setting) for cell, _ in real))
    order = sorted(
        dict.fromkeys(_attack_label(row) for _, row in real),
        key=lambda a: -max(r["auc"] for r in rows if r["attack"] == a),
    )
    low = min(0.4, math.floor(10 * min((r["lo"] for r in rows), default=0.4)) / 10)

    def x(field: str) -> alt.X:
        return alt.X(
            field,
            scale=alt.Scale(domain=[low, 1.0], nice=False),
            axis=alt.Axis(title="AUC", tickCount=6, format=".1f"),
        )

    base = alt.Chart(_data(rows)).encode(
        y=alt.Y(
            "attack:N",
            sort=order,
            axis=alt.Axis(
                title=None,
                labelExpr="split(datum.label, '\\n')",
                labelLimit=170,
                labelColor=INK,
                ticks=False,
                domain=False,
                labelPadding=8,
            ),
            scale=alt.Scale(paddingInner=0.35),
        ),
        yOffset=alt.YOffset("setting:N", sort=settings),
        color=_colour(report, [cell for cell, _ in real]),
    )
    layers = [
        *_reference(0.5, "coin", "right", x, []),
        *_reference(popularity, f"popularity {popularity:.2f}", "right" if popularity > 0.7 else "left", x, [5, 4]),
        base.mark_rule(strokeWidth=2.5, opacity=0.55).encode(x=x("lo:Q"), x2="hi:Q"),
        base.mark_point(filled=True, size=95, opacity=1, stroke="var(--panel)", strokeWidth=1).encode(
            x=x("auc:Q"),
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("attack:N"),
                alt.Tooltip("auc:Q", title="AUC", format=".3f"),
                alt.Tooltip("gain:Q", title="gain over popularity", format="+.3f"),
            ],
        ),
    ]
    told = "; ".join(f"{' '.join(r['attack'].split())}, {r['setting']}: {r['auc']:.3f}" for r in rows)
    name = words.named(words.METHODS, method)
    return _finished(
        alt.layer(*layers).properties(height=len(order) * max(40, 20 * len(settings))),
        f"attacks_{method}_{game}",
        f"{name}: {game}",
        f"AUC of each attack under each setting. {told}; popularity guess: {popularity:.3f}; coin: 0.5.",
    )


def _attack_label(row: AttackCell) -> str:
    return "\n".join(wrap(f"{words.capital(row.attack)}, {words.rounds_short(row.rounds)}", 22, break_on_hyphens=False))


def _reference(
    at: float, label: str, align: Literal["left", "right"], x: Callable[[str], alt.X], dash: list[int]
) -> list[alt.Chart]:
    base = alt.Chart(_data([{"at": at}])).encode(x=x("at:Q"))
    return [
        base.mark_rule(color=SOFT, strokeDash=dash),
        base.mark_text(align=align, dx=4 if align == "left" else -4, dy=-8).encode(
            y=alt.value(0), text=alt.value(label)
        ),
    ]


def _roc_chart(report: AuditReport, cell: Cell, best: AttackCell) -> Chart:
    runs = [run for run in report.runs if (run.method, run.setting.slug) == (cell.method, cell.setting.slug)]
    same_view = [
        row
        for run in runs
        for row in run.attacks
        if (row.tap, row.game, row.scope) == (best.tap, best.game, best.scope)
    ]
    curves: list[dict[str, Any]] = []
    for (attack, rounds), rows in grouped(same_view, lambda row: (row.attack, tuple(row.rounds))).items():
        kind = "popularity" if attack == POPULARITY else "other"
        if (attack, list(rounds)) == (best.attack, best.rounds):
            kind = "strongest"
        name = f"{words.capital(attack)}, {words.rounds_short(list(rounds))}"
        mean = np.mean([_on_grid(row.roc) for row in rows], axis=0)
        curves += [
            {"fpr": float(f"{f:.3g}"), "tpr": float(f"{t:.3g}"), "curve": name, "kind": kind}
            for f, t in zip(ROC_GRID, np.maximum(mean, ROC_GRID[0]), strict=True)
        ]
    colour = f"var({variable(list(setting_colours(report)).index(cell.setting.slug))})"
    kinds = ["strongest", "other", "popularity"]

    def axis(title: str) -> alt.Axis:
        return alt.Axis(title=title, values=[0.001, 0.01, 0.1, 1], format=".1~%", grid=True)

    scale = alt.Scale(type="log", domain=[ROC_GRID[0], 1.0], nice=False, clamp=True)
    x = alt.X("fpr:Q", scale=scale, axis=axis("false alarms"))
    y = alt.Y("tpr:Q", scale=scale, axis=axis("items found"))
    diagonal = (
        alt.Chart(_data([{"fpr": 0.001, "tpr": 0.001}, {"fpr": 1.0, "tpr": 1.0}]))
        .mark_line(color=SOFT, strokeWidth=1, strokeDash=[1, 3])
        .encode(x=x, y=y)
    )
    lines = (
        alt.Chart(_data(curves))
        .mark_line(interpolate="monotone")
        .encode(
            x=x,
            y=y,
            detail="curve:N",
            color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[colour, colour, INK]), legend=None),
            opacity=alt.Opacity("kind:O", scale=alt.Scale(domain=kinds, range=[1, 0.5, 0.9]), legend=None),
            strokeWidth=alt.StrokeWidth("kind:O", scale=alt.Scale(domain=kinds, range=[2.8, 1.1, 1.6]), legend=None),
            strokeDash=alt.StrokeDash(
                "kind:O", scale=alt.Scale(domain=kinds, range=[[1, 0], [1, 0], [5, 4]]), legend=None
            ),
            tooltip=[
                alt.Tooltip("curve:N", title="attack"),
                alt.Tooltip("fpr:Q", title="false alarms", format=".2%"),
                alt.Tooltip("tpr:Q", title="items found", format=".1%"),
            ],
        )
    )
    rate = f"{best.tpr_at_1pct.mean:.1%}" if best.tpr_at_1pct else "an unresolved share"
    name = f"{words.named(words.METHODS, cell.method)}, {words.setting(cell.setting)}"
    return _finished(
        alt.layer(diagonal, lines).properties(height=230),
        f"roc_{cell.method}_{cell.setting.slug}",
        name,
        f"ROC on logarithmic axes: {name}. The strongest attack, {best.attack}, "
        f"finds {rate} of the used items at 1 % false alarms; a coin finds 1 %.",
    )


def _on_grid(roc: Roc) -> Float64[np.ndarray, " points"]:
    return np.asarray(np.interp(ROC_GRID, roc.fpr, roc.tpr))
