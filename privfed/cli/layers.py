"""Layers of settings as files, flags and `--set` have them, before anything is known of what they mean."""

import tomllib
from pathlib import Path
from typing import Any

from privfed.cli.failures import CommandError

Layer = dict[str, Any]


def read_file(path: Path | None) -> Layer:
    """The layer of a TOML file; empty where none was named.

    Raises:
        CommandError: it cannot be read or is not TOML.
    """
    if path is None:
        return {}
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read the experiment file {path} ({error.strerror}): correct the path") from error
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CommandError(f"the experiment file {path} is not valid TOML: {why}") from error
    return {key: _without_null(value) for key, value in fields.items()}


def read_setting(text: str) -> Layer:
    """The layer of one `--set a.b=value`; the value is read as TOML, or else as plain text.

    Raises:
        CommandError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise CommandError(f"--set {text!r} is not of the form key=value, for example --set method.lr=0.05")
    try:
        read = tomllib.loads(f"value = {value}")
        parsed = read["value"] if len(read) == 1 else value.strip()
    except (ValueError, RecursionError):  # no TOML, or more digits or brackets than Python reads
        parsed = value.strip()
    layer: Layer = {names.pop(): _without_null(parsed)}
    for name in reversed(names):
        layer = {name: layer}
    return layer


def read_boost(text: str) -> Layer:
    """The layer of one `--boost behaviour=size`.

    Raises:
        CommandError: it is not of that form.
    """
    behaviour, equals, _ = text.partition("=")
    if not equals or not behaviour.strip() or "." in behaviour:
        raise CommandError(f"--boost {text!r} is not of the form behaviour=size, for example --boost view=2")
    return read_setting(f"boost.{text}")


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items()}
    return None if value == "null" else value
