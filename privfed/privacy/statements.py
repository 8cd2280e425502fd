"""What a plan's reader has to be told, in plain words, triggered by the configuration.

Each function answers one question of a newcomer: what is guaranteed, against whom, about whom, and what is
not covered. Sentences are facts about the configuration and the computed numbers; none is decoration.
"""

import math

from privfed.privacy.accounting import BASIC, PRV, Account
from privfed.privacy.events import Composition
from privfed.privacy.plan import LocalLaplace, PrivacyPlan

WEAK_EPSILON = 10.0
"""Above it a guarantee is called weak: e^10 is an odds factor of 22,026."""


def statements_for(
    plan: PrivacyPlan, account: Account, composition: Composition, population: int, *, seeded: bool
) -> list[str]:
    """Everything that must be printed next to this guarantee, most important first."""
    if math.isinf(account.epsilon):
        said = _nothing_guaranteed(plan, composition)
    elif not composition.releases:
        said = ["Nothing has been released yet, so nothing has been spent."]
    else:
        said = _guaranteed(plan, account, composition)
        said += _limits(plan, account, composition, population)
    return [*said, *_always(plan, seeded=seeded)]


def assumptions_for(plan: PrivacyPlan, account: Account) -> list[str]:
    """What has to be true for the number to be true."""
    if math.isinf(account.epsilon):
        return []
    assumptions = [
        "Every release is in the ledger, and each was charged before it was opened.",
        plan.sampling.claim(plan.protection.trust),
    ]
    protection = plan.protection
    if isinstance(protection, LocalLaplace):
        assumptions += [
            "The device clips all real blocks of an upload together to L1 norm "
            f"C = {protection.clip_norm:g} and adds Laplace noise of scale 2C / epsilon0 = "
            f"{protection.noise_scale:g} to every coordinate, touched or not.",
            "Two uploads compared may differ in everything (replace one upload by any other): their L1 "
            "distance is at most 2C, not C.",
            "Size and shape of an upload, and whether a user takes part, do not depend on that user's data.",
            "Noise is drawn in floating point, whose lowest bits can betray a value; hardened sampling is not used.",
        ]
    if account.accountant == BASIC:
        assumptions.append("Epsilon is the plain sum over releases; at this size nothing tighter is worth having.")
    elif account.cross_check:
        names = " and ".join("Opacus PRV" if name == PRV else name for name, _ in account.cross_check)
        assumptions.append(f"Epsilon comes from privacy loss distributions (PLD), checked against {names}.")
    return assumptions


def _nothing_guaranteed(plan: PrivacyPlan, composition: Composition) -> list[str]:
    reasons = "; ".join(composition.reasons) or plan.protection.unbounded_reason or "nothing bounds it"
    said = [f"No formal guarantee: epsilon is infinite, because {reasons}."]
    if plan.protection.noise is not None:
        said.append("The noise may make some attacks harder; that one attack fails is no bound on what others find.")
    return said


def _guaranteed(plan: PrivacyPlan, account: Account, composition: Composition) -> list[str]:
    said = []
    if plan.protection.trust == "local":
        said.append(
            "Noise is added on each user's own device, so nobody else has to be trusted, not even the "
            "server: whoever sees the uploads learns only this much about what a user put into them."
        )
    uploads, rounds = _count(composition.uploads, "upload"), _count(composition.rounds, "round")
    said.append(
        f"The user who took part most often made {uploads} in {rounds}. Replacing everything that user "
        "uploaded by anything else changes the odds of whatever is concluded from it by at most a factor of "
        f"{odds(account.epsilon)} (epsilon = {account.epsilon:.4g}), except with probability {plan.delta:g} "
        "(delta)."
    )
    protection = plan.protection
    if isinstance(protection, LocalLaplace):
        said.append(
            f"One upload alone has epsilon {protection.epsilon0:g}. Uploads add up: epsilon of a run is not "
            "that of a round."
        )
    return said


def _limits(plan: PrivacyPlan, account: Account, composition: Composition, population: int) -> list[str]:
    said = []
    if account.epsilon > WEAK_EPSILON:
        said.append(
            f"An epsilon above {WEAK_EPSILON:g} is a weak or vacuous formal guarantee: an odds factor of "
            f"{odds(account.epsilon)} rules out next to nothing."
        )
    if plan.delta * population >= 1.0:
        said.append(
            f"delta = {plan.delta:g} is too large for {population} users: a mechanism that publishes one "
            f"random user in full could satisfy it. Choose delta well below 1 / {population}."
        )
    if plan.sampling.kind != "all":
        said.append(plan.sampling.claim(plan.protection.trust))
    if composition.amplification_lost:
        said.append(
            f"{composition.amplification_lost} draws mixed mechanisms that do not fuse, so their sampling "
            "protects nothing and they are counted in full."
        )
    if plan.protection.trust == "local":
        said += [
            "Who takes part, and when, is visible to the server and not protected.",
            "The unit is a user's whole contribution. What a user learns from the model, and what the user "
            "shows to others, is not covered.",
        ]
    return said


def _always(plan: PrivacyPlan, *, seeded: bool) -> list[str]:
    said = [
        "Choices made by looking at data (best round, hyper-parameters, a clip read off the data, popularity "
        "priors, data set statistics) spend privacy too, and are not in this ledger."
    ]
    if seeded and plan.protection.noise is not None:
        said.append(
            "This is a simulation with seeded noise: whoever holds the seed can subtract the noise. A "
            "deployment draws its keys from the operating system and never sends them."
        )
    return said


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def odds(epsilon: float) -> str:
    """e^epsilon for a reader: 2.7, 22,026, or a power of ten."""
    if epsilon < math.log(1e6):
        factor = math.exp(epsilon)
        return f"{factor:.3g}" if factor < 1000 else f"{factor:,.0f}"
    return f"10^{epsilon / math.log(10):,.0f}"
