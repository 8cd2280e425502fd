"""`--epsilon` of an audit: every method of it behind noise that keeps whole runs within these totals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from privfed.audit.config import AuditConfig, Variant
from privfed.methods import method
from privfed.privacy import configure
from privfed.setup import method_settings
from privfed.setup.config import ExperimentConfig

if TYPE_CHECKING:
    from privfed.data import Interactions

PUBLISHED, PRIVATE = "gpfedrec:published", "private-gram"
DEFAULT_EPSILONS = (8.0, 1.0)


def audited_within(epsilons: Sequence[float], config: AuditConfig, interactions: "Interactions") -> AuditConfig:
    """The audit with every method of it behind plans for these epsilons, besides the plans that it has."""
    different: list[dict[str, JsonValue]] = []
    for variant in config.grid():
        if variant.method not in different:
            different.append(variant.method)
    return _with(config, interactions, [(table, epsilon) for table in different for epsilon in epsilons])


def default_grid(epsilons: Sequence[float], config: AuditConfig, interactions: "Interactions") -> AuditConfig:
    """A system as published, the same behind local noise for the first epsilon, and `private-gram` at every one."""
    published = config.grid()[0].method
    private = [(method_settings(PRIVATE), epsilon) for epsilon in epsilons]
    return _with(config, interactions, [(published, epsilons[0]), *private])


def _with(
    config: AuditConfig, interactions: "Interactions", wanted: Sequence[tuple[dict[str, JsonValue], float]]
) -> AuditConfig:
    """The audit with methods within epsilons, besides the variants that it has."""
    sized = [_variant(table, epsilon, config, interactions) for table, epsilon in wanted]
    fields = config.model_dump(mode="json") | {
        "methods": [],
        "plans": [],
        "variants": [variant.model_dump(mode="json") for variant in (*config.grid(), *sized)],
    }
    return configure(AuditConfig, fields)


def _variant(table: dict[str, JsonValue], epsilon: float, config: AuditConfig, interactions: "Interactions") -> Variant:
    from privfed.data import split
    from privfed.setup.sizing import size
    from privfed.setup.target_plan import plan_for_epsilon

    registered = method(str(table["name"]))
    parts = split(interactions, config.split)
    one = ExperimentConfig(
        data=config.data, split=config.split, method=table, protocol=config.protocol, rounds=config.rounds,
        privacy=plan_for_epsilon(epsilon, registered, parts.train.n_users),
    )  # fmt: skip
    rounds = registered.own_rounds(one.settings()) if registered.traits.uploads_once else None
    sized = size(one.model_copy(update={"rounds": rounds or one.rounds}), parts).config
    return Variant(method=table, privacy=sized.privacy, rounds=rounds)
