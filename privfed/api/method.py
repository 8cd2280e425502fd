"""Which method is meant: by name, by file and variable, or by its record."""

from typing import Any

from pydantic import JsonValue

from privfed.api.errors import UseError
from privfed.methods import Method, method
from privfed.methods.own import absolute, add

AnyMethod = str | Method


def named(given: Any) -> str:
    """The name by which a method is known in this process and in a saved run.

    Raises:
        UseError: it is neither a name nor a method.
    """
    if isinstance(given, str):
        return absolute(given)
    if isinstance(given, Method):
        return add(given)
    what = getattr(given, "__name__", type(given).__name__)
    raise UseError(
        f"{what} is no method: give a name such as 'private-gram', 'my_file.py:METHOD', a privfed.methods.Method, or a "
        f"torch module that privfed.methods.torch_method has made one of"
    )


def record(name: str) -> Method:
    """The method of a name, which may have a preset behind a colon."""
    return method(name if ".py:" in name else name.partition(":")[0])


def table(name: str, settings: dict[str, Any]) -> dict[str, JsonValue]:
    """Name and settings of a method as a configuration has them."""
    return {"name": name, **settings}
