"""Small drawings of the page, as SVG: a hundred dots in a strip or a square, and a bar from popularity's line.

Dots are dashes of length zero with round ends, so that a hundred of them are a few paths. They say in turn: right
guesses that popularity explains (grey), right guesses beyond (rust), wrong guesses (pale).
"""

from markupsafe import Markup

from privfed.audit.report.records import Headline

_STEP = 4.5
_CELL = 10.0
BAR = 150.0
"""Width of a bar's lane."""


def raw(svg: str) -> Markup:
    """Markup that was made here, of numbers and escaped texts only."""
    return Markup(svg)  # noqa: S704 - nothing from outside comes in unescaped


def hits(headline: Headline) -> int:
    """Right guesses of a hundred; a hundred only where there was no wrong one."""
    auc = headline.auc.value
    return round(100 * auc) if auc == 1 else min(99, round(100 * auc))


def kinds(headline: Headline) -> list[tuple[str, int]]:
    """How many of a hundred guesses are explained by popularity, go beyond it, and are wrong, by the dots' class."""
    right, popular = hits(headline), round(100 * headline.popularity_auc)
    explained = min(right, popular) if headline.excess.lo > 0 else right
    return [("dk", explained), ("dx", right - explained), ("do", 100 - right)]


def strip(parts: list[tuple[str, int]], label: str = "", mark: float | None = None) -> Markup:
    """Two rows of fifty dots, filled column by column, with a line where `mark` of a hundred lies."""
    paths, start = [], 0
    for kind, number in parts:
        rows = [[n for n in range(start, start + number) if n % 2 == row] for row in (0, 1)]
        moves = "".join(_run(row[0] // 2, len(row), 2.25 + _STEP * y, _STEP) for y, row in enumerate(rows) if row)
        paths.append(f'<path class="{kind}" d="{moves}"/>' if moves else "")
        start += number
    line = "" if mark is None else f'<path class="pm" d="M{_STEP * 50 * mark:.1f} -4v17"/>'
    about = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    return Markup('<svg class="strip" viewBox="0 0 225 9" width="225" height="9" {}>{}{}</svg>').format(
        about, raw("".join(paths)), raw(line)
    )


def grid(headline: Headline) -> Markup:
    """Ten rows of ten dots with a ring at the last that popularity explains."""
    paths, start = [], 0
    for kind, number in kinds(headline):
        rows = [[n for n in range(start, start + number) if n // 10 == row] for row in range(10)]
        moves = "".join(_run(row[0] % 10, len(row), 5 + _CELL * y, _CELL) for y, row in enumerate(rows) if row)
        paths.append(f'<path class="{kind}" d="{moves}"/>' if moves else "")
        start += number
    row, column = divmod(max(round(100 * headline.popularity_auc) - 1, 0), 10)
    ring = f'<circle class="ring" cx="{5 + 10 * column}" cy="{5 + 10 * row}" r="5.2"/>'
    return Markup('<svg class="dots" viewBox="-1 -1 102 102" aria-hidden="true">{}{}</svg>').format(
        raw("".join(paths)), raw(ring)
    )


def bar(value: float, popularity: float, highest: float) -> Markup:
    """A bar from popularity's line: to the right and full above it, to the left and hollow below."""
    line, end = (BAR * number / highest for number in (popularity, value))
    kind = "up" if value >= popularity else "down"
    left, width = min(line, end), max(abs(end - line), 1.5)
    return raw(
        '<svg class="ubar" viewBox="-1 0 152 12" width="150" height="12" aria-hidden="true">'
        f'<rect class="{kind}" x="{left:.1f}" y="1" width="{width:.1f}" height="10"/>'
        f'<path class="pm" d="M{line:.1f} -4v20"/></svg>'
    )


def _run(first: int, number: int, y: float, step: float) -> str:
    """Dots in a row, from position `first` on."""
    return f"M{(first + 0.5) * step:g} {y:g}h{(number - 1) * step + 0.01:g}"
