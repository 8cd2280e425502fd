"""From a total epsilon to a plan: which mechanism a method is given, and how much noise it needs.

The one place where the front door sizes noise.
"""

from privfed.api.errors import UseError
from privfed.data import Split
from privfed.methods import Method
from privfed.privacy import PrivacyPlan, plan_for_target
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig

_MECHANISM: dict[str, str] = {
    "central": "central-gaussian",
    "distributed": "distributed-gaussian",
    "local": "local-gaussian",
}
CLIP_NORM = 1.0
_PASSES = 2
"""What a method asks for may depend on the noise, so noise is sized for what it asks at the noise sized before."""


def plan_for_epsilon(
    registered: Method, trust: str | None, plan_text: str | None, delta: float | None, population: int
) -> PrivacyPlan:
    """The plan whose noise is to be sized: the mechanism named, that of the trust, or the best that fits the method.

    Raises:
        UseError: the method uploads whole numbers, which no noise covers, or both a trust and a mechanism are given.
    """
    fields: dict[str, float] = {"delta": population**-1.1 if delta is None else delta}
    if plan_text is not None:
        if trust is not None:
            raise UseError(f"trust={trust!r} and privacy={plan_text!r} both name a mechanism: give one of them")
        plan = PrivacyPlan.parse(
            plan_text if "noise_multiplier" in plan_text or "laplace" in plan_text else _with_noise(plan_text)
        )
        return plan.model_copy(update=fields) if "delta" not in plan_text else plan
    if registered.traits.integers:
        raise UseError(
            f"{registered.name} uploads whole numbers, which no noise covers, so no epsilon can be kept: leave epsilon "
            f"out, and choose padding with privacy='shared-sum:padding.kind=randomised_response,padding.epsilon=2'"
        )
    chosen = trust or ("local" if registered.traits.release == "individual" else "central")
    if chosen not in _MECHANISM:
        raise UseError(f"trust={chosen!r} is not known: choose one of {', '.join(_MECHANISM)}")
    if chosen == "distributed":
        fields["n_min_honest"] = max(1, population // 2)
    return PrivacyPlan.named(_MECHANISM[chosen], clip_norm=CLIP_NORM, noise_multiplier=1.0, **fields)


def sized(config: ExperimentConfig, parts: Split, epsilon: float) -> ExperimentConfig:
    """The same run with as much noise as keeps everybody at `epsilon`.

    Raises:
        PlanError: the plan's mechanism has no finite epsilon, or a value is out of range.
    """
    for _ in range(_PASSES):
        assembly = Assembly(config, parts)
        training = assembly.registered.training
        plan = plan_for_target(
            config.privacy,
            epsilon,
            1 if assembly.registered.traits.uploads_once else config.rounds,
            assembly.n_users,
            extra_queries=training.extra_queries(config.settings()),
            program=[query.schema for query in training.program(assembly.server)],
        )
        config = config.model_copy(update={"privacy": plan})
    return config


def _with_noise(plan_text: str) -> str:
    """The text with a noise multiplier, which is replaced when noise is sized."""
    return f"{plan_text}{',' if ':' in plan_text else ':'}noise_multiplier=1"
