"""What a configuration cannot do, refused in one sentence before anything is built."""

from collections.abc import Collection

from privfed.compute.processes import Processes, ProcessesError
from privfed.contracts import Fidelity, MethodTraits, Tap
from privfed.methods import Method, MethodConfig
from privfed.privacy import PlanError, PrivacyPlan


def method_traits(method: Method, settings: MethodConfig | None = None) -> MethodTraits:
    """What a mechanism has to know of a method.

    Args:
        method: the method.
        settings: of a run; without them nothing that depends on settings is said.
    """
    return MethodTraits(
        release=method.release,
        reads=method.reads,
        integers=method.integers,
        interaction_level=method.interaction_level,
        whole_tables=method.upload == "dense",
        cross_user_dependence=None if settings is None else method.cross_user_dependence(settings),
    )


def refuse_mechanism(method: Method, settings: MethodConfig, plan: PrivacyPlan) -> None:
    """Refuse a method that the plan's mechanism cannot protect as the plan says, or that cannot train behind it.

    Raises:
        PlanError: why, and what to do.
    """
    reason = plan.mechanism.refusal(method_traits(method, settings))
    if reason is not None:
        raise PlanError(f"{method.name} cannot run behind the plan {plan.name!r}: {reason}")


def refuse_shared(processes: Processes, fidelity: Fidelity, taps: Collection[Tap]) -> None:
    """What several processes cannot do, because no one of them has everybody's messages.

    Raises:
        ProcessesError: it was asked for.
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
