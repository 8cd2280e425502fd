"""ROC curves on logarithmic axes: what attacks find at few false alarms, and what a claim allows them to find.

Where inclusion bits decided who is a member, the curve of an attack must stay below the ceiling of (epsilon, delta).
Audits of many cells get one chart per method with the strongest attack of every setting, small ones a chart per
setting with all attacks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import numpy as np
from jaxtyping import Float64

from attacks.empirical import tpr_ceiling
from privfed.audit.page.charts.drawing import (
    INK,
    SOFT,
    Chart,
    Row,
    colour_of,
    data,
    finished,
    named,
    setting_colour,
)
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.ceilings import too_weak_to_test
from privfed.audit.report.headline import headline_row, inclusion_attack, is_large, protected_cells
from privfed.audit.report.records import POPULARITY, AttackCell, AttackRow, AuditReport, CeilingRow, Cell, RocRow

ROC_GRID: Float64[np.ndarray, " points"] = np.logspace(-3, 0, 46)
_HEIGHT = 230
_KINDS = ("strongest", "other", "popularity", "ceiling")
_MIN_FALSE_ALARMS = 10
"""Nothing is drawn below as many false alarms: a rate made of fewer is noise."""


def roc_charts(report: AuditReport) -> list[Chart]:
    """Curves of the main game behind the mechanism."""
    return _charts(report, headline_row, "roc")


def inclusion_charts(report: AuditReport) -> list[Chart]:
    """Curves of the inclusion game, each with the ceiling of its claim."""
    return _charts(report, lambda cell: inclusion_attack(cell.attacks), "inclusion")


def _charts(report: AuditReport, strongest: Callable[[Cell], AttackCell | None], slug: str) -> list[Chart]:
    pairs = [(cell, best) for cell in protected_cells(report) if (best := strongest(cell)) is not None]
    if not is_large(report):
        return [_of_cell(report, cell, best, slug) for cell, best in pairs]
    methods = grouped(pairs, lambda pair: pair[0].method)
    return [_of_method(report, method, same, slug) for method, same in methods.items()]


def _of_cell(report: AuditReport, cell: Cell, best: AttackCell, slug: str) -> Chart:
    """All attacks of one cell on the view of the strongest."""
    curves, bands = list[Row](), list[Row]()
    for (attack, rounds), rows in grouped(_beside(report, cell, best), _attack_key).items():
        kind = "popularity" if attack == POPULARITY else "other"
        if (attack, list(rounds)) == (best.attack, best.rounds):
            kind = "strongest"
        name = f"{formatting.capital(attack)}, {formatting.rounds_short(list(rounds))}"
        curves += _curve(_mean(rows), {"curve": name, "kind": kind}, _from_rate(rows))
        bands += _band(rows, {"curve": name}) if kind == "strongest" else []
    if best.ceiling is not None:
        curves += _curve(_ceiling(best.ceiling), {"curve": f"ceiling of {_claim(best.ceiling)}", "kind": "ceiling"})
    colour = colour_of(report, cell)
    scale = alt.Scale(domain=list(_KINDS), range=[colour, colour, INK, SOFT])
    name = f"{formatting.method_name(cell.method)}, {formatting.setting(cell.setting)}"
    return finished(
        alt.layer(
            _diagonal(),
            *_areas(bands, alt.value(colour)),
            _lines(curves, alt.Color("kind:N", scale=scale, legend=None)),
        ).properties(height=_HEIGHT),
        f"{slug}_{formatting.file_name(cell.method)}_{cell.setting.slug}",
        name,
        f"ROC on logarithmic axes: {name}. {_curve_sentence(best)}",
        key="thick: strongest attack, its 95 % band; thin: others; dashed: popularity; dotted: chance; long: ceiling",
    )


def _of_method(report: AuditReport, method: str, pairs: Sequence[tuple[Cell, AttackCell]], slug: str) -> Chart:
    """The strongest attack of every setting of one method."""
    curves, bands = list[Row](), list[Row]()
    for cell, best in pairs:
        setting = named(cell)
        for (attack, rounds), rows in grouped(_beside(report, cell, best), _attack_key).items():
            if (attack, list(rounds)) == (best.attack, best.rounds):
                line = setting | {"curve": formatting.capital(attack), "kind": "strongest"}
                curves += _curve(_mean(rows), line, _from_rate(rows))
                bands += _band(rows, line)
        if best.ceiling is not None:
            ceiling_row = {"curve": f"ceiling of {_claim(best.ceiling)}", "kind": "ceiling"}
            curves += _curve(_ceiling(best.ceiling), setting | ceiling_row)
    popular = [row for row in _beside(report, *pairs[0]) if row.attack == POPULARITY]
    guess = (
        _curve(_mean(popular), {"curve": "Popularity", "kind": "popularity"}, _from_rate(popular)) if popular else []
    )
    name = formatting.method_name(method)
    description = " ".join(
        f"{formatting.capital(formatting.setting(cell.setting))}: {_curve_sentence(best)}" for cell, best in pairs
    )
    return finished(
        alt.layer(
            _diagonal(),
            *_areas(bands, setting_colour(report, [cell for cell, _ in pairs])),
            *([_lines(guess, alt.value(INK))] if guess else []),
            _lines(curves, setting_colour(report, [cell for cell, _ in pairs])),
        ).properties(height=_HEIGHT),
        f"{slug}_{formatting.file_name(method)}",
        name,
        f"ROC on logarithmic axes: {name}, the strongest attack of each setting. {description}",
        key="lines: strongest attack of each setting, 95 % bands; dashed: popularity; dotted: chance; long: ceiling",
    )


def _beside(report: AuditReport, cell: Cell, best: AttackCell) -> list[AttackRow]:
    """The rows of all seeds on the view of one attack."""
    view = (best.tap, best.game, best.scope, best.membership)
    return [
        row
        for run in report.runs
        if (run.method, run.setting.slug) == (cell.method, cell.setting.slug)
        for row in run.attacks
        if (row.tap, row.game, row.scope, row.membership) == view
    ]


def _attack_key(row: AttackRow) -> tuple[str, tuple[int, ...]]:
    return row.attack, tuple(row.rounds)


def _mean(rows: Sequence[AttackRow]) -> Float64[np.ndarray, " points"]:
    return np.asarray(np.mean([_on_grid(row.roc) for row in rows], axis=0))


def _on_grid(roc: RocRow) -> Float64[np.ndarray, " points"]:
    return np.asarray(np.interp(ROC_GRID, roc.fpr, roc.tpr))


def _ceiling(ceiling: CeilingRow) -> Float64[np.ndarray, " points"]:
    return np.asarray([tpr_ceiling(float(fpr), ceiling.epsilon, ceiling.delta) for fpr in ROC_GRID])


def _claim(ceiling: CeilingRow) -> str:
    return f"epsilon {formatting.epsilon(ceiling.epsilon)}"


def _curve(tpr: Float64[np.ndarray, " points"], about: Row, from_rate: float = 0.0) -> list[Row]:
    return [
        {"fpr": float(f"{f:.3g}"), "tpr": float(f"{t:.3g}")} | about
        for f, t in zip(ROC_GRID, np.maximum(tpr, ROC_GRID[0]), strict=True)
        if f >= from_rate
    ]


def _from_rate(rows: Sequence[AttackRow]) -> float:
    """The rate of false alarms at which there are enough of them in every seed."""
    return max(_MIN_FALSE_ALARMS / max(row.n_nonmembers, 1) for row in rows)


def _band(rows: Sequence[AttackRow], about: Row) -> list[Row]:
    """The 95 % band over users, ends averaged over seeds; empty where a seed has none."""
    if not all(row.roc.lo for row in rows):
        return []
    low, high = (np.mean([np.interp(ROC_GRID, row.roc.fpr, end(row.roc)) for row in rows], axis=0) for end in _ENDS)
    from_rate = _from_rate(rows)
    return [
        {"fpr": float(f"{f:.3g}"), "lo": float(f"{max(a, ROC_GRID[0]):.3g}"), "hi": float(f"{b:.3g}")} | about
        for f, a, b in zip(ROC_GRID, low, np.maximum(high, ROC_GRID[0]), strict=True)
        if f >= from_rate
    ]


_ENDS: tuple[Callable[[RocRow], list[float]], ...] = (lambda roc: roc.lo, lambda roc: roc.hi)


def _areas(bands: list[Row], colour: Any) -> list[alt.Chart]:
    if not bands:
        return []
    detail = ["curve:N", "setting:N"] if "setting" in bands[0] else ["curve:N"]
    area = alt.Chart(data(bands)).mark_area(opacity=0.18, interpolate="monotone")
    return [area.encode(**_axes("lo:Q"), y2="hi:Q", detail=detail, color=colour)]


def _axes(y: str = "tpr:Q") -> dict[str, Any]:
    def axis(title: str) -> alt.Axis:
        return alt.Axis(title=title, values=[0.001, 0.01, 0.1, 1], format=".1~%", grid=True)

    scale = alt.Scale(type="log", domain=[ROC_GRID[0], 1.0], nice=False, clamp=True)
    return {
        "x": alt.X("fpr:Q", scale=scale, axis=axis("false alarms")),
        "y": alt.Y(y, scale=scale, axis=axis("items found")),
    }


def _diagonal() -> alt.Chart:
    ends = alt.Chart(data([{"fpr": 0.001, "tpr": 0.001}, {"fpr": 1.0, "tpr": 1.0}]))
    line: alt.Chart = ends.mark_line(color=SOFT, strokeWidth=1, strokeDash=[1, 3]).encode(**_axes())
    return line


def _lines(curves: list[Row], colour: Any) -> alt.Chart:
    kinds = list(_KINDS)
    detail = ["curve:N", "setting:N"] if curves and "setting" in curves[0] else ["curve:N"]
    lines: alt.Chart = (
        alt.Chart(data(curves))
        .mark_line(interpolate="monotone")
        .encode(
            **_axes(),
            detail=detail,
            color=colour,
            opacity=alt.Opacity("kind:O", scale=alt.Scale(domain=kinds, range=[1, 0.5, 0.9, 0.9]), legend=None),
            strokeWidth=alt.StrokeWidth(
                "kind:O", scale=alt.Scale(domain=kinds, range=[2.8, 1.1, 1.6, 1.8]), legend=None
            ),
            strokeDash=alt.StrokeDash(
                "kind:O", scale=alt.Scale(domain=kinds, range=[[1, 0], [1, 0], [5, 4], [10, 3]]), legend=None
            ),
            tooltip=[
                alt.Tooltip("curve:N"),
                *([alt.Tooltip("setting:N")] if len(detail) > 1 else []),
                alt.Tooltip("fpr:Q", title="false alarms", format=".2%"),
                alt.Tooltip("tpr:Q", title="items found", format=".1%"),
            ],
        )
    )
    return lines


def _curve_sentence(best: AttackCell) -> str:
    rate = f"{best.tpr_at_1pct.mean:.1%}" if best.tpr_at_1pct else "an unresolved share"
    text = f"The strongest attack, {best.attack}, finds {rate} of the used items at 1 % false alarms; chance: 1 %."
    if best.ceiling is not None and too_weak_to_test(best.ceiling):
        text += " The claim allows nearly everything: it is too weak to be tested so."
    if best.ceiling is not None:
        ceiling = tpr_ceiling(0.01, best.ceiling.epsilon, best.ceiling.delta)
        text += f" The claim allows at most {ceiling:.1%}."
    return text
