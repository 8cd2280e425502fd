"""The technical part of a data protection impact assessment: what a run can say of article 35(7) GDPR, and what not."""

from typing import Any

from privfed.audit.report import formatting
from privfed.dossier.evidence import Datum
from privfed.dossier.questions.question import Answer, Case, Question, Reply, SourceText, Unknown
from privfed.dossier.questions.wording import attack, meaning, quality, verdict

SOURCE = SourceText(
    "GDPR",
    "Regulation (EU) 2016/679",
    "https://eur-lex.europa.eu/eli/reg/2016/679/oj",
    "The text of article 35(7) was at hand; other articles are cited by number from memory of their subject.",
)


def _operations(case: Case) -> Reply:
    evidence = case.evidence
    parts, data = list[str](), list[Datum[Any]]()
    if evidence.data is not None:
        card = evidence.data.value
        parts.append(
            f"{card.get('users'):,} users, {card.get('items'):,} items, {card.get('interactions'):,} interactions"
        )
        data.append(evidence.data)
    elif evidence.ledger is not None:
        parts.append(f"{evidence.ledger.value.population:,} users")
        data.append(evidence.ledger)
    for name, datum in (("trained", evidence.method), ("behind", evidence.plan)):
        if datum is not None:
            parts.append(f"{name} {datum.value}")
            data.append(datum)
    return Answer.from_data(f"Processed: {'; '.join(parts)}.", *data, evidence.guarantee)


def _purpose(case: Case) -> Reply:
    del case
    return Unknown("controller", "purposes, legal basis and legitimate interest stand in no record of a run")


def _necessity(case: Case) -> Reply:
    main = case.evidence.main
    if main is None:
        return Unknown("controller", "no quality is recorded, so nothing says whether the processing is worth anything")
    said = (
        "A purpose that popularity serves as well needs no processing of anybody's history"
        if main.value.useful is not True
        else "Whether the difference is worth it is the controller's to weigh"
    )
    return Answer.from_data(f"{quality(main.value)}: {verdict(main.value)}. {said}.", main, alarm=not main.value.useful)


def _minimisation(case: Case) -> Reply:
    size, releases = case.evidence.upload_bytes, case.evidence.releases
    if releases is None:
        return Unknown("controller", "no release is recorded")
    sent = "" if size is None else f" A device sends {formatting.volume(size.value)} in a round."
    return Answer.from_data(
        f"What was released about people: {'; '.join(releases.value)}.{sent}",
        releases,
        *([] if size is None else [size]),
    )


def _risks(case: Case) -> Reply:
    own, worst = case.evidence.guarantee, case.evidence.strongest
    found = "No attack behind the mechanism was measured." if worst is None else f"Measured: {attack(worst.value)}."
    data: list[Datum[Any]] = [own, *([] if worst is None else [worst])]
    return Answer.from_data(f"{meaning(own.value)} {found}", *data, alarm=not own.value.finite)


def _measures(case: Case) -> Reply:
    own = case.evidence.guarantee
    if not own.value.finite:
        return Answer.from_data(f"None that bounds anything: {own.value.reason_if_inf}.", own, alarm=True)
    return Answer.from_data(" ".join(own.value.assumptions), own)


def _rights(case: Case) -> Reply:
    own = case.evidence.guarantee
    fading = [text for text in own.value.statements if "eleting" in text or "Who leaves" in text]
    if fading:
        return Answer.from_data(" ".join(fading), own)
    return Unknown("controller", "how a person is informed, objects or is deleted stands in no record of a run")


def _retention(case: Case) -> Reply:
    del case
    return Unknown("controller", "how long data, models and logs are kept stands in no record of a run")


def _advice(case: Case) -> Reply:
    del case
    return Unknown("officer", "the officer's advice is given in signing, or in refusing to")


QUESTIONS = (
    Question("dpia-operations", SOURCE, "35(7)(a)", "Operations", "What is processed, and how?", _operations),
    Question("dpia-purpose", SOURCE, "35(7)(a)", "Purpose", "What for, and on which basis?", _purpose),
    Question("dpia-necessity", SOURCE, "35(7)(b)", "Necessity", "Is it necessary and proportionate?", _necessity),
    Question("dpia-minimisation", SOURCE, "5(1)(c), 25", "Minimisation", "Is less enough?", _minimisation),
    Question("dpia-retention", SOURCE, "5(1)(e)", "Retention", "How long is what kept?", _retention),
    Question("dpia-rights", SOURCE, "12 to 22", "Rights", "What of those who leave or object?", _rights),
    Question("dpia-risks", SOURCE, "35(7)(c)", "Risks", "What can happen to people?", _risks),
    Question("dpia-measures", SOURCE, "35(7)(d)", "Measures", "What is done against it?", _measures),
    Question("dpia-advice", SOURCE, "35(2)", "Advice", "What does the officer advise?", _advice),
)
