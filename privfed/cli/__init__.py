"""The `privfed` command: every part of the library from a terminal.

This file and the command modules import only typer and rich, so that `--help` is quick; what a command needs
of the library is imported when it runs.
"""

import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from privfed import __version__
from privfed.cli import (
    attack,
    audit,
    audit_mechanism,
    budget,
    compare,
    data,
    dossier,
    export,
    failures,
    federation,
    forecast,
    methods,
    recommend,
    report,
    run,
    serve,
    tune,
)


class _Commands(TyperGroup):
    """The group of commands; whatever goes wrong in one is answered here, in one sentence."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run the command line and exit with its code."""
        options["standalone_mode"] = False
        try:
            code = super().main(*args, **options)
        except Exception as error:
            code = failures.answer(error)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="privfed",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train federated recommenders behind a privacy layer, attack them, and see what that layer buys "
    "and costs. Start with: privfed run private-gram --epsilon 1 (it beats popularity on MovieLens-100K, in seconds), "
    "then privfed audit (systems as published beside it, attacked, on one page).",
)

app.command("audit", epilog=audit.EXAMPLE)(audit.audit)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("compare", epilog=compare.EXAMPLE)(compare.compare)
app.command("run", epilog=run.EXAMPLE)(run.run)
app.command("tune", epilog=tune.EXAMPLE)(tune.tune)
app.command("attack", epilog=attack.EXAMPLE)(attack.attack)
app.command("recommend", epilog=recommend.EXAMPLE)(recommend.recommend)
app.command("export", epilog=export.EXAMPLE)(export.export)
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.command("forecast", epilog=forecast.EXAMPLE)(forecast.forecast)
app.command("audit-mechanism", epilog=audit_mechanism.EXAMPLE)(audit_mechanism.audit_mechanism)
app.add_typer(methods.app, name="methods")
app.add_typer(budget.app, name="budget")
app.add_typer(data.app, name="data")
app.add_typer(federation.app, name="federation")
app.add_typer(dossier.app, name="dossier")


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"privfed {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> NoReturn:
    """Entry point of the `privfed` script."""
    app(prog_name="privfed")
    sys.exit(0)


__all__ = ["app", "main"]
