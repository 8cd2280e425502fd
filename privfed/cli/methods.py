"""`privfed methods`: what can be trained, what its server learns, and which privacy mechanisms fit."""

from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import options
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from rich.table import Table

    from privfed.cli.compatibility import Compatibility
    from privfed.methods import Method

EXAMPLE = "Example: privfed methods. The settings of one method: privfed methods gpfedrec"


def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[METHOD]", help="Show this method with its settings.", show_default=False),
    ] = None,
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the methods: source, what the server reads by design, and how each goes with each mechanism."""
    from privfed import methods as registry
    from privfed.cli.compatibility import EXAMPLES, fit

    screen = Screen(as_json, quiet)
    chosen = registry.methods() if name is None else {name: registry.method(name)}
    fits = {
        key: {plan: fit(method, mechanism) for plan, mechanism in EXAMPLES.items()} for key, method in chosen.items()
    }
    screen.document([_document(key, method, fits[key]) for key, method in chosen.items()])
    screen.result(_overview(chosen), _compatibility_table(fits))
    if name is not None:
        screen.result(_settings_table(name, chosen[name]))
    screen.explain(*_reasons(fits), *_host_work(chosen), "Why epsilon is inf:", *_unbounded())


def _settings(method: "Method") -> "dict[str, tuple[object, str]]":
    """Default and description of every setting."""
    fields = method.config.model_fields.items()
    return {key: (field.get_default(), field.description or "") for key, field in fields}


def _document(name: str, method: "Method", fits: "dict[str, Compatibility]") -> dict[str, object]:
    return {
        "name": name,
        "title": method.title,
        "source": method.source,
        "server_reads": method.disclosure.reads,
        "release": method.traits.release,
        "host_work": method.training.host_work,
        "settings": {
            key: {"default": default, "description": meaning} for key, (default, meaning) in _settings(method).items()
        },
        "mechanisms": {
            plan: {
                "runs": one.reason is None,
                "reason": one.reason,
                "finite_epsilon": one.unbounded is None,
                "reason_if_inf": one.unbounded,
            }
            for plan, one in fits.items()
        },
    }


def _overview(chosen: "dict[str, Method]") -> "Table":
    from privfed.cli.show import plain_table

    lines = [(name, method.title, method.source, method.disclosure.reads) for name, method in chosen.items()]
    return plain_table("Methods", ("method", "what it is", "source", "what its server reads"), lines)


def _compatibility_table(fits: "dict[str, dict[str, Compatibility]]") -> "Table":
    from privfed.cli.compatibility import EXAMPLES
    from privfed.cli.show import plain_table

    lines = []
    for plan, mechanism in EXAMPLES.items():
        finite = "finite" if mechanism.unit == "user" else f"finite, per {mechanism.unit}"
        runs = [name for name, row in fits.items() if not row[plan].reason]
        refused = [name for name in fits if name not in runs]
        epsilon = "inf" if mechanism.unbounded_reason else finite
        lines.append((plan, epsilon, ", ".join(runs), ", ".join(refused)))
    title = "Which run behind which mechanism, and with which epsilon"
    return plain_table(title, ("mechanism", "epsilon", "runs", "does not run"), lines)


def _settings_table(name: str, method: "Method") -> "Table":
    from privfed.cli.show import plain_table

    lines = [(f"method.{key}", str(default), meaning) for key, (default, meaning) in _settings(method).items()]
    return plain_table(f"Settings of {name}", ("--set", "default", "meaning"), lines)


def _reasons(fits: "dict[str, dict[str, Compatibility]]") -> list[str]:
    """Why methods do not run behind mechanisms, one line per reason."""
    refusals: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for name, row in fits.items():
        for plan, one in row.items():
            if one.reason:
                plans, names = refusals.setdefault(one.reason, ({}, {}))
                plans[plan], names[name] = None, None
    lines = [f"- {', '.join(names)} behind {', '.join(plans)}: {why}." for why, (plans, names) in refusals.items()]
    return ["Not possible:", *lines] if lines else []


def _host_work(chosen: "dict[str, Method]") -> list[str]:
    lines = [f"- {name}: {method.training.host_work}." for name, method in chosen.items() if method.training.host_work]
    return ["On a GPU the processor still does, between two copies:", *lines] if lines else []


def _unbounded() -> list[str]:
    from privfed.cli.compatibility import EXAMPLES

    reasons = {plan: mechanism.unbounded_reason for plan, mechanism in EXAMPLES.items()}
    return [f"- {plan}: {reason}." for plan, reason in reasons.items() if reason]
