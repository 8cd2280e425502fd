"""Options that several commands share, spelt once."""

from pathlib import Path
from typing import Annotated

import typer


def _usable(device: str | None) -> str | None:
    if device not in (None, "cpu"):
        from privfed.compute.devices import usable

        usable(device)
    return device


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else there.")
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the result only: no progress, explanations or next steps."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        callback=_usable,
        help="Where to compute: cpu, cuda, cuda:1, ...",
        show_default="cpu",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="NAME|PATH",
        help="A data set by name (privfed data list), or the path of a csv, tsv, parquet or "
        "JSON-lines file, a zip of tables, or a folder.",
        show_default="ml-100k; generated data where that cannot be had",
    ),
]
UserColumn = Annotated[
    str | None,
    typer.Option("--user-column", metavar="COLUMN", help="Column of user ids.", show_default="user"),
]
ItemColumn = Annotated[
    str | None,
    typer.Option("--item-column", metavar="COLUMN", help="Column of item ids.", show_default="item"),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time-column",
        metavar="COLUMN",
        help="Column of times, in seconds or dates.",
        show_default="timestamp",
    ),
]
RatingColumn = Annotated[
    str | None,
    typer.Option("--rating-column", metavar="COLUMN", help="Column of ratings.", show_default="rating"),
]
BehaviourColumn = Annotated[
    str | None,
    typer.Option(
        "--behaviour-column",
        metavar="COLUMN",
        help="Column of behaviours (view, cart, buy, ...).",
        show_default="behaviour",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one field, for example method.lr=0.05, privacy.delta=1e-6, protocol.candidates=sampled or "
        "split.ties=earlier_row_is_newer. May be given several times; the last one wins.",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="honest|paper",
        help="How utility is measured: honest ranks all items and knows nothing of the held-out ones; paper "
        "repeats the released code of PFedRec and GPFedRec, to compare with their tables.",
        show_default="honest",
    ),
]
Boost = Annotated[
    list[str] | None,
    typer.Option(
        "--boost",
        metavar="BEHAVIOUR=SIZE",
        help="When a device ranks, lift the items that its user viewed, carted, ... by so many standard deviations of "
        "the user's scores, for example view=2. Nothing is sent. May be given several times.",
    ),
]
ClientState = Annotated[
    str,
    typer.Option(
        "--client-state",
        metavar="memory|disk|FOLDER",
        help="Where the private state of clients is kept while the run goes on: in memory, in files under the --out "
        "folder, or under a folder of your own. In files, disk bounds how many clients there are. The result is the "
        "same to the bit.",
    ),
]
Epsilon = typer.Option(
    "--epsilon",
    metavar="E",
    min=0.0,
    help="Total privacy loss that nobody may exceed in the whole run; noise is sized for it, by a trusted server where "
    "sums suffice and by every client where they do not, or as --privacy says.",
    show_default=False,
)
Tiers = typer.Option(
    "--tiers",
    metavar="NAME=E:SHARE,...",
    help="Budgets that people choose for themselves, in the place of --epsilon: careful=1:0.8,generous=8:0.2 has four "
    "in five at epsilon 1 and one in five at 8, in one sum with one noise.",
    show_default=False,
)
PublicKey = Annotated[
    str | None,
    typer.Option("--operator", metavar="KEY", help="The operator's public key, or the file of it.", show_default=False),
]
RunDirectory = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="The --out folder of 'privfed run'.", show_default=False)
]


def columns(
    user: str | None, item: str | None, time: str | None, rating: str | None, behaviour: str | None
) -> dict[str, str] | None:
    """Role -> column, of the columns that were named; None where none was."""
    named = {"user": user, "item": item, "timestamp": time, "rating": rating, "behaviour": behaviour}
    return {role: column for role, column in named.items() if column is not None} or None
