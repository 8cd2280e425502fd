"""From a plan with a target to the plan that runs: noise and clip norm, chosen once, where a run is assembled.

What is chosen follows from the configuration and the size of the data alone: the method's queries, the rounds, the
sampling and the population. So a run that is resumed, and every party of a federation, comes to the same plan, and what
is written down, charged and explained is a plan like one that somebody gave number by number.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import partial
from typing import NamedTuple

import numpy as np

from privfed.compute.devices import on_host
from privfed.contracts import Block, DefaultClip, Schema
from privfed.data import Split
from privfed.federation import Purpose, Streams
from privfed.methods import ClientData, PublicInfo, preset
from privfed.privacy import PlanError, PrivacyPlan, plan_for_target
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.forecast import FinalQueries
from privfed.privacy.mechanisms.sizing import Target
from privfed.privacy.tier_weights import with_tiers
from privfed.privacy.tiers import BudgetTiers
from privfed.privacy.user_ranges import last_of
from privfed.privacy.wording import number
from privfed.setup.config import ExperimentConfig
from privfed.setup.donors import open_histories
from privfed.setup.evaluation_query import final_queries
from privfed.setup.method_settings import changed_settings

_MAX_STEPS, _DIGITS = 8, 5
_ONE_NUMBER: Schema = {"upload": Block((1,))}


class Sized(NamedTuple):
    """A configuration whose plan can run.

    Attributes:
        config: everything that decides the result, the plan included.
        choices: what was chosen, a sentence each; empty where the plan left nothing open.
    """

    config: ExperimentConfig
    choices: tuple[str, ...] = ()


def size(config: ExperimentConfig, parts: Split) -> Sized:
    """Choose what the configured plan leaves open.

    Args:
        config: with any plan.
        parts: of the data, of which the server knows the sizes, the items' descriptions, and what is public by
            declaration.

    Raises:
        PlanError: the target cannot be reached, or the method has no clip norm of its own and none was given.
    """
    target = config.privacy.target
    if target is None:
        return Sized(config)
    registered = config.registered()
    if target.clip == "auto" and registered.traits.uploads_once:
        raise PlanError(
            f"clip_norm = 'auto' follows norms from round to round, and {registered.name} uploads once: give a "
            "clip_norm, or leave it out for the method's default"
        )
    default = _default_clip(config, target)
    mechanism = config.privacy.mechanism.with_clip_norm(default.norm, default.of_median)
    plan = config.privacy.model_copy(update={"mechanism": mechanism})
    if target.epsilon is not None:
        plan = _noised(config, parts, plan, target.epsilon)
    plan.check(parts.train.n_users)
    sized = config.model_copy(update={"privacy": plan})
    return Sized(sized, tuple(_choices(sized, target, default, parts.train.n_users)))


def planned_rounds(config: ExperimentConfig) -> int:
    """Rounds in which users are asked for anything: one, of a method that uploads once."""
    return 1 if config.registered().traits.uploads_once else config.rounds


def _noised(config: ExperimentConfig, parts: Split, plan: PrivacyPlan, epsilon: float) -> PrivacyPlan:
    """`plan` with its noise sized for the queries that the method makes under that very noise."""
    training, settings, n_users = config.registered().training, config.settings(), parts.train.n_users
    rounds, program, final = planned_rounds(config), [_ONE_NUMBER], _final(config, plan, epsilon)
    tiers = None if plan.tiers is None else _announced(plan.tiers, config, n_users)
    plan, before = plan.model_copy(update={"tiers": None}), None
    enough: list[PrivacyPlan] = []
    for _ in range(_MAX_STEPS):
        extra = training.extra_queries(settings)
        plan = _readable(
            plan_for_target(
                plan.model_copy(update={"tiers": None}), epsilon, rounds, n_users, program=program,
                extra_queries=extra, final=final,
            )
        )  # fmt: skip
        if tiers is not None:
            last = () if final is None else final(plan)
            plan = with_tiers(plan, tiers, rounds, n_users, program, extra, last)
        if before is not None and _noise(plan) <= _noise(before):
            enough.append(before)
        # Queries may depend on how much noise their server was told of: they have to be those of this plan.
        sized_for, before, program = program, plan, _program(config, parts, plan)
        if sized_for == program:
            return plan
    if enough:  # noise that goes round in its last digit, each time for the queries of the time before
        return min(enough, key=_noise)
    raise PlanError(
        f"epsilon = {epsilon:g} finds no noise for the queries that {config.method_name} makes under that noise: "
        f"give {plan.mechanism.noise_setting} instead"
    )


def _noise(plan: PrivacyPlan) -> float:
    """The setting of the noise of a plan, larger where there is more noise."""
    value: float = getattr(plan.mechanism, str(plan.mechanism.noise_setting))
    return -value if plan.mechanism.noise_falls else value


def _announced(tiers: BudgetTiers, config: ExperimentConfig, n_users: int) -> BudgetTiers:
    """The tiers with the shares that means may divide by: those of this population where choices are public.

    Raises:
        PlanError: a member who is no user.
    """
    for name, tier in tiers.levels:
        if tier.members is not None and (outside := last_of(tier.members)) >= n_users:
            raise PlanError(f"tiers.{name}.members names user {outside} of {n_users}, numbered from 0: correct it")
    if tiers.hidden:
        return tiers
    users = np.arange(n_users)
    drawn = on_host(Streams.from_seed(config.seed).uniform(Purpose.TIER, 0, 0, users.tolist(), 1))[:, 0]
    return tiers.named(tiers.positions(users, drawn))


def _final(config: ExperimentConfig, plan: PrivacyPlan, epsilon: float) -> FinalQueries | None:
    """The queries that choose and measure, where that is private.

    Raises:
        PlanError: it alone costs more than everything may.
    """
    settings = config.evaluation
    if not settings.private:
        return None
    mu = math.hypot(settings.mu, settings.selection_mu if settings.grid else 0.0)
    alone = gaussian_epsilon(mu, plan.delta)
    if alone >= epsilon:
        raise PlanError(
            f"evaluation.mu = {mu:g} alone costs epsilon {alone:.3g} of the {epsilon:g} that training and "
            "evaluation may cost together: set a smaller evaluation.mu"
        )
    return partial(final_queries, config)


def _readable(plan: PrivacyPlan) -> PrivacyPlan:
    """The plan with its noise at a few digits, rounded to the side of more noise: people read it in every label."""
    mechanism = plan.mechanism
    setting = str(mechanism.noise_setting)
    context = Context(prec=_DIGITS, rounding=ROUND_FLOOR if mechanism.noise_falls else ROUND_CEILING)
    value = float(context.create_decimal_from_float(getattr(mechanism, setting)))
    return plan.from_dict(plan.to_dict() | {"mechanism": mechanism.model_dump(mode="json") | {setting: value}})


def _program(config: ExperimentConfig, parts: Split, plan: PrivacyPlan) -> list[Schema]:
    """Blocks of all queries of a round under this plan."""
    registered = config.registered()
    public = ClientData.from_split(parts, config.protocol.negatives).positives
    shown = public if registered.traits.public_target else None
    sums = plan.noisy_sums(parts.train.n_users)
    opened = open_histories(parts)
    info = PublicInfo(parts.train.n_users, parts.train.n_items, shown, sums, parts.item_info, opened)
    server = registered.training.server(config.settings(), info, Streams.from_seed(config.seed))
    return [query.schema for query in registered.training.program(server)]


def _default_clip(config: ExperimentConfig, target: Target) -> DefaultClip:
    """The clip norm to take, or to begin with, where the plan leaves it open."""
    registered, chosen = config.registered(), preset(config.method_name)
    for known in registered.clip_norms:
        if known.clipped == target.clipped:
            return chosen.clip(known) if chosen else known
    if target.clip == "default":
        raise PlanError(
            f"clip_norm is missing, and {registered.name} has no default for {config.privacy.mechanism.label}: give a "
            "clip_norm; docs/guides/choosing_a_clip_norm.md says how to choose one"
        )
    return DefaultClip("upload", 1.0, 1.0, "nobody chose it")


def _choices(config: ExperimentConfig, target: Target, default: DefaultClip, n_users: int) -> list[str]:
    """What was chosen, for people."""
    plan, rounds = config.privacy, planned_rounds(config)
    mechanism, said = plan.mechanism, list[str]()
    if target.epsilon is not None and mechanism.noise_setting is not None:
        value = f"{getattr(mechanism, mechanism.noise_setting):.4g}"
        people = "everybody" if plan.sampling.kind == "all" else plan.sampling.label
        measured = f" and a measurement of mu {number(config.evaluation.mu)}" if config.evaluation.private else ""
        said.append(
            f"Epsilon {number(target.epsilon)} at delta {number(plan.delta)} needs {mechanism.noise_setting} = {value} "
            f"over {rounds:,} round{'s' if rounds > 1 else ''} of {people}{measured}."
        )
    if plan.tiers is not None:
        said.append(
            f"An average upload counts {plan.tiers.mean_weight:.3g}: {plan.counted(n_users):,.0f} people's worth "
            f"of {n_users:,} at the largest epsilon."
        )
    if target.clip == "default":
        said.append(f"Clip norm {number(default.norm)}, the default of {config.method_name}: {default.ground}.")
        if default.of_median != 1 and (changed := changed_settings(config.method)):
            said.append(f"It was found with other settings ({', '.join(changed)} changed since), so it may not fit.")
    if target.clip == "auto":
        said.append(
            f"Clip norm {number(default.norm)} in the first round, then {number(default.of_median)} of the median "
            "norm, which noisy counts find for 5 % of the budget."
        )
    return said
