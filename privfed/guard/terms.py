"""What a guard is bound by: a plan whose noise the node adds all by itself, and the policy of the node's owner."""

import math

from privfed.engines.nodes.budget import PrivacyCost
from privfed.engines.nodes.policy import Policy
from privfed.privacy import PlanError, PrivacyPlan, SchemaSummary, plan_for_target
from privfed.privacy.accounting import account
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Bounded
from privfed.privacy.plan import event_for

PERSON = 1
"""Population of a guard's ledger: everything that the node trains on is protected together, as if it were one user."""

UPDATE = "update"
METHOD = "guard"
"""What a policy's `methods` calls training that privfed knows nothing of."""


def local_plan(plan: PrivacyPlan | str, rounds: int) -> PrivacyPlan:
    """The plan of a guard, with noise for `rounds` uploads where it names an epsilon.

    Only what clips and noises one upload by itself will do.

    Args:
        plan: as given; in words, `local-gaussian:clip_norm=1,epsilon=8`.
        rounds: number of uploads, over all runs, that an epsilon is for.

    Raises:
        PlanError: it leaves protection to others, samples users, or its clip norm is open.
    """
    given = PrivacyPlan.parse(plan) if isinstance(plan, str) else plan
    if given.mechanism.trust != "local":
        raise PlanError(
            f"the plan {given.name!r} is no local one, and a guard has nobody else to add noise: a secure sum of "
            "integers would have to carry shares, and Flower's SecAgg+ carries floats, which it rounds within a range "
            "that the server chooses, under masks of 32-bit seeds; use local-gaussian or local-laplace"
        )
    if given.sampling.kind != "all":
        raise PlanError(
            f"sampling = {given.sampling.kind!r} was given to a guard, which counts every message as an upload because "
            "the server chooses whom it sends one: leave it out"
        )
    sized = _sized(given, rounds)
    if sized.mechanism.noise is None:
        raise PlanError(f"the plan {sized.name!r} has no noise for a whole upload; use local-gaussian or local-laplace")
    _event(sized)
    return sized


def _sized(plan: PrivacyPlan, rounds: int) -> PrivacyPlan:
    target = plan.target
    if target is None:
        return plan
    if target.clip != "given":
        raise PlanError("clip_norm is open, and a guard knows no method to take it from: give it, as in clip_norm=1")
    template = plan.mechanism.with_clip_norm(1.0, 1.0)
    closed = plan.model_copy(update={"mechanism": template})
    return closed if target.epsilon is None else plan_for_target(closed, target.epsilon, rounds, PERSON)


def summary(coordinates: int) -> SchemaSummary:
    """What an upload of so many numbers declares, for the ledger."""
    return SchemaSummary(real=(UPDATE,), coordinates=coordinates)


def cost_of(plan: PrivacyPlan, uploads: int) -> PrivacyCost:
    """What so many uploads under a plan cost the node's people."""
    if uploads == 0:
        return PrivacyCost(0.0, 0.0, 0.0)
    result = account(Composition((Releases(_event(plan), uploads),)).event(), plan.delta)
    pure = result.basic_epsilon
    return PrivacyCost(result.epsilon, plan.delta, None if pure is None or math.isinf(pure) else pure)


def _event(plan: PrivacyPlan) -> Bounded:
    """What one upload is; it does not depend on its length.

    Raises:
        PlanError: nothing bounds it.
    """
    event = event_for(plan, summary(1), PERSON)
    if not isinstance(event, Bounded):
        raise PlanError(f"the plan {plan.name!r} bounds nothing: {plan.mechanism.unbounded_reason}; use local-gaussian")
    return event


def own_policy(policy: Policy | None, plan: PrivacyPlan, epsilon: float | None, rounds: int, people: int) -> Policy:
    """The owner's policy, or one that allows what was asked for and no more; epsilon is bounded in either case.

    Args:
        policy: of the owner; None where there is none.
        plan: of the guard.
        epsilon: that the plan was sized for; None where its noise was given.
        rounds: uploads over all runs.
        people: whose data the node trains on.

    Raises:
        PolicyRefused: the owner's policy does not allow the plan.
    """
    if policy is None:
        policy = Policy(max_rounds=rounds, max_delta=plan.delta, mechanisms=(plan.mechanism.kind,), min_own_users=1)
    policy.accept_plan(METHOD, plan, rounds, people, seeded=False)
    policy.accept_own(people)
    if policy.max_epsilon is None:
        bound = cost_of(plan, rounds).epsilon if epsilon is None else epsilon
        policy = policy.model_copy(update={"max_epsilon": bound})
    return policy
