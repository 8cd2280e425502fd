"""What a configuration cannot do: the one list of refusals, each in one sentence, before anything is built.

`refuse_method` and `refuse_shared` are for every run, `refuse_over_nodes` for a run over nodes besides.
`method_profile` is what a mechanism has to know of a method to say whether it fits.
"""

from collections.abc import Collection

from privfed.compute.processes import Processes, ProcessesError
from privfed.contracts import Fidelity, MethodProfile, Tap
from privfed.methods import Method, MethodConfig
from privfed.privacy import PlanError, PrivacyPlan
from privfed.privacy.refusals import method_refusal
from privfed.setup.config import ExperimentConfig, measures_privately
from privfed.setup.controls import SILENT, Control
from privfed.setup.evaluation_query import final_queries

_MOST_SUMS_OVER_NODES = 100


def method_profile(method: Method, settings: MethodConfig | None = None) -> MethodProfile:
    """What a mechanism has to know of a method.

    Args:
        method: the method.
        settings: of a run; without them nothing that depends on settings is said.
    """
    return MethodProfile(
        release=method.traits.release,
        reads=method.disclosure.reads,
        integers=method.traits.integers,
        interaction_level=method.traits.interaction_level,
        whole_tables=method.traits.upload == "dense",
        shares_account=method.traits.shares_account,
        cross_user_dependence=None if settings is None else method.disclosure.cross_user_dependence(settings),
    )


def refuse_method(method: Method, settings: MethodConfig, config: ExperimentConfig) -> None:
    """Refuse a method, as it is set, behind the configured plan and under the configured protocol.

    Raises:
        PlanError: the two do not go together.
    """
    plan = config.privacy
    if (reason := method_refusal(plan, method_profile(method, settings))) is not None:
        raise PlanError(f"{method.name} cannot run behind the plan {plan.name!r}: {reason}")
    if (task := method.training.task(settings)) != config.protocol.task:
        does = "ranks items" if task == "ranking" else "predicts ratings"
        raise PlanError(
            f"{method.name} {does}, and protocol.task is {config.protocol.task}: set protocol.task={task}, or choose a "
            f"method or a task of the method that fits"
        )
    if config.control is not None:
        _refuse_control(method, config.control, plan)
    if config.evaluation.private:
        _refuse_private_evaluation(config)


def _refuse_private_evaluation(config: ExperimentConfig) -> None:
    """Refuse what quality cannot be measured behind or by inside a budget."""
    protocol = config.protocol
    if not measures_privately(config.privacy):
        raise PlanError(
            f"evaluation.private measures by a noisy sum of whole users, which the plan {config.privacy.name!r} does "
            "not make: choose central-gaussian or distributed-gaussian, or give --epsilon"
        )
    if protocol.task != "ranking" or protocol.catalogue != "all":
        raise PlanError(
            "evaluation.private measures rankings of the whole catalogue, and protocol.task or protocol.catalogue says "
            "otherwise: set them to ranking and all"
        )
    if protocol.candidates != "full":
        raise PlanError(
            "evaluation.private sums what each person measures alone, and sampled candidates are drawn around the "
            "items of everybody: set protocol.candidates = 'full'"
        )
    if protocol.select != "last":
        raise PlanError(
            f"evaluation.private measures once, after the last round, and protocol.select = {protocol.select!r} "
            "chooses a round by quality: set protocol.select = 'last'"
        )
    if config.evaluation.grid:
        _refuse_grid(config)
    if config.control is not None:
        raise PlanError(
            f"control = {config.control!r} is compared by exact metrics, and evaluation.private shows none: leave one "
            "of them out"
        )


def _refuse_grid(config: ExperimentConfig) -> None:
    """Refuse to choose among settings that do not all follow from one release."""
    method = config.registered()
    free, asked = method.training.post_processing, list(config.evaluation.grid)
    if not free:
        raise PlanError(
            f"every other setting of {method.name} would be another release, which costs a whole training: choose by "
            "runs of their own, or a method such as private-gram, whose candidates are made of one release"
        )
    if other := [name for name in asked if name not in free]:
        raise PlanError(
            f"{other[0]} of {method.name} changes what devices are asked, so every value would be another release: "
            f"choose among {', '.join(sorted(free))}"
        )


def _refuse_control(method: Method, control: Control, plan: PrivacyPlan) -> None:
    """Refuse a control that says nothing about the method or the plan."""
    if control in SILENT and not plan.unprotected:
        raise PlanError(
            f"control = {control!r} sends nothing, so the plan {plan.name!r} has nothing to protect: leave the plan out"
        )
    if control == "no-communication" and method.traits.public_target:
        raise PlanError(
            f"control = 'no-communication' is for private histories, and those of {method.name} are public: choose "
            f"another control"
        )


def refuse_shared(processes: Processes, fidelity: Fidelity, taps: Collection[Tap]) -> None:
    """Refuse what several processes cannot do, because no one of them has everybody's messages.

    Raises:
        ProcessesError: it was configured.
    """
    if processes.size > 1 and fidelity in ("protocol", "two-servers"):
        raise ProcessesError(
            f"fidelity = {fidelity!r} runs every client's side of the protocol in one process: choose "
            "fidelity = 'exact', whose sums are the same, or start one process"
        )
    if processes.size > 1 and taps:
        raise ProcessesError(
            "taps copy what an adversary sees in one process: set taps.places = [], or start one process to attack"
        )


def _refuse_many_sums(config: ExperimentConfig) -> None:
    """Refuse a measurement of more sums than a node keeps requests of, to repeat them where its process ends."""
    sums = max([0, *(final.count for final in final_queries(config, config.privacy))])
    if sums > _MOST_SUMS_OVER_NODES:
        raise PlanError(
            f"evaluation.mu = {config.evaluation.mu:g} takes {sums:,} sums of the same vectors under this noise, and "
            f"nodes give {_MOST_SUMS_OVER_NODES} at most: set a smaller evaluation.mu"
        )


def refuse_over_nodes(config: ExperimentConfig) -> None:
    """Refuse what cannot be run over nodes, where no party has everybody's data.

    Raises:
        PlanError: it was configured.
    """
    if config.control is not None:
        raise PlanError(f"control = {config.control!r} is simulated in one process: run it there, or leave it out")
    if isinstance(config.split.donors, float):
        raise PlanError(
            "a share of donors is drawn in a simulation, and over nodes people decide themselves: name donors by their "
            "numbers in the federation"
        )
    if config.evaluation.grid:
        raise PlanError(
            "a server over nodes keeps no releases on which other settings could be tried: leave evaluation.grid out, "
            "and choose settings in one process"
        )
    _refuse_many_sums(config)
    mechanism, method = config.privacy.mechanism, config.registered()
    if (reason := mechanism.node_refusal) is not None:
        raise PlanError(reason)
    if config.fidelity == "two-servers" and mechanism.masking is None:
        raise PlanError(
            f"fidelity = 'two-servers' adds up rounded uploads between two servers, and the plan "
            f"{config.privacy.name!r} makes no such sum: choose secure-sum or distributed-gaussian, or leave "
            "fidelity out"
        )
    if (dependence := method.disclosure.cross_user_dependence(config.settings())) is not None:
        raise PlanError(f"{method.name} as it is set needs everybody's data in one place: {dependence}")
    if (tiers := config.privacy.tiers) is not None and (not tiers.hidden or tiers.named_members):
        raise PlanError(
            "over nodes each node's own policy says which tier its users are in, and nobody else is told: leave out "
            "members, and hidden = false"
        )
    if config.taps.inclusion or config.taps.shadows:
        raise PlanError(
            "inclusion bits and shadow trainings need all data in one process: set taps.inclusion = 0 and "
            "taps.shadows = 0"
        )
    if config.protocol.catalogue == "trained":
        raise PlanError("no node knows what everybody trained on: set protocol.catalogue = 'all'")
