"""Methods that no package registers: given to this process, or named by file and variable, `my_file.py:METHOD`."""

import hashlib
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privfed.methods.method import Method

_given: "dict[str, Method]" = {}


class UnknownMethodError(ValueError):
    """No method or preset of that name is there."""


class MethodFileError(UnknownMethodError):
    """A file does not hold the method that it is said to hold."""


def add(method: "Method") -> str:
    """Make `method` known to this process by its name, which is returned; it replaces a former one of that name."""
    _given[method.name] = method
    return method.name


def of_this_process(name: str) -> "Method | None":
    """The method that this process was given under `name`."""
    return _given.get(name)


def absolute(name: str) -> str:
    """`my_file.py:METHOD` with the whole path of the file; any other name as it is."""
    file, colon, variable = name.rpartition(":")
    return f"{Path(file).resolve()}{colon}{variable}" if in_file(name) else name


def in_file(name: str) -> bool:
    """Whether a name is that of a variable in a Python file."""
    return name.rpartition(":")[0].endswith(".py")


def from_file(name: str) -> "Method":
    """The method that `my_file.py:METHOD` names.

    The file is run, as an import would, once in a process.

    Raises:
        MethodFileError: there is no such file, it cannot be run, or it has no such method.
    """
    file, _, variable = absolute(name).rpartition(":")
    return _loaded(Path(file), variable)


@cache
def _loaded(file: Path, variable: str) -> "Method":
    from privfed.methods.method import Method

    if not file.is_file():
        raise MethodFileError(f"there is no file {file}: correct the path before the colon")
    module_name = f"privfed_method_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise MethodFileError(f"{file} is no Python file: name one that ends in .py")
    module = module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise MethodFileError(f"{file} cannot be run ({type(error).__name__}: {error}): correct it") from error
    method = getattr(module, variable, None)
    if not isinstance(method, Method):
        found = [key for key, value in vars(module).items() if isinstance(value, Method)]
        has = (
            f"it has {', '.join(found)}" if found else "it has no method at all (docs/guides/add_a_method.md shows one)"
        )
        raise MethodFileError(f"{file} has no method {variable!r}: {has}")
    return method
