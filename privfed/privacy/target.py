"""From a total epsilon to a plan: noise sized so that no user can exceed it in a whole run.

Where participation is visible, uploads are bounded by what the sampling rule can ever demand of one user, so Poisson
and fixed sampling are sized for a user who takes part in every round. Where it is secret, sampling amplifies, and
several queries of one cohort are one release with the noise of all.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from privfed.contracts import Block, Schema, refreshes_of, share_of
from privfed.privacy.accounting import account
from privfed.privacy.composition import Composition
from privfed.privacy.errors import PlanError
from privfed.privacy.forecast import FinalQueries, FinalQuery, planned
from privfed.privacy.mechanisms.sizing import NoiseTarget
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.sampling import Poisson

_TOLERANCE = 1e-4
_MIN_STEP = 1.0 + 1e-3
_MAX_MULTIPLIER = 1e8
_WASTEFUL = 0.995


def plan_for_target(
    plan: PrivacyPlan,
    epsilon: float,
    rounds: int,
    population: int,
    queries_per_round: int = 1,
    *,
    extra_queries: int = 0,
    coordinates: int | None = None,
    program: Sequence[Schema] | None = None,
    final: FinalQueries | None = None,
) -> PrivacyPlan:
    """`plan` with its noise sized so that no user exceeds `epsilon` in the whole run.

    Args:
        plan: a plan with clip and noise; its epsilon0 or noise multiplier is replaced.
        epsilon: total that no user may exceed at the plan's delta.
        rounds: number of rounds of the run.
        population: number of users.
        queries_per_round: number of uploads that one round asks of each participant.
        extra_queries: number of further queries of the first round.
        coordinates: numbers in one upload, which rounding depends on; needed for distributed noise only.
        program: blocks of each query, where the queries of a round are several and use shares of the clip norm or
            differ in length; `queries_per_round` is how often they come.
        final: the queries after all rounds under a plan, which the same epsilon has to cover.

    Raises:
        PlanError: the plan's mechanism has no finite epsilon, or a value is out of range.
    """
    mechanism = plan.mechanism
    if mechanism.unbounded_reason is not None:
        raise PlanError(f"the plan '{plan.name}' cannot reach epsilon = {epsilon:g}: {mechanism.unbounded_reason}")
    if rounds < 1 or queries_per_round < 1:
        raise PlanError(f"rounds = {rounds} and queries_per_round = {queries_per_round} must both be at least 1")
    plan.check(population)
    queries: Sequence[Schema] = [{"upload": Block((coordinates or 1,))}] if program is None else program
    shares = [share_of(query) for query in queries]
    worst = plan.sampling.worst(rounds, population) * queries_per_round
    target = NoiseTarget(
        epsilon=epsilon,
        delta=plan.delta,
        uploads=worst * len(queries) + extra_queries,
        whole_uploads=math.fsum(
            share * (1 if refreshes_of(query) > 1 else worst) for share, query in zip(shares, queries, strict=True)
        )
        + extra_queries * shares[0],
        rounds=rounds,
        round_share=queries_per_round * math.fsum(shares),
        rate=plan.sampling.rate if isinstance(plan.sampling, Poisson) and plan.amplifies else None,
        uniform=program is None,
        known_size=coordinates is not None or program is not None,
    )
    try:
        sized = mechanism.size_noise(target)
    except NotImplementedError:
        raise PlanError(
            f"the plan '{plan.name}' cannot reach epsilon = {epsilon:g}: its noise cannot be sized"
        ) from None
    if sized.exact and final is None:
        return _with(plan, **sized.fields)
    (start,) = sized.fields.values()
    if final is not None:
        start *= _final_query_factor(final(_with(plan, **sized.fields)), _with(plan, **sized.fields), target)

    def composed(noised: PrivacyPlan) -> Composition:
        last = () if final is None else final(noised)
        return planned(noised, queries, population, rounds, queries_per_round, extra_queries, last)

    return _enough(plan, epsilon, start, composed)


def _final_query_factor(final: Sequence[FinalQuery], plan: PrivacyPlan, target: NoiseTarget) -> float:
    """Factor of the noise that leaves room for final queries, of Gaussian releases without sampling; mu^2 adds up."""
    noise = plan.mechanism.noise_over_clip or math.inf
    taken = math.fsum(query.count * share_of(query.schema) for query in final) / noise**2
    whole = target.multiplier(1) ** -2
    return math.sqrt(whole / (whole - taken)) if taken < whole else 1.0


def _enough(
    plan: PrivacyPlan,
    epsilon: float,
    start: float,
    composed: Callable[[PrivacyPlan], Composition],
) -> PrivacyPlan:
    """Search from settings about right: integer noise, unequal shares and extra queries cost more than they say."""
    setting = plan.mechanism.noise_setting or "noise_multiplier"

    def total(value: float) -> float:
        return account(composed(_with(plan, **{setting: value})).event(), plan.delta).epsilon

    def noisier(value: float, step: float) -> float:
        return value / step if plan.mechanism.noise_falls else value * step

    enough = less = start
    step, reached = _MIN_STEP, total(start)
    while reached > epsilon:
        if max(enough, 1 / enough) > _MAX_MULTIPLIER:
            raise PlanError(f"no noise reaches epsilon = {epsilon:g} under the plan '{plan.name}': use a wider ring")
        less, enough, step = enough, noisier(enough, step), step**2
        reached = total(enough)
    while reached < _WASTEFUL * epsilon and less == enough:
        lower = noisier(less, 1 / step)
        reached, step = total(lower), step**2
        less, enough = (lower, lower) if reached <= epsilon else (lower, enough)
    while max(enough / less, less / enough) > 1 + _TOLERANCE:
        middle = math.sqrt(enough * less)
        less, enough = (less, middle) if total(middle) <= epsilon else (middle, enough)
    return _with(plan, **{setting: enough})


def _with(plan: PrivacyPlan, **fields: Any) -> PrivacyPlan:
    data = plan.to_dict()
    data["mechanism"] |= fields
    return PrivacyPlan.from_dict(data)
