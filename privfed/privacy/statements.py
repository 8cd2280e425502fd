"""What a plan's reader has to be told, in plain words, triggered by the configuration.

Each function answers one question of a newcomer: what is guaranteed, against whom, about whom, and what is
not covered. Sentences are facts about the configuration and the computed numbers; none is decoration.
"""

import math

from privfed.privacy.accounting import BASIC, CLOSED_FORMS, PLD, PRV, RDP, Account
from privfed.privacy.composition import Composition
from privfed.privacy.mechanisms.base import LocalLaplace
from privfed.privacy.mechanisms.gaussian import CentralGaussian, LocalGaussian
from privfed.privacy.mechanisms.interaction_dpsgd import InteractionDPSGD
from privfed.privacy.mechanisms.secure import DistributedGaussian, SecureSum, SharedSum, fixed_code, fixed_point_error
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.upload_bits import levels
from secure_agg.errors import RingOverflowError

_COUNT = "The count behind the adaptive clip norm has noise of its own, which is paid for."

_SEEDED_SHARES = (
    "This is a simulation: shares follow from the run's seed and cover from a seed of its own, so whoever holds these "
    "reads every upload and tells cover from true rows. A deployment draws its keys from the operating system."
)

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
    plan: PrivacyPlan, account: Account, composition: Composition, population: int, *, seeded: bool
) -> list[str]:
    """Everything that must be printed next to this guarantee, most important first."""
    if math.isinf(account.epsilon):
        said = _nothing_guaranteed(plan, composition, population, seeded=seeded)
    elif not composition.releases:
        said = ["Nothing has been released yet, so nothing has been spent."]
    else:
        said = _guaranteed(plan, account, composition)
        said += _limits(plan, account, composition, population)
    return [*said, *_rounded(plan), *_always(plan, seeded=seeded)]


def assumptions_for(plan: PrivacyPlan, account: Account) -> list[str]:
    """What has to be true for the number to be true."""
    if math.isinf(account.epsilon):
        return []
    assumptions = [
        "Every release is in the ledger, and each was charged before it was opened.",
        plan.sampling.claim(plan.mechanism.trust),
    ]
    assumptions += _of_the_mechanism(plan)
    if account.accountant == BASIC:
        assumptions.append("Epsilon is the plain sum over releases; at this size nothing tighter is worth having.")
    elif account.accountant == CLOSED_FORMS:
        assumptions.append(
            "Epsilon adds the closed form of all Gaussian noise together, as if nothing had been sampled, to the pure "
            "epsilons: the numerics of the tighter accountants gave out at this size."
        )
    elif account.accountant in (PLD, RDP):
        names = " and ".join("Opacus PRV" if name == PRV else name for name, _ in account.cross_check)
        how = "Renyi divergences (RDP)" if account.accountant == RDP else "privacy loss distributions (PLD)"
        assumptions.append(f"Epsilon comes from {how}, checked against {names or 'nothing'}.")
    return assumptions


def _of_the_mechanism(plan: PrivacyPlan) -> list[str]:
    """What devices and server have to do for the number to be true."""
    mechanism = plan.mechanism
    same_shape = "Size and shape of an upload, and whether a user takes part, do not depend on that user's data."
    grid = (
        "What leaves is a whole number of steps of a power-of-two grid: values are rounded to it, and noise is a whole "
        "number of steps with exactly the law of the ideal noise, rounded."
    )
    widened = (
        f"{grid} The noise is wider than its multiplier says by what rounding and float64 sums may add to the "
        "sensitivity."
    )
    if isinstance(mechanism, LocalLaplace):
        return [
            "The device clips all real blocks of an upload together to L1 norm "
            f"C = {mechanism.clip_norm:g} and adds Laplace noise of scale 2C / epsilon0 = "
            f"{mechanism.noise_scale:g} to every coordinate, touched or not.",
            "Two uploads compared may differ in everything (replace one upload by any other): their L1 "
            "distance is at most 2C, not C.",
            same_shape,
            grid,
        ]
    if isinstance(mechanism, LocalGaussian):
        return [
            f"The device clips an upload to a joint L2 norm of C = {mechanism.clip_norm:g} over all real blocks and "
            f"adds Gaussian noise of standard deviation {mechanism.noise_multiplier * mechanism.clip_norm:g} to "
            "every coordinate, touched or not.",
            "Two uploads compared may differ in everything (replace one upload by any other): their L2 "
            "distance is at most 2C, not C.",
            same_shape,
            grid,
        ]
    if isinstance(mechanism, InteractionDPSGD):
        sampled = mechanism.local_rate < 1
        chosen = (
            f"draws each interaction by its own secret coin of {mechanism.local_rate:g}"
            if sampled
            else "takes all interactions"
        )
        return [
            f"In every local step ({mechanism.local_steps} per upload) the device {chosen}, clips the "
            f"gradient of every one with its negatives to L2 norm C = {mechanism.clip_norm:g} over everything that is "
            f"trained, and adds Gaussian noise of {mechanism.noise_multiplier:g} C to every coordinate of the sum, "
            "private vectors and untouched rows too.",
            *(["The coins never leave the device, so amplification by sampling interactions is claimed."] * sampled),
            "Negatives come from the whole public catalogue and depend on no other interaction; a step divides by "
            f"{mechanism.noisy_steps.divisor:g}, whatever the user's own number of interactions is.",
            "Compared are two training histories of one user, with one interaction and without it; filtering the data "
            "and choosing what is held out came before and are not covered.",
            same_shape,
            widened,
        ]
    if isinstance(mechanism, CentralGaussian):
        clip = "the announced clip norm" if mechanism.adaptive else f"C = {mechanism.clip_norm:g}"
        return [
            f"Every device clips its upload to a joint L2 norm of {clip} over all real blocks, and the server adds "
            f"Gaussian noise of {mechanism.total_deviation:g} times that norm to the sum before anybody else sees it.",
            "Compared are the data with one user and without, so the sum moves by at most the clip norm.",
            "Means divide by the expected cohort, whoever took part; the number of users is public.",
            widened,
            *([_COUNT] if mechanism.adaptive else []),
        ]
    if isinstance(mechanism, DistributedGaussian):
        return [
            f"Every device clips to a joint L2 norm of C = {mechanism.clip_norm:g}, rounds to whole steps and adds "
            f"its share of integer noise. At least {mechanism.n_min_honest} clients of every opened round are honest: "
            f"a round is opened with {mechanism.min_clients} clients or more, of which at most "
            f"{mechanism.colluding} may work for the server.",
            "Secure aggregation holds, so the server sees sums only.",
            "Compared are a sum in which a user's vector counts and one in which it is zero; who takes part is seen.",
            same_shape,
        ]
    return []


def _nothing_guaranteed(plan: PrivacyPlan, composition: Composition, population: int, *, seeded: bool) -> list[str]:
    reasons = "; ".join(composition.reasons) or plan.mechanism.unbounded_reason or "nothing bounds it"
    said = [f"No formal guarantee: epsilon is infinite, because {reasons}."]
    if isinstance(plan.mechanism, SecureSum):
        said.append("What is hidden are single uploads, from a server that fewer clients than a threshold work for.")
        if plan.mechanism.blocks == "held":
            said.append(
                "A client takes part only in the sums of the blocks that it holds, so the server sees who holds which "
                "block (a size, a tier, a group) and how many do. A block that fewer than "
                f"{plan.mechanism.min_clients} clients hold is not opened; a sum over few says more about each of them."
            )
        said.append(_ring_elements(plan.mechanism, plan.sampling.max_cohort(population)))
    if isinstance(plan.mechanism, SharedSum):
        said += _shared(plan.mechanism, seeded=seeded)
    if plan.mechanism.noise is not None:
        said.append("The noise may make some attacks harder; that one attack fails is no bound on what others find.")
    return said


def _ring_elements(mechanism: SecureSum, max_clients: int) -> str:
    """What the width of a ring word costs, and that it hides and shows nothing by itself."""
    said = (
        f"Every number of an upload takes {mechanism.bits} bits on the wire, whatever the data; masks are uniform in "
        f"the ring of that width"
    )
    try:
        error = fixed_point_error(fixed_code(mechanism, max_clients))
    except RingOverflowError:
        return f"{said}, which has no room for real numbers of rounds of {max_clients:,} clients."
    average = (
        "and not right on average, since what is below half a step vanishes from every upload"
        if error.deviation is None
        else f"right on average, with a standard deviation of at most {error.deviation:.2g}"
    )
    return (
        f"{said}. Real numbers are rounded to steps of {error.step:.2g}, so a coordinate of a sum of up to "
        f"{max_clients:,} clients errs by at most {error.largest:.2g}, {average}."
    )


def _shared(mechanism: SharedSum, *, seeded: bool) -> list[str]:
    """What secret sharing hides and what it shows, a cover's own bound included."""
    return [
        f"What is hidden are the values of single uploads, as long as one of {mechanism.aggregators} aggregators "
        f"keeps its shares to itself. Sums are opened row by row where {mechanism.min_cohort} clients or more send "
        "the row, with a value or without; clients who pool what they know subtract their own. Where a behaviour is "
        "public, its clients count, although everybody knows who they are.",
        "Aggregators see which rows each client names, who takes part in every ask, how many clients send each row, "
        "and so which rows stay closed.",
        "Sums of rounds whose clients differ in few of them can be subtracted: where the others' values stand still, "
        "what is left is about those few, whatever the fewest clients of one sum. Many exact sums over the same few "
        "clients may be solved together for what each of them sent.",
        mechanism.padding.claim.sentence,
        *([_SEEDED_SHARES] if seeded else []),
    ]


def _guaranteed(plan: PrivacyPlan, account: Account, composition: Composition) -> list[str]:
    said = []
    if isinstance(plan.mechanism, InteractionDPSGD):
        said.append(_not_a_user(plan.mechanism, account))
    if plan.mechanism.trust == "local":
        said.append(
            "Noise is added on each user's own device, so nobody else has to be trusted, not even the "
            f"server: whoever sees the uploads learns only this much about {_protected(plan)}."
        )
    if plan.mechanism.trust == "central":
        said.append(
            "The server is trusted: it sees every upload, adds the noise to their sum and releases nothing else. "
            "Against the server itself epsilon is infinite; this holds against all who see the model or the sums."
        )
    if plan.mechanism.trust == "distributed":
        said.append(
            "The server is not trusted with uploads: it sees their sum only, which carries noise from every client. "
            "It is trusted to follow the protocol, and clients beyond the colluding ones not to work for it."
        )
    said.append(
        f"{_participation(plan, composition)} {_change(plan)} changes the odds of whatever is concluded from it by at "
        f"most a factor of {odds(account.epsilon)} (epsilon = {account.epsilon:.4g}), except with probability "
        f"{plan.delta:g} (delta)."
    )
    mechanism = plan.mechanism
    if isinstance(mechanism, LocalGaussian | InteractionDPSGD):
        said.append("Uploads add up: epsilon of a run is not that of a round.")
    if isinstance(mechanism, LocalLaplace):
        said.append(
            f"One upload alone has epsilon {mechanism.epsilon0:g}. Uploads add up: epsilon of a run is not "
            "that of a round."
        )
    return said


def _not_a_user(mechanism: InteractionDPSGD, account: Account) -> str:
    """The loudest sentence of the weakest unit."""
    typical = max(2, round(mechanism.expected_records))
    return (
        "The unit is ONE INTERACTION, NOT A USER: k interactions of one user together cost up to k times this epsilon, "
        f"with a larger delta. For a user of {typical:,} that is up to {typical * account.epsilon:,.4g}, so nothing is "
        "promised about a taste, a habit or whether somebody is in the data at all."
    )


def _protected(plan: PrivacyPlan) -> str:
    return {
        "user": "what a user put into them",
        "interaction": "whether any one interaction is behind them",
    }[plan.mechanism.unit]


def _participation(plan: PrivacyPlan, composition: Composition) -> str:
    uploads, rounds = _count(composition.uploads, "upload"), _count(composition.rounds, "round")
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
        said.append(plan.sampling.claim(plan.mechanism.trust))
    if composition.unamplified_cohorts:
        said.append(
            f"{composition.unamplified_cohorts} draws mixed mechanisms that do not fuse, so their sampling "
            "protects nothing and they are counted in full."
        )
    if not plan.amplifies and plan.mechanism.trust != "central":
        said.append("Who takes part, and when, is visible to the server and not protected.")
    if plan.mechanism.trust == "central":
        said.append(
            "What a device keeps for itself (private vectors, gates, whole encoders) never enters a sum and is covered "
            "as far as others see it; what a user's own device shows is computed from that user's data and is not."
        )
    if plan.mechanism.trust == "local":
        unit = "The unit is a user's whole contribution. " if plan.mechanism.unit == "user" else ""
        said.append(f"{unit}What a user learns from the model, and what the user shows to others, is not covered.")
    return said


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
    said = [
        "Choices made by looking at data (best round, hyper-parameters, a clip read off the data, popularity "
        "read off the data beforehand, data set statistics) spend privacy too, and are not in this ledger. Nor is what "
        "an experimenter sees: exact counts of clipped uploads, of clients and bytes, and whether training diverged."
    ]
    noisy = plan.mechanism.unbounded_reason is None or plan.mechanism.noise is not None
    if seeded and noisy:
        said.append(
            "This is a simulation with seeded noise: whoever holds the seed can subtract the noise, and two runs of "
            "one seed share it, so never release both. A deployment draws its keys from the operating system and never "
            "sends them."
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
