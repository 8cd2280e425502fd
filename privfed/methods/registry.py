"""Registered methods, found through the entry-point group `privfed.methods`."""

import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from privfed.methods.method import Method
from privfed.methods.own import in_file, of_this_process

GROUP = "privfed.methods"


class UnknownMethodError(ValueError):
    """No method of that name is registered."""


def methods() -> dict[str, Method]:
    """Every registered method by name."""
    return {name: entry.load() for name, entry in sorted(_registered(entry_points, tuple(sys.path)).items())}


def method(name: str) -> Method:
    """The method registered as `name`, one that this process was given, or that of a file, `my_file.py:METHOD`.

    Raises:
        UnknownMethodError: there is none; the message lists those there are.
        MethodFileError: the file holds none.
    """
    if (own := of_this_process(name) or in_file(name)) is not None:
        return own
    entries = _registered(entry_points, tuple(sys.path))
    if name not in entries:
        raise UnknownMethodError(f"unknown method {name!r}; choose one of {', '.join(sorted(entries))}")
    registered: Method = entries[name].load()
    return registered


@cache
def _registered(find: Callable[..., Iterable[Any]], path: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 (the key)
    """Entry points of all methods: looking through every installed package takes tens of milliseconds."""
    return {entry.name: entry for entry in find(group=GROUP)}
