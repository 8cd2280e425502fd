"""Import of a package that an adapter audits."""

import importlib
from typing import Any


def package(module: str, distribution: str) -> Any:
    """A module of a package, imported now.

    Raises:
        ImportError: The package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"This adapter audits {distribution}, of which {error.name or module} is not installed; "
            f"pip install {distribution}."
        ) from error
