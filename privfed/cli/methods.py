"""`privfed methods`: what can be trained, what its server learns, which mechanisms fit, and all of one method."""

from typing import TYPE_CHECKING, Annotated

import click
import typer

from privfed.cli import options
from privfed.cli.screen import Screen

_CLIPPED = {
    "upload": "an upload's Euclidean norm",
    "upload_l1": "the sum of an upload's absolute values",
    "gradient": "the gradient of one interaction",
}

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from privfed.cli.listing import Document

EXAMPLE = "Example: privfed methods. Settings, presets and clip norms of one: privfed methods show gpfedrec"

app = typer.Typer(help="Methods: which can be trained, and all that there is to know about one.")


@app.callback(invoke_without_command=True, epilog=EXAMPLE)
def list_(context: click.Context, *, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the methods: source, what the server reads by design, and how each goes with each mechanism."""
    from privfed.cli.listing import documents

    if context.invoked_subcommand is not None:
        return
    screen, chosen = Screen(as_json, quiet), documents()
    screen.document(chosen)
    screen.result(_overview(chosen), _compatibility_table(chosen))
    screen.explain(*_reasons(chosen), *_host_work(chosen), "Why epsilon is inf:", *_unbounded(chosen[0]))


@app.command(epilog="Example: privfed methods show private-gram")
def show(
    name: Annotated[
        str, typer.Argument(metavar="METHOD", help="A method of the list, or my_file.py:METHOD.", show_default=False)
    ],
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show one method: source, what its server reads, settings, presets, attack surface, clip norms, mechanisms."""
    from privfed.cli.listing import documents

    screen, (one,) = Screen(as_json, quiet), documents([name.partition(":")[0] if ".py:" not in name else name])
    screen.document(one)
    screen.result(
        f"{one['name']}: {one['title']}",
        f"Source: {one['source']}",
        f"Its server reads {one['server_reads']}.",
        *one["attack_surface"],
        *([_settings_table(one)] if one["settings"] else ["It has no settings."]),
        *_presets(one),
        *([_clip_table(one)] if one["clip_norms"] else []),
        _compatibility_table([one]),
    )
    screen.explain(*_reasons([one]), *_host_work([one]))


def _overview(chosen: "list[Document]") -> "Table":
    from privfed.cli.tables import plain_table

    lines = [(one["name"], one["title"], one["source"], one["server_reads"]) for one in chosen]
    return plain_table("Methods", ("method", "what it is", "source", "what its server reads"), lines)


def _compatibility_table(chosen: "list[Document]") -> "Table":
    from privfed.cli.listing import stored
    from privfed.cli.tables import plain_table

    lines = []
    for plan, unit in stored()["units"].items():
        finite = "finite" if unit == "user" else f"finite, per {unit}"
        runs = [one["name"] for one in chosen if one["mechanisms"][plan]["runs"]]
        refused = [one["name"] for one in chosen if one["name"] not in runs]
        epsilon = finite if chosen[0]["mechanisms"][plan]["finite_epsilon"] else "inf"
        lines.append((plan, epsilon, *_shorter(runs, refused)))
    title = "Which run behind which mechanism, and with which epsilon"
    return plain_table(title, ("mechanism", "epsilon", "runs", "does not run"), lines)


def _shorter(runs: list[str], refused: list[str]) -> tuple[str, str]:
    """Both lists in words, the longer one as all others where both hold something."""
    if len(runs) >= len(refused) > 0:
        return f"the other {len(runs)}", ", ".join(refused)
    if len(refused) > len(runs) > 0:
        return ", ".join(runs), f"the other {len(refused)}"
    return ("all" if len(runs) > 1 else ", ".join(runs)), ", ".join(refused)


def _settings_table(one: "Document") -> "Table":
    from privfed.cli.tables import plain_table

    lines = [
        (f"method.{key}", _said(said["default"]), said["values"], said["description"])
        for key, said in one["settings"].items()
    ]
    return plain_table(f"Settings of {one['name']}", ("--set", "default", "values", "meaning"), lines)


def _clip_table(one: "Document") -> "Table":
    """Clip norms of the defaults, and of presets that have others."""
    from privfed.cli.tables import plain_table

    lines = [
        (name, _CLIPPED[said["clipped"]], f"{said['norm']:g}", said["ground"])
        for name, norms in _settings_with_clip_norms(one)
        for said in norms
    ]
    return plain_table("Clip norms where a plan names none", ("settings", "of", "clip norm", "ground"), lines)


def _settings_with_clip_norms(one: "Document") -> "Iterator[tuple[str, list[Document]]]":
    yield "default", one["clip_norms"]
    for preset, content in one["presets"].items():
        if content["clip_norms"] != one["clip_norms"]:
            yield preset, content["clip_norms"]


def _presets(one: "Document") -> "list[Table | str]":
    """For every preset, what it changes of the defaults, with sources, and how our model differs."""
    from privfed.cli.tables import plain_table

    parts: list[Table | str] = []
    for preset, content in one["presets"].items():
        changed = [
            (f"method.{key}", _said(one["settings"][key]["default"]), _said(said["value"]), said["source"])
            for key, said in content["settings"].items()
            if said["value"] != one["settings"][key]["default"]
        ]
        name = f"{one['name']}:{preset}"
        heads = ("--set", "default (tuned)", preset, "source")
        parts.append(plain_table(f"What {name} changes", heads, changed) if changed else f"{name} has the defaults.")
        if content["our_variant"]:
            parts.append(f"{name} is our variant of the published model: {content['our_variant']}.")
    return parts


def _said(value: object) -> str:
    """A value as people write it; a list in round brackets, as in error messages."""
    return str(tuple(value)) if isinstance(value, list) else str(value)


def _reasons(chosen: "list[Document]") -> list[str]:
    """Why methods do not run behind mechanisms, one line per reason."""
    refusals: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for method in chosen:
        for plan, one in method["mechanisms"].items():
            if one["reason"]:
                plans, names = refusals.setdefault(one["reason"], ({}, {}))
                plans[plan], names[method["name"]] = None, None
    lines = [f"- {', '.join(names)} behind {', '.join(plans)}: {why}." for why, (plans, names) in refusals.items()]
    return ["Not possible:", *lines] if lines else []


def _host_work(chosen: "list[Document]") -> list[str]:
    lines = [f"- {one['name']}: {one['host_work']}." for one in chosen if one["host_work"]]
    return ["On a GPU the processor still does, between two copies:", *lines] if lines else []


def _unbounded(one: "Document") -> list[str]:
    reasons = {plan: mechanism["reason_if_inf"] for plan, mechanism in one["mechanisms"].items()}
    return [f"- {plan}: {reason}." for plan, reason in reasons.items() if reason]
