"""Pages that are written from the code when the site is built; `mkdocs.yml` names this file as its hook.

commands     what `privfed COMMAND --help` says
settings     fields of every method and mechanism, from their pydantic models
report       fields of an audit's `report.json`, from its schema
"""

import inspect
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import click
import typer.main
from mkdocs.structure.files import File
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from privfed.audit.report import records
from privfed.cli import app
from privfed.methods import method, methods
from privfed.privacy import Mechanism, Padding, PrivacyPlan

WIDTH = 100
CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def commands() -> str:
    """Every command with its help, as a page."""
    group = typer.main.get_command(app)
    lines = ["# Commands", "", "What every command says when it is given `--help`.", ""]
    for path, command in sorted(_leaves(group, ("privfed",))):
        lines += [f"## {' '.join(path[1:])}", "", "```text", *_help(path, command), "```", ""]
    return "\n".join(lines)


def _leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name, member in command.commands.items():
            yield from _leaves(member, (*path, name))


def _help(path: tuple[str, ...], command: click.Command) -> list[str]:
    """Plain lines of a command's help: usage, what it does, its arguments and options."""
    context = click.Context(command, info_name=" ".join(path), max_content_width=WIDTH, terminal_width=WIDTH)
    plain = context.make_formatter()
    command.format_usage(context, plain)
    with plain.indentation():
        plain.write_paragraph()
        plain.write_text(" ".join((command.help or "").split()))
    rows = [(name, words.replace("\\[", "[")) for name, words in _options(command, context)]
    if rows:
        with plain.section("Arguments and options"):
            plain.write_dl(rows)
    return plain.getvalue().rstrip().splitlines()


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield record


def settings() -> str:
    """Fields of every method and of every mechanism, as a page."""
    assert PrivacyPlan.named("none")  # a plan registers every mechanism
    lines = [
        "# Settings",
        "",
        "Every setting of every method and privacy mechanism: its type, its default and what it does. Set one with "
        "`--set method.NAME=VALUE` and `--privacy MECHANISM:NAME=VALUE`, or in a file of the experiment.",
        "",
        "## Methods",
        "",
    ]
    for name in sorted(methods()):
        lines += _model(name, method(name).config, level=3)
    lines += ["## Privacy mechanisms", ""]
    for member in Mechanism.members.values():
        lines += _model(member.preset, member, level=3, without=("kind",))
    lines += ["## Padding of the rows that a client sends", ""]
    for member in Padding.members.values():
        lines += _model(str(member.model_fields["kind"].default), member, level=3, without=("kind",))
    return "\n".join(lines)


def report() -> str:
    """Fields of an audit's report, as a page."""
    models = {
        name: model
        for name, model in vars(records).items()
        if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == records.__name__
        if not name.startswith("_")
    }
    lines = [
        "# The report's schema",
        "",
        f"An audit writes `report.json`, schema version {records.SCHEMA_VERSION}. Its root is `AuditReport`. "
        'Numbers that are not finite are the words "inf", "-inf" and "nan"; null means "not measured".',
        "",
    ]
    for name, model in models.items():
        lines += _model(name, model, level=2)
    return "\n".join(lines)


def _model(
    name: str,
    model: type[BaseModel],
    *,
    level: int,
    without: Iterable[str] = (),
) -> list[str]:
    described = _attributes(model)
    summary = " ".join(inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].split())
    rows = [
        [f"`{key}`", f"`{_cell(_type(field.annotation))}`", _default(field), _words(field, key, described)]
        for key, field in model.model_fields.items()
        if key not in without
    ]
    head = ["| name | type | default | what it does |", "|---|---|---|---|"]
    body = [*head, *("| " + " | ".join(row) + " |" for row in rows), ""] if rows else ["It has no settings.", ""]
    return [f"{'#' * level} {name}", "", _cell(summary), "", *body]


def _attributes(model: type[BaseModel]) -> Mapping[str, str]:
    """What docstrings say of the fields, those of the bases included."""
    described: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, _, after = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for name, words in re.findall(r"^    (\w+): (.+(?:\n     +.+)*)", after, flags=re.MULTILINE):
            described[name] = " ".join(words.split())
    return described


def _words(field: FieldInfo, key: str, described: Mapping[str, str]) -> str:
    return _cell(field.description or described.get(key, ""))


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return ""
    return "required" if field.default is PydanticUndefined else f"`{_cell(repr(field.default))}`"


def _type(annotation: Any) -> str:
    """The type as one writes it, without modules and without what pydantic checks besides."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type, arguments))
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if origin is not None:
        return f"{origin.__name__}[{', '.join('...' if one is ... else _type(one) for one in arguments)}]"
    return "None" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def _cell(words: str) -> str:
    """Text that stands in a cell."""
    return words.replace("|", "\\|").replace("<", "&lt;") if "`" not in words else words.replace("|", "\\|")


PAGES = {"reference/commands.md": commands, "reference/settings.md": settings, "reference/report_schema.md": report}
"""Path below `docs` -> what writes it."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that no file holds, and CONTRIBUTING (called by mkdocs)."""
    for path, write in PAGES.items():
        files.append(File.generated(config, path, content=write()))
    contributing = (
        CONTRIBUTING.read_text(encoding="utf-8").replace("](docs/contributing/", "](").replace("](docs/", "](../")
    )
    files.append(File.generated(config, "contributing/index.md", content=contributing))
    return files
