"""Plain sentences computed from the numbers of a report, and the limits that come with its configuration.

Every sentence is a function of the aggregates or of a configuration that triggers it, so none can outlive the
numbers it states.
"""

from collections.abc import Mapping

from privfed.audit.report import formatting
from privfed.audit.report.aggregates import SEEDS_FOR_AN_INTERVAL
from privfed.audit.report.ceilings import too_weak_to_test
from privfed.audit.report.grades import delta_excuses, grade, odds_sentence
from privfed.audit.report.headline import (
    attribute_guess,
    inclusion_attack,
    main_utility,
    measured,
    popularity_utility,
    protected_cells,
    single_round,
    unprotected,
)
from privfed.audit.report.records import (
    AuditReport,
    Cell,
    GuaranteeRow,
    Headline,
    ObserverRow,
    Statement,
    SupportLeak,
    UtilityCell,
)
from privfed.audit.report.support_sentences import sentences
from privfed.evaluation import UNCOUNTED
from privfed.privacy.statements import WEAK_EPSILON, odds

_FIDELITIES = {
    "analytic": "noise of all clients in one draw",
    "exact": "every client rounds and noises by itself",
    "protocol": "the real masking protocol",
    "two-servers": "the real protocol between two servers",
}


def make_statements(report: AuditReport) -> list[Statement]:
    """What was tested; for every cell what leaked, what is guaranteed and what it costs; then the limits."""
    statements = [Statement(topic="tested", text=_tested(report))]
    for cell in protected_cells(report):
        about = {"method": cell.method, "setting": cell.setting.slug}
        by_topic = {
            "attack": _attack(cell),
            "guarantee": _guarantee(cell),
            "utility": _utility(report, cell),
        }
        if cell.support is not None:
            by_topic["support"] = _support(cell.support)
        statements += [
            Statement.model_validate({"topic": topic, "text": text, "detail": detail, **about})
            for topic, (text, detail) in by_topic.items()
        ]
    return statements + [Statement(topic="limit", text=text) for text in _limits(report)]


_CHANCE = 0.5
_NAMED = 6
"""Protections that are named in the first sentence; more are counted, and their cards name them."""


def _tested(report: AuditReport) -> str:
    cells = protected_cells(report)
    card = report.dataset
    methods = formatting.listed([formatting.method_name(name) for name in dict.fromkeys(c.method for c in cells)])
    names = list(dict.fromkeys(formatting.setting(c.setting) for c in cells))
    settings = formatting.listed(names) if len(names) <= _NAMED else formatting.count(len(names), "mechanism")
    lengths = sorted({run.rounds for run in report.runs if run.method in {c.method for c in cells}})
    n_seeds = max((cell.n_seeds for cell in cells), default=0)
    inclusion = max((run.inclusion for run in report.runs), default=0)
    return (
        f"{_number(card, 'interactions')} interactions of {_number(card, 'users')} people with "
        f"{_number(card, 'items')} items were divided so that each device holds only its own person's. "
        f"{methods} trained for {formatting.listed([str(n) for n in lengths])} rounds under {settings}; "
        f"{formatting.count(n_seeds, 'seed')} each. The adversary is an honest but curious server: it follows "
        f"the protocol, keeps what it receives, and tries to tell which items each person used."
        + (
            f" For {inclusion:,} interactions a random bit decided whether they took part in training."
            if inclusion
            else ""
        )
    ) + (" The data are synthetic: no number here is a measurement on people." if card.get("synthetic") else "")


def _number(card: Mapping[str, object], key: str) -> str:
    value = card.get(key)
    return f"{value:,}" if isinstance(value, int) else "an unknown number of"


def _seen(attack: Headline) -> str:
    if attack.tap == "model":
        return "From the finished model"
    if attack.tap == "support":
        return "From which rows a person's device sends"
    if attack.tap == "sum":
        _, _, blocks = attack.scope.partition(", ")
        return f"From the {blocks or 'sum'} over clients ({formatting.rounds(attack.rounds)})"
    if len(attack.rounds) == 1:
        return f"From one upload ({formatting.rounds(attack.rounds)})"
    return f"From one person's uploads in {len(attack.rounds)} rounds"


def _attack(cell: Cell) -> tuple[str, str]:
    text, detail = _membership(cell, cell.headline, single_round(cell), cell.support)
    return " ".join(filter(None, [text, _attributes(cell)])), detail


def _attributes(cell: Cell) -> str:
    """How well people's attributes are guessed behind the mechanism."""
    guesses = []
    for attribute in dict.fromkeys(row.attribute for row in cell.attributes):
        seen, truth = attribute_guess(cell, attribute)
        if seen is not None:
            from_truth = f" (from the true history {formatting.share(truth.auc.value)})" if truth is not None else ""
            low = seen.auc.lo
            found = f"AUC at least {formatting.share(low)}" if low > _CHANCE else "not told from chance"
            guesses.append(f"{attribute} {found}{from_truth}")
    return f"Guesses at who the person is: {', '.join(guesses)}; chance gives 0.5." if guesses else ""


def _membership(
    cell: Cell, attack: Headline | None, single: Headline | None, leak: SupportLeak | None
) -> tuple[str, str]:
    if attack is None and leak is not None:
        return (
            "No attack applies to what is seen behind the mechanism: this method uploads no row per item. What leaks "
            "there was not measured, and that is no evidence of safety.",
            "",
        )
    if attack is None:
        return (
            "Nothing that passes behind the mechanism was attacked, so what leaks there was not measured. That is no "
            "evidence of safety.",
            "",
        )
    text = f"{_seen(attack)}: {_picked(_subject(cell, attack, leak), attack)}"
    if attack.auc.lo <= 0.5:
        text += ", no better than chance"
    text += f" (popularity alone: {formatting.in_hundred(attack.popularity_auc)})."
    if single is not None and len(attack.rounds) > 1:
        text += f" {_seen(single)} alone: {formatting.in_hundred(single.auc.value)}."
    text += "".join(f" {_outside(one)}" for one in cell.observers if not one.guaranteed and one.headline)
    return text, _headline_detail(attack)


def _subject(cell: Cell, attack: Headline, leak: SupportLeak | None) -> str:
    """Who sees the place of an attack under this plan."""
    if attack.tap == "support" and leak is not None and leak.seen_by == "aggregators":
        return "an aggregator"
    return next(one.who for one in cell.observers if one.guaranteed and attack.tap in one.taps)


def _picked(who: str, attack: Headline) -> str:
    used = "examined" if attack.game.startswith("examined") else "used"
    return (
        f"shown one item this person {used} and one they did not, {who} picks the right one "
        f"{formatting.in_hundred(attack.auc.value)}"
    )


def _outside(observer: ObserverRow) -> str:
    """What somebody reads whom the guarantee does not cover."""
    if observer.headline is None:
        raise ValueError(f"nothing was measured of {observer.who}")
    times = formatting.in_hundred(observer.headline.auc.value)
    return f"{formatting.capital(observer.who)}: {times}, outside the guarantee."


def _headline_detail(attack: Headline) -> str:
    comparison = "about as good as"
    if attack.excess.lo > 0:
        comparison = "better than"
    elif attack.excess.hi < 0:
        comparison = "worse than"
    which = f"Strongest of {attack.candidates} attacks: {attack.attack}, chosen on {attack.selection_users} users and "
    if attack.candidates == 1:
        which = f"The only attack that applies: {attack.attack}, "
    others = "users" if attack.candidates == 1 else "others"
    return (
        f"{which}measured on {attack.n_users} {others}: AUC {formatting.share(attack.auc.value)} (95 % over users "
        f"{formatting.share(attack.auc.lo)} to {formatting.share(attack.auc.hi)}), {comparison} the popularity "
        f"guess at {formatting.share(attack.popularity_auc)}; excess {formatting.signed(attack.excess.value)} "
        f"({formatting.signed(attack.excess.lo)} to {formatting.signed(attack.excess.hi)})."
    )


def _support(leak: SupportLeak) -> tuple[str, str]:
    bound = f"Epsilon of the rows alone is {formatting.epsilon(leak.claim.epsilon)} for one item more or less."
    first, *others = sentences(leak)
    return f"{first} {bound}", " ".join([leak.claim.sentence, *others])


def _guarantee(cell: Cell) -> tuple[str, str]:
    text, detail = _claim(cell.guarantee)
    return text, " ".join(filter(None, [detail, _measured(cell), _coin(cell)]))


def _measured(cell: Cell) -> str:
    """What measurements say of the same epsilon."""
    bound, estimate = measured(cell, "lower bound"), measured(cell, "estimate")
    sentences = []
    if bound is not None:
        sure = f"{100 * bound.confidence:g} %"
        sentences.append(
            f"epsilon of {bound.audited} is at least {formatting.epsilon(bound.value)} ({sure} confidence)"
        )
    if estimate is not None:
        text = f"the estimate for {estimate.audited} is {formatting.epsilon(estimate.value)}"
        if estimate.placebo is not None and estimate.value <= estimate.placebo:
            text += ", no more than canaries give that were never there"
        sentences.append(text)
    return f"Measured: {'; '.join(sentences)}." if sentences else ""


def _coin(cell: Cell) -> str:
    """How the strongest attack does in the inclusion game."""
    attack = inclusion_attack(cell.attacks)
    if attack is None or attack.sample_split is None:
        return ""
    text = (
        f"With randomised inclusion, the strongest attack ({attack.attack}) reaches AUC "
        f"{formatting.share(attack.sample_split.auc.value)}"
    )
    if attack.ceiling is None:
        return f"{text}."
    if too_weak_to_test(attack.ceiling):
        return f"{text}; the claim allows at most {formatting.share(attack.ceiling.auc)}: too weak to be tested."
    return f"{text}; the claim allows at most {formatting.share(attack.ceiling.auc)}."


def _claim(guarantee: GuaranteeRow) -> tuple[str, str]:
    if not guarantee.finite:
        reason = guarantee.reason_if_inf or "no reason was recorded"
        return f"Nothing is guaranteed (epsilon = inf): {_sentence(_lowered(reason))}", ""
    value = formatting.epsilon(guarantee.epsilon)
    about = "one interaction of one person" if guarantee.unit == "interaction" else "one person"
    text = (
        f"No attack can raise the odds of a guess about {about} by more than a factor of "
        f"{odds(guarantee.epsilon)} (epsilon = {value})."
    )
    if guarantee.trust == "central":
        text += " This holds against everybody but the server, which sees every upload as it is and has to be trusted."
    if guarantee.trust == "distributed":
        text += " This holds against a server that follows the protocol, as long as enough clients are honest."
    if guarantee.epsilon > WEAK_EPSILON:
        text += " That is no meaningful guarantee: such a factor rules out next to nothing."
    elif delta_excuses(guarantee.delta):
        text += f" Its delta, {formatting.delta(guarantee.delta)}, is so large that this is no meaningful guarantee."
    else:
        word = grade(guarantee.epsilon, guarantee.delta)
        text += f" The guarantee is {word}: {odds_sentence(guarantee.epsilon, guarantee.delta)}."
    detail = (
        f"Per {guarantee.per}, for {formatting.named(formatting.UNITS, guarantee.unit)}, except with probability "
        "delta = "
        f"{formatting.delta(guarantee.delta)}."
    )
    return text, detail


def _lowered(text: str) -> str:
    """The text with a first capital lowered, unless its first word is an abbreviation."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


def _utility(report: AuditReport, cell: Cell) -> tuple[str, str]:
    utility = main_utility(cell)
    if utility is None:
        return "The quality of the recommendations was not measured.", ""
    name, value = formatting.metric(utility.name, utility.k), utility.seeds.mean
    text = f"{name} is {formatting.share(value)}"
    plain = unprotected(report, cell.method)
    reference = main_utility(plain) if plain is not None and plain is not cell else None
    if reference is not None and reference.seeds.mean > 0:
        change = value / reference.seeds.mean - 1
        text += f", {_change(change)} against {formatting.share(reference.seeds.mean)} without a mechanism"
        if _overlap(utility, reference):
            text += " (the intervals over people overlap)"
    text += "."
    popularity = popularity_utility(report, utility)
    if popularity is None:
        return text, ""
    if utility.users.hi < popularity.users.lo:
        text += " That is worse than recommending the most popular items to everybody."
    elif value <= popularity.seeds.mean:
        text += " That is no better than recommending the most popular items to everybody."
    return (
        text,
        f"Recommending the most popular items to everybody gives {formatting.share(popularity.seeds.mean)}.",
    )


def _change(change: float) -> str:
    percent = round(100 * abs(change))
    if percent == 0:
        return "unchanged"
    return f"{percent} % {'lower' if change < 0 else 'higher'}"


def _overlap(one: UtilityCell, other: UtilityCell) -> bool:
    return one.users.lo <= other.users.hi and other.users.lo <= one.users.hi


def shared_caveats(report: AuditReport) -> list[str]:
    """What every guarantee of the report says, so that it need be said once; empty for a single cell."""
    caveats = [cell.guarantee.statements for cell in protected_cells(report)]
    return [text for text in caveats[0] if all(text in other for other in caveats[1:])] if len(caveats) > 1 else []


def _limits(report: AuditReport) -> list[str]:
    n_seeds = min((cell.n_seeds for cell in protected_cells(report)), default=0)
    limits = [
        "A low attack score is not a guarantee: it says what these attacks found; another may find more.",
        "All parties ran in one process: this is a simulation. Its randomness follows from its seeds, so the same "
        "audit gives the same numbers; a deployment draws keys that nobody can predict.",
    ]
    limits += [
        f"{formatting.method_name(name)} is our variant of the published model: {why}."
        for name, why in dict.fromkeys((run.method, run.our_variant) for run in report.runs)
        if why
    ]
    kinds = {row.membership for run in report.runs for row in run.attacks}
    if "natural" in kinds:
        where = "In all games but that of randomised inclusion, members" if "randomised" in kinds else "Members"
        limits.append(
            f"{where} and non-members come from the data as they are, not from randomised inclusion, so scores mix "
            "leakage with popularity and time. Read the gain over the popularity guess; these games say nothing "
            "about epsilon."
        )
    if any(cell.utility for cell in report.aggregates):
        limits.append(UNCOUNTED)
    limits += _of_measurements(report)
    limits += _of_runs(report)
    fidelities = sorted({run.fidelity for run in report.runs})
    limits.append(
        f"The wire was simulated as: {', '.join(f'{fidelity} ({_FIDELITIES[fidelity]})' for fidelity in fidelities)}."
    )
    limits += [text for text in shared_caveats(report) if text not in limits]
    if 0 < n_seeds < SEEDS_FOR_AN_INTERVAL:
        limits.append(
            f"Fewer than {SEEDS_FOR_AN_INTERVAL} seeds ({n_seeds}): means come with their range over seeds, "
            "and no interval over seeds is given."
        )
    return limits


def _of_runs(report: AuditReport) -> list[str]:
    """Rounds that were aborted, and what methods decided by what had been released to them."""
    names = [
        f"{formatting.method_name(run.method)}, {formatting.setting(run.setting)}, seed {run.seed}"
        for run in report.runs
    ]
    aborted = [
        f"{name}: {run.aborted_rounds} of {run.rounds} rounds had too few clients and were aborted; they trained "
        "nothing and cost nothing."
        for name, run in zip(names, report.runs, strict=True)
        if run.aborted_rounds
    ]
    decided = [
        f"{name}, chose by what had been released to it already, which costs no further privacy: "
        f"{', '.join(f'{key} {value:.3g}' for key, value in run.decisions.items())}."
        for name, run in zip(names, report.runs, strict=True)
        if run.decisions
    ]
    return aborted + decided


def _of_measurements(report: AuditReport) -> list[str]:
    """What a measured epsilon does not say; every estimate above its claim is named."""
    rows = [(cell, row) for cell in protected_cells(report) for row in cell.empirical]
    limits = []
    if any(row.kind == "lower bound" for _, row in rows):
        limits.append(
            "A measured lower bound of 0 is no evidence of privacy: it says that this measurement found nothing."
        )
    for cell, row in rows:
        if row.kind != "lower bound" and row.value > row.accounted:
            where = f"{formatting.method_name(cell.method)}, {formatting.setting(cell.setting)}"
            what = "an estimate may lie above the truth" if row.kind == "estimate" else "it holds under its prior only"
            floor = (
                f" Canaries that were never inserted give up to {formatting.epsilon(row.placebo)}."
                if row.placebo is not None
                else ""
            )
            limits.append(
                f"{where}: the {row.kind} {formatting.epsilon(row.value)} of {row.estimator} for {row.audited} lies "
                f"above the {formatting.epsilon(row.accounted)} claimed. That contradicts nothing: {what}.{floor}"
            )
    return limits
