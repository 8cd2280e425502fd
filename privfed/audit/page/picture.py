"""The picture: quality against guarantee, one circle per setting, with the corner that one wants.

Drawn here as SVG, once for wide and once for narrow windows, so that it is there without scripts and in print. A circle
is filled as far as attacks get beyond popularity. Labels stand where they cover neither a circle nor each other.
"""

import math
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from privfed.audit.page.dots import hits, raw
from privfed.audit.report import formatting
from privfed.audit.report.names import mechanism_name
from privfed.audit.report.verdict import Verdict, VerdictRow

_TICKS = (1, 3, 10)
_RADIUS = 8.0
_ONE_LINE = 9
"""From this many settings on, labels have one line."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where things lie in one of the two drawings."""

    kind: str
    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float
    lane: float
    letter: float
    """Width of a letter in the widest of the fonts that a page may get."""

    def x(self, epsilon: float, low: float) -> float:
        """Position of an epsilon, on a log scale from `low` to a little over 10."""
        share = math.log(max(epsilon, low) / low) / math.log(12 / low)
        return self.left + share * (self.right - self.left)

    def y(self, value: float, high: float) -> float:
        """Position of a quality."""
        return self.bottom - value / high * (self.bottom - self.top)


_WIDE = _Frame("wide", 900, 500, 58, 34, 606, 424, 634, 8.2)
_NARROW = _Frame("narrow", 358, 430, 40, 40, 236, 356, 246, 7.3)

Box = tuple[float, float, float, float]


@dataclass(slots=True)
class _Boxes:
    """What is taken on the drawing."""

    taken: list[Box] = field(default_factory=list)

    def cost(self, box: Box, frame: _Frame) -> float:
        """Area that a box would cover of others, and of what lies outside."""
        outside = max(0.0, box[2] - frame.width) + max(0.0, frame.left - box[0])
        covered = sum(
            max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
            * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
            for other in self.taken
        )
        return covered + 1000 * outside


def pictures(verdict: Verdict) -> Markup:
    """Both drawings; empty where no setting has a quality and popularity beside it."""
    rows = [row for row in verdict.rows if row.utility is not None and row.popularity is not None]
    if not rows:
        return Markup("")
    return Markup("").join(_drawing(rows, frame) for frame in (_WIDE, _NARROW))


def _drawing(rows: list[VerdictRow], frame: _Frame) -> Markup:
    finite = [row.cell.guarantee.epsilon for row in rows if row.grade != "none"]
    low = min(0.4, *(epsilon / 1.5 for epsilon in finite if epsilon > 0)) if finite else 0.4
    popularity = rows[0].popularity.seeds.mean if rows[0].popularity else 0.0
    high = 1.12 * max([popularity, *(_quality(row)[2] for row in rows)])
    places = _places(rows, frame, low, high)
    parts = [
        *_ground(frame, low, high, popularity, formatting.metric(*_metric(rows[0]))),
        *_lines(rows, places),
        *(_circle(row, places[n], frame, high, f"{frame.kind}{n}") for n, row in enumerate(rows)),
        *_labels(rows, places, frame, frame.y(popularity, high)),
    ]
    said = "; ".join(_in_words(row) for row in rows)
    return Markup('<svg class="pic {}" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}</svg>').format(
        frame.kind, frame.width, frame.height, f"Usefulness against guarantee. {said}.", Markup("").join(parts)
    )


def _metric(row: VerdictRow) -> tuple[str, int]:
    return (row.utility.name, row.utility.k) if row.utility else ("ndcg", 10)


def _quality(row: VerdictRow) -> tuple[float, float, float]:
    """Value and interval over people."""
    if row.utility is None:
        return 0.0, 0.0, 0.0
    return row.utility.seeds.mean, row.utility.users.lo, row.utility.users.hi


def _places(rows: list[VerdictRow], frame: _Frame, low: float, high: float) -> list[tuple[float, float]]:
    """Where each circle lies: apart from others, and side by side in the lane of those that guarantee nothing."""
    nothing = [n for n, row in enumerate(rows) if row.grade == "none"]
    room = (frame.width - frame.lane) * (0.45 if frame.kind == "wide" else 0.7)
    places = list[tuple[float, float]]()
    for n, row in enumerate(rows):
        if row.grade == "none":
            x = frame.lane + 16 + room * nothing.index(n) / max(len(nothing), 1)
        else:
            x = frame.x(row.cell.guarantee.epsilon, low)
        y = frame.y(_quality(row)[0], high)
        while any(math.dist((x, y), other) < 2 * _RADIUS for other in places):
            x += 1.0
        places.append((x, y))
    return places


def _ground(frame: _Frame, low: float, high: float, popularity: float, metric: str) -> list[Markup]:
    """Axes, the corner that one wants, popularity's line and the lane without a guarantee."""
    line, bottom = frame.y(popularity, high), frame.bottom
    ends = [frame.left, *(frame.x(tick, low) for tick in _TICKS)]
    middle = frame.lane + (frame.width - frame.lane) / 2
    wide = frame.kind == "wide"
    parts = [
        f'<rect x="{frame.left:g}" y="{frame.top:g}" width="{ends[-1] - frame.left:.1f}" '
        f'height="{max(line - frame.top, 0):.1f}" fill="url(#corner)"/>',
        f'<rect class="lane" x="{frame.lane:g}" y="{frame.top:g}" width="{frame.width - frame.lane:g}" '
        f'height="{bottom - frame.top:g}" rx="3"/>',
        f'<path class="bl" d="M{frame.left:g} {bottom:g}H{frame.right:g}"/>',
        f'<path class="pl" d="M{frame.left:g} {line:.1f}H{frame.width:g}"/>',
        _text(frame.left - 7, line + 4, f"{popularity:.3f}"[1:], "ax ref", "end"),
        _text(frame.left - 7, bottom + 4, "0", "ax", "end"),
        _text(0, 16, f"More useful ↑ {metric}", "ax"),
        _text(frame.left + 8, frame.top + 24, "what one wants", "want"),
        _text(middle, bottom + 38, "nothing guaranteed" if wide else "nothing", "gw none", "middle"),
        _text(frame.left, bottom + 62, "← stronger guarantee" + (", epsilon on a log scale" if wide else ""), "ax"),
    ]
    for tick, x in zip(_TICKS, ends[1:], strict=True):
        parts.append(f'<path class="gl dot" d="M{x:.1f} {frame.top:g}V{bottom:g}"/>')
        parts.append(_text(x, bottom + 18, str(tick), "ax", "middle"))
    for word, start, end in zip(("strong", "moderate", "weak"), ends[:-1], ends[1:], strict=True):
        shown = word if wide or word != "moderate" else "mod."
        parts.append(_text((start + end) / 2, bottom + 38, shown, f"gw {word}", "middle"))
    return [raw(part) for part in parts]


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _lines(rows: list[VerdictRow], places: list[tuple[float, float]]) -> list[Markup]:
    """Settings of one method, joined from the strongest guarantee on."""
    parts = []
    for method in dict.fromkeys(row.cell.method for row in rows):
        own = sorted(place for place, row in zip(places, rows, strict=True) if row.cell.method == method)
        points = "L".join(f"{x:.1f} {y:.1f}" for x, y in own)
        parts.append(raw(f'<path class="ln" d="M{points}"/>'))
    return parts


def _circle(row: VerdictRow, place: tuple[float, float], frame: _Frame, high: float, name: str) -> Markup:
    (x, y), (_, low, up) = place, _quality(row)
    radius = _RADIUS if frame.kind == "wide" else 6.5
    share = round(100 * _beyond(row))
    return Markup(
        '<linearGradient id="{0}" x1="0" y1="1" x2="0" y2="0"><stop offset="{1}%" class="st {2}"/>'
        '<stop offset="{1}%" class="st0"/></linearGradient>'
        '<path class="iv {2}" d="M{3:.1f} {5:.1f}V{6:.1f}"/>'
        '<circle class="mk {2}" cx="{3:.1f}" cy="{4:.1f}" r="{7:g}" fill="url(#{0})"><title>{8}</title></circle>'
    ).format(f"fill-{name}", share, row.grade, x, y, frame.y(low, high), frame.y(up, high), radius, _in_words(row))


def _beyond(row: VerdictRow) -> float:
    """How far attacks get from what popularity gives to everything."""
    headline = row.cell.headline
    if headline is None or headline.excess.lo <= 0 or headline.popularity_auc >= 1:
        return 0.0
    return min(1.0, max(0.0, headline.excess.value / (1 - headline.popularity_auc)))


def _in_words(row: VerdictRow) -> str:
    """What a circle says, in words."""
    value = formatting.share(_quality(row)[0])
    leaked = "not attacked"
    if row.cell.headline is not None:
        popular = round(100 * row.cell.headline.popularity_auc)
        leaked = f"{hits(row.cell.headline)} in 100 guesses right, popularity {popular}"
    return f"{row.name}: {formatting.metric(*_metric(row))} {value}, {leaked}"


def _labels(rows: list[VerdictRow], places: list[tuple[float, float]], frame: _Frame, line: float) -> list[Markup]:
    boxes = _Boxes([(x - 11, y - 11, x + 11, y + 11) for x, y in places])
    boxes.taken.append((frame.left, frame.top + 6, frame.left + 140, frame.top + 30))
    boxes.taken.append((frame.left, line - 1, frame.width, line + 1))
    boxes.taken.append((frame.left, frame.bottom - 1, frame.right, frame.bottom + 22))
    parts = []
    for row, (x, y) in zip(rows, places, strict=True):
        texts = _label(row, frame, many=len(rows) >= _ONE_LINE)
        width = frame.letter * max(map(len, texts))
        height = 15.0 * len(texts)
        spots = [(x + 14, y - height / 2), (x - 14 - width, y - height / 2), (x - width / 2, y - height - 12)]
        spots += [(x - width / 2, y + 12), (x + 10, y - height - 8), (x + 10, y + 8), (x - width - 8, y + 8)]
        spots += [(x - width - 8, y - height - 8), (x + 14, y + 22), (x + 14, y - height - 22)]
        options = [(left, top, left + width, top + height) for left, top in spots]
        box = min(options, key=lambda option: boxes.cost(option, frame))
        boxes.taken.append(box)
        for number, words in enumerate(texts):
            kind = "nm" if number == 0 else "sm"
            parts.append(raw(_text(box[0], box[1] + 12 + 15 * number, words, kind)))
    return parts


def _label(row: VerdictRow, frame: _Frame, *, many: bool) -> list[str]:
    method, words = formatting.method_name(row.cell.method), mechanism_name(row.cell).partition(",")[0]
    if many or frame.kind == "narrow":
        return [method if row.grade != "none" or many else words]
    return [method, words if len(words) < 30 else words[:28] + "…"]
