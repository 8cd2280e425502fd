"""`--epsilon`: a plan whose noise keeps a whole run within a total, sized for the method's own queries."""

from collections.abc import Sequence
from math import floor, log10

from pydantic import JsonValue

from privfed.audit.grid import AuditConfig, Variant
from privfed.cli.failures import CommandError
from privfed.data import Interactions, split
from privfed.methods import Method, method
from privfed.privacy import PrivacyPlan, configure, plan_for_target
from privfed.setup import method_settings
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig

CLIP_NORMS = {"gpfedrec": 0.1, "hetefedrec": 0.1, "fair": 0.1, "fedvae": 0.01, "feddae": 0.01}
"""Clip norms that suit small updates, where a method needs another than 1; the same for every epsilon."""

PUBLISHED, PRIVATE = "gpfedrec:published", "private-gram"
DEFAULT_EPSILONS = (8.0, 1.0)


def plan_within(epsilon: float, config: ExperimentConfig, interactions: Interactions) -> PrivacyPlan:
    """The configured plan with noise for `epsilon` over the whole run; where none is configured, a suitable one.

    Raises:
        CommandError: noise cannot protect the method.
        PlanError: the plan cannot reach that epsilon.
    """
    plan, registered = config.privacy, config.registered()
    if plan.mechanism.kind == "unprotected":
        plan = _suitable(registered, interactions.n_users)
    assembly = Assembly(config.model_copy(update={"privacy": plan}), split(interactions, config.split))
    program = [query.schema for query in registered.training.program(assembly.server)]
    return plan_for_target(
        plan,
        epsilon,
        1 if registered.traits.uploads_once else config.rounds,
        interactions.n_users,
        extra_queries=registered.training.extra_queries(config.settings()),
        program=program if len(program) > 1 else None,
        coordinates=sum(block.size for block in program[0].values()) if len(program) == 1 else None,
    )


def audited_within(epsilons: Sequence[float], config: AuditConfig, interactions: Interactions) -> AuditConfig:
    """The audit with every method of it behind plans for these epsilons, besides the plans that it has."""
    different: list[dict[str, JsonValue]] = []
    for variant in config.grid():
        if variant.method not in different:
            different.append(variant.method)
    return _with(config, interactions, [(table, epsilon) for table in different for epsilon in epsilons])


def default_grid(epsilons: Sequence[float], config: AuditConfig, interactions: Interactions) -> AuditConfig:
    """A system as published, the same behind local noise for the first epsilon, and `private-gram` at every one."""
    published = config.grid()[0].method
    private = [(method_settings(PRIVATE), epsilon) for epsilon in epsilons]
    return _with(config, interactions, [(published, epsilons[0]), *private])


def _with(
    config: AuditConfig, interactions: Interactions, wanted: Sequence[tuple[dict[str, JsonValue], float]]
) -> AuditConfig:
    """The audit with methods within epsilons, besides the variants that it has."""
    sized = [_variant(table, epsilon, config, interactions) for table, epsilon in wanted]
    fields = config.model_dump(mode="json") | {
        "methods": [],
        "plans": [],
        "variants": [variant.model_dump(mode="json") for variant in (*config.grid(), *sized)],
    }
    return configure(AuditConfig, fields)


def _variant(table: dict[str, JsonValue], epsilon: float, config: AuditConfig, interactions: Interactions) -> Variant:
    rounds = 1 if method(str(table["name"])).traits.uploads_once else None
    one = ExperimentConfig(
        data=config.data, split=config.split, method=table, protocol=config.protocol, rounds=rounds or config.rounds
    )
    return Variant(method=table, privacy=plan_within(epsilon, one, interactions), rounds=rounds)


def _suitable(registered: Method, users: int) -> PrivacyPlan:
    """Gaussian noise by whoever must add it for the method: a trusted server to sums, else every client.

    Raises:
        CommandError: its uploads are whole numbers, which noise does not cover.
    """
    if registered.traits.integers:
        raise CommandError(
            f"{registered.name} uploads whole numbers, which no noise covers, so it has no finite epsilon: leave out "
            f"--epsilon, or choose another method (privfed methods)"
        )
    kind = "central-gaussian" if registered.traits.release == "total" else "local-gaussian"
    clip_norm = CLIP_NORMS.get(registered.name, 1.0)
    return PrivacyPlan.named(kind, clip_norm=clip_norm, noise_multiplier=1.0, delta=delta_for(users))


def delta_for(users: int) -> float:
    """users^-1.1, rounded down to three digits."""
    exact = users**-1.1
    unit = 10.0 ** (floor(log10(exact)) - 2)
    return float(f"{floor(exact / unit) * unit:.2e}")
