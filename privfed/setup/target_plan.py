"""From a total epsilon alone to a plan: the mechanism that suits the method, and a delta for so many people.

How much noise that takes is chosen where the run is assembled (`privfed.setup.sizing`).
"""

from collections.abc import Mapping
from math import floor, log10
from typing import Any, Literal

from privfed.methods import Method
from privfed.privacy import PlanError, PrivacyPlan, configure
from privfed.privacy.tiers import BudgetTiers, read_tiers

SizedTrust = Literal["central", "distributed", "local"]
_MECHANISMS: dict[str, str] = {
    "central": "central-gaussian",
    "distributed": "distributed-gaussian",
    "local": "local-gaussian",
}


def plan_for_epsilon(
    epsilon: float,
    registered: Method,
    population: int,
    *,
    plan: str | PrivacyPlan | None = None,
    trust: str | None = None,
    delta: float | None = None,
) -> PrivacyPlan:
    """A plan that keeps everybody within `epsilon` over the whole run; its noise is still to be sized.

    Args:
        epsilon: total that nobody's data may exceed.
        registered: the method.
        population: number of users.
        plan: mechanism and sampling, in words without noise or as a plan whose noise is replaced; None takes Gaussian
            noise by whoever must add it for the method: a trusted server to sums, else every client.
        trust: who adds the noise, where `plan` is None.
        delta: probability with which epsilon may fail; users^-1.1 where it is None and `plan` names none.

    Raises:
        PlanError: no noise covers what the method uploads, or two of the arguments contradict each other.
    """
    if plan is not None and trust is not None:
        raise PlanError(f"trust = {trust!r} and the plan {plan!r} both name a mechanism: give one of them")
    if isinstance(plan, PrivacyPlan):
        return _replaced(plan, epsilon, delta)
    if plan is None:
        plan = _suitable(registered, trust, population)
    words = [f"epsilon={epsilon!r}"]
    if delta is not None or "delta=" not in plan:
        words.append(f"delta={delta_for(population) if delta is None else delta!r}")
    return PrivacyPlan.parse(f"{plan}{',' if ':' in plan else ':'}{','.join(words)}")


def plan_for_tiers(
    tiers: str | Mapping[str, Any],
    registered: Method,
    population: int,
    *,
    plan: str | PrivacyPlan | None = None,
    trust: str | None = None,
    delta: float | None = None,
) -> PrivacyPlan:
    """A plan under which people choose their own epsilon; noise and weights are still to be found.

    Args:
        tiers: in words such as "careful=1:0.8,generous=8:0.2", or name -> (epsilon, share), or a table for each name.
        registered: the method.
        population: number of users.
        plan: as for `plan_for_epsilon`.
        trust: likewise.
        delta: likewise.

    Raises:
        PlanError: as there, or tiers that do not fit together or the mechanism.
    """
    chosen = configure(BudgetTiers, read_tiers(tiers))
    bare = plan_for_epsilon(chosen.largest, registered, population, plan=plan, trust=trust, delta=delta)
    return PrivacyPlan.from_dict(bare.to_dict() | {"tiers": chosen})


def delta_for(users: int) -> float:
    """users^-1.1, rounded down to three digits.

    Raises:
        PlanError: for a single user that is 1, and guarantees nothing.
    """
    if users < 2:
        raise PlanError(
            f"delta is users^-1.1 unless it is given, which guarantees nothing to {users} user: set a delta"
        )
    exact = users**-1.1
    unit = 10.0 ** (floor(log10(exact)) - 2)
    return float(f"{floor(exact / unit) * unit:.2e}")


def _suitable(registered: Method, trust: str | None, population: int) -> str:
    """The mechanism for the method, in words.

    Raises:
        PlanError: its uploads are whole numbers, which noise does not cover, or nobody knows that trust.
    """
    if registered.traits.integers:
        raise PlanError(
            f"{registered.name} uploads whole numbers, which no noise covers, so it reaches no finite epsilon: leave "
            "epsilon out, or choose another method"
        )
    chosen = trust or ("central" if registered.traits.release == "total" else "local")
    if chosen not in _MECHANISMS:
        raise PlanError(f"trust = {chosen!r} is not known: choose one of {', '.join(_MECHANISMS)}")
    honest = f":n_min_honest={max(1, population // 2)}" if chosen == "distributed" else ""
    return f"{_MECHANISMS[chosen]}{honest}"


def _replaced(plan: PrivacyPlan, epsilon: float, delta: float | None) -> PrivacyPlan:
    """The same plan with its noise open."""
    given = {key: value for key, value in plan.to_dict().items() if key != "tiers"}
    given |= {} if delta is None else {"delta": delta}
    open_noise = {} if plan.mechanism.noise_setting is None else {plan.mechanism.noise_setting: None}
    mechanism = plan.mechanism.model_dump(mode="json") | open_noise | {"epsilon": epsilon}
    return PrivacyPlan.from_dict(given | {"mechanism": mechanism})
