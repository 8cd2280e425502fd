"""`privfed recommend`: what a trained run recommends to one of its users."""

from typing import Annotated

import typer

from privfed.cli import options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

EXAMPLE = "Example: privfed recommend runs/laplace --user 1 -k 10"


def recommend(
    directory: options.RunDirectory,
    *,
    user: Annotated[
        str,
        typer.Option("--user", metavar="U", help="The user's id, as it is in the data.", show_default=False),
    ],
    k: Annotated[int, typer.Option("-k", metavar="K", min=1, help="How many items.")] = 10,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
) -> None:
    """Recommend items to user U as that user's device would: download, train locally, rank.

    Items that the user trained on are left out. Items of the validation and test parts are marked: the user
    did touch them, and training never saw it. Equal scores, of which there are many where a method compares codes
    bit by bit, stand in the order of item ids.
    """
    from privfed.cli.recommender import best, item_codes, trained, user_code
    from privfed.cli.show import card_line, synthetic_mark
    from privfed.cli.tables import plain_table

    screen = Screen(as_json, quiet)
    experiment, interactions, next_round = trained(directory, screen, device or "cpu")
    method, code = experiment.config.method_name, user_code(interactions, user)
    items = best(experiment, interactions, code, k, next_round)
    if not items:
        raise CommandError(f"user {user} trained on every item of the catalogue: there is nothing to recommend")
    mark = synthetic_mark(synthetic=interactions.card.synthetic)
    screen.explain(f"Data: {card_line(interactions.card)}")
    screen.result(
        plain_table(
            f"{method} after {next_round} rounds for user {user}{mark}",
            ("", "item", "title", f"score{mark}", "held out"),
            [
                (str(n), item.item, item.title or "", f"{item.score:.4f}", item.held_out or "")
                for n, item in enumerate(items, start=1)
            ],
        )
    )
    if (codes := item_codes(experiment, interactions)) is not None:
        screen.explain(
            f"Scores: bits in which an item's code equals the user's less those in which it differs, {codes.d} in all; "
            f"equal scores stand in the order of item ids.",
            f"Next: privfed export {directory} FILE",
        )
    screen.document(
        {
            "directory": str(directory),
            "method": method,
            "user": user,
            "rounds": next_round,
            "synthetic": interactions.card.synthetic,
            "items": [
                {"item": item.item, "title": item.title, "score": item.score, "held_out": item.held_out}
                for item in items
            ],
        }
    )
