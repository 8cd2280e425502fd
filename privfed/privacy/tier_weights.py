"""Which weight gives a tier the epsilon that it was promised: the largest one for which the accountants say so."""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Context

from privfed.contracts import Schema
from privfed.privacy.accounting import account
from privfed.privacy.errors import PlanError
from privfed.privacy.forecast import FinalQuery, planned
from privfed.privacy.gaussian_budget import solve_gaussian
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.tiers import BudgetTiers

_TOLERANCE, _FIRST_STEP, _SMALLEST = 5e-4, 1 + 1e-3, 1e-6
_READABLE = Context(prec=5, rounding=ROUND_FLOOR)


def with_tiers(
    plan: PrivacyPlan,
    tiers: BudgetTiers,
    rounds: int,
    population: int,
    program: Sequence[Schema],
    extra_queries: int = 0,
    final: Sequence[FinalQuery] = (),
) -> PrivacyPlan:
    """The plan with tiers, each with the weight that brings it as close below its epsilon as five digits let it.

    Args:
        plan: whose noise is sized for the largest epsilon.
        tiers: with or without weights.
        rounds: of the run.
        population: number of users.
        program: blocks of the queries of a round.
        extra_queries: number of further queries of the first round.
        final: queries after all rounds.

    Raises:
        PlanError: an epsilon so small that no weight reaches it.
    """
    most = plan.sampling.worst(rounds, population)

    def total(weight: float) -> float:
        composed = planned(plan, program, population, most, extra_queries=extra_queries, final=final, weight=weight)
        return account(composed.event(), plan.delta).epsilon

    weights = {
        name: 1.0 if tier.epsilon == tiers.largest else _weight(name, tier.epsilon, tiers.largest, plan, total)
        for name, tier in tiers.levels
    }
    return plan.model_copy(update={"tiers": tiers.with_weights(weights)})


def _weight(name: str, epsilon: float, largest: float, plan: PrivacyPlan, total: Callable[[float], float]) -> float:
    if epsilon == 0:
        return 0.0
    wide, narrow = (
        solve_gaussian(target, 1, 1.0, plan.delta, thorough=False).budget.noise_multiplier
        for target in (epsilon, largest)
    )
    high = low = min(narrow / wide, 1.0)
    step = _FIRST_STEP
    while total(low) > epsilon:
        if low < _SMALLEST:
            raise PlanError(f"tiers.{name}.epsilon = {epsilon:g} is reached by no weight: give the tier a larger one")
        high, low, step = low, low / step, step**2
    while low == high < 1:
        upper = min(low * step, 1.0)
        low, high, step = (upper, upper, step**2) if total(upper) <= epsilon else (low, upper, step)
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    return float(_READABLE.create_decimal_from_float(low))
