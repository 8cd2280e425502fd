"""Registered methods, found through the entry-point group `privfed.methods`, and methods in a file of one's own.

A method's name may carry a preset, `gpfedrec:published`; a method that is not installed is named by the Python file
that defines it and the variable that holds it, `my_file.py:METHOD`.
"""

import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from privfed.methods.method import Method
from privfed.methods.preset import Preset

GROUP = "privfed.methods"
_FILE = ".py"


class UnknownMethodError(ValueError):
    """No method or preset of that name is there."""


def methods() -> dict[str, Method]:
    """Every registered method by name."""
    return {name: entry.load() for name, entry in sorted(entries().items())}


def method(name: str) -> Method:
    """The method of that name, whatever preset the name carries.

    Raises:
        UnknownMethodError: there is none, or it has no such preset; the message says which there are.
    """
    return _found(name)[0]


def preset(name: str) -> Preset | None:
    """The preset that a method's name carries; None where it carries none.

    Raises:
        UnknownMethodError: there is no such method or preset.
    """
    return _found(name)[1]


def entries() -> dict[str, Any]:
    """Entry point of every registered method by name; nothing is imported."""
    return _registered(entry_points, tuple(sys.path))


def in_file(name: str) -> bool:
    """Whether a name is that of a variable in a Python file."""
    return name.rpartition(":")[0].endswith(_FILE)


def _found(name: str) -> tuple[Method, Preset | None]:
    if in_file(name):
        file, _, variable = name.rpartition(":")
        return _method_in(Path(file), variable), None
    if name.endswith(_FILE):
        raise UnknownMethodError(f"{name} is a file: name the variable that holds the method too, as {name}:METHOD")
    base, colon, wanted = name.partition(":")
    if base not in entries():
        raise UnknownMethodError(f"unknown method {base!r}{_choices(base, entries())}")
    registered: Method = entries()[base].load()
    if not colon:
        return registered, None
    if not registered.presets:
        raise UnknownMethodError(f"{base} has no presets: name it without {':' + wanted!r}")
    if wanted not in registered.presets:
        raise UnknownMethodError(f"{base} has no preset {wanted!r}{_choices(wanted, registered.presets)}")
    return registered, registered.presets[wanted]


def _choices(word: str, known: Mapping[str, Any]) -> str:
    """The nearest known word, and all of them."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    guess = f"; did you mean {close[0]!r}? Choose" if close else "; choose"
    return f"{guess} one of {', '.join(sorted(known))}"


@cache
def _registered(find: Callable[..., Iterable[Any]], path: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 (the key)
    """Entry points of all methods: looking through every installed package takes tens of milliseconds."""
    return {entry.name: entry for entry in find(group=GROUP)}


def _method_in(file: Path, variable: str) -> Method:
    """The method that a Python file holds.

    Raises:
        UnknownMethodError: there is no such file, it cannot be imported, or the variable holds no method.
    """
    if not file.is_file():
        raise UnknownMethodError(f"there is no file {file} to take a method from: correct the path")
    held = vars(_module(file.resolve())).get(variable)
    if not isinstance(held, Method):
        found = [name for name, value in vars(_module(file.resolve())).items() if isinstance(value, Method)]
        there = f"choose one of {', '.join(found)}" if found else "make one with privfed.methods.Method or torch_method"
        raise UnknownMethodError(f"{variable!r} in {file} is no method: {there}")
    return held


@cache
def _module(file: Path) -> Any:
    """The module of a file, executed once."""
    name = f"{file.stem}_{abs(hash(str(file))):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UnknownMethodError(f"{file} is no Python file: give one that defines a method")
    # Classes of the file are looked up by the name of their module, as pickling and dataclasses do.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UnknownMethodError(f"{file} cannot be imported ({type(error).__name__}: {error}): correct it") from error
    return module
