"""`render`: an audit report as one HTML file that loads nothing.

The page is written in the order in which a newcomer asks: what was tested, what leaked, what is guaranteed, what it
costs, what all this does not say. A part appears only where there is something to show. Templates lay out; every word
and number is chosen in this package or comes from the report.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from privfed.audit.page import cards, overview, rows
from privfed.audit.page.charts import (
    SHAPES,
    SYMBOLS,
    Chart,
    Charts,
    colour_of,
    kinds_shown,
    method_shapes,
)
from privfed.audit.page.palette import stylesheet
from privfed.audit.page.picture import pictures
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import SEEDS_FOR_AN_INTERVAL
from privfed.audit.report.headline import PROTECTED_TAPS, at_main_tap, is_large, metrics_on_test, protected_cells
from privfed.audit.report.records import AttackCell, AuditReport, Cell
from privfed.audit.report.slice_sentences import slice_sentences
from privfed.audit.report.verdict import verdict
from privfed.evaluation import UNCOUNTED

SHORT = 6
"""Tables of more lines than this are folded where a chart shows the same; that of the strongest attacks from twice."""

_NAMES = {
    "verdict": "Verdict",
    "picture": "Picture",
    "settings": "Every setting",
    "guarantee": "Guarantees",
    "measured": "Measured epsilon",
    "utility": "Recommendations",
    "frontier": "By trust",
    "attacks": "Attacks",
    "inclusion": "Randomised inclusion",
    "slices": "Rare and quiet",
    "attributes": "Attributes",
    "cost": "Cost",
    "limits": "Limits",
    "configuration": "Repeat it",
}


def render(report: AuditReport, charts: Charts | None = None) -> str:
    """The page of a concluded report (see `conclude`), complete and self-contained.

    Args:
        report: What there is to say.
        charts: Those of the report, where they are drawn already.
    """
    charts = charts or Charts.from_report(report)
    return page_template("page.html").render(
        report=report,
        charts=charts,
        specs=specs(charts.all()),
        **_frame(report),
        **_first_screen(report),
        **_leakage(report),
        **_utility_and_cost(report),
        **_grounds(report),
        **HELPERS,
    )


def _frame(report: AuditReport) -> dict[str, Any]:
    """Title, findings and what is the same all over the page."""
    return {
        "colours": stylesheet(report),
        "css": text_of("style.css"),
        "methods": formatting.listed([formatting.method_name(name) for name in method_shapes(report)]),
        "tested": " ".join(s.text for s in report.statements if s.topic == "tested"),
        "sections": sections(report),
        "brief": is_large(report),
        "legend": _legend(report),
        "shapes": _shapes(report),
        "seeds_note": _seeds_note(protected_cells(report)),
        "short": SHORT,
        "uncounted": UNCOUNTED,
        "columns": lambda some: 2 if len(some) in {2, 4} else 3,
        "script": script(),
    }


def _first_screen(report: AuditReport) -> dict[str, Any]:
    """The verdict in a sentence, in a table and in a picture, and every setting by itself."""
    found = verdict(report)
    metric = next(((row.utility.name, row.utility.k) for row in found.rows if row.utility), None)
    return {
        "headline": found.sentence.partition(":")[0].rstrip("."),
        "deck": f"{formatting.capital(found.sentence.partition(': ')[2])} {found.controls} {report.advice}".strip(),
        "groups": overview.groups(found),
        "three": overview.three(report, found),
        "legend_of_grades": overview.legend(),
        "metric_name": formatting.metric(*metric) if metric else "quality",
        "picture": pictures(found),
        "picture_title": overview.picture_title(found),
        "picture_note": overview.picture_note(found),
        "settings": overview.settings(report, found),
    }


def _leakage(report: AuditReport) -> dict[str, Any]:
    """What attacks recovered and measurements found."""
    cells = protected_cells(report)
    attacks = [(cell, row) for cell in cells for row in cell.attacks]
    taps = dict.fromkeys(formatting.TAPS[row.tap] for cell in cells for row in at_main_tap(cell))
    return {
        "measured": rows.measured(report),
        "measured_heads": rows.MEASURED,
        "symbols": [(SYMBOLS[kind], kind) for kind in kinds_shown(report)],
        "main_tap": formatting.listed(list(taps)),
        "worst": [rows.chosen_attack(report, cell, row) for cell, row in attacks if _is_worst(row)],
        "every": [rows.attack(report, cell, row) for cell, row in attacks],
        "explained": rows.explained(report),
        "leaks": rows.leaks(report),
        "inclusion_rows": rows.inclusion(report),
        "inclusion_heads": rows.INCLUSION,
        "n_randomised": max((run.inclusion for run in report.runs), default=0),
        "slice_sentences": slice_sentences(report),
        "links": rows.links(report),
        "link_heads": rows.LINKS,
        "attributes": rows.attributes(report),
        "attribute_heads": rows.ATTRIBUTES,
        "knows": _knows(report),
    }


def _utility_and_cost(report: AuditReport) -> dict[str, Any]:
    """Recommendation quality, and what privacy costs besides."""
    return {
        "metrics": [formatting.metric(name, k) for name, k in metrics_on_test(report)],
        "utility": rows.utility(report),
        "list_heads": rows.LISTS,
        "control_heads": rows.CONTROLS,
        "controls": rows.controls(report),
        "several_states": len({row.state for cell in protected_cells(report) for row in cell.utility}) > 1,
        "cost_heads": rows.COST,
        "costs": rows.costs(report),
    }


def _grounds(report: AuditReport) -> dict[str, Any]:
    """What is guaranteed and by what, the limits, and what it takes to repeat the audit."""
    cells = protected_cells(report)
    return {
        "guarantees": cards.guarantees(report),
        "glossary": cards.glossary(cells),
        "ledger": rows.ledger(report),
        "limits": [s.text for s in report.statements if s.topic == "limit"],
        "facts": rows.provenance(report),
        "plans": {f"{cell.method}, {formatting.setting(cell.setting)}": cell.plan for cell in cells},
    }


def _is_worst(row: AttackCell) -> bool:
    """Whether an attack is in the short table: strongest behind the mechanism, in a game on natural members."""
    return row.chosen and row.tap in PROTECTED_TAPS and row.membership == "natural"


HELPERS = {
    "share": formatting.share,
    "signed": formatting.signed,
    "capital": formatting.capital,
    "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
}
"""What every template of the page may call."""


def sections(report: AuditReport) -> list[tuple[str, str]]:
    """Anchor and name of every part that has something to show."""
    cells = report.aggregates
    empty = {
        "picture": not verdict_has_quality(report),
        "settings": not protected_cells(report),
        "measured": not any(cell.empirical for cell in cells),
        "inclusion": not rows.inclusion(report),
        "slices": not any(row.slices for cell in cells for row in cell.attacks),
        "attributes": not any(cell.attributes for cell in cells),
    }
    return [(anchor, name) for anchor, name in _NAMES.items() if not empty.get(anchor)]


def verdict_has_quality(report: AuditReport) -> bool:
    """Whether any setting can be drawn: it has a quality, and so has popularity."""
    return any(row.utility is not None and row.popularity is not None for row in verdict(report).rows)


def text_of(name: str) -> str:
    """A file that lies beside this one."""
    return (resources.files("privfed.audit.page") / name).read_text(encoding="utf-8")


def page_template(name: str) -> Template:
    """A template whose texts are escaped and typeset."""
    environment = Environment(
        loader=PackageLoader("privfed.audit.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: formatting.typeset(value) if type(value) is str else value,
    )
    return environment.get_template(name)


@cache
def script() -> str:
    """Vega, Vega-Lite, Vega-Embed and our few lines, bundled; no string in it can end the script element."""
    bundle: str = vl_convert.javascript_bundle(text_of("charts.js"))
    return bundle.replace("</script", "<\\/script")


def specs(charts: list[Chart]) -> str:
    """All specifications as JSON inside a script element; the page's own colour key stands in for legends."""
    quiet = {chart.slug: _without_legend(chart.spec) for chart in charts}
    return json.dumps(quiet, separators=(",", ":")).replace("<", "\\u003c")


def _without_legend(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"config": spec["config"] | {"legend": {"disable": True}}}


def _legend(report: AuditReport) -> list[dict[str, str]]:
    """Colour and name of every setting, with the methods that have it where not all do."""
    cells = protected_cells(report)
    everybody = dict.fromkeys(cell.method for cell in cells)
    legend = []
    for slug in dict.fromkeys(cell.setting.slug for cell in cells):
        same = [cell for cell in cells if cell.setting.slug == slug]
        name = formatting.setting(same[0].setting)
        if len(same) < len(everybody):
            name += f" ({formatting.listed([formatting.method_name(cell.method) for cell in same])})"
        legend.append({"name": name, "colour": colour_of(report, same[0])})
    return legend


def _shapes(report: AuditReport) -> list[dict[str, str]]:
    shapes = method_shapes(report)
    if len(shapes) < 2:
        return []
    return [{"name": formatting.method_name(name), "shape": SHAPES[shape]} for name, shape in shapes.items()]


def _knows(report: AuditReport) -> str:
    known = dict.fromkeys(text for cell in report.aggregates for row in cell.attributes for text in row.knowledge)
    return formatting.listed(list(known))


def _seeds_note(cells: list[Cell]) -> str:
    n_seeds = min((cell.n_seeds for cell in cells), default=0)
    if n_seeds == 1:
        return "one seed, so no spread over seeds"
    if n_seeds < SEEDS_FOR_AN_INTERVAL:
        return f"below it the range over seeds (no interval: {formatting.count(n_seeds, 'seed')})"
    return f"below it the 95 % t-interval over {formatting.count(n_seeds, 'seed')}"
