"""From a total epsilon to a plan: noise sized so that no user can exceed it in a whole run.

Where participation is visible, uploads are bounded by what the sampling rule can ever demand of one user, so Poisson
and fixed sampling are sized for a user who takes part in every round. Where it is secret, sampling amplifies, and
several asks of one draw are one release with the noise of all.
"""

import math
from collections.abc import Sequence
from typing import Any

from privfed.contracts import Block, Schema, share_of
from privfed.privacy.accounting import account
from privfed.privacy.budget import solve_laplace
from privfed.privacy.errors import PlanError
from privfed.privacy.forecast import planned
from privfed.privacy.gaussian_budget import solve_gaussian
from privfed.privacy.mechanisms.base import LocalLaplace
from privfed.privacy.mechanisms.gaussian import CentralGaussian, LocalGaussian
from privfed.privacy.mechanisms.interaction_dpsgd import InteractionDPSGD
from privfed.privacy.mechanisms.secure import DistributedGaussian
from privfed.privacy.plan import PrivacyPlan
from privfed.privacy.sampling import Poisson

_TOLERANCE = 1e-4
_SMALLEST_STEP = 1.0 + 1e-3
_LARGEST = 1e8


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
) -> PrivacyPlan:
    """`plan` with its noise sized so that no user exceeds `epsilon` in the whole run.

    Args:
        plan: a plan with clip and noise; its epsilon0 or noise multiplier is replaced.
        epsilon: total that no user may exceed at the plan's delta.
        rounds: rounds of the run.
        population: number of users.
        queries_per_round: uploads that one round asks of each participant.
        extra_queries: asks of the first round besides.
        coordinates: numbers in one upload, which rounding depends on; needed for distributed noise only.
        program: blocks of each ask, where the asks of a round are several and use shares of the clip norm or differ in
            length; `queries_per_round` is how often they come.

    Raises:
        PlanError: the plan's protection has no finite epsilon, or a value is out of range.
    """
    mechanism = plan.mechanism
    if mechanism.unbounded_reason is not None:
        raise PlanError(f"the plan '{plan.name}' cannot reach epsilon = {epsilon:g}: {mechanism.unbounded_reason}")
    if rounds < 1 or queries_per_round < 1:
        raise PlanError(f"rounds = {rounds} and asks_per_round = {queries_per_round} must both be at least 1")
    plan.check(population)
    queries: Sequence[Schema] = [{"upload": Block((coordinates or 1,))}] if program is None else program
    shares = [share_of(ask) for ask in queries]
    worst = plan.sampling.worst(rounds, population) * queries_per_round
    uploads, whole = worst * len(queries) + extra_queries, worst * math.fsum(shares) + extra_queries * shares[0]
    match mechanism:
        case LocalLaplace():
            return _with(plan, epsilon0=solve_laplace(epsilon, uploads, plan.delta).budget.epsilon0)
        case InteractionDPSGD():
            multiplier = _multiplier(epsilon, uploads * mechanism.local_steps, mechanism.local_rate, plan.delta)
            return _with(plan, noise_multiplier=multiplier)
        case CentralGaussian() if isinstance(plan.sampling, Poisson) and plan.amplifies:
            start = _multiplier(epsilon, rounds, plan.sampling.rate, plan.delta)
            start *= math.sqrt(queries_per_round * math.fsum(shares))
        case DistributedGaussian() if coordinates is None and program is None:
            raise PlanError("coordinates is missing: rounding depends on how many numbers an upload has, so give it")
        case LocalGaussian() | CentralGaussian() | DistributedGaussian():
            start = (
                _multiplier(epsilon, uploads, 1.0, plan.delta)
                if program is None
                else _multiplier(epsilon, 1, 1.0, plan.delta) * math.sqrt(whole)
            )
            if isinstance(mechanism, LocalGaussian):
                start *= mechanism.sensitivity / mechanism.clip_norm
            if program is None and not isinstance(mechanism, DistributedGaussian):
                return _with(plan, noise_multiplier=start)
        case _:
            raise PlanError(f"the plan '{plan.name}' cannot reach epsilon = {epsilon:g}: its noise cannot be sized")
    return _enough(plan, epsilon, start, queries, population, rounds, queries_per_round, extra_queries)


def _multiplier(epsilon: float, releases: int, rate: float, delta: float) -> float:
    return solve_gaussian(epsilon, releases, rate, delta, thorough=False).budget.noise_multiplier


def _enough(
    plan: PrivacyPlan,
    epsilon: float,
    start: float,
    queries: Sequence[Schema],
    population: int,
    rounds: int,
    queries_per_round: int,
    extra_queries: int,
) -> PrivacyPlan:
    """Go up from a multiplier that is at most a little too small: integer noise and extra asks cost a little more."""

    def total(multiplier: float) -> float:
        infer_sizes = _with(plan, noise_multiplier=multiplier)
        composition = planned(infer_sizes, queries, population, rounds, queries_per_round, extra_queries)
        return account(composition.event(), plan.delta).epsilon

    enough = less = start
    step = _SMALLEST_STEP
    while total(enough) > epsilon:
        if enough > _LARGEST:
            raise PlanError(f"no noise reaches epsilon = {epsilon:g} under the plan '{plan.name}': use a wider ring")
        less, enough, step = enough, enough * step, step**2
    while enough / less > 1 + _TOLERANCE:
        middle = math.sqrt(enough * less)
        less, enough = (less, middle) if total(middle) <= epsilon else (middle, enough)
    return _with(plan, noise_multiplier=enough)


def _with(plan: PrivacyPlan, **fields: Any) -> PrivacyPlan:
    data = plan.to_dict()
    data["mechanism"] |= fields
    return PrivacyPlan.from_dict(data)
