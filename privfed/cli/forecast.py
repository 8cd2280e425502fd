"""`privfed forecast`: what a private recommender will be worth and cost, before anybody takes part."""

from dataclasses import asdict
from typing import Annotated

import typer

from privfed.cli import options
from privfed.cli.screen import Screen

EXAMPLE = "Example: privfed forecast --people 6040 --items 3700 --history 130 --epsilon 1 --described"


def forecast(
    *,
    people: Annotated[int, typer.Option("--people", metavar="N", help="Who would take part.", show_default=False)],
    items: Annotated[int, typer.Option("--items", metavar="M", help="Items of the catalogue.", show_default=False)],
    history: Annotated[
        float, typer.Option("--history", metavar="H", help="Mean number of items of a person.", show_default=False)
    ],
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", metavar="E", help="Total of a person over all refreshes.", show_default=False),
    ] = None,
    tiers: Annotated[str | None, options.Tiers] = None,
    refreshes: Annotated[
        int, typer.Option("--refreshes", metavar="K", help="Publish running totals K times within that epsilon.")
    ] = 1,
    dropout: Annotated[
        float, typer.Option("--dropout", metavar="P", help="Share of devices that do not answer.")
    ] = 0.0,
    trust: Annotated[
        str, typer.Option("--trust", metavar="central|distributed", help="Who adds the noise: a server, or devices.")
    ] = "central",
    described: Annotated[bool, typer.Option("--described", help="Genres or years of items are known.")] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="DATA",
            help="Open histories of the same kind: of donors, of a pilot, or a public data set, as --data takes it. "
            "They forecast far better than the numbers alone.",
            show_default=False,
        ),
    ] = None,
    popularity: Annotated[
        float | None,
        typer.Option(
            "--popularity", metavar="NDCG", help="NDCG@20 of recommending what is popular.", show_default="not known"
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say what private-gram is expected to be worth over popularity, and whether to go on, from public numbers alone.

    The rule was fitted on catalogues of films, music, articles and shops; its interval is what single catalogues do.
    """
    from privfed.api.forecasting import forecast as outlook

    screen = Screen(as_json, quiet)
    found = outlook(
        people=people, items=items, history=history, epsilon=epsilon, tiers=tiers, refreshes=refreshes, dropout=dropout,
        trust=trust, described=described, sample=sample, popularity=popularity,
    )  # fmt: skip
    screen.document(asdict(found))
    screen.result(*str(found).splitlines())
