"""What all charts share: one look, one colour per setting, and the words that go with a picture.

Each chart is one Vega-Lite view, built with Altair, that fills the width of its place, so that a page lays charts out
and a phone stacks them. Colours are CSS variables (see `palette`); the same specification is drawn in the page and
written to a file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

import altair as alt

from privfed.audit.page.palette import setting_colours, variable
from privfed.audit.report import formatting
from privfed.audit.report.headline import protected_cells
from privfed.audit.report.records import AuditReport, Cell

INK, SOFT, LINE, WASH = "var(--ink)", "var(--soft)", "var(--line)", "var(--wash)"
PANEL, WARN = "var(--panel)", "var(--warn)"
SHAPES = {"circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "triangle-down": "▼"}
SANS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
HEIGHT = 300

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
    "title": {
        "font": SANS,
        "color": INK,
        "anchor": "start",
        "fontWeight": "normal",
        "fontSize": 14,
        "subtitleFont": SANS,
        "subtitleColor": SOFT,
        "subtitleFontSize": 12,
        "offset": 14,
    },
}

Row = dict[str, Any]
XChannel = Callable[[str], alt.X]
"""Name of a field -> the horizontal channel that shows it, on one scale and one axis."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: `slug` names its file, `title` heads it, `description` says in words what it shows.

    `key` explains its marks where a file has no page around it.
    """

    slug: str
    title: str
    description: str
    spec: dict[str, Any]
    key: str = ""


def finished(chart: alt.LayerChart | alt.FacetChart, slug: str, title: str, description: str, key: str = "") -> Chart:
    """A chart as wide as its place, in the common look."""
    spec = chart.properties(width="container").to_dict(validate=False) | {"description": description, "config": _CONFIG}
    return Chart(slug=formatting.slug(slug), title=title, description=description, spec=spec, key=key)


def data(rows: list[Row]) -> alt.InlineData:
    """Rows inside the specification."""
    return alt.InlineData(values=rows)


def method_shapes(report: AuditReport) -> dict[str, str]:
    """Mark shape of each method, in the order of the report."""
    methods = dict.fromkeys(cell.method for cell in protected_cells(report))
    shapes = list(SHAPES)
    return {method: shapes[i % len(shapes)] for i, method in enumerate(methods)}


def colour_of(report: AuditReport, cell: Cell) -> str:
    """CSS value of a setting's colour."""
    return f"var({variable(list(setting_colours(report)).index(cell.setting.slug))})"


def setting_colour(report: AuditReport, cells: Sequence[Cell]) -> alt.Color:
    """The colour channel of rows that have the name of a setting under "setting"."""
    names = {formatting.setting(cell.setting): colour_of(report, cell) for cell in cells}
    return alt.Color("setting:N", scale=alt.Scale(domain=list(names), range=list(names.values())), title=None)


def named(cell: Cell) -> Row:
    """Method and setting of a cell, as the fields of a row."""
    return {"method": formatting.method_name(cell.method), "setting": formatting.setting(cell.setting)}


@dataclass(frozen=True, slots=True)
class LabelRows:
    """The vertical channels of a dot plot: a lane for each setting, grouped by method where there are several.

    Attributes:
        encodings: For `encode`.
        height: Of the plot.
    """

    encodings: dict[str, Any]
    height: int

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> "LabelRows":
        """Lanes for rows made with `named`, in their order."""
        methods = list(dict.fromkeys(row["method"] for row in rows))
        settings = list(dict.fromkeys(row["setting"] for row in rows))
        if len(methods) > 1:
            offset = alt.YOffset("setting:N", sort=settings)
            return cls(
                {"y": label_axis("method:N", methods), "yOffset": offset}, len(methods) * (18 * len(settings) + 14)
            )
        for row in rows:
            row["lane"] = wrapped(formatting.capital(row["setting"]))
        lanes = list(dict.fromkeys(row["lane"] for row in rows))
        lines = max((lane.count("\n") + 1 for lane in lanes), default=1)
        return cls({"y": label_axis("lane:N", lanes)}, len(lanes) * max(30, 16 * lines + 4))


def label_axis(field: str, order: Sequence[str]) -> alt.Y:
    """A vertical axis of names, which may have several lines."""
    return alt.Y(
        field,
        sort=list(order),
        axis=alt.Axis(
            title=None,
            labelExpr="split(datum.label, '\\n')",
            labelLimit=170,
            labelColor=INK,
            ticks=False,
            domain=False,
            labelPadding=8,
        ),
        scale=alt.Scale(type="band", paddingInner=0.35),
    )


def wrapped(text: str) -> str:
    """A label in lines that a narrow chart has room for."""
    return "\n".join(wrap(text, 22, break_on_hyphens=False))


def upright(
    value: float, label: str, align: Literal["left", "right"], x: XChannel, dash: Sequence[int] = ()
) -> list[alt.Chart]:
    """A vertical line to compare with, and its name at the top."""
    base = alt.Chart(data([{"at": value}])).encode(x=x("at:Q"))
    return [
        base.mark_rule(color=SOFT, strokeDash=list(dash)),
        base.mark_text(align=align, dx=4 if align == "left" else -4, dy=-8).encode(
            y=alt.value(0), text=alt.value(label)
        ),
    ]
