"""Packages whose names are loaded when they are first used, so that a command loads no more than it needs.

    if TYPE_CHECKING:
        from privfed.data.splits import Split, split

    load_lazily(__name__)

What a package offers stands under `TYPE_CHECKING`, where type checkers and import contracts read it, and so does this.
"""

import ast
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def load_lazily(name: str) -> None:
    """Let the package of that name load what it offers when it is asked for."""
    sys.modules[name].__class__ = _LazyPackage


class _LazyPackage(ModuleType):
    """A package that looks up in its own source where a name is defined."""

    def __getattr__(self, name: str) -> Any:
        if name not in (offered := _offered(self.__name__)):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, defined = offered[name]
        value = vars(self)[name] = getattr(import_module(module), defined)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set `name`, unless a submodule would hide what is offered under its name."""
        if not (isinstance(value, ModuleType) and name in _offered(self.__name__)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *_offered(self.__name__)})


@cache
def _offered(package: str) -> dict[str, tuple[str, str]]:
    """Name -> the module that defines it, and its name there, of every import under `TYPE_CHECKING`."""
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
    guarded = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (node for block in guarded for node in block.body if isinstance(node, ast.ImportFrom) and node.module)
    return {alias.asname or alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}
