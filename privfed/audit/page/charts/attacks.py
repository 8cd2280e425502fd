"""What attacks recover: an AUC for every attack and setting, and how well attributes of people are guessed."""

import math

import altair as alt
import numpy as np

from attacks.evaluation import ALL_ITEMS
from privfed.audit.page.charts.drawing import (
    PANEL,
    Chart,
    LabelRows,
    Row,
    XChannel,
    data,
    finished,
    label_axis,
    named,
    setting_colour,
    upright,
    wrapped,
)
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.headline import at_main_tap, attribute_guess, chosen, is_large, protected_cells
from privfed.audit.report.records import POPULARITY, AttackCell, AuditReport, Cell


def attack_charts(report: AuditReport) -> list[Chart]:
    """AUC behind the mechanism in the games on natural members.

    One chart per method and game has every attack under every setting; where there are many cells, one chart per game
    has the strongest attack of each.
    """
    pairs = [
        (cell, row)
        for cell in protected_cells(report)
        for row in at_main_tap(cell)
        if row.scope.startswith(ALL_ITEMS) and row.membership == "natural"
    ]
    if is_large(report):
        views = grouped(pairs, lambda pair: (pair[0].method, pair[0].setting.slug, pair[1].game)).values()
        best = ((same[0][0], chosen(row for _, row in same)) for same in views)
        strongest = grouped(((cell, row) for cell, row in best if row is not None), lambda pair: pair[1].game)
        return [_strongest_chart(report, game, same) for game, same in strongest.items()]
    return [
        _attack_chart(report, method, game, same)
        for (method, game), same in grouped(
            (pair for pair in pairs if pair[1].scope == ALL_ITEMS), lambda pair: (pair[0].method, pair[1].game)
        ).items()
    ]


def attribute_charts(report: AuditReport) -> list[Chart]:
    """How well an attribute is guessed behind each mechanism, beside true histories; one chart per attribute."""
    attributes = dict.fromkeys(row.attribute for cell in report.aggregates for row in cell.attributes)
    charts = [_attribute_chart(report, attribute) for attribute in attributes]
    return [chart for chart in charts if chart is not None]


def _attack_chart(report: AuditReport, method: str, game: str, pairs: list[tuple[Cell, AttackCell]]) -> Chart:
    real = [(cell, row) for cell, row in pairs if row.attack != POPULARITY]
    popularity = float(np.mean([row.popularity_auc for _, row in pairs]))
    rows: list[Row] = [
        named(cell)
        | {
            "attack": _attack_label(row),
            "auc": row.auc.mean,
            "lo": row.users.lo,
            "hi": row.users.hi,
            "gain": row.gain.value,
        }
        for cell, row in real
    ]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    order = sorted(
        dict.fromkeys(_attack_label(row) for _, row in real),
        key=lambda a: -max(r["auc"] for r in rows if r["attack"] == a),
    )
    x = _auc_axis(rows)
    base = alt.Chart(data(rows)).encode(
        y=label_axis("attack:N", order),
        yOffset=alt.YOffset("setting:N", sort=settings),
        color=setting_colour(report, [cell for cell, _ in real]),
    )
    layers = [
        *upright(0.5, "chance", "right", x),
        *upright(popularity, f"popularity {popularity:.2f}", "right" if popularity > 0.7 else "left", x, [5, 4]),
        *_dots(base, x, [alt.Tooltip("attack:N"), alt.Tooltip("gain:Q", title="gain over popularity", format="+.3f")]),
    ]
    description = "; ".join(f"{' '.join(r['attack'].split())}, {r['setting']}: {r['auc']:.3f}" for r in rows)
    name = formatting.method_name(method)
    return finished(
        alt.layer(*layers).properties(height=len(order) * max(40, 20 * len(settings))),
        f"attacks_{formatting.file_name(method)}_{game}",
        f"{name}: {game}",
        f"AUC of each attack under each setting. {description}; popularity guess: {popularity:.3f}; chance: 0.5.",
    )


def _strongest_chart(report: AuditReport, game: str, pairs: list[tuple[Cell, AttackCell]]) -> Chart:
    rows: list[Row] = [
        named(cell)
        | {
            "attack": formatting.capital(row.attack),
            "auc": row.sample_split.auc.value,
            "lo": row.sample_split.auc.lo,
            "hi": row.sample_split.auc.hi,
        }
        for cell, row in pairs
        if row.sample_split is not None
    ]
    popularity = float(np.mean([row.sample_split.popularity_auc for _, row in pairs if row.sample_split is not None]))
    x, lanes = _auc_axis(rows), LabelRows.from_rows(rows)
    base = alt.Chart(data(rows)).encode(**lanes.encodings, color=setting_colour(report, [cell for cell, _ in pairs]))
    layers = [
        *upright(0.5, "chance", "right", x),
        *upright(popularity, f"popularity {popularity:.2f}", "right" if popularity > 0.7 else "left", x, [5, 4]),
        *_dots(base, x, [alt.Tooltip("attack:N")]),
    ]
    description = "; ".join(f"{r['method']}, {r['setting']}: {r['attack']} {r['auc']:.3f}" for r in rows)
    return finished(
        alt.layer(*layers).properties(height=lanes.height),
        f"attacks_{game}",
        f"The strongest attack: {game}",
        f"AUC of the strongest attack under each setting. {description}; popularity guess: {popularity:.3f}; chance: "
        f"0.5.",
    )


def _attack_label(row: AttackCell) -> str:
    return wrapped(f"{formatting.capital(row.attack)}, {formatting.rounds_short(row.rounds)}")


def _attribute_chart(report: AuditReport, attribute: str) -> Chart | None:
    guesses = [(cell, *attribute_guess(cell, attribute)) for cell in protected_cells(report)]
    rows: list[Row] = [
        named(cell)
        | {"auc": seen.auc.value, "lo": seen.auc.lo, "hi": seen.auc.hi, "evidence": formatting.capital(seen.evidence)}
        for cell, seen, _ in guesses
        if seen is not None
    ]
    if not rows:
        return None
    truths = [truth.auc.value for _, _, truth in guesses if truth is not None]
    x, lanes = _auc_axis(rows), LabelRows.from_rows(rows)
    cells = [cell for cell, seen, _ in guesses if seen is not None]
    base = alt.Chart(data(rows)).encode(**lanes.encodings, color=setting_colour(report, cells))
    layers = [*upright(0.5, "chance", "right", x), *_dots(base, x, [alt.Tooltip("evidence:N")])]
    description = "; ".join(f"{r['method']}, {r['setting']}: {r['auc']:.3f}" for r in rows) + "; chance: 0.5"
    if truths:
        truth = float(np.mean(truths))
        layers = [*upright(truth, f"true history {truth:.2f}", "left" if truth < 0.7 else "right", x, [5, 4]), *layers]
        description += f"; from the true history: {truth:.3f}"
    classes = next(row.classes for cell in cells for row in cell.attributes if row.attribute == attribute)
    return finished(
        alt.layer(*layers).properties(height=lanes.height),
        f"attribute_{attribute}",
        f"{formatting.capital(attribute)}: {classes}",
        f"AUC of guessing {attribute} behind each mechanism. {description}.",
    )


def _auc_axis(rows: list[Row]) -> XChannel:
    """From 0.4, or below the lowest interval, to 1."""
    low = min(0.4, math.floor(10 * min((r["lo"] for r in rows), default=0.4)) / 10)

    def x(field: str) -> alt.X:
        return alt.X(
            field,
            scale=alt.Scale(domain=[low, 1.0], nice=False),
            axis=alt.Axis(title="AUC", tickCount=6, format=".1f"),
        )

    return x


def _dots(base: alt.Chart, x: XChannel, tooltips: list[alt.Tooltip]) -> list[alt.Chart]:
    return [
        base.mark_rule(strokeWidth=2.5, opacity=0.55).encode(x=x("lo:Q"), x2="hi:Q"),
        base.mark_point(filled=True, size=95, opacity=1, stroke=PANEL, strokeWidth=1).encode(
            x=x("auc:Q"),
            tooltip=[
                alt.Tooltip("method:N"),
                alt.Tooltip("setting:N"),
                alt.Tooltip("auc:Q", title="AUC", format=".3f"),
                *tooltips,
            ],
        ),
    ]
