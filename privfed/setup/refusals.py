"""What a configuration cannot do: the one list of refusals, each in one sentence, before anything is built.

`refuse_method` and `refuse_shared` are for every run, `refuse_over_nodes` for a run over nodes besides.
`mechanism_refusal` is why a method and a mechanism do not go together, for tables.
"""

from collections.abc import Collection

from privfed.compute.processes import Processes, ProcessesError
from privfed.contracts import Fidelity, Tap
from privfed.methods import Method, MethodConfig
from privfed.privacy import PlanError, SecureSum, SharedSum
from privfed.privacy.mechanisms.base import NO_INTEGERS
from privfed.privacy.mechanisms.interaction_dpsgd import NO_RECORDS
from privfed.privacy.plan import Mechanism
from privfed.setup.config import ExperimentConfig


def mechanism_refusal(method: Method, mechanism: Mechanism) -> str | None:
    """Why `method` cannot run behind `mechanism`; None where it can."""
    if method.release == "individual" and mechanism.release == "total":
        return f"its server needs {method.reads}, and behind this mechanism it sees only their sum"
    if mechanism.noisy_steps is not None and not method.interaction_level:
        return NO_RECORDS
    if method.integers and not mechanism.protects_integers:
        return NO_INTEGERS
    return None


def refuse_method(method: Method, settings: MethodConfig, config: ExperimentConfig) -> None:
    """Refuse a method, as it is set, behind the configured plan and under the configured protocol.

    Raises:
        PlanError: the two do not go together.
    """
    plan = config.privacy
    if (reason := mechanism_refusal(method, plan.mechanism)) is not None:
        raise PlanError(f"{method.name} cannot run behind the plan {plan.name!r}: {reason}")
    dependence = method.cross_user_dependence(settings)
    if dependence is not None and plan.mechanism.unbounded_reason is None:
        raise PlanError(
            f"{method.name} cannot run as it is set behind the plan {plan.name!r}, which bounds what a user's own "
            f"upload changes: {dependence}"
        )
    if (task := method.task(settings)) != config.protocol.task:
        does = "ranks items" if task == "ranking" else "predicts ratings"
        raise PlanError(
            f"{method.name} {does}, and protocol.task is {config.protocol.task}: set protocol.task={task}, or choose a "
            f"method or a task of the method that fits"
        )


def refuse_shared(processes: Processes, fidelity: Fidelity, taps: Collection[Tap]) -> None:
    """Refuse what several processes cannot do, because no one of them has everybody's messages.

    Raises:
        ProcessesError: it was configured.
    """
    if processes.size > 1 and fidelity == "protocol":
        raise ProcessesError(
            "fidelity = 'protocol' runs every client's side of the masking protocol in one process: choose "
            "fidelity = 'exact', whose sums are the same, or start one process"
        )
    if processes.size > 1 and taps:
        raise ProcessesError(
            "taps copy what an adversary sees in one process: set taps.places = [], or start one process to attack"
        )


def refuse_over_nodes(config: ExperimentConfig) -> None:
    """Refuse what cannot be run over nodes, where no party has everybody's data.

    Raises:
        PlanError: it was configured.
    """
    mechanism, method = config.privacy.mechanism, config.registered()
    if isinstance(mechanism, SharedSum):
        raise PlanError(
            "shares between aggregators need aggregators that see which rows each single client sends, and nodes "
            "add up their users before anything leaves: use secure_sum, which sums the same ring elements"
        )
    if isinstance(mechanism, SecureSum) and mechanism.blocks == "held":
        raise PlanError(
            "sums of held blocks show who holds what, client by client, and nodes add up their users first: use "
            "blocks = 'all'"
        )
    if (dependence := method.cross_user_dependence(config.settings())) is not None:
        raise PlanError(f"{method.name} as it is set needs everybody's data in one place: {dependence}")
    if config.taps.inclusion or config.taps.shadows:
        raise PlanError(
            "inclusion bits and shadow trainings need all data in one process: set taps.inclusion = 0 and "
            "taps.shadows = 0"
        )
    if config.protocol.catalogue == "trained":
        raise PlanError("no node knows what everybody trained on: set protocol.catalogue = 'all'")
