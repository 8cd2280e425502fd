"""The charts of an audit: one specification each, for the page and for files."""

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

import vl_convert

from privfed.audit.page.charts.attacks import attack_charts, attribute_charts
from privfed.audit.page.charts.cost import cost_charts
from privfed.audit.page.charts.drawing import SHAPES, Chart, colour_of, method_shapes
from privfed.audit.page.charts.frontier import frontier_charts, utility_charts
from privfed.audit.page.charts.measured import SYMBOLS, kinds_shown, measured_charts
from privfed.audit.page.charts.roc import inclusion_charts, roc_charts
from privfed.audit.page.charts.slices import slice_charts
from privfed.audit.page.palette import in_light
from privfed.audit.report.records import AuditReport

_LETTERS = 86
"""Letters in a line of a title over a chart of its own."""


@dataclass(frozen=True, slots=True)
class Charts:
    """Every chart of a report, by the part of the page that it belongs to."""

    measured: list[Chart]
    utility: list[Chart]
    frontier: list[Chart]
    attacks: list[Chart]
    roc: list[Chart]
    inclusion: list[Chart]
    slices: list[Chart]
    attributes: list[Chart]
    cost: list[Chart]

    @classmethod
    def from_report(cls, report: AuditReport) -> "Charts":
        """Draw everything that there is something to draw of."""
        return cls(
            measured=measured_charts(report),
            utility=utility_charts(report),
            frontier=frontier_charts(report),
            attacks=attack_charts(report),
            roc=roc_charts(report),
            inclusion=inclusion_charts(report),
            slices=slice_charts(report),
            attributes=attribute_charts(report),
            cost=cost_charts(report),
        )

    @property
    def panels(self) -> list[Chart]:
        """Each panel against epsilon, and beside it the same panel against the strongest attack."""
        frontier = {chart.slug.removeprefix("frontier_"): chart for chart in self.frontier}
        pairs = ((chart, frontier.get(chart.slug.removeprefix("utility_"))) for chart in self.utility)
        return [chart for pair in pairs for chart in pair if chart is not None]

    def all(self) -> list[Chart]:
        """The charts in the order of the page."""
        return [
            *self.measured,
            *self.panels,
            *self.attacks,
            *self.roc,
            *self.inclusion,
            *self.slices,
            *self.attributes,
            *self.cost,
        ]


def write_charts(report: AuditReport, folder: Path, charts: Charts | None = None) -> list[Path]:
    """Write every chart as SVG and as PDF, in light colours and with a legend; returns the paths.

    Args:
        report: A concluded report.
        folder: Where to; it is made if it is not there.
        charts: Those of the report, where they are drawn already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for chart in (charts or Charts.from_report(report)).all():
        svg = vl_convert.vegalite_to_svg(in_light(json.dumps(standing_alone(chart)), report))
        path = folder / f"{chart.slug}.svg"
        path.write_text(svg, encoding="utf-8")
        path.with_suffix(".pdf").write_bytes(vl_convert.svg_to_pdf(svg))
        paths += [path, path.with_suffix(".pdf")]
    return paths


def standing_alone(chart: Chart) -> dict[str, object]:
    """The specification with what the page says around a chart: title, key and a width."""
    title: dict[str, object] = {"text": wrap(chart.title, _LETTERS)}
    if chart.key:
        title |= {"subtitle": wrap(chart.key, _LETTERS)}
    return chart.spec | {"title": title, "width": 620, "padding": 16}


__all__ = [
    "SHAPES",
    "SYMBOLS",
    "Chart",
    "Charts",
    "attack_charts",
    "attribute_charts",
    "colour_of",
    "cost_charts",
    "frontier_charts",
    "inclusion_charts",
    "kinds_shown",
    "measured_charts",
    "method_shapes",
    "roc_charts",
    "slice_charts",
    "standing_alone",
    "utility_charts",
    "write_charts",
]
