"""Five published systems and `private-gram` in one table, in README's five rows, and as a picture.

All from `benchmarks/results/five_systems.json`, means over seeds.
"""

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.figures import Row, figure, grouped, values
from benchmarks.harness import results
from benchmarks.markdown import table
from privfed.audit.report.headline import EVERYTHING, NEARLY_EVERYTHING

NAMES = {
    "hetefedrec": "HeteFedRec",
    "fair": "FAIR",
    "gpfedrec": "GPFedRec",
    "feddae": "FedDAE",
    "dfmr": "DFMR",
    "private-gram": "private-gram",
}
PUBLISHED = {
    "hetefedrec": "noise of the paper that attacks it",
    "fair": "as published: secure sum",
    "gpfedrec": "as published: Laplace noise",
    "feddae": "as published: Gaussian noise",
    "dfmr": "as published: shares, fake items",
}
NOISE = {"central": "noise of a trusted server", "distributed": "noise in shares", "local": "local noise"}
STAGES = ("unprotected", "as published", "epsilon 8", "epsilon 1")
README = (("gpfedrec", 1), ("feddae", 1), ("feddae", 2), ("private-gram", 2), ("private-gram", 3))
"""System and stage of the rows of README."""


@dataclass(frozen=True)
class Setting:
    """One system behind one mechanism, over all seeds.

    Attributes:
        system: registered name of the method.
        stage: index into `STAGES`.
        mechanism: in words.
        epsilon: of the run; infinite without a guarantee.
        ndcg: mean of NDCG@10.
        auc: of the strongest attack, chosen on half of the audited people and measured on the other half.
        excess: the same less that of popularity in the same game.
        attack: the strongest, with what it looks at.
    """

    system: str
    stage: int
    mechanism: str
    epsilon: float
    ndcg: float
    auc: float
    excess: float
    attack: str

    @property
    def guarantee(self) -> str:
        """Epsilon in words."""
        return "none" if self.epsilon == float("inf") else f"epsilon {self.epsilon:.0f}"

    @property
    def label(self) -> str:
        """The mechanism, told apart from the others of its system."""
        row = f" ({STAGES[self.stage]} for one view's row)" if self.mechanism.endswith("response") else ""
        return self.mechanism + row


def popularity() -> float:
    """NDCG@10 of recommending what is popular."""
    return statistics.fmean(row["ndcg"] for row in results("five_systems") if row["method"] == "popularity")


def settings(systems: Collection[str] = NAMES) -> Iterator[Setting]:
    """Every system behind every mechanism, in the order of the audit."""
    rows: list[Row] = results("five_systems")
    for system in systems:
        shared = 0
        for slug, runs in grouped(
            [row for row in rows if row["method"].partition(":")[0] == system], "setting"
        ).items():
            first, epsilon = runs[0], statistics.fmean(values(runs, "epsilon"))
            shared += slug.startswith("shared-sum")
            stage, words = _stage(system, slug, epsilon, first["trust"], shared)
            yield Setting(
                system,
                stage,
                words,
                epsilon,
                statistics.fmean(values(runs, "ndcg")),
                statistics.fmean(values(runs, "auc")),
                statistics.fmean(values(runs, "excess")),
                f"{first['attack']} ({first['tap']})",
            )


def _stage(system: str, slug: str, epsilon: float, trust: str, shared: int) -> tuple[int, str]:
    """Index of the stage, and the mechanism in words; DFMR's three ways to pad come in the order of the audit."""
    if slug == "unprotected":
        return 0, "none"
    if epsilon < float("inf"):
        return (2 if epsilon > 2 else 3), NOISE[trust]
    return (shared, "shares, randomised response") if shared > 1 else (1, PUBLISHED[system])


def audited() -> list[str]:
    """All settings, popularity first."""
    base = popularity()
    rows = [
        [
            NAMES.get(one.system, one.system),
            one.label,
            one.guarantee,
            figure(one.ndcg, 3),
            f"{100 * (one.ndcg / base - 1):+.0f} %",
            f"{figure(one.auc, 2)} / {figure(one.auc - one.excess, 2)}",
            one.attack,
        ]
        for one in settings(["popularity", *NAMES])
    ]
    head = ["system", "mechanism", "guaranteed", "NDCG@10", "against popularity", "attack / popularity, AUC"]
    return table([*head, "strongest attack"], rows, "lllrrrl")


def readme() -> list[str]:
    """Five rows."""
    base, found = popularity(), {(one.system, one.stage): one for one in settings()}
    rows = []
    for key in README:
        one = found[key]
        leak = "more than popularity does" if one.excess > 0.05 else "no more than popularity does"
        leak = "nearly everything" if one.auc >= NEARLY_EVERYTHING else leak
        leak = "everything" if one.auc >= EVERYTHING else leak
        rows.append(
            [
                f"{NAMES[one.system]}, {one.mechanism}",
                f"{leak} ({figure(one.auc, 2)}, popularity {figure(one.auc - one.excess, 2)})",
                one.guarantee,
                f"{100 * (one.ndcg / base - 1):+.0f} %",
            ]
        )
    return table(
        ["system", "the strongest attack finds (AUC)", "guaranteed", "NDCG@10 against popularity"], rows, "lllr"
    )


COLOURS = {
    "hetefedrec": "#8a6fc8",
    "fair": "#3f8fd2",
    "gpfedrec": "#c2703d",
    "feddae": "#3c9a6b",
    "dfmr": "#8c8c3a",
    "private-gram": "#d0427a",
}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM, GAP = 720, 400, 62, 46, 100, 64, 17
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.soft{fill:#57606a}.rule{stroke:#8c959f}.hollow{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9da7b3}.rule{stroke:#6e7681}.hollow{fill:#0d1117}}"
)


def picture() -> str:
    """Quality against popularity by what protects it, as SVG that reads in light and in dark."""
    base = popularity()
    points = [one for one in settings() if not one.mechanism.endswith("response")]
    highest = max(one.ndcg / base for one in points) * 1.08

    def at(stage: int, ndcg: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (stage + 0.5) / len(STAGES)
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (1 - ndcg / base / highest)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(description())}"><style>{STYLE}</style>',
        f'<text x="{LEFT - 50}" y="20">NDCG@10 against popularity (MovieLens-100K, two seeds)</text>',
    ]
    for share in (0.5, 1.0, 1.5):
        _, y = at(0, share * base)
        dash = "" if share == 1 else ' stroke-dasharray="2 5"'
        lines.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT - 65}" y1="{y:.1f}" y2="{y:.1f}"{dash}/>')
        words, side = ("popularity", "start") if share == 1 else (f"{100 * (share - 1):+.0f} %", "end")
        lines.append(f'<text class="soft" x="{LEFT - 8}" y="{y - 5:.1f}" text-anchor="{side}">{words}</text>')
    for stage, words in enumerate(STAGES):
        x, _ = at(stage, 0)
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="middle">{words}</text>')
    lines += _series(points, at)
    lines.append(
        f'<text class="soft" x="{LEFT - 50}" y="{HEIGHT - 12}">Filled: attacks find more of a history than popularity '
        "does. Hollow: they do not.</text></svg>"
    )
    return "\n".join(lines) + "\n"


def _series(points: Sequence[Setting], at: Callable[[int, float], tuple[float, float]]) -> list[str]:
    """A line, points and a name for every system; names are kept apart."""
    lines, ends = [], []
    for system, colour in COLOURS.items():
        own = sorted((one for one in points if one.system == system), key=lambda one: one.stage)
        path = [at(one.stage, one.ndcg) for one in own]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        lines.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for one, (x, y) in zip(own, path, strict=True):
            inside = f'fill="{colour}"' if one.excess > 0.05 else 'class="hollow"'
            lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" {inside} stroke="{colour}" stroke-width="2.5"/>')
        ends.append((path[-1][1], path[-1][0], system))
    below = float("-inf")
    for y, x, system in sorted(ends):
        below = max(y, below + GAP)
        lines.append(
            f'<text x="{x + 14:.1f}" y="{below + 4:.1f}" style="fill:{COLOURS[system]};font-weight:600">'
            f"{NAMES[system]}</text>"
        )
    return lines


def description() -> str:
    """The picture in words."""
    base = popularity()
    best = max((one for one in settings() if one.epsilon < float("inf")), key=lambda one: one.ndcg)
    return (
        f"Quality of five systems and private-gram, unprotected, as published, and at epsilon 8 and 1. The best with a "
        f"guarantee is {NAMES[best.system]} at {best.guarantee}, {100 * (best.ndcg / base - 1):.0f} % above popularity."
    )
