"""`privfed audit-mechanism`: anybody's mechanism against its claim of differential privacy."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from privfed.cli import options
from privfed.cli.failures import CONTRADICTED, CommandError
from privfed.cli.screen import Screen

EXAMPLE = "Example: privfed audit-mechanism mechanism.py:release --claim epsilon=2,delta=1e-5"


def audit_mechanism(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The mechanism: an importable module, or a Python file, and the name of a function "
            "(inputs, generator) -> arrays, tensors or numbers.",
        ),
    ],
    *,
    claim: Annotated[
        str,
        typer.Option(
            "--claim",
            metavar="FIELDS",
            help="What is claimed: epsilon=2,delta=1e-5, and neighbours=add_or_remove|replace|zero_out, "
            "unit=user|record, steps=N, arithmetic=real|machine.",
        ),
    ],
    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs",
            metavar="NAME",
            help="Name, in the same module, of an example that the function takes: an array or tensor with one row per "
            "record, or a mapping of them, of which user says whose a row is.",
            show_default="small random rows",
        ),
    ] = None,
    width: Annotated[int, typer.Option("--width", metavar="N", min=1, help="Numbers of a random row.")] = 8,
    users: Annotated[int, typer.Option("--users", metavar="N", min=1, help="Users of the random rows.")] = 8,
    records: Annotated[int, typer.Option("--records", metavar="N", min=1, help="Rows of a user.")] = 1,
    min_users: Annotated[
        int, typer.Option("--min-users", metavar="N", min=0, help="Least number of other users that is tried.")
    ] = 0,
    finite: Annotated[bool, typer.Option("--finite", help="Try no NaN, infinity, largest or smallest number.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="First seed of the randomness.")] = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=1.0, help="Time after which no measurement is begun.")
    ] = 60.0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Search for neighbouring inputs that break a claim of differential privacy, and measure epsilon from below.

    The function's own code runs. The exit code is 1 when the claim is rejected.
    """
    module, name = _load(function)
    from attacks import mechanism

    screen = Screen(as_json, quiet)
    with screen.working("Auditing"):
        report = mechanism.audit_mechanism(
            _named(module, name),
            mechanism.Claim.parse(claim),
            inputs=None if inputs is None else _named(module, inputs),
            shape=(width,),
            users=users,
            records=records,
            min_users=min_users,
            extremes=not finite,
            seed=seed,
            budget_seconds=seconds,
        )
    screen.result(report.text())
    screen.document(report.to_json())
    if report.violated:
        raise typer.Exit(CONTRADICTED)


def _load(function: str) -> tuple[ModuleType, str]:
    """The module or file that "module:function" names, and the function's name.

    Raises:
        CommandError: there is none.
    """
    source, _, name = function.rpartition(":")
    if not source or not name:
        raise CommandError(f"the mechanism is {function!r}: give MODULE:FUNCTION or FILE.py:FUNCTION")
    if not source.endswith(".py"):
        try:
            return importlib.import_module(source), name
        except ModuleNotFoundError as error:
            raise CommandError(f"{error}: give an importable module or a file ending in .py") from error
    path = Path(source)
    if not path.is_file():
        raise CommandError(f"there is no file {source}: give the path of a Python file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{source} is no Python file: give one ending in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CommandError(f"{source} raised {type(error).__name__} ({error}): give a file that can be run") from error
    return module, name


def _named(module: ModuleType, name: str) -> Any:
    """What a module calls `name`.

    Raises:
        CommandError: it has nothing of that name.
    """
    if not hasattr(module, name):
        raise CommandError(f"{module.__name__} has no {name}: give a name that it defines")
    return getattr(module, name)
