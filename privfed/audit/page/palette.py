"""One colour per setting, the same in every chart, chip and card; settings that share no method may share a colour.

The hues are Okabe and Ito's colour-blind-safe set (2008), darkened or lightened to stand out by 3:1 or more
on either background. Warm hues are settings that guarantee nothing, cool hues settings with a finite epsilon.
Charts name a CSS variable, so that light, dark and print follow the page without being drawn again; files get
the light hues.
"""

from collections import defaultdict
from collections.abc import Sequence

from privfed.audit.report.records import AuditReport

WARM = (("#b8461b", "#f0834f"), ("#a87400", "#e3b04b"), ("#a3507f", "#d98fb8"), ("#7a5c48", "#bd9d86"))
COOL = (("#0b6aa8", "#5fb2e6"), ("#00775a", "#3fc19b"), ("#5a57b5", "#a09df0"), ("#2f7f8c", "#6cc5d2"))

NEUTRAL = {
    "--ink": ("#1d2328", "#e9e6df"),
    "--soft": ("#59636b", "#a9adb0"),
    "--line": ("#dcdad4", "#3a4046"),
    "--paper": ("#fbfaf7", "#16191c"),
    "--panel": ("#ffffff", "#1e2327"),
    "--wash": ("#f2f0ea", "#262c30"),
    "--warn": ("#a6380f", "#ff9a66"),
    "--focus": ("#0b6aa8", "#5fb2e6"),
    "--grey": ("#8d969c", "#868d92"),
    "--faint": ("#dfdcd5", "#394046"),
    "--strong": ("#00775a", "#3fc19b"),
    "--moderate": ("#0b6aa8", "#5fb2e6"),
    "--weak": ("#b07a00", "#e3b04b"),
    "--none": ("#b8461b", "#f0834f"),
    "--strong-t": ("#00684f", "#57cfab"),
    "--moderate-t": ("#0b5f97", "#79bfea"),
    "--weak-t": ("#835b00", "#e8bc63"),
    "--none-t": ("#a33c15", "#f5976b"),
}


def setting_colours(report: AuditReport) -> dict[str, tuple[str, str]]:
    """(light, dark) colour of each setting's slug, in the order of the report.

    The settings of one method differ in colour as far as the hues go; audits in which every method has mechanisms of
    its own have more settings than there are hues.
    """
    methods: dict[str, set[str]] = defaultdict(set)
    hues: dict[str, Sequence[tuple[str, str]]] = {}
    for cell in report.aggregates:
        methods[cell.setting.slug].add(cell.method)
        hues.setdefault(cell.setting.slug, COOL if cell.guarantee.finite else WARM)
    colours: dict[str, tuple[str, str]] = {}
    for slug, hue in hues.items():
        used = [colours[other] for other in colours if methods[other] & methods[slug]]
        colours[slug] = min(hue, key=used.count)
    return colours


def variable(index: int) -> str:
    """CSS variable of the setting at a position in `setting_colours`."""
    return f"--setting-{index}"


def stylesheet(report: AuditReport | None = None) -> str:
    """The colour variables, for light, dark and print; without a report, those that no setting has."""
    pairs = dict(NEUTRAL)
    if report is not None:
        pairs |= {variable(i): pair for i, pair in enumerate(setting_colours(report).values())}
    light = "".join(f"{name}:{pair[0]};" for name, pair in pairs.items())
    dark = "".join(f"{name}:{pair[1]};" for name, pair in pairs.items())
    return f":root{{color-scheme:light dark;{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def in_light(spec_json: str, report: AuditReport) -> str:
    """A chart's JSON with light values for the colour variables, for files that have no style sheet."""
    pairs = NEUTRAL | {variable(i): pair for i, pair in enumerate(setting_colours(report).values())}
    for name, (light, _) in pairs.items():
        spec_json = spec_json.replace(f"var({name})", light)
    return spec_json
