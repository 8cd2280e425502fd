"""The questions of NIST SP 800-226 to a claim of differential privacy, from the top of its pyramid to the ground."""

from typing import Any

from privfed.audit.report import formatting
from privfed.dossier.evidence import Datum
from privfed.dossier.questions.question import Answer, Case, Question, Reply, SourceText, Unknown
from privfed.dossier.questions.wording import claim, interval, meaning, quality, reasons_not_run, small, verdict

SOURCE = SourceText(
    "NIST SP 800-226",
    "Guidelines for Evaluating Differential Privacy Guarantees, March 2025",
    "https://doi.org/10.6028/NIST.SP.800-226",
    "The text of the initial public draft (December 2023) was at hand and that of the final publication was not: "
    "section numbers are those of the draft.",
)


def _epsilon(case: Case) -> Reply:
    own = case.evidence.guarantee
    text = f"{formatting.capital(claim(own.value))}. {meaning(own.value)}"
    return Answer.from_data(text, own, alarm=not own.value.finite)


def _variant(case: Case) -> Reply:
    own, mu = case.evidence.guarantee, case.evidence.mu
    if not own.value.finite:
        return Answer.from_data(f"None holds: {case.evidence.mu_missing}.", own, alarm=True)
    checks = [f"{name} {formatting.epsilon(value)}" for name, value in own.value.cross_check.items()]
    text = (
        f"Approximate differential privacy, by {own.value.accountant} ({own.value.accountant_version})"
        f"{f', checked by {formatting.listed(checks)}' if checks else ''}."
    )
    if mu is None:
        return Answer.from_data(f"{text} mu and rho are not defined: {case.evidence.mu_missing}.", own)
    rho = mu.value**2 / 2
    same = f"The same as Gaussian differential privacy: mu = {mu.value:.4g}; as zero-concentrated: rho = {rho:.4g}."
    return Answer.from_data(f"{text} {same}", own, mu)


def _unit(case: Case) -> Reply:
    own = case.evidence.guarantee
    unit = formatting.named(formatting.UNITS, own.value.unit)
    compared = formatting.compared(own.value.neighbours, own.value.unit)
    less = own.value.unit != "user"
    text = f"{formatting.capital(unit)}; compared are two worlds: {compared}."
    if not own.value.finite:
        return Answer.from_data(f"{text} With an infinite epsilon neither is protected.", own, alarm=True)
    if less:
        text += " This is less than a person: what a person did in many interactions is protected less, if at all."
    return Answer.from_data(text, own, alarm=less)


def _unprotected(case: Case) -> Reply:
    evidence, own = case.evidence, case.evidence.guarantee
    exact = [one for one in evidence.utility if not one.value.noisy]
    parts, data = list[str](), list[Datum[Any]]([own])
    if exact and evidence.protocol is not None:
        parts.append("exact quality metrics, computed from held-out data outside epsilon")
    if evidence.data is not None:
        parts.append("the number of users and items")
        if evidence.data.value.get("catalogue_derived"):
            parts.append("the catalogue itself, which was read off the interactions")
    if evidence.support is not None:
        parts.append("which rows a device names, under a bound of its own")
    more = [text for text in own.value.statements if "spend privacy too" in text]
    text = f"Not protected: {formatting.listed(parts)}. " if parts else ""
    cited: list[Datum[Any]] = [
        *data,
        *exact[:1],
        *([evidence.data] if evidence.data else []),
        *([evidence.support] if evidence.support else []),
    ]
    if not (text or more):
        return Unknown("controller", "the record does not say what else was released about the same people")
    derived = evidence.data is not None and bool(evidence.data.value.get("catalogue_derived"))
    return Answer.from_data(f"{text}{' '.join(more)}".strip(), *cited, alarm=derived)


def _utility(case: Case) -> Reply:
    main = case.evidence.main
    if main is None:
        return Unknown("engineer", "no quality on held-out items is recorded in this folder")
    text = f"{quality(main.value)}: {verdict(main.value)}."
    protocol = case.evidence.protocol
    return Answer.from_data(text, main, *([protocol] if protocol else []), alarm=main.value.useful is not True)


def _groups(case: Case) -> Reply:
    quality_of, leak_of = case.evidence.utility_groups, case.evidence.leak_groups
    parts = []
    for name, groups in (("quality (NDCG)", quality_of), ("the main attack (AUC)", leak_of)):
        if groups is not None:
            low = min(groups.value, key=lambda one: one.value.value)
            high = max(groups.value, key=lambda one: one.value.value)
            parts.append(
                f"{name} by tenths of people, the first the least active, lies between {interval(low.value)} "
                f"({low.name}) and {interval(high.value)} ({high.name})"
            )
    if not parts:
        return Unknown("engineer", "neither quality nor leakage by group of people is recorded in this folder")
    cited = [groups for groups in (quality_of, leak_of) if groups is not None]
    return Answer.from_data(
        f"{formatting.capital('; '.join(parts))}. Groups by gender, age or origin are the controller's to name.", *cited
    )


def _queries(case: Case) -> Reply:
    releases = case.evidence.releases
    if releases is None:
        return Unknown("engineer", "no release is recorded")
    return Answer.from_data(
        f"Released was what stands in the ledger, and no analyst queries more: {'; '.join(releases.value)}.", releases
    )


def _trust(case: Case) -> Reply:
    own, seen = case.evidence.guarantee, case.evidence.observers
    trusted = formatting.named(formatting.TRUST, own.value.trust)
    if not own.value.finite:
        trusted = "everybody who sees an upload or the model, as nothing is guaranteed against anybody"
    text = f"Trusted: {trusted}."
    for one in seen:
        holds = own.value.finite and one.value.guaranteed
        found = "" if one.value.headline is None else f" Strongest attack: AUC {interval(one.value.headline.auc)}."
        text += (
            f" {formatting.capital(one.value.who)} ({'bounded' if holds else 'not bounded'}): {one.value.sees}{found}"
        )
    return Answer.from_data(text, own, *seen, alarm=not own.value.finite)


def _implementation(case: Case) -> Reply:
    own, checks = case.evidence.guarantee, case.evidence.checks
    noise = [text for text in own.value.assumptions if "noise" in text.lower() or "grid" in text.lower()]
    failed = [one.value.name for one in checks if not one.value.passed]
    parts = list(noise)
    if checks:
        passed = len(checks) - len(failed)
        parts.append(f"{passed} of {len(checks)} checks of what ran against what is claimed passed.")
    if failed:
        parts.append(f"Failed: {formatting.listed(failed)}.")
    if case.evidence.clipped is not None:
        parts.append(f"The clip changed {case.evidence.clipped.value:.1%} of uploads.")
    if not parts:
        return Unknown("engineer", "no noise was added, and nothing that ran was checked: privfed audit checks it")
    more = [] if case.evidence.clipped is None else [case.evidence.clipped]
    return Answer.from_data(" ".join(parts), own, *checks, *more, alarm=bool(failed))


def _testing(case: Case) -> Reply:
    evidence, tests = case.evidence, case.environment.tests
    measured = [one for one in evidence.empirical if one.value.kind == "lower bound"]
    parts, sources = [], []
    if measured:
        worst = max(measured, key=lambda one: one.value.value)
        row = worst.value
        parts.append(
            f"The highest lower bound on epsilon that was measured is {formatting.epsilon(row.value)} for one "
            f"{row.unit} ({row.estimator}, {row.confidence:.0%} confidence), where {formatting.epsilon(row.accounted)} "
            f"is claimed: the claim {'survives' if row.consistent else 'is denied'}."
        )
        sources.append(worst.source)
    if evidence.contradictions:
        parts.append(f"Contradicted: {' '.join(one.value for one in evidence.contradictions)}")
        sources += [one.source for one in evidence.contradictions]
    if tests is not None:
        ran = tests.tests - tests.skipped
        parts.append(f"Of privfed's own tests {ran:,} ran and {tests.failures:,} failed ({tests.skipped:,} skipped).")
        sources.append(tests.source)
    if not parts:
        return Unknown(
            "engineer",
            "no measured epsilon is recorded here and no test report was given: privfed audit measures, and --tests "
            "takes the file of 'pytest --junitxml FILE'",
        )
    denied = any(not one.value.consistent for one in measured) or bool(evidence.contradictions)
    return Answer(" ".join(parts), tuple(dict.fromkeys(sources)), denied or bool(tests and tests.failures))


def _collection(case: Case) -> Reply:
    size, own = case.evidence.upload_bytes, case.evidence.guarantee
    if size is None or case.evidence.settings is None:
        missing = reasons_not_run(case.evidence, "traffic")
        return Unknown("engineer", missing or "what leaves a device in a round is recorded by privfed audit alone")
    plan = "" if case.evidence.plan is None else f" under the plan {case.evidence.plan.value}"
    sends = f"A device sends {formatting.volume(size.value)} in a round{plan}"
    seen = (
        "single uploads reach the server"
        if own.value.trust in ("none", "central")
        else ("uploads leave the device under noise or masks")
    )
    return Answer.from_data(f"{sends}; {seen}.", size, case.evidence.settings, own)


def _total(case: Case) -> Reply:
    total = case.budget.bounded
    if not case.budget.past:
        return Unknown("controller", "no past run was given: --past names folders of runs about the same people")
    sources = tuple(dict.fromkeys(one.source for one in case.budget.past))
    if total.epsilon is None:
        return Answer(f"{formatting.capital(total.why_none)}.", sources, alarm=True)
    left = "" if case.budget.left is None else f"; {formatting.epsilon(max(case.budget.left, 0))} is left"
    text = (
        f"{formatting.count(total.runs, 'run')} of {case.budget.period} {'adds' if total.runs == 1 else 'add'} up to "
        f"epsilon = {formatting.epsilon(total.epsilon)} at delta = {small(total.delta)}{left}."
    )
    return Answer(text, sources, alarm=total.epsilon == float("inf") or (case.budget.left or 0) < 0)


def _security(case: Case) -> Reply:
    policy = case.evidence.policy
    if policy is None:
        return Unknown("controller", "who may reach the data, logs and keys is outside the record")
    text = (
        f"The node's owner allows the mechanisms {', '.join(policy.value['mechanisms'])}, at least "
        f"{policy.value['min_own_users']} of its users in a sum and {policy.value['max_rounds']:,} rounds in all; who "
        "may reach the node's disk is the controller's to say."
    )
    return Answer.from_data(text, policy)


QUESTIONS: tuple[Question, ...] = (
    Question("nist-epsilon", SOURCE, "2.2", "Privacy parameter", "How large is epsilon, and what is that?", _epsilon),
    Question("nist-variant", SOURCE, "2.3", "Variant", "Which variant is claimed, and by which accountant?", _variant),
    Question("nist-unit", SOURCE, "2.4", "Unit and neighbours", "What is protected, between which worlds?", _unit),
    Question(
        "nist-unprotected", SOURCE, "2.6", "Unprotected quantities", "What was released or looked at without it?",
        _unprotected,
    ),
    Question("nist-utility", SOURCE, "3.2", "Utility", "What is the result worth beside a trivial one?", _utility),
    Question("nist-bias", SOURCE, "3.3", "Bias by group", "For whom is it worse, and who leaks more?", _groups),
    Question("nist-queries", SOURCE, "4.1", "Query model", "Who asks what, and how often?", _queries),
    Question("nist-trust", SOURCE, "4.2", "Trust", "Who has to be trusted, and who sees what?", _trust),
    Question(
        "nist-implementation", SOURCE, "4.3", "Implementation", "Is the mechanism that ran the one that is proved?",
        _implementation,
    ),
    Question("nist-testing", SOURCE, "4.3", "Testing", "Which measurement or test tried to deny the claim?", _testing),
    Question("nist-security", SOURCE, "4.4", "Security and access", "Who may reach the data and the keys?", _security),
    Question("nist-collection", SOURCE, "4.5", "Data collection", "What leaves a device, and for whom?", _collection),
    Question("nist-total", SOURCE, "2.1.2", "Composition", "What do all releases about the people add up to?", _total),
)  # fmt: skip
