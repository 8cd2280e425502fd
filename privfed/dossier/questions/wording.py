"""Numbers of a dossier in sentences that several answers share."""

from privfed.audit.report import formatting
from privfed.audit.report.ceilings import inclusion_auc_ceiling
from privfed.audit.report.grades import guarantee_words, odds_sentence
from privfed.audit.report.records import GuaranteeRow, Interval
from privfed.dossier.evidence import Attack, Evidence, Utility

SYNTHETIC = "The data were generated: no number here is a measurement on people."


def interval(one: Interval) -> str:
    """A value with its 95 % interval."""
    return f"{formatting.share(one.value)} [{formatting.share(one.lo)}, {formatting.share(one.hi)}]"


def signed_interval(one: Interval) -> str:
    """A difference with its 95 % interval."""
    return f"{formatting.signed(one.value)} [{formatting.signed(one.lo)}, {formatting.signed(one.hi)}]"


def claim(one: GuaranteeRow) -> str:
    """Epsilon and delta with unit and trust, or that there is none and why."""
    if not one.finite:
        return f"epsilon is infinite, because {one.reason_if_inf}"
    unit, trust = formatting.named(formatting.UNITS, one.unit), formatting.named(formatting.TRUST, one.trust)
    return (
        f"epsilon = {formatting.epsilon(one.epsilon)} at delta = {small(one.delta)} for {unit}; who has to be "
        f"trusted: {trust}"
    )


def small(delta: float) -> str:
    """A delta as people read it: 0.00516, and a power of ten where zeros would have to be counted."""
    return f"{delta:.3g}" if delta >= 1e-3 else formatting.delta(delta)


def meaning(one: GuaranteeRow) -> str:
    """What the bound does to a suspicion."""
    if not one.finite:
        return "Nothing limits what a better attack will find."
    odds = odds_sentence(one.epsilon, one.delta)
    return f"That is {guarantee_words(one.epsilon, one.delta)}: {odds}, except with probability {small(one.delta)}."


def attack(one: Attack) -> str:
    """What an attack reached beside guessing by popularity."""
    joined = f", joining {formatting.count(one.rounds, 'round')}" if one.rounds > 1 else ""
    return (
        f"{one.name} on {formatting.named(formatting.TAPS, one.tap)}{joined}: AUC {interval(one.auc)} where chance is "
        f"0.5 and guessing by popularity reaches {formatting.share(one.popularity_auc)}; beyond popularity "
        f"{signed_interval(one.gain)} ({one.game})"
    )


def quality(one: Utility) -> str:
    """A metric beside popularity."""
    ours = f"{one.name} {interval(one.value)}{', with noise that epsilon covers' if one.noisy else ''}"
    if one.popularity is None:
        return f"{ours}; what popularity reaches was not recorded"
    gap = "" if one.gain is None else f", a difference of {signed_interval(one.gain)} paired by person"
    return f"{ours}; recommending the most popular items {interval(one.popularity)}{gap}"


def verdict(one: Utility) -> str:
    """Whether the quality is worth the processing, in a clause."""
    if one.useful is None:
        return "whether that is better than popularity cannot be told"
    if one.useful:
        return "better than recommending the most popular items"
    below = one.gain.hi < 0 if one.gain else bool(one.popularity and one.value.hi < one.popularity.lo)
    return (
        "worse than recommending the most popular items"
        if below
        else ("not shown to be better than recommending the most popular items")
    )


def bound_on_attacks(evidence: Evidence) -> str:
    """What the claim allows any attack on single interactions."""
    own = evidence.guarantee.value
    if not own.finite:
        return "no claim bounds attacks, as epsilon is infinite"
    return (
        "whatever the attack, the claim lets it tell an interaction that was trained on from one that was left out at "
        f"random with an AUC of at most {formatting.share(inclusion_auc_ceiling(own))}"
    )


def reasons_not_run(evidence: Evidence, *topics: str) -> str:
    """Why something was not measured, as far as the audit says it."""
    found = [one.value for one in evidence.not_run if any(topic in one.value.what.lower() for topic in topics)]
    return "; ".join(f"{one.what}: {one.why}" for one in found)
