"""The cards of the guarantees, and the terms that the page cannot do without."""

from collections.abc import Sequence
from typing import Any

from privfed.audit.page.charts import colour_of, method_shapes
from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.grades import delta_excuses, grade
from privfed.audit.report.headline import protected_cells
from privfed.audit.report.records import AuditReport, Cell, GuaranteeRow
from privfed.audit.report.statements import shared_caveats
from privfed.privacy.statements import odds


def guarantees(report: AuditReport) -> list[dict[str, Any]]:
    """One card per setting, or several where methods differ in what they are guaranteed."""
    claims = grouped(protected_cells(report), lambda cell: (cell.setting.slug, cell.guarantee.model_dump_json()))
    several = len(method_shapes(report)) > 1
    cards = []
    for same in claims.values():
        claim = same[0].guarantee
        cards.append(
            {
                "setting": formatting.capital(formatting.setting(same[0].setting)),
                "colour": colour_of(report, same[0]),
                "holds_for": formatting.listed([formatting.method_name(c.method) for c in same]) if several else "",
                "epsilon": formatting.epsilon(claim.epsilon),
                "epsilon_note": _epsilon_note(claim),
                "facts": _claim_facts(claim),
                "notes": _notes(claim, shared_caveats(report)),
            }
        )
    return cards


def glossary(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """The three terms that the findings cannot do without."""
    aucs = [cell.headline.auc.value for cell in cells if cell.headline]
    example = max(aucs, default=0.75)
    return [
        (
            f"AUC {formatting.floor2(example)}",
            f"means: shown one item the person did use and one they did not, the attack names the right one "
            f"{formatting.in_hundred(example)}. 0.5 is chance, 1 is certainty.",
        ),
        (
            "Epsilon (ε)",
            "bounds what any attack can do: the odds of a guess about one person cannot grow by more than a factor of "
            f"e to the power ε. That is {odds(1)} at 1, {odds(8)} at 8, and no bound at all at ∞.",
        ),
        (
            "NDCG and HR",
            "say how often, and how high, the item a person really took next appears in their list. 0 is never, 1 is "
            "always on top.",
        ),
    ]


def _notes(claim: GuaranteeRow, said_elsewhere: list[str]) -> list[str]:
    """Assumptions and statements, less what stands under "Why" and among the limits."""
    why = claim.reason_if_inf
    notes = [text for text in claim.statements if text not in said_elsewhere and not (why and why in text)]
    return [*claim.assumptions, *notes]


def _epsilon_note(claim: GuaranteeRow) -> str:
    if not claim.finite:
        return "no guarantee"
    word = grade(claim.epsilon, claim.delta)
    if delta_excuses(claim.delta):
        return "delta is too large for it to mean anything"
    return "too large to mean anything" if word == "none" else f"a {word} guarantee"


def _claim_facts(claim: GuaranteeRow) -> list[tuple[str, str]]:
    facts = [("Why", formatting.capital(claim.reason_if_inf))] if claim.reason_if_inf else []
    facts.append(("Must be trusted", formatting.named(formatting.TRUST, claim.trust)))
    if not claim.finite:
        return facts
    facts += [
        ("Protects", formatting.named(formatting.UNITS, claim.unit)),
        ("Compared data sets", formatting.compared(claim.neighbours, claim.unit)),
        ("Delta", formatting.delta(claim.delta)),
        ("Counted", f"{formatting.count(claim.rounds_counted, 'round')} per {claim.per}"),
        ("Accountant", f"{claim.accountant} {claim.accountant_version}".strip()),
    ]
    if claim.tiers:
        facts.insert(0, ("Chosen by each person", formatting.tiers(claim.tiers)))
    if claim.cross_check:
        checks = [f"{name}: {formatting.epsilon(value)}" for name, value in claim.cross_check.items()]
        facts.append(("Checked by", formatting.listed(checks)))
    if claim.basic_epsilon is not None:
        facts.append(("Plain addition", f"epsilon = {formatting.epsilon(claim.basic_epsilon)} with delta = 0"))
    return facts
