# mypy: disable-error-code="no-untyped-call"
"""`KeptCode`: machine code on disk that is used again only while everything it was compiled from is as it was.

Numba looks at the file of a function alone. What the function calls, and the constants it takes, may come from others:
after an upgrade, or an edit of one of those files, its old machine code would run on, and nothing would say so.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np
from numba.core.caching import FunctionCache

OTHERS = ("builtins", "math", "numba", "numpy", "operator")
"""Packages that machine code may come from as well: numba keeps none of another version of itself."""
CONSTANTS = (bool, int, float, complex, str, bytes, tuple, type, np.dtype, Enum, NoneType)


class KeptCode(FunctionCache):
    """The machine code of one function, for all signatures it was called with."""

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(signature, codegen), digest(self._py_func, signature))

    def _load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super()._load_overload(signature, target_context)
        except (AttributeError, ImportError):
            # An index names the classes of arguments; one of them is gone.
            self.flush()
            return None


def digest(function: Callable[..., object], arguments: Any = ()) -> str:
    """A digest of the files and constants that a function, given arguments of these types, is compiled from."""
    found = hashlib.sha256()
    for part in sorted({*_parts(function, set()), *_of_arguments(arguments)}):
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _parts(function: Callable[..., object], known: set[int]) -> Iterator[bytes]:
    """What is read by a function and by all that it calls: files, and constants by name."""
    yield from _file(function.__module__)
    names = [*_names(function.__code__)]
    found = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    for name, value in found:
        if isinstance(value, ModuleType):
            yield from _file(value.__name__)
            if not _other(value.__name__):
                # What is reached through a module may in turn call what is in a third.
                found += [(inner, getattr(value, inner)) for inner in names if hasattr(value, inner)]
        elif isinstance(value, np.ndarray | np.generic):
            yield f"{name} = {value.dtype} {value.shape} ".encode() + value.tobytes()
        elif isinstance(value, CONSTANTS):
            yield f"{name} = {value!r}".encode()
            yield from _file(getattr(value, "__module__", None))
        else:
            called = getattr(value, "py_func", None) or getattr(value, "_defn", value)
            yield from _file(getattr(called, "__module__", None))
            if isinstance(called, FunctionType) and not _other(called.__module__) and id(called) not in known:
                known.add(id(called))
                yield from _parts(called, known)


def _of_arguments(arguments: Any) -> Iterator[bytes]:
    """The files of the classes among the types of arguments, such as named tuples."""
    for one in arguments:
        made = getattr(one, "instance_class", None)
        if made is not None:
            yield from _file(made.__module__)
        if hasattr(one, "types"):
            yield from _of_arguments(one.types)


def _names(code: CodeType) -> Iterator[str]:
    """Global names of a function and of those defined within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _other(module: str) -> bool:
    return module.partition(".")[0] in OTHERS


def _file(module: str | None) -> Iterator[bytes]:
    """The digest of a module's source."""
    if module is None or _other(module):
        return
    source = getattr(sys.modules.get(module), "__file__", None)
    if source is not None and Path(source).exists():
        stat = Path(source).stat()
        yield _content(source, stat.st_mtime_ns, stat.st_size)


@cache
def _content(source: str, changed: int, size: int) -> bytes:
    del changed, size
    return hashlib.sha256(Path(source).read_bytes()).digest()
