"""`method_settings`: a method as people write it, in words or as a table, with the settings of a preset filled in."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, JsonValue

from privfed.methods import PUBLISHED, Preset, method, preset
from privfed.methods.own import in_file

NAME = "name"


def method_settings(given: str | Mapping[str, Any], /, **overrides: JsonValue) -> dict[str, JsonValue]:
    """Name and settings of a method, in one table.

    Args:
        given: name of a method (`gpfedrec`), of a method and a preset (`gpfedrec:published`), of a variable in a Python
            file (`my_file.py:METHOD`), or a table with such a name and settings.
        **overrides: settings that win over those of the preset and of the table.

    Returns:
        The table; with all settings where the name carries a preset, so that a run is written down whole.

    Raises:
        UnknownMethodError: there is no such preset.
    """
    table: dict[str, Any] = {NAME: given} if isinstance(given, str) else dict(given)
    chosen = _preset(table.get(NAME))
    return table | overrides if chosen is None else {NAME: table[NAME]} | chosen.settings | table | overrides


def our_variant(table: Mapping[str, Any]) -> str | None:
    """How a method with a preset's name differs from what it is named after; None where it does not, or has none.

    Args:
        table: name and settings.
    """
    chosen = _preset(table.get(NAME))
    if chosen is None:
        return None
    changed = [
        f"{key} = {table[key]}" for key, value in chosen.settings.items() if _plain(table.get(key, value)) != value
    ]
    reasons = [chosen.our_variant] if chosen.our_variant else []
    return "; ".join([*reasons, *([f"changed here: {', '.join(changed)}"] if changed else [])]) or None


def changed_settings(table: Mapping[str, Any]) -> list[str]:
    """Names of a method's settings that are neither those of its preset nor, without one, its defaults.

    Args:
        table: name and settings.
    """
    name, given = table[NAME], {key: value for key, value in table.items() if key != NAME}
    chosen = _preset(name)
    fields = method(name).config.model_fields.items()
    base = (
        {key: field.get_default(call_default_factory=True) for key, field in fields}
        if chosen is None
        else chosen.settings
    )
    return [key for key, value in given.items() if _plain(value) != _plain(base.get(key))]


def display_name(name: str) -> str:
    """Name of a method for people, with its preset."""
    _, colon, chosen = name.partition(":")
    shown = method(name).display_name
    if not colon or in_file(name):
        return shown
    return f"{shown} as published" if chosen == PUBLISHED else f"{shown} ({chosen})"


def _preset(name: Any) -> Preset | None:
    return preset(name) if isinstance(name, str) and ":" in name and not in_file(name) else None


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def _as_table(given: Any) -> Any:
    return method_settings(given) if isinstance(given, str | Mapping) else given


MethodTable = Annotated[dict[str, JsonValue], BeforeValidator(_as_table)]
"""Type of a configuration's field that holds a method: takes what `method_settings` takes."""
