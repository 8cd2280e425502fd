"""Questions of the EDPB's opinion 28/2024 to a model that is said to be anonymous, each with the attack that tried."""

from collections.abc import Mapping
from typing import Any

from privfed.audit.report import formatting
from privfed.audit.report.headline import PROTECTED_TAPS
from privfed.dossier.evidence import Datum
from privfed.dossier.questions.question import Answer, Case, Question, Reply, SourceText, Unknown
from privfed.dossier.questions.wording import attack, bound_on_attacks, claim, interval, reasons_not_run
from privfed.privacy import PlanError, PrivacyPlan

SOURCE = SourceText(
    "EDPB opinion 28/2024",
    "Opinion 28/2024 on certain data protection aspects related to the processing of personal data in the context of "
    "AI models, 17 December 2024",
    "https://www.edpb.europa.eu/our-work-tools/our-documents/opinion-board-art-64/opinion-282024-certain-data-protection-aspects_en",
    "The text of the opinion was not at hand. Paragraph numbers were taken from published digests of it and cover 34, "
    "40, 43 and 134; where no number is given, compare the section on evidence of anonymity.",
)
_RUN = "privfed audit measures it; privfed attack does for a single run"


def _anonymous(case: Case) -> Reply:
    own, worst = case.evidence.guarantee, case.evidence.strongest
    said = f"No test here can show anonymity; what can be told: {claim(own.value)}."
    if worst is None:
        return Answer.from_data(f"{said} No attack behind the mechanism was measured.", own, alarm=not own.value.finite)
    leaks = worst.value.gain.lo > 0
    text = f"{said} The strongest attack tried: {attack(worst.value)}."
    return Answer.from_data(text, own, worst, alarm=leaks or not own.value.finite)


def _singling_out(case: Case) -> Reply:
    evidence = case.evidence
    people = [one for one in evidence.empirical if one.value.unit == "user" and one.value.tap in PROTECTED_TAPS]
    uploads = evidence.chosen_at.get("uploads")
    if people:
        worst = max(people, key=lambda one: one.value.value)
        row = worst.value
        ends = "" if row.lo is None or row.hi is None else f", interval {row.lo:.3g} to {row.hi:.3g}"
        text = (
            f"Whole people were inserted as canaries and looked for ({row.estimator}, {row.trials:,} trials): epsilon "
            f"{formatting.epsilon(row.value)} ({row.kind}{ends}, {row.confidence:.0%} confidence), where "
            f"{formatting.epsilon(row.accounted)} is claimed."
        )
        return Answer.from_data(text, worst, alarm=not row.consistent or not evidence.guarantee.value.finite)
    if uploads is not None and evidence.guarantee.value.trust not in ("central", "distributed"):
        text = (
            "Every upload reaches the server by itself, so a person's is singled out by construction. What it then "
            f"gives away: {attack(uploads.value)}."
        )
        return Answer.from_data(text, uploads, evidence.guarantee, alarm=True)
    why = reasons_not_run(evidence, "whole people", "canaries") or f"no attack on whole people is recorded: {_RUN}"
    return Unknown("engineer", f"{why}; {bound_on_attacks(evidence)}")


def _linking(case: Case) -> Reply:
    if (sums := _sums_alone(case)) is not None:
        return sums
    evidence = case.evidence
    joined, parts, data = evidence.chosen_at.get("linked uploads"), list[str](), list[Datum[Any]]()
    for one in evidence.links:
        parts.append(f"{formatting.capital(formatting.link(one.value))}.")
        data.append(one)
    if joined is not None:
        parts.append(
            "The run itself gave every person a stable pseudonym, which links their uploads of several rounds; joined, "
            f"they give: {attack(joined.value)}."
        )
        data.append(joined)
    if parts:
        alarm = joined is not None or any(one.value.auc.lo > 0.5 for one in evidence.links)
        parts.append("Records of another service were not compared.")
        return Answer.from_data(" ".join(parts), *data, alarm=alarm)
    return Unknown(
        "engineer",
        f"no attack that links records of one person is recorded, which takes uploads of two rounds: {_RUN}; "
        f"{bound_on_attacks(evidence)}",
    )


def _sums_alone(case: Case) -> Answer | None:
    """Why there is nothing of one person to link; None where something is."""
    evidence, own = case.evidence, case.evidence.guarantee.value
    plan = None if evidence.settings is None else _plan(evidence.settings.value)
    # Where shares are summed row by row, the servers see which rows a device names, round by round.
    if evidence.settings is None or plan is None or plan.mechanism.release != "total" or plan.mechanism.secret_sharing:
        return None
    few = plan.mechanism.min_clients
    text = "No upload of one person is released: the plan releases sums alone" + (
        f", each of at least {formatting.count(few, 'person', 'people')}. " if few > 1 else ". "
    )
    if plan.mechanism.masking is None:
        text += "Whoever adds uploads up receives each, could link them, and is trusted not to. "
    counted = evidence.ledger or evidence.releases
    if evidence.ledger is not None:
        text += f"The ledger holds {formatting.count(evidence.ledger.value.entries, 'query', 'queries')}. "
    bounds = own.finite and own.unit == "user"
    text += (
        f"What sums say of a person in all of them, linked or not, is bounded: {claim(own)}."
        if bounds
        else f"But no claim about whole people bounds what sums say of one: {claim(own)}."
    )
    return Answer.from_data(
        text, evidence.settings, evidence.guarantee, *([] if counted is None else [counted]), alarm=not bounds
    )


def _plan(settings: Mapping[str, Any]) -> PrivacyPlan | None:
    try:
        return PrivacyPlan.from_dict(settings)
    except PlanError:
        return None


def _inference(case: Case) -> Reply:
    evidence = case.evidence
    found = [one for one in (evidence.strongest, evidence.inclusion) if one is not None]
    guesses = evidence.attributes
    if not found and not guesses:
        why = reasons_not_run(evidence, "attribute", "shadow") or f"no attack behind the mechanism is recorded: {_RUN}"
        return Unknown("engineer", f"{why}; {bound_on_attacks(evidence)}")
    parts = [f"{attack(one.value)}" for one in found]
    if guesses:
        best = max(guesses, key=lambda one: one.value.auc.value)
        row = best.value
        parts.append(
            f"{row.attribute} guessed from {row.evidence}: AUC {interval(row.auc)} over {row.n_users:,} people"
        )
    text = (
        f"{formatting.capital('; '.join(parts))}. Of many attacks the one that was strongest on one half of the people "
        f"was measured on the other. {formatting.capital(bound_on_attacks(evidence))}."
    )
    leaks = any(one.value.gain.lo > 0 for one in found) or any(one.value.auc.lo > 0.5 for one in guesses)
    return Answer.from_data(text, *found, *guesses, evidence.guarantee, alarm=leaks)


def _extraction(case: Case) -> Reply:
    return _there(case, "model", "the sums or the parameters")


def _outputs(case: Case) -> Reply:
    return _there(case, "scores", "what a device shows its own user")


def _there(case: Case, place: str, words: str) -> Reply:
    one = case.evidence.chosen_at.get(place)
    if one is None:
        return Unknown("engineer", f"no attack on {words} is recorded: {_RUN}; {bound_on_attacks(case.evidence)}")
    text = f"The strongest attack on {words}, chosen on one half of the people and measured on the other: "
    return Answer.from_data(f"{text}{attack(one.value)}.", one, alarm=one.value.gain.lo > 0)


def _state_of_the_art(case: Case) -> Reply:
    names = sorted({one.value.name for one in case.evidence.attacks})
    left_out = case.evidence.not_run
    if not names:
        return Unknown("engineer", f"no attack is recorded: {_RUN}")
    text = f"Tried: {formatting.listed(names)}."
    if left_out:
        text += f" Not tried: {'; '.join(f'{one.value.what} ({one.value.why})' for one in left_out)}."
    return Answer.from_data(text, *case.evidence.attacks, *left_out)


def _documents(case: Case) -> Reply:
    version = case.evidence.version
    sources = [case.environment.source, *([] if version is None else [version.source])]
    return Answer(
        f"This folder: every file by SHA-256 in manifest.json, signed by role. Made with privfed "
        f"{case.environment.privfed}, whose {case.environment.own_files:,} source files have the digest "
        f"{case.environment.own_digest[:12]}, beside {case.environment.components} installed distributions.",
        tuple(sources),
    )


QUESTIONS = (
    Question("edpb-anonymous", SOURCE, "§ 34, 43, 134", "Anonymity", "What speaks for and against it?", _anonymous),
    Question("edpb-singling-out", SOURCE, "§ 40", "Singling out", "Can a person be singled out?", _singling_out),
    Question("edpb-linkability", SOURCE, "§ 40", "Linkability", "Can records of a person be linked?", _linking),
    Question("edpb-inference", SOURCE, "§ 40", "Inference", "What can be inferred of a person?", _inference),
    Question(
        "edpb-extraction", SOURCE, "§ 43 (i)", "Extraction", "Can training data be had from the model?", _extraction
    ),
    Question("edpb-queries", SOURCE, "§ 43 (ii)", "Outputs", "Can they be had from what it answers?", _outputs),
    Question("edpb-tests", SOURCE, "evidence of anonymity", "Attacks tried", "Which attacks were tried, and which not?",
             _state_of_the_art),
    Question("edpb-documents", SOURCE, "evidence of anonymity", "Documentation", "What documents this?", _documents),
)  # fmt: skip
