"""Charts of the suite as SVG: rounds and their limits, peers, and growth."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

INK, SOFT, LINE, PAPER = "#1d2328", "#59636b", "#dcdad4", "#ffffff"
BLUE, RUST, GREEN = "#0b6aa8", "#b8461b", "#00775a"
HUES = [BLUE, RUST, GREEN, "#a3507f", "#a87400", "#5a57b5"]
SANS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
WIDTH = 560
BAR = "M-0.14,-0.9H0.14V0.9H-0.14Z"
"""Shape of a limit's mark."""
LABEL = "datum.value >= 1 ? format(datum.value, ',') : format(datum.value, '.5~f')"
FEW_DECADES = 2.5


@dataclass(frozen=True, slots=True)
class Round:
    """A method's round: CPU-seconds, and its counted limit where there is one."""

    label: str
    cpu_s: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class Growth:
    """CPU-seconds of a round at a size."""

    label: str
    size: int
    cpu_s: float


def rounds_chart(rounds: list[Round], data: str) -> str:
    """One line per method: a dot for what it takes, a bar for its limit."""
    kinds = {"measured": BLUE, "counted limit": RUST}
    rows: list[dict[str, Any]] = []
    for r in rounds:
        values = dict(zip(kinds, (r.cpu_s, r.limit), strict=True))
        rows += [{"method": r.label, "what": what, "s": max(v, 1e-5)} for what, v in values.items() if v is not None]
    spans = [{"method": r.label, "from": max(r.limit, 1e-5), "to": r.cpu_s} for r in rounds if r.limit]
    order = [r.label for r in sorted(rounds, key=lambda r: r.cpu_s)]
    x = _logarithmic("s", (row["s"] for row in rows), "CPU-seconds, one thread")
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False))
    colour = alt.Color("what:N", scale=alt.Scale(domain=list(kinds), range=list(kinds.values())), title=None)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=list(kinds), range=["circle", BAR]), title=None)
    between = (
        alt.Chart(alt.InlineData(values=spans))
        .mark_rule(color=LINE, strokeWidth=3)
        .encode(alt.X("from:Q"), y, x2="to:Q")
    )
    marks = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(x, y, color=colour, shape=shape)
    )
    chart = (between + marks) if spans else marks
    return _svg(chart.properties(width=WIDTH, height=19 * len(order)), f"A round on {data}")


def peers_chart(bars: list[tuple[str, float]]) -> str:
    """CPU-milliseconds of a client-round, on a logarithmic axis."""
    data = alt.InlineData(values=[{"who": who, "ms": ms, "said": f"{ms:.2f} ms"} for who, ms in bars])
    x = _logarithmic("ms", (ms for _, ms in bars), "CPU-milliseconds of a client-round")
    y = alt.Y("who:N", sort=[who for who, _ in bars], title=None, axis=alt.Axis(ticks=False, domain=False))
    points = alt.Chart(data).mark_circle(size=130, color=BLUE, opacity=1).encode(x, y)
    words = alt.Chart(data).mark_text(align="left", dx=12, color=INK).encode(x, y, text="said:N")
    return _svg((points + words).properties(width=WIDTH, height=34 * len(bars)), "The same FedNCF, MovieLens-100K")


def growth_chart(points: list[Growth], axis: str) -> str:
    """One line per method on logarithmic axes, next to a line of linear growth."""
    data = alt.InlineData(values=[{"method": p.label, "size": p.size, "s": p.cpu_s} for p in points])
    labels = list(dict.fromkeys(p.label for p in points))
    least, most = min(p.size for p in points), max(p.size for p in points)
    low = min(p.cpu_s for p in points) / 2
    straight = alt.InlineData(values=[{"size": least, "s": low}, {"size": most, "s": low * most / least}])
    sizes = sorted({p.size for p in points})
    x = alt.X(
        "size:Q",
        scale=alt.Scale(type="log", domain=[least, most]),
        title=axis,
        axis=alt.Axis(values=sizes, labelExpr=LABEL),
    )
    y = _logarithmic("s", [low, *(p.cpu_s for p in points)], "CPU-seconds of a round", alt.Y)
    colour = alt.Color("method:N", scale=alt.Scale(domain=labels, range=HUES[: len(labels)]), title=None)
    lines = (
        alt.Chart(data)
        .mark_line(point=alt.OverlayMarkDef(size=60, filled=True), strokeWidth=2)
        .encode(x, y, color=colour)
    )
    linear = alt.Chart(straight).mark_line(color=SOFT, strokeDash=[5, 4], strokeWidth=1.2).encode(x, y)
    title = f"A round by {axis}; dashed: linear growth"
    return _svg((linear + lines).properties(width=WIDTH, height=300), title)


def _logarithmic(field: str, values: Iterable[float], title: str, channel: type[alt.X | alt.Y] = alt.X) -> Any:
    """A logarithmic channel from one round number to another; few decades have a tick at 2 and 5, too."""
    found = list(values)
    decades = range(math.floor(math.log10(min(found))), math.ceil(math.log10(max(found))) + 1)
    steps = (1, 2, 5) if math.log10(max(found) / min(found)) < FEW_DECADES else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    domain = [max(t for t in ticks if t <= min(found)), min(t for t in ticks if t >= max(found))]
    axis = alt.Axis(labelExpr=LABEL, values=[t for t in ticks if domain[0] <= t <= domain[1]])
    return channel(f"{field}:Q", scale=alt.Scale(type="log", domain=domain), title=title, axis=axis)


def _svg(chart: alt.LayerChart | alt.Chart, title: str) -> str:
    axis = {
        "gridColor": LINE, "domainColor": LINE, "tickColor": LINE, "labelColor": SOFT, "titleColor": SOFT,
        "labelFont": SANS, "titleFont": SANS, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "titlePadding": 10,
    }  # fmt: skip
    config = {
        "background": PAPER,
        "font": SANS,
        "view": {"stroke": None},
        "axis": axis,
        "axisY": {"labelColor": INK},
        "legend": {"orient": "bottom", "labelFont": SANS, "labelColor": INK, "labelFontSize": 12},
        "title": {"font": SANS, "color": INK, "anchor": "start", "fontWeight": "normal", "fontSize": 14, "offset": 14},
    }
    spec = chart.properties(title=title, padding=16).to_dict() | {"config": config}
    svg: str = vl_convert.vegalite_to_svg(json.dumps(spec))
    return svg
