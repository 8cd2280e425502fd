"""`UseError`: what was asked of the front door cannot be done; the message is one sentence."""

from importlib import import_module
from typing import Any


class UseError(ValueError):
    """What was asked for cannot be done; the message says what was given, what is expected and what to do."""


def optional(module: str, extra: str) -> Any:
    """A module of an optional extra.

    Raises:
        UseError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UseError(f"{module} is not installed: pip install 'privfed[{extra}]'") from error
