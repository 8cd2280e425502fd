"""Registered methods, found through the entry-point group `privfed.methods`, and methods in a file of one's own.

A method's name may carry a preset, `gpfedrec:published`; a method that is not installed is named by the Python file
that defines it and the variable that holds it, `my_file.py:METHOD`.
"""

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from privfed.methods.own import UnknownMethodError, from_file, in_file, of_this_process

if TYPE_CHECKING:
    from privfed.methods.method import Method
    from privfed.methods.preset import Preset

GROUP = "privfed.methods"


def methods() -> "dict[str, Method]":
    """Every registered method by name."""
    return {name: entry.load() for name, entry in sorted(entries().items())}


def method(name: str) -> "Method":
    """The method of that name, whatever preset the name carries.

    Raises:
        UnknownMethodError: there is none, or it has no such preset; the message says which there are.
    """
    return _found(name)[0]


def refreshed(name: str) -> str:
    """Name of the method that publishes what this one does at every refresh of a year.

    Raises:
        UnknownMethodError: there is none.
    """
    if not (found := method(name).refreshed):
        known = ", ".join(sorted(other for other, registered in methods().items() if registered.refreshed))
        raise UnknownMethodError(f"{name} keeps no running totals of a year: leave refreshes out, or choose {known}")
    return found


def preset(name: str) -> "Preset | None":
    """The preset that a method's name carries; None where it carries none.

    Raises:
        UnknownMethodError: there is no such method or preset.
    """
    return _found(name)[1]


def refuse_unknown(name: str) -> None:
    """Refuse the name of a method that nobody registered; nothing is imported.

    Raises:
        UnknownMethodError: there is no such method.
    """
    if of_this_process(name) is None and not in_file(name):
        _entry(name)


def entries() -> dict[str, Any]:
    """Entry point of every registered method by name; nothing is imported."""
    return _registered(entry_points, tuple(sys.path))


def _found(name: str) -> "tuple[Method, Preset | None]":
    if (given := of_this_process(name)) is not None:
        return given, None
    if in_file(name):
        return from_file(name), None
    base, colon, wanted = name.partition(":")
    registered: Method = _entry(name).load()
    if not colon:
        return registered, None
    if not registered.presets:
        raise UnknownMethodError(f"{base} has no presets: name it without {':' + wanted!r}")
    if wanted not in registered.presets:
        raise UnknownMethodError(f"{base} has no preset {wanted!r}{_choices(wanted, registered.presets)}")
    return registered, registered.presets[wanted]


def _entry(name: str) -> Any:
    """The entry point of a method of an installed package."""
    if name.endswith(".py"):
        raise UnknownMethodError(f"{name} is a file: name the variable that holds the method too, as {name}:METHOD")
    base = name.partition(":")[0]
    if base not in entries():
        raise UnknownMethodError(f"unknown method {base!r}{_choices(base, entries())}")
    return entries()[base]


def _choices(word: str, known: Mapping[str, Any]) -> str:
    """The nearest known word, and all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    guess = f"; did you mean {close[0]!r}? Choose" if close else "; choose"
    return f"{guess} one of {', '.join(sorted(known))}"


@cache
def _registered(find: Callable[..., Iterable[Any]], path: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 (the key)
    """Entry points of all methods: looking through every installed package takes tens of milliseconds."""
    return {entry.name: entry for entry in find(group=GROUP)}
