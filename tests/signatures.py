"""Check the types and shapes in every signature of `privfed` while the tests run.

jaxtyping binds the axes of shapes, for about 20 microseconds a call whatever the signature. Most signatures name no
shape, so beartype alone checks those, in a fraction of that.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from types import FunctionType, ModuleType
from typing import Any

import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype.roar import BeartypeDecorHintException
from pydantic import JsonValue

CHECKS = BeartypeConf(
    hint_overrides=FrozenDict({int: int | np.integer, float: float | int | np.floating | np.integer, JsonValue: object})
)
with_shapes = jaxtyping.jaxtyped


def install() -> None:
    """Check `privfed` from here on; it must not have been imported yet."""
    module = ModuleType("privfed_signature_checks")
    module.checked = checked
    sys.modules[module.__name__] = module
    # What the import hook puts above every function and class.
    jaxtyping.jaxtyped = decorated
    jaxtyping.install_import_hook("privfed", f"{module.__name__}.checked")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype`, minus the single hints it cannot check on a method (`Self`, protocols without isinstance)."""
    try:
        return beartype(function, conf=CHECKS)
    except BeartypeDecorHintException:
        function.__annotations__ = {n: h for n, h in function.__annotations__.items() if _checkable(h)}
        return beartype(function, conf=CHECKS)


def decorated(given: Any = None, *, typechecker: Any) -> Any:
    """`jaxtyping.jaxtyped` for signatures that name shapes, `checked` for all others."""
    if given is None:
        return functools.partial(decorated, typechecker=typechecker)
    if inspect.isclass(given) and is_dataclass(given) and _plain(vars(given).get("__init__")):
        given.__init__ = _types_checked(vars(given)["__init__"])
        return given
    return _types_checked(given) if _plain(given) else with_shapes(given, typechecker=typechecker)


def _plain(given: Any) -> bool:
    """Whether this is a function whose signature names no shape, and nothing in quotes that may be one."""
    if not isinstance(given, FunctionType):
        return False
    # The repr of a string has quotes itself, and so has that of a generic type with one inside; a Literal's has too.
    hints = map(repr, given.__annotations__.values())
    return not any("'" in hint.removeprefix("<class '").removesuffix("'>") or "jaxtyping." in hint for hint in hints)


def _types_checked(function: FunctionType) -> FunctionType:
    """A function whose types are checked unless jaxtyping is switched off, as shapes are."""
    if not function.__annotations__:
        return function
    strict, settings = checked(function), jaxtyping.config

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (function if settings.jaxtyping_disable else strict)(*args, **kwargs)

    return called


def _checkable(hint: object) -> bool:
    def probe(value: object) -> None:
        del value

    probe.__annotations__ = {"value": hint}
    try:
        beartype(probe, conf=CHECKS)
    except BeartypeDecorHintException:
        return False
    return True
