"""Plain sentences computed from the numbers of a report, and the limits that its configuration brings with it.

Every sentence is a function of the aggregates or of a configuration that triggers it, so none can outlive the numbers it states.
"""

import math

from privfed.audit.headline import (
    main_attack,
    main_utility,
    popularity_utility,
    protected_cells,
    unprotected,
)
from privfed.audit.page import words
from privfed.audit.report import AttackCell, AuditReport, Cell, GuaranteeRow, Statement, UtilityCell

WEAK_EPSILON = 10.0
"""Above it a guarantee is called weak or vacuous: e^10 is an odds factor of 22,026."""

RANDOMISED = "randomised"


def make_statements(report: AuditReport) -> list[Statement]:
    """What was tested; then, for every cell, what was recovered, what is guaranteed and what it costs; then the limits."""
    statements = [Statement(topic="tested", text=_tested(report))]
    for cell in protected_cells(report):
        about = {"method": cell.method, "setting": cell.setting.slug}
        statements += [
            Statement(topic="attack", text=_attack(main_attack(cell)), **about),
            Statement(topic="guarantee", text=_guarantee(cell.guarantee), **about),
            Statement(topic="utility", text=_utility(report, cell), **about),
        ]
    return statements + [Statement(topic="limit", text=text) for text in _limits(report)]


def _tested(report: AuditReport) -> str:
    cells = protected_cells(report)
    card = report.dataset
    methods = words.listed([words.named(words.METHODS, name) for name in dict.fromkeys(c.method for c in cells)])
    settings = words.listed(list(dict.fromkeys(c.setting.name for c in cells)))
    lengths = sorted({run.rounds for run in report.runs if run.method in {c.method for c in cells}})
    n_seeds = max((cell.n_seeds for cell in cells), default=0)
    return (
        f"{_number(card, 'interactions')} interactions of {_number(card, 'users')} people with "
        f"{_number(card, 'items')} items were divided so that each device holds only its own person's. "
        f"{methods} trained for {words.listed([str(n) for n in lengths])} rounds under: {settings}; "
        f"{words.count(n_seeds, 'seed')} each. The adversary is an honest but curious server: it follows "
        f"the protocol, keeps what it receives, and tries to tell which items each person used."
    ) + (" The data are synthetic: no number here is a measurement on people." if card.get("synthetic") else "")


def _number(card: dict[str, object], key: str) -> str:
    value = card.get(key)
    return f"{value:,}" if isinstance(value, int) else "an unknown number of"


def _seen(attack: AttackCell) -> str:
    rounds = words.rounds(attack.rounds)
    if attack.tap == "model":
        return "From the finished model"
    if attack.tap == "sum":
        return f"From the sum over clients ({rounds})"
    return f"From one upload ({rounds})" if len(attack.rounds) == 1 else f"From one person's uploads ({rounds})"


def _attack(attack: AttackCell | None) -> str:
    if attack is None:
        return "No attack was run at a point behind the protection, so nothing is known about what leaks."
    auc = attack.auc.mean
    if attack.users.lo <= 0.5:
        verdict = "no better than a coin"
    elif attack.gain.mean <= 0:
        verdict = "no better than guessing the more popular item"
    else:
        verdict = "better than guessing the more popular item"
    return (
        f"{_seen(attack)}, the server tells an item this person used from one they did not "
        f"{words.in_hundred(auc)}: {verdict}, which is right {words.in_hundred(attack.popularity_auc)}. "
        if verdict != "no better than a coin"
        else f"{_seen(attack)}, the server tells an item this person used from one they did not "
        f"{words.in_hundred(auc)}: no better than a coin. "
    ) + (
        f"Strongest attack: {attack.attack}, AUC {words.share(auc)} "
        f"(95 % over users {words.share(attack.users.lo)} to {words.share(attack.users.hi)})."
    )


def _guarantee(guarantee: GuaranteeRow) -> str:
    if not guarantee.finite:
        return f"Nothing is guaranteed (epsilon = inf). {_sentence(guarantee.reason_if_inf or 'No reason was recorded')}"
    factor = words.odds_factor(guarantee.epsilon)
    text = (
        f"Guaranteed: epsilon = {words.epsilon(guarantee.epsilon)} at delta = {words.delta(guarantee.delta)} "
        f"per {guarantee.per} for {words.named(words.UNITS, guarantee.unit)}. Whatever the attack, odds about that "
        f"cannot grow by more than a factor of {factor}."
    )
    if guarantee.epsilon > WEAK_EPSILON:
        text += " That is a weak or vacuous formal guarantee: the factor rules out next to nothing."
    return text


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


def _utility(report: AuditReport, cell: Cell) -> str:
    utility = main_utility(cell)
    if utility is None:
        return "The quality of the recommendations was not measured."
    name, value = words.metric(utility.name, utility.k), utility.seeds.mean
    text = f"{name} is {words.share(value)}"
    plain = unprotected(report, cell.method)
    reference = main_utility(plain) if plain is not None and plain is not cell else None
    if reference is not None and reference.seeds.mean > 0:
        change = value / reference.seeds.mean - 1
        text += f", {_change(change)} against {words.share(reference.seeds.mean)} without protection"
        if _overlap(utility, reference):
            text += " (within the range over seeds)"
    popularity = popularity_utility(report, utility)
    if popularity is not None:
        floor = popularity.seeds.mean
        text += f"; recommending the most popular items to everybody gives {words.share(floor)}"
        if value <= floor:
            text += ", so this is worse than no personal recommender at all"
    return text + "."


def _change(change: float) -> str:
    percent = round(100 * abs(change))
    if percent == 0:
        return "unchanged"
    return f"{percent} % {'lower' if change < 0 else 'higher'}"


def _overlap(one: UtilityCell, other: UtilityCell) -> bool:
    return one.seeds.minimum <= other.seeds.maximum and other.seeds.minimum <= one.seeds.maximum


def _limits(report: AuditReport) -> list[str]:
    cells = protected_cells(report)
    attacks = [attack for cell in cells for attack in cell.attacks]
    n_seeds = min((cell.n_seeds for cell in cells), default=0)
    limits = [
        "This is a simulation: all parties ran in one process, and the report measures that process. Noise is seeded so that "
        "a run can be repeated; whoever holds the seed can predict it. A deployment draws its keys from the operating system.",
        "Choices made by looking at data (hyper-parameters, clip bounds, the best round) spend privacy too, and are not "
        "inside any epsilon here unless a setting lists them.",
        "A low attack score is not a guarantee: it says what these attacks found, and a better one may find more.",
    ]
    if any(attack.game != RANDOMISED for attack in attacks):
        limits.append(
            "Members and non-members come from the data as they are, not from a coin, so scores mix leakage with popularity "
            "and time. Read the gain over the popularity guess; no epsilon can be inferred from these games."
        )
    if any(cell.guarantee.finite and cell.guarantee.trust == "local" for cell in cells):
        limits.append(
            "Local guarantees cover the content of uploads. Who takes part, and when, is seen by the server and not protected."
        )
    if any(math.isfinite(e := cell.guarantee.epsilon) and e > WEAK_EPSILON for cell in cells):
        limits.append(
            f"An epsilon above {WEAK_EPSILON:.0f} lets odds grow by more than {words.odds_factor(WEAK_EPSILON)}: a weak or "
            "vacuous formal guarantee. In high dimension attacks fail long before epsilon becomes meaningful."
        )
    if 0 < n_seeds < 5:
        limits.append(
            f"Fewer than 5 seeds ({n_seeds}): means come with their range over seeds, and no interval over seeds is given."
        )
    return limits
