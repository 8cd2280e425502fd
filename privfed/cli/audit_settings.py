"""From flags, a TOML file and `--set` to the configuration of an audit: the grid, and changes of all of it."""

from collections.abc import Sequence
from typing import Any

from privfed.audit.config import AuditConfig
from privfed.cli.early import refuse_missing
from privfed.cli.failures import CommandError
from privfed.cli.importing import importing
from privfed.cli.layers import Layer
from privfed.cli.settings import (
    DataSource,
    check,
    checked_settings,
    combine,
    expanded,
    named,
    overlay,
    plan_table,
    take_source,
)
from privfed.methods.registry import refuse_unknown
from privfed.privacy import PlanError, PrivacyPlan, configure


@importing()
def audit_config(file: Layer, flags: Layer, settings: Sequence[Layer]) -> tuple[AuditConfig, DataSource]:
    """The configuration of an audit, and where its data come from.

    `method.x` and `privacy.x` in a `--set` change every method and plan of the grid that has such a field.

    Raises:
        ValueError: a bad key or value, in one sentence that names it.
    """
    spread = [layer for layer in settings if layer.keys() & {"method", "privacy"}]
    fields = combine([file, flags, *(layer for layer in settings if layer not in spread)])
    source = take_source(fields, AuditConfig)
    if source.chosen:
        refuse_missing(source.name)
    if "variants" in fields:
        if also := [key for key in ("methods", "plans") if key in fields]:
            raise CommandError(f"variants stand beside {' and '.join(also)}: give methods and plans, or variants alone")
        fields["variants"] = [expanded(_variant(variant)) for variant in _several(fields["variants"], "variants")]
    else:
        _fill_grid(fields)
    if isinstance(seeds := fields.get("seeds"), int):
        fields["seeds"] = list(range(seeds))
    for layer in spread:
        for key, change in expanded(layer).items():
            _change_grid(fields, key, change)
    config = configure(AuditConfig, fields)
    if config.protocol.task == "rating":
        raise CommandError(
            "an audit compares rankings, and protocol.task is rating: choose task=ranking here, and predict ratings "
            "with 'privfed run'"
        )
    for variant in config.grid():
        check(variant.method, variant.privacy)
    return config, source


def _change_grid(fields: Layer, key: str, change: Any) -> None:
    """Change `method` or `privacy` all over a grid.

    Raises:
        CommandError: it names one method, where all of the grid have theirs.
    """
    if key == "method" and isinstance(change, dict) and "name" in change:
        raise CommandError(
            f"--set method.name={change['name']} would put one method in the place of all that are audited: name it by "
            f"--method {change['name']}"
        )
    if "variants" in fields:
        changed = _spread([variant[key] for variant in fields["variants"]], change, key)
        fields["variants"] = [{**variant, key: new} for variant, new in zip(fields["variants"], changed, strict=True)]
    else:
        table = "methods" if key == "method" else "plans"
        fields[table] = _spread(fields[table], change, key)


def _fill_grid(fields: Layer) -> None:
    """Methods and plans with their tables; what is missing is the default grid."""
    fields["methods"] = [named(m) for m in _several(fields.get("methods", ["gpfedrec"]), "methods")]
    if not fields["methods"]:
        raise PlanError("methods = [] is not allowed: name at least one method")
    for table in fields["methods"]:
        if isinstance(table, dict) and "name" in table:
            refuse_unknown(str(table["name"]))
    first = str(fields["methods"][0].get("name", ""))
    if "plans" in fields:
        fields["plans"] = [plan_table(p) for p in _several(fields["plans"], "plans")]
    else:
        fields["plans"] = [plan.to_dict() for plan in AuditConfig.for_method(first).plans]


def _variant(variant: Any) -> Layer:
    if not isinstance(variant, dict) or not variant.keys() >= {"method", "privacy"}:
        raise PlanError(f"variants: {variant!r} is not allowed: each must be a table with method and privacy")
    return variant


def _several(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(f"{key} = {value!r} is not allowed: it must be a list of names or tables")
    return value


def _spread(tables: Sequence[Layer], change: Any, key: str) -> list[Layer]:
    """`change` made to every table that has its field.

    Raises:
        PlanError: none of them has.
    """
    changed, problems = [], []
    for table in tables:
        new = overlay({key: table}, {key: change})[key]
        try:
            _validate(new, key)
        except PlanError as error:
            problems.append(error)
            new = table
        changed.append(new)
    if len(problems) == len(tables):
        raise problems[0]
    return changed


def _validate(table: Layer, key: str) -> None:
    if key == "method":
        checked_settings(table)
        return
    try:
        configure(PrivacyPlan, table)
    except PlanError as error:
        raise PlanError(f"privacy.{error}") from error
