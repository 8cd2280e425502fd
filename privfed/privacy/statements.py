"""What a plan's reader has to be told, in plain words, triggered by the configuration.

Each function answers one question of a newcomer: what is guaranteed, against whom, about whom, and what is
not covered. Sentences are facts about the configuration and the computed numbers; none is decoration.
"""

import math
from collections.abc import Sequence

from privfed.privacy.accounting import BASIC, CLOSED_FORM, CLOSED_FORMS, PLD, PRV, RDP, AccountedEpsilon
from privfed.privacy.composition import Composition
from privfed.privacy.events import SharedAccount
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.tiers import BudgetTiers
from privfed.privacy.upload_bits import levels
from privfed.privacy.wording import counted

CATALOGUE_WARNING = (
    "The list of items is not covered by epsilon: without an item file it was read off the interactions, so an item "
    "that one person alone has is in it, and in the order of all others, because of that person. Give an item list of "
    "its own."
)


def derived_catalogue(items: int) -> str:
    """What has to be assumed of a catalogue that was not given."""
    return (
        f"The catalogue ({items:,} items) was derived from the interactions, and is taken as public all the same: "
        "which items there are, how many and in which order."
    )


WEAK_EPSILON = 10.0
"""Above it a guarantee is called weak: e^10 is an odds factor of 22,026."""


def statements_for(
    plan: PrivacyPlan,
    account: AccountedEpsilon,
    composition: Composition,
    population: int,
    *,
    seeded: bool,
    of_tiers: Sequence[str] = (),
) -> list[str]:
    """Everything that must be printed next to this guarantee, most important first; `of_tiers` says what each gets."""
    if math.isinf(account.epsilon):
        sentences = _nothing_guaranteed(plan, composition, population, seeded=seeded)
    elif not composition.releases:
        sentences = ["Nothing has been released yet, so no privacy has been lost."]
    else:
        sentences = _guaranteed(plan, account, composition)
        sentences += _accounts(account, composition) or _deleting(plan, account)
        sentences += [] if plan.tiers is None else _chosen_budgets(plan, plan.tiers, of_tiers)
        sentences += _limits(plan, account, composition, population)
    return [*sentences, *_rounded(plan), *_always(plan, seeded=seeded)]


def _accounts(account: AccountedEpsilon, composition: Composition) -> list[str]:
    """What a year of releases counts as, and what it means to delete a person."""
    held = [release.event for release in composition.releases if isinstance(release.event, SharedAccount)]
    if not held:
        return []
    queries, names = max(event.queries for event in held), " and ".join(event.name for event in held)
    return [
        f"All {queries:,} releases of {names} that a year has are counted from the first one on: every device keeps "
        "account of the norm that left it, which is that of one release, whenever a person joins and whatever "
        "refreshes are missed. The next year is counted anew, and adds up.",
        "Who leaves sends no more, and fades from later totals; what was published stays. Everything published with a "
        f"person and without is within the same factor of {odds(account.epsilon)}, so deleting one takes no retraining "
        "for that bound to hold, and cannot make it smaller.",
    ]


def _deleting(plan: PrivacyPlan, account: AccountedEpsilon) -> list[str]:
    """What it means to delete a person, where whole users are what is protected."""
    if plan.mechanism.unit != "user":
        return []
    instead = {
        "replace_one": "with anything else in that person's place",
        "add_or_remove_one": "without that person",
        "zero_out_one": "with zeros in that person's place",
    }[plan.neighbours]
    return [
        "Deleting a person recalls nothing: what was released stays, and is within the same factor of "
        f"{odds(account.epsilon)} of what would have been released {instead}. No retraining is needed for that bound "
        "to hold, and retraining alone does not undo the release."
    ]


def assumptions_for(plan: PrivacyPlan, account: AccountedEpsilon) -> list[str]:
    """What has to be true for the number to be true."""
    if math.isinf(account.epsilon):
        return []
    assumptions = [
        "Every release is in the ledger, and each was recorded before it was opened.",
        plan.sampling.claim(plan.mechanism.trust),
        *plan.mechanism.requirements(),
    ]
    if account.accountant == BASIC:
        assumptions.append("Epsilon is the plain sum over releases; at this size nothing tighter is worth having.")
    elif account.accountant == CLOSED_FORMS:
        assumptions.append(
            "Epsilon adds the closed form of all Gaussian noise together, as if nothing had been sampled, to the pure "
            "epsilons: the numerics of the tighter accountants gave out at this size."
        )
    elif account.accountant in (PLD, RDP):
        known = {PRV: "Opacus PRV", CLOSED_FORM: "the exact closed form"}
        names = " and ".join(known.get(name, name) for name, _ in account.cross_check)
        how = "Renyi divergences (RDP)" if account.accountant == RDP else "privacy loss distributions (PLD)"
        assumptions.append(f"Epsilon comes from {how}, checked against {names or 'nothing'}.")
    return assumptions


def _nothing_guaranteed(plan: PrivacyPlan, composition: Composition, population: int, *, seeded: bool) -> list[str]:
    mechanism, reasons = plan.mechanism, "; ".join(composition.reasons)
    reason = reasons or mechanism.unbounded_reason or "nothing bounds it"
    sentences = [f"No formal guarantee: epsilon is infinite, because {reason}."]
    sentences += mechanism.unbounded_statements(plan.sampling.max_cohort(population), seeded=seeded)
    if mechanism.noise is not None:
        sentences.append(
            "The noise may make some attacks harder; that one attack fails is no bound on what others find."
        )
    return sentences


_TRUSTED = {
    "central": "The server is trusted: it sees every upload, adds the noise to their sum and releases nothing else. "
    "Against the server itself epsilon is infinite; this holds against all who see the model or the sums.",
    "distributed": "The server is not trusted with uploads: it sees their sum only, which carries noise from every "
    "client. It is trusted to follow the protocol, and clients beyond the colluding ones not to work for it.",
}
"""Whom a reader has to trust, where it is anybody but the own device."""


def _guaranteed(plan: PrivacyPlan, account: AccountedEpsilon, composition: Composition) -> list[str]:
    mechanism = plan.mechanism
    trusted = _TRUSTED.get(mechanism.trust)
    if mechanism.trust == "local":
        trusted = (
            "Noise is added on each user's own device, so nobody else has to be trusted, not even the "
            f"server: whoever sees the uploads learns only this much about {_protected(plan)}."
        )
    return [
        *mechanism.unit_statements(account.epsilon),
        *([] if trusted is None else [trusted]),
        f"{_participation(plan, composition)} {_change(plan)} changes the odds of whatever is concluded from it by at "
        f"most a factor of {odds(account.epsilon)} (epsilon = {account.epsilon:.4g}), except with probability "
        f"{plan.delta:g} (delta).",
        *mechanism.composition_statements(),
    ]


def tier_sentence(name: str, epsilon: float, chosen: float, weight: float, share: float) -> str:
    """What people of a tier get, in one sentence."""
    who = f"Who chose {name} ({share:.3g} of the users)"
    if weight == 0:
        return f"{who} contributes nothing and loses nothing: epsilon = 0."
    counted = "counts in full" if weight == 1 else f"is multiplied by {weight:.4g} after the clip"
    more = f", more than the {chosen:g} that was chosen" if epsilon > chosen else ""
    return f"{who} has epsilon = {epsilon:.4g}{more}: the upload {counted}, under the same noise."


def _chosen_budgets(plan: PrivacyPlan, tiers: BudgetTiers, of_tiers: Sequence[str]) -> list[str]:
    """What personal budgets mean, and what the choice itself shows."""
    seen_by = {
        "central": "only the trusted server, which sees how long uploads are, could tell who chose what",
        "distributed": "uploads are hidden inside the secure sum, and so is who chose what",
    }[plan.mechanism.trust]
    shown = (
        f"Choices are hidden: {seen_by}. Means divide by the announced shares and never by true counts; a choice shows "
        "in a sum only with the upload that it weighs, under the same noise."
        if tiers.hidden
        else "Who chose which tier is public: no epsilon is about the choice, and the true shares are used."
    )
    return [
        "People chose budgets of their own: the epsilon above is that of the most generous tier "
        f"({tiers.names[-1]}), and each other tier has a smaller one. It holds as long as a choice does not follow "
        "from the history that it protects.",
        *of_tiers,
        shown,
    ]


def _protected(plan: PrivacyPlan) -> str:
    return {
        "user": "what a user put into them",
        "interaction": "whether any one interaction is behind them",
    }[plan.mechanism.unit]


def _participation(plan: PrivacyPlan, composition: Composition) -> str:
    uploads, rounds = counted(composition.uploads, "upload"), counted(composition.rounds, "round")
    if plan.amplifies:
        return f"Any user may have taken part in any of {rounds}, and nobody but the server knows in which."
    return f"The user who took part most often made {uploads} in {rounds}."


def _change(plan: PrivacyPlan) -> str:
    """The step between the two worlds, as the subject of a sentence."""
    if plan.mechanism.unit == "interaction":
        return "Adding one interaction to that user's training history, or taking one out,"
    return {
        "replace_one": "Replacing everything that user uploaded by anything else",
        "add_or_remove_one": "Leaving one user out entirely, or letting one in,",
        "zero_out_one": "Replacing everything that user uploaded by zeros",
    }[plan.neighbours]


def _limits(plan: PrivacyPlan, account: AccountedEpsilon, composition: Composition, population: int) -> list[str]:
    sentences = []
    if account.epsilon > WEAK_EPSILON:
        sentences.append(
            f"An epsilon above {WEAK_EPSILON:g} is no meaningful guarantee: an odds factor of "
            f"{odds(account.epsilon)} rules out next to nothing."
        )
    if plan.delta * population >= 1.0:
        sentences.append(
            f"delta = {plan.delta:g} is too large for {population} users: a mechanism that publishes one "
            f"random user in full could satisfy it. Choose delta well below 1 / {population}."
        )
    if plan.sampling.kind != "all":
        sentences.append(plan.sampling.claim(plan.mechanism.trust))
    if composition.unamplified_cohorts:
        sentences.append(
            f"{composition.unamplified_cohorts} cohorts mixed events that do not fuse, so their sampling "
            "protects nothing and they are counted in full."
        )
    if not plan.amplifies and plan.mechanism.trust != "central":
        sentences.append("Who takes part, and when, is visible to the server and not protected.")
    if plan.mechanism.trust == "central":
        sentences.append(
            "What a device keeps for itself (private vectors, gates, whole encoders) never enters a sum and is covered "
            "as far as others see it; what a user's own device shows is computed from that user's data and is not."
        )
    if plan.mechanism.trust == "local":
        unit = "The unit is a user's whole contribution. " if plan.mechanism.unit == "user" else ""
        sentences.append(f"{unit}What a user learns from the model, and what the user shows to others, is not covered.")
    return sentences


def _rounded(plan: PrivacyPlan) -> list[str]:
    """What rounding single uploads does."""
    if plan.upload_bits is None:
        return []
    after = (
        "saves bytes and hides nothing"
        if plan.mechanism.noise is None and plan.mechanism.unbounded_reason is not None
        else "comes after the noise, so it neither adds to what is guaranteed nor takes from it"
    )
    return [
        f"Every number of an upload is rounded at random to {plan.upload_bits} bits, in steps of its block's own "
        f"largest value over {levels(plan.upload_bits)}: it errs by less than a step, with mean zero and a "
        f"variance of at most a quarter of a squared step. Rounding {after}; the step shows that largest value."
    ]


def _always(plan: PrivacyPlan, *, seeded: bool) -> list[str]:
    sentences = [
        "Choices made by looking at data (best round, hyper-parameters, a clip read off the data, popularity "
        "read off the data beforehand, data set statistics) spend privacy too, and are not in this ledger. Nor is what "
        "an experimenter sees: exact counts of clipped uploads, of clients and bytes, and whether training diverged."
    ]
    noisy = plan.mechanism.unbounded_reason is None or plan.mechanism.noise is not None
    if seeded and noisy:
        sentences.append(
            "This is a simulation with seeded noise: whoever holds the seed can subtract the noise, and two runs of "
            "one seed share it, so never release both. A deployment draws its keys from the operating system and never "
            "sends them."
        )
    return sentences


def odds(epsilon: float) -> str:
    """e^epsilon for a reader: 2.7, 22,026, or a power of ten."""
    if epsilon < math.log(1e6):
        factor = math.exp(epsilon)
        return f"{factor:.3g}" if factor < 1000 else f"{factor:,.0f}"
    return f"10^{epsilon / math.log(10):,.0f}"
