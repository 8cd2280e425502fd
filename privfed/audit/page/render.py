"""`render`: an audit report as one HTML file that loads nothing.

The page is written in the order in which a newcomer asks: what was tested, what leaked, what is guaranteed,
what it costs, what all this does not say. Templates lay out; every word and number is chosen here or comes
from the report.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from privfed.audit.aggregates import SEEDS_FOR_AN_INTERVAL, grouped
from privfed.audit.headline import AFTER_PROTECTION, at_main_tap, main_attack, main_utility, protected_cells
from privfed.audit.page import words
from privfed.audit.page.charts import (
    SHAPES,
    Chart,
    attack_charts,
    method_shapes,
    roc_charts,
    utility_charts,
)
from privfed.audit.page.palette import setting_colours, stylesheet, variable
from privfed.audit.report import POPULARITY, AttackCell, AuditReport, Cell, GuaranteeRow, UtilityCell
from privfed.audit.statements import shared_caveats
from privfed.audit.support_words import columns as leak_columns
from privfed.privacy.statements import WEAK_EPSILON, odds

SECTIONS = (
    ("verdict", "Findings"),
    ("guarantee", "Guarantees"),
    ("utility", "Recommendations"),
    ("frontier", "Quality against epsilon"),
    ("attacks", "Attacks"),
    ("cost", "Cost"),
    ("limits", "Limits"),
    ("configuration", "Repeat it"),
)
COST_COLUMNS = (
    "Sent", "Received", "Training", "Privacy layer", "Attacks", "Processor", "Memory", "Uploads clipped",
)  # fmt: skip
SAID = {
    "attack": "What the server learns",
    "support": "What the rows sent give away",
    "guarantee": "What is guaranteed",
    "utility": "What it costs",
}


@dataclass(frozen=True, slots=True)
class _Charts:
    utility: list[Chart]
    attacks: list[Chart]
    roc: list[Chart]


def render(report: AuditReport) -> str:
    """The page of a concluded report (see `conclude`), complete and self-contained."""
    cells = protected_cells(report)
    several = len({cell.method for cell in cells}) > 1
    charts = _Charts(utility_charts(report), attack_charts(report), roc_charts(report))
    attacks = [(cell, row) for cell in cells for row in cell.attacks]
    return _template().render(
        report=report,
        colours=stylesheet(report),
        css=_text("style.css"),
        methods=words.listed([words.named(words.METHODS, name) for name in method_shapes(report)]),
        tested=" ".join(s.text for s in report.statements if s.topic == "tested"),
        sections=SECTIONS,
        findings=[
            {
                "method": words.named(words.METHODS, method) if several else "",
                "cards": [_card(report, c) for c in same],
            }
            for method, same in grouped(cells, lambda cell: cell.method).items()
        ],
        guarantees=_guarantees(report),
        glossary=_glossary(cells),
        legend=_legend(report),
        shapes=[
            {"name": words.named(words.METHODS, method), "shape": SHAPES[shape]}
            for method, shape in method_shapes(report).items()
        ]
        if several
        else [],
        seeds_note=_seeds_note(cells),
        metrics=[words.metric(name, k) for name, k in _metrics(report)],
        utility=_utility_rows(report),
        several_states=len({row.state for cell in cells for row in cell.utility}) > 1,
        charts=charts,
        main_tap=words.listed(list(dict.fromkeys(words.TAPS[r.tap] for cell in cells for r in at_main_tap(cell)))),
        worst=[_attack_row(report, cell, row) for cell, row in attacks if row.worst and row.tap in AFTER_PROTECTION],
        every=[_attack_row(report, cell, row) for cell, row in attacks],
        explained=_explained(report),
        leaks=_leaks(report),
        cost_columns=COST_COLUMNS,
        costs=_cost_rows(report),
        limits=[s.text for s in report.statements if s.topic == "limit"],
        facts=_facts(report),
        plans={f"{cell.method}, {words.setting(cell.setting)}": cell.plan for cell in cells},
        specs=_specs([*charts.utility, *charts.attacks, *charts.roc]),
        script=_script(),
        columns=lambda some: 2 if len(some) in {2, 4} else 3,
        share=words.share,
        signed=words.signed,
        capital=words.capital,
        pretty=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )


def _text(name: str) -> str:
    return (resources.files("privfed.audit.page") / name).read_text(encoding="utf-8")


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("privfed.audit.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: words.typeset(value) if type(value) is str else value,
    )
    return environment.get_template("page.html")


@cache
def _script() -> str:
    """Vega, Vega-Lite, Vega-Embed and our few lines, bundled; no string in it can end the script element."""
    bundle: str = vl_convert.javascript_bundle(_text("charts.js"))
    return bundle.replace("</script", "<\\/script")


def _specs(charts: list[Chart]) -> str:
    """All specifications as JSON inside a script element; the page's own colour key stands in for legends."""
    quiet = {chart.slug: _without_legend(chart.spec) for chart in charts}
    return json.dumps(quiet, separators=(",", ":")).replace("<", "\\u003c")


def _without_legend(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"config": spec["config"] | {"legend": {"disable": True}}}


def _colour(report: AuditReport, cell: Cell) -> str:
    return f"var({variable(list(setting_colours(report)).index(cell.setting.slug))})"


def _legend(report: AuditReport) -> list[dict[str, str]]:
    names = {words.setting(cell.setting): _colour(report, cell) for cell in protected_cells(report)}
    return [{"name": name, "colour": colour} for name, colour in names.items()]


def _title(report: AuditReport, cell: Cell) -> dict[str, Any]:
    """What every table row starts with."""
    method = words.named(words.METHODS, cell.method)
    yardstick = cell.method == POPULARITY
    return {
        "name": f"{method} (no personal model)" if yardstick else f"{method}, {words.setting(cell.setting)}",
        "colour": None if yardstick else _colour(report, cell),
        "yardstick": yardstick,
    }


def _guarantees(report: AuditReport) -> list[dict[str, Any]]:
    """One card per setting, or several where methods differ in what they are guaranteed."""
    claims = grouped(protected_cells(report), lambda cell: (cell.setting.slug, cell.guarantee.model_dump_json()))
    several = len(method_shapes(report)) > 1
    cards = []
    for same in claims.values():
        claim = same[0].guarantee
        cards.append(
            {
                "setting": words.capital(words.setting(same[0].setting)),
                "colour": _colour(report, same[0]),
                "holds_for": words.listed([words.named(words.METHODS, c.method) for c in same]) if several else "",
                "epsilon": words.epsilon(claim.epsilon),
                "epsilon_note": _epsilon_note(claim),
                "facts": _claim_facts(claim),
                "notes": _notes(claim, shared_caveats(report)),
            }
        )
    return cards


def _card(report: AuditReport, cell: Cell) -> dict[str, Any]:
    said = {s.topic: s for s in report.statements if (s.method, s.setting) == (cell.method, cell.setting.slug)}
    return {
        "setting": words.capital(words.setting(cell.setting)),
        "colour": _colour(report, cell),
        "said": [(title, said[topic]) for topic, title in SAID.items() if topic in said],
        **_hits(main_attack(cell)),
    }


def _hits(attack: AttackCell | None) -> dict[str, Any]:
    if attack is None:
        return {"hits": None}
    auc = attack.auc.mean
    said = words.in_hundred(auc)
    return {
        "hits": round(100 * auc) if auc == 1 else min(99, round(100 * auc)),
        "hits_words": f"The strongest attack is right {said}",
        "hits_numeral": said.removesuffix(" times in 100").replace("more than ", ">"),
        "hits_note": f"guesses right. A coin: 50. Popularity: {round(100 * attack.popularity_auc)}.",
    }


def _notes(claim: GuaranteeRow, said_elsewhere: list[str]) -> list[str]:
    """Assumptions and statements, less what stands under "Why" and among the limits."""
    why = claim.reason_if_inf
    notes = [text for text in claim.statements if text not in said_elsewhere and not (why and why in text)]
    return [*claim.assumptions, *notes]


def _epsilon_note(claim: GuaranteeRow) -> str:
    if not claim.finite:
        return "no guarantee"
    return "weak or vacuous" if claim.epsilon > WEAK_EPSILON else "a formal guarantee"


def _claim_facts(claim: GuaranteeRow) -> list[tuple[str, str]]:
    facts = [("Why", words.capital(claim.reason_if_inf))] if claim.reason_if_inf else []
    facts.append(("Must be trusted", words.named(words.TRUST, claim.trust)))
    if not claim.finite:
        return facts
    facts += [
        ("Protects", words.named(words.UNITS, claim.unit)),
        ("Compared worlds", words.compared(claim.neighbours, claim.unit)),
        ("Delta", words.delta(claim.delta)),
        ("Counted", f"{words.count(claim.rounds_counted, 'round')} per {claim.per}"),
        ("Accountant", f"{claim.accountant} {claim.accountant_version}".strip()),
    ]
    if claim.cross_check:
        facts.append(
            (
                "Checked by",
                words.listed([f"{name}: {words.epsilon(value)}" for name, value in claim.cross_check.items()]),
            )
        )
    if claim.basic_epsilon is not None:
        facts.append(("Plain addition", f"epsilon = {words.epsilon(claim.basic_epsilon)} with delta = 0"))
    return facts


def _glossary(cells: list[Cell]) -> list[tuple[str, str]]:
    aucs = [attack.auc.mean for cell in cells if (attack := main_attack(cell))]
    example = max(aucs, default=0.75)
    return [
        (
            f"AUC {words.floor2(example)}",
            f"means: shown one item the person did use and one they did not, the attack names the right one "
            f"{words.in_hundred(example)}. 0.5 is a coin, 1 is certainty.",
        ),
        (
            "Epsilon (ε)",
            "bounds what any attack can do: the odds of a guess about one person cannot grow by more than a "
            "factor of "
            f"e to the power ε. That is {odds(1)} at 1, {odds(8)} at 8, and no "
            "bound at all at ∞.",
        ),
        (
            "NDCG and HR",
            "say how often, and how high, the item a person really took next appears in their list. 0 is "
            "never, 1 is always "
            "on top.",
        ),
    ]


def _seeds_note(cells: Iterable[Cell]) -> str:
    n_seeds = min((cell.n_seeds for cell in cells), default=0)
    if n_seeds == 1:
        return "one seed, so no spread over seeds"
    if n_seeds < SEEDS_FOR_AN_INTERVAL:
        return f"below it the range over seeds (no interval: {words.count(n_seeds, 'seed')})"
    return f"below it the 95 % t-interval over {words.count(n_seeds, 'seed')}"


def _metrics(report: AuditReport) -> list[tuple[str, int]]:
    rows = (row for cell in report.aggregates for row in cell.utility if row.part == "test")
    return list(dict.fromkeys((row.name, row.k) for row in rows))


def _utility_rows(report: AuditReport) -> list[dict[str, Any]]:
    rows = []
    for cell in report.aggregates:
        test = [row for row in cell.utility if row.part == "test"]
        for state in dict.fromkeys(row.state for row in test):
            values: dict[tuple[str, int], UtilityCell] = {(r.name, r.k): r for r in test if r.state == state}
            rows.append(
                _title(report, cell)
                | {
                    "state": "one list for all" if cell.method == POPULARITY else words.named(words.STATES, state),
                    "values": [values.get(metric) for metric in _metrics(report)],
                }
            )
    return rows


def _attack_row(report: AuditReport, cell: Cell, row: AttackCell) -> dict[str, Any]:
    return _title(report, cell) | {
        "yardstick": row.attack == POPULARITY,
        "attack": words.capital(row.attack),
        "rounds": words.rounds(row.rounds),
        "tap": words.TAPS[row.tap],
        "game": row.game,
        "scope": row.scope,
        "auc": row.auc,
        "users": row.users,
        "tpr": words.share(row.tpr_at_1pct.mean) if row.tpr_at_1pct else "n/a",
        "gain": row.gain,
    }


def _explained(report: AuditReport) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for run in report.runs:
        for row in run.attacks:
            knows = f" Knows beforehand: {words.listed(row.knowledge)}." if row.knowledge else ""
            found.setdefault(row.attack, f"{row.explains} Seen by the {row.adversary}.{knows} {row.note}".strip())
    return [(words.capital(name), text) for name, text in found.items()]


def _leaks(report: AuditReport) -> list[dict[str, Any]]:
    """Utility and what the rows sent give away, for every cell that sends rows or has public histories."""
    rows = []
    for cell in report.aggregates:
        if cell.support is not None:
            utility = main_utility(cell)
            quality = ("not measured", "")
            if utility is not None:
                quality = words.share(utility.seeds.mean), words.metric(utility.name, utility.k)
            rows.append(
                _title(report, cell) | {"said": {"Quality": quality} | leak_columns(cell.support, cell.attacks)}
            )
    return rows


def _cost_rows(report: AuditReport) -> list[dict[str, Any]]:
    rows = []
    for cell in report.aggregates:
        cost = cell.cost
        clipped = "none" if cost.clipped_fraction is None else f"{cost.clipped_fraction:.0%}"
        rows.append(
            _title(report, cell)
            | {
                "values": [
                    words.volume(cost.up_bytes_per_client_round),
                    words.volume(cost.down_bytes_per_client_round),
                    *(words.seconds(s) for s in (cost.train_s, cost.privacy_s, cost.attack_s, cost.cpu_s)),
                    words.volume(cost.peak_rss_bytes),
                    clipped,
                ]
            }
        )
    return rows


def _facts(report: AuditReport) -> list[tuple[str, str]]:
    runs = [run for run in report.runs if run.method != POPULARITY]
    card = report.dataset
    return [
        ("Data set", f"{card.get('name')}" + (f", sha256 {card['sha256']}" if card.get("sha256") else "")),
        ("Seeds", ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))),
        ("Rounds", ", ".join(str(n) for n in sorted({run.rounds for run in runs}))),
        (
            "Clients per round",
            ", ".join(dict.fromkeys(f"{run.clients_per_round:g} ({run.sampling})" for run in runs)),
        ),
        ("Configuration", f"sha256 {report.config_sha256}"),
        ("privfed", report.privfed_version),
    ]
