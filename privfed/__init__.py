"""privfed: federated recommenders inside one privacy layer, attacked and audited honestly.

    import privfed

    data = privfed.load("ml-100k")
    run = privfed.run("private-gram", data, epsilon=8)
    print(run)

Names are loaded when they are first used, so that importing the package costs nothing. Their types are in
`__init__.pyi`, which no import of a lower module can reach.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_DEFINED_AS = {
    "Report": "report.Report",
    "Run": "result.TrainedRun",
    "audit": "auditing.audit",
    "budget": "budgeting.budget",
    "compare": "comparing.compare",
    "forecast": "forecasting.forecast",
    "load": "data.load",
    "load_run": "loading.load_run",
    "run": "running.run",
}
__all__ = ["Report", "Run", "__version__", "audit", "budget", "compare", "forecast", "load", "load_run", "run"]  # noqa: F822, RUF100 (loaded by __getattr__)


class _CallablePackage(ModuleType):
    """The package `privfed.audit`, which may also be called: `privfed.audit(methods, data)`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("privfed.api.auditing").audit(*arguments, **options)


def __getattr__(name: str) -> Any:
    """The public name, from the module that defines it."""
    if name not in _DEFINED_AS:
        raise AttributeError(f"privfed has no {name!r}: it has {', '.join(__all__)}")
    module, _, defined = _DEFINED_AS[name].partition(".")
    value = getattr(import_module(f"privfed.api.{module}"), defined)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


import_module("privfed.audit").__class__ = _CallablePackage
