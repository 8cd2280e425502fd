"""`privfed tune`: choose among settings of a method inside a privacy budget, training and choice together."""

import json
from pathlib import Path
from typing import Annotated

import typer

from privfed.cli import options

EXAMPLE = (
    "Example: privfed tune private-gram --epsilon 2 --set-grid beyond_head=popularity,content --set-grid rank=16,64"
)


def tune(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="What to tune (privfed methods).", show_default=False)
    ],
    *,
    epsilon: Annotated[float, options.Epsilon],
    set_grid: Annotated[
        list[str],
        typer.Option(
            "--set-grid",
            metavar="KEY=V1,V2,...",
            help="A setting of the method and the values to choose among, which all have to follow from one release. "
            "May be given several times: all combinations are compared.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the run.", show_default="runs/METHOD")
    ] = None,
    data: options.Data = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", help="Seed of sampling and noise.", show_default="0")
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(
            "--privacy",
            metavar="WORDS",
            help="The privacy plan in words without its noise, as for 'privfed run'.",
            show_default="central-gaussian",
        ),
    ] = None,
    settings: options.Settings = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train METHOD once, compare all settings of the grid by one noisy sum of people's own metrics, and keep the best.

    Epsilon covers the training, the choice on the validation part and the measurement of the chosen model on the test
    part; the folder is that of a run, and holds the chosen model.
    """
    from privfed.cli import run

    grid = [f"evaluation.grid.{key}={json.dumps(values)}" for key, values in map(_values, set_grid)]
    run.run(
        method, out=out, data=data, seed=seed, privacy=privacy, epsilon=epsilon, private_evaluation=True,
        settings=[*(settings or ()), *grid], as_json=as_json, quiet=quiet,
    )  # fmt: skip


def _values(text: str) -> "tuple[str, list[object]]":
    """Name and values of one `--set-grid`.

    Raises:
        CommandError: it is not of that form.
    """
    from privfed.cli.failures import CommandError
    from privfed.cli.layers import read_setting

    key, equals, values = text.partition("=")
    given = [value.strip() for value in values.split(",")]
    if not equals or not key.strip() or not all(given) or len(given) < 2:
        raise CommandError(f"--set-grid {text!r} is not of the form key=v1,v2,..., for example --set-grid rank=16,64")
    return key.strip().removeprefix("method."), [read_setting(f"value={value}")["value"] for value in given]
