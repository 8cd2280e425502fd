"""The two pages on top: what is guaranteed, what it is worth, what was found and spent, and what is left to decide."""

import re
from dataclasses import dataclass
from typing import Any

from privfed.audit.page import dots
from privfed.audit.report import formatting
from privfed.audit.report.grades import delta_excuses, grade, guarantee_words, odds_sentence, suspicion_after
from privfed.dossier.page.intervals import Lane, attack_lanes, quality_lanes
from privfed.dossier.questions import Answer, Case, Question, Reply, Unknown
from privfed.dossier.questions.wording import attack, bound_on_attacks, quality, small, verdict


@dataclass(frozen=True, slots=True)
class SummaryCard:
    """One question of the first page.

    Attributes:
        head: the answer in a few words.
        text: why.
        lanes: values with their intervals.
        share: of a budget that is spent, in percent; None draws no bar.
        over: whether more was spent than allowed.
    """

    head: str
    text: str
    lanes: tuple[Lane, ...] = ()
    share: float | None = None
    over: bool = False


KINDS = {
    "run": "a run",
    "audit": "a setting of an audit",
    "node": "a run of a node",
    "devices": "a run over people's devices",
}
_SENTENCE = re.compile(r"(?<=[a-z0-9\])])\. (?=[A-Z])")
_FILLERS = {
    "controller": "the controller",
    "officer": "the data protection officer",
    "engineer": "the engineer",
}


def first_sentence(case: Case) -> str:
    """What is guaranteed, or that nothing is: the first words that anybody reads."""
    own = case.evidence.guarantee.value
    if not own.finite:
        return f"Nothing is guaranteed to anybody: epsilon is infinite, because {own.reason_if_inf}."
    unit = formatting.named(formatting.UNITS, own.unit)
    weight = guarantee_words(own.epsilon, own.delta, _users(case))
    number = f"epsilon {formatting.epsilon(own.epsilon)} at delta {small(own.delta)}"
    return f"{formatting.capital(weight)} for {unit}: {number}."


def deck(case: Case) -> str:
    """What the number means for a person, and on whom it rests."""
    own = case.evidence.guarantee.value
    if not own.finite:
        return "Whoever sees an upload or the model may learn whatever it holds; no formal bound limits that."
    trust = formatting.named(formatting.TRUST, own.trust)
    odds = odds_sentence(own.epsilon, own.delta, _users(case))
    return f"Whatever somebody concludes from what was published, {odds}. This holds as long as one can trust {trust}."


def figures(case: Case) -> list[tuple[str, str, str]]:
    """The parameters: name, value, and what it is."""
    own, mu = case.evidence.guarantee.value, case.evidence.mu
    missing = "not defined"
    return [
        ("epsilon", formatting.epsilon(own.epsilon), "the smaller the better" if own.finite else "nothing is bounded"),
        ("delta", small(own.delta) if own.finite else "—", "chance that epsilon fails"),
        ("mu", f"{mu.value:.3g}" if mu else missing, "the same as a Gaussian" if mu else case.evidence.mu_missing),
        ("rho", f"{mu.value**2 / 2:.3g}" if mu else missing, "zero-concentrated" if mu else "for the same reason"),
    ]


def _users(case: Case) -> int:
    ledger = case.evidence.ledger
    return ledger.value.population if ledger else 0


def suspicion(case: Case) -> list[dict[str, Any]]:
    """What somebody suspects of a person before and after, as dots of a hundred."""
    own = case.evidence.guarantee.value
    users = _users(case)
    bounded = own.finite and not delta_excuses(own.delta, users)
    after = suspicion_after(own.epsilon) if bounded else 100
    word = grade(own.epsilon, own.delta, users)
    kind = f"d-{word}" if word != "none" else "dx"
    return [
        {"words": "suspected before", "strip": dots.strip([("d-now", 1), ("do", 99)]), "number": "1 in 100"},
        {
            "words": "and after, at most",
            "strip": dots.strip([(kind, after), ("do", 100 - after)]),
            "number": f"{after} in 100" if bounded else "no limit",
        },
    ]


def worth(case: Case) -> SummaryCard:
    """Quality beside popularity."""
    main = case.evidence.main
    if main is None:
        return SummaryCard(
            "Not recorded.", "No quality on held-out items stands in this folder, so nothing says what it is worth."
        )
    method = formatting.method_name(case.evidence.method.value) if case.evidence.method else "this run"
    return SummaryCard(
        f"{formatting.capital(verdict(main.value))}.",
        f"{quality(main.value)}. Lines are 95 % intervals over people.",
        quality_lanes(main.value, method),
    )


def leaked(case: Case) -> SummaryCard:
    """The strongest attack, or that none was measured."""
    worst = case.evidence.strongest
    if worst is None:
        return SummaryCard(
            "No attack behind the mechanism was measured.",
            f"That is no sign of safety: {bound_on_attacks(case.evidence)}.",
        )
    leaks = worst.value.gain.lo > 0
    return SummaryCard(
        "An attack finds more than popularity explains." if leaks else "No more than popularity explains.",
        f"{formatting.capital(attack(worst.value))}. That these attacks fail says nothing of others.",
        attack_lanes(worst.value),
    )


def spent(case: Case) -> SummaryCard:
    """What the year comes to, and what is left."""
    budget, total = case.budget, case.budget.bounded
    if not budget.past:
        return SummaryCard("Not known.", "No past run was given, so the controller has to add them up.")
    more = f" {budget.remark_on_uncounted}" if budget.uncounted else ""
    if total.epsilon is None:
        return SummaryCard("These do not add up.", f"{formatting.capital(total.why_none)}.")
    number, several = formatting.epsilon(total.epsilon), formatting.count(total.runs, "run")
    together = ", by plain addition" if total.runs > 1 else ""
    text = f"{formatting.capital(several)} of {budget.period}{together}, at delta {small(total.delta)}.{more}"
    if total.mu is not None and total.epsilon_by_mu is not None and total.runs > 1:
        by_mu = formatting.epsilon(total.epsilon_by_mu)
        text += f" All noise is Gaussian: mu {total.mu:.3g} together, which is epsilon {by_mu}."
    if budget.allowed is None or budget.left is None:
        bound = "A bound for the year is to be set by the controller (--budget)."
        return SummaryCard(f"Epsilon {number} so far, and nobody set a bound.", f"{text} {bound}")
    allowed, left = budget.allowed.value, budget.left
    share = 100.0 if left <= 0 else 100 * total.epsilon / allowed
    head = f"Epsilon {formatting.epsilon(left)} of {formatting.epsilon(allowed)} is left."
    head = head if left >= 0 else "More than allowed was spent."
    return SummaryCard(head, f"Epsilon {number} was spent. {text}", share=share, over=left < 0)


def alarms(replies: list[tuple[Question, Reply]]) -> list[tuple[Question, str]]:
    """Questions whose answer is bad news, with its first sentence."""
    return [
        (question, _SENTENCE.split(reply.text, maxsplit=1)[0].rstrip("."))
        for question, reply in replies
        if isinstance(reply, Answer) and reply.alarm
    ]


def open_questions(replies: list[tuple[Question, Reply]], fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is left to fill, by who has to."""
    groups = []
    for filler, words in _FILLERS.items():
        questions = [question for question, reply in replies if isinstance(reply, Unknown) and reply.by == filler]
        mine = [one["field"] for one in fields if one.get("to_be_filled_by") == filler]
        names = [name.rpartition(".")[2].replace("_", " ") for name in mine]
        if questions or names:
            groups.append({"who": words, "questions": questions, "fields": names})
    return groups
