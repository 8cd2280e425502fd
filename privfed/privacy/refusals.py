"""Methods and schemas that a plan has no noise or no bound for."""

from privfed.contracts import MethodProfile, Schema, refreshes_of
from privfed.privacy.errors import PlanError
from privfed.privacy.plan import PrivacyPlan

_HIDDEN_MEMBERS = "participation is secret, and an account counts everybody in all releases: set sampling.kind = 'all'"


def method_refusal(plan: PrivacyPlan, method: MethodProfile) -> str | None:
    """Why a method cannot run behind a plan, as a clause after a colon; None where it can."""
    reason = plan.mechanism.refusal(method)
    if reason is None and method.shares_account and plan.amplifies and plan.mechanism.unbounded_reason is None:
        return f"its releases share one account, and {_HIDDEN_MEMBERS}"
    return reason


def refuse_unprotected_blocks(plan: PrivacyPlan, schema: Schema) -> None:
    """Refuse a query that the plan has no noise or no bound for; it can be told before the first round.

    Raises:
        PlanError: means would divide by weights or counts that depend on data and are released exactly, under a plan
            that guarantees something, or the plan's bounds are those of other blocks.
    """
    for name, block in schema.items() if plan.mechanism.unbounded_reason is None else ():
        if block.divides:
            raise PlanError(
                f"block {name!r} weights clients by their data, which the noise of the plan {plan.name!r} is not sized "
                f"for: weight every client alike"
            )
        if block.counts:
            raise PlanError(
                f"block {name!r} counts clients exactly, which the noise of the plan {plan.name!r} does not cover: "
                f"aggregate with fixed denominators, and where tiers are counted set min_tier = 1"
            )
    if refreshes_of(schema) > 1 and plan.mechanism.unbounded_reason is None:
        _refuse_account(plan)
    if (clip := plan.mechanism.clip) is not None and clip.per_block is not None:
        clip.bounds([name for name, block in schema.items() if block.kind == "real"])


def _refuse_account(plan: PrivacyPlan) -> None:
    """Refuse a plan under which devices keep no account of a year."""
    reason = plan.mechanism.account_refusal
    if plan.amplifies:
        reason = _HIDDEN_MEMBERS
    if reason is not None:
        raise PlanError(f"releases that share one account cannot be had under the plan {plan.name!r}: {reason}")
