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
    device: options.Device = "cpu",
) -> None:
    """Recommend items to user U as that user's device would: download, train locally, rank.

    Items that the user trained on are left out. Items of the validation and test parts are marked: the user
    did touch them, and training never saw it.
    """
    del device
    from privfed.cli.directory import CHECKPOINT, Record
    from privfed.cli.recommending import best, user_code
    from privfed.cli.settings import Source, load_data
    from privfed.cli.show import card_line, plain_table, synthetic_mark
    from privfed.engines import Checkpoint
    from privfed.experiment import Experiment

    screen = Screen(as_json, quiet)
    record = Record.read(directory, "run")
    config = record.experiment()
    interactions = load_data(Source(config.data, record.columns, chosen=True), screen)
    record.check_data(interactions, directory)
    code = user_code(interactions, user)
    if not Checkpoint.exists(directory / CHECKPOINT):
        raise CommandError(f"{directory} has no checkpoint yet: let 'privfed run --out {directory} --resume' go on")
    experiment = Experiment.on(config, interactions)
    next_round = experiment.restore(directory)
    items = best(experiment.recommend(code, next_round), interactions, experiment.parts, code, k)
    if not items:
        raise CommandError(f"user {user} trained on every item of the catalogue: there is nothing to recommend")
    mark = synthetic_mark(synthetic=interactions.card.synthetic)
    screen.explain(f"Data: {card_line(interactions.card)}")
    screen.result(
        plain_table(
            f"{config.method_name} after {next_round} rounds for user {user}{mark}",
            ("", "item", "title", f"score{mark}", "held out"),
            [
                (str(n), item.item, item.title or "", f"{item.score:.4f}", item.held_out or "")
                for n, item in enumerate(items, start=1)
            ],
        )
    )
    screen.document(
        {
            "directory": str(directory),
            "method": config.method_name,
            "user": user,
            "rounds": next_round,
            "synthetic": interactions.card.synthetic,
            "items": [
                {"item": item.item, "title": item.title, "score": item.score, "held_out": item.held_out}
                for item in items
            ],
        }
    )
