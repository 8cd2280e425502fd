"""`privfed data`: which data sets there are, getting them, and what is in one."""

from difflib import get_close_matches
from typing import Annotated

import typer

from privfed.cli import options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

app = typer.Typer(help="Data sets: which there are, where they are, what is in them.", no_args_is_help=True)


@app.command("list", epilog="Example: privfed data list")
def list_(*, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List the data sets that have a name, and whether they are on this machine."""
    from privfed.cli.tables import plain_table
    from privfed.data import catalogue

    screen = Screen(as_json, quiet)
    datasets = [(dataset, catalogue.find(dataset.name)) for dataset in catalogue.list()]
    screen.document(
        [
            {
                "name": dataset.name,
                "summary": dataset.summary,
                "synthetic": dataset.synthetic,
                "terms": dataset.terms,
                "here": located is not None,
                "route": None if located is None else located.route,
                "path": None if located is None or located.path is None else str(located.path),
            }
            for dataset, located in datasets
        ]
    )
    rows = [
        (
            dataset.name,
            dataset.summary,
            located.route if located else f"not here: privfed data fetch {dataset.name}",
        )
        for dataset, located in datasets
    ]
    screen.result(plain_table("Data sets", ("name", "what it is", "where"), rows))
    if others := catalogue.others():
        screen.explain(f"Also in {catalogue.ENVIRONMENT}, by the names of their folders: {', '.join(others)}")
    screen.explain("A csv, tsv, parquet or JSON-lines file of your own works too: privfed data show PATH")


@app.command(epilog="Example: privfed data fetch ml-100k")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set of the list.", show_default=False)],
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Bring a data set to this machine, checked by its SHA-256; nothing happens where it is here already."""
    from privfed.data import catalogue, terms_once

    screen = Screen(as_json, quiet)
    if name not in {dataset.name for dataset in catalogue.list()}:
        names = [dataset.name for dataset in catalogue.list()]
        close = get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise CommandError(f"there is no data set {name!r} to fetch: {meant}choose one of {', '.join(names)}")
    located = catalogue.fetch(name, screen.note)
    path = None if located.path is None else str(located.path)
    screen.document({"name": name, "path": path, "route": located.route})
    screen.result(f"{name}: {located.route}" + ("" if path is None else f", {path}"))
    if not screen.quiet and (terms := terms_once(name)):
        screen.note(f"Terms of {name}: {terms}")


@app.command(epilog="Example: privfed data show ratings.csv --user-column who --item-column what --time-column at")
def show(
    data: Annotated[
        str, typer.Argument(metavar="NAME|PATH", help="A data set by name, or a path.", show_default=False)
    ],
    *,
    user_column: options.UserColumn = None,
    item_column: options.ItemColumn = None,
    time_column: options.TimeColumn = None,
    rating_column: options.RatingColumn = None,
    behaviour_column: options.BehaviourColumn = None,
    settings: options.Settings = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what is in a data set, what was taken for what, and what a split (--set split.target=buy) would hold out."""
    from privfed.cli.settings import DataSource, load_data, split_spec
    from privfed.cli.show import card_rows, split_line, synthetic_mark
    from privfed.cli.tables import plain_table
    from privfed.data import DataError, fitted, overview, split

    screen = Screen(as_json, quiet)
    columns = options.columns(user_column, item_column, time_column, rating_column, behaviour_column)
    spec = split_spec(settings or ())
    interactions = load_data(DataSource(data, columns, chosen=True), screen)
    card = interactions.card
    try:
        parts, refused = split(interactions, fitted(spec, interactions)), ""
    except DataError as problem:
        if settings:
            raise
        parts, refused = None, problem.command_line
    held_out, untrained = (None, None) if parts is None else (parts.describe(), parts.untrained)
    attributes = [] if interactions.attributes is None else [str(c) for c in interactions.attributes.columns]
    seen = overview(interactions)
    behaviours, rating = interactions.behaviour_counts, interactions.rating
    scale = None if rating is None else {"lowest": float(rating.min()), "highest": float(rating.max())}
    screen.document(
        card.model_dump(mode="json")
        | {"split": held_out, "untrained": untrained, "attributes": attributes, "behaviours": behaviours}
        | {"ratings": scale, "overview": seen.document()}
    )
    rows = [
        *card_rows(card),
        ("items described", str(seen.items)),
        ("users described", str(seen.users)),
        ("items most used", "; ".join(seen.example_items)),
        ("first users", "; ".join(seen.example_users)),
        ("times", "none" if seen.times is None else " to ".join(seen.times)),
        ("ratings", "none" if scale is None else f"{scale['lowest']:g} to {scale['highest']:g}"),
        ("behaviours", ", ".join(f"{name} {count:,}" for name, count in behaviours.items()) or "none"),
    ]
    screen.result(plain_table(f"{card.name}{synthetic_mark(synthetic=card.synthetic)}", ("field", "value"), rows))
    for title, phrases in (("Recognised", seen.recognised), ("Ignored", seen.ignored)):
        screen.explain(*(f"{title}: {phrase}" for phrase in phrases))
    screen.explain(f"Split: {refused}" if parts is None else split_line(parts, interactions))
    if parts is not None and untrained:
        screen.explain(
            f"Of the test items {untrained / len(parts.test):.1%} are in nobody's training part, out of reach of any "
            "method (--set protocol.catalogue=trained leaves them out of a ranking)."
        )
