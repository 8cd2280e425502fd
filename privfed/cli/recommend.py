"""`privfed recommend`: what a trained run recommends to one of its users, to some or to all of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privfed.cli import early, options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.data import Interactions
    from privfed.experiment import Experiment

EXAMPLE = "Example: privfed recommend runs/laplace --user 1 -k 10, or --all -k 20 --out lists.parquet"


def recommend(
    directory: options.RunDirectory,
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="U", help="The user's id, as it is in the data.", show_default=False),
    ] = None,
    all_users: Annotated[bool, typer.Option("--all", help="Every user of the data; needs --out.")] = False,
    users: Annotated[
        Path | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help="The users of a file: one id on each line, or a table with a column of users; needs --out.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="K", min=1, help="How many items.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where lists go (.parquet, .csv or .jsonl): user, rank, item, score, and title where known.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
) -> None:
    """Recommend items to users as their devices would: download, train locally, rank.

    Items that a user trained on are left out. For one user, items of the validation and test parts are marked: the user
    did touch them, and training never saw it. Equal scores, of which there are many where a method compares codes
    bit by bit, stand in the order of item ids.
    """
    chosen = [option for option, given in (("--user", user), ("--all", all_users), ("--users", users)) if given]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "neither"
        raise CommandError(f"{found} given: say who to recommend to, with one of --user U, --all and --users FILE")
    screen = Screen(as_json, quiet)
    if user is not None:
        if out is not None:
            raise CommandError("--out goes with --all or --users: leave it out, or put the id in a file for --users")
        _for_one(directory, user, k, screen, device or "cpu")
        return
    if out is None:
        raise CommandError(f"{chosen[0]} makes many lists: say where they go, with --out lists.parquet (.csv, .jsonl)")
    _for_many(directory, users, k, out, screen, device or "cpu")


def _for_many(directory: Path, file: Path | None, k: int, out: Path, screen: Screen, device: str) -> None:
    early.refuse_absent(directory, "run")

    from privfed.cli.directory import DirectoryRecord

    DirectoryRecord.read(directory, "run")

    from privfed.cli.recommendation_lists import codes_of, lists, writer
    from privfed.cli.recommender import trained

    write = writer(out)
    experiment, interactions, next_round = trained(directory, screen, device)
    wanted = codes_of(interactions, file, experiment.parts.donors)
    rows = 0
    with write as sink, screen.progress("Recommending", len(wanted)) as advance:
        for done, table in lists(experiment, interactions, wanted, k, next_round):
            sink(table)
            rows += table.num_rows
            advance(done, "")
    mark = " (synthetic)" if interactions.card.synthetic else ""
    screen.document(
        {
            "directory": str(directory),
            "method": experiment.config.method_name,
            "rounds": next_round,
            "synthetic": interactions.card.synthetic,
            "users": len(wanted),
            "k": k,
            "rows": rows,
            "out": str(out),
        }
    )
    screen.result(f"{rows:,} recommendations for {len(wanted):,} users{mark} are in {out}")


def _for_one(directory: Path, user: str, k: int, screen: Screen, device: str) -> None:
    early.refuse_absent(directory, "run")

    from privfed.cli.directory import DirectoryRecord

    DirectoryRecord.read(directory, "run")

    from privfed.audit.report import formatting
    from privfed.cli.recommender import best, trained, user_code
    from privfed.cli.show import card_line, synthetic_mark
    from privfed.cli.tables import plain_table

    experiment, interactions, next_round = trained(directory, screen, device)
    method, code = experiment.config.method_name, user_code(interactions, user)
    items = best(experiment, interactions, code, k, next_round)
    if not items:
        raise CommandError(f"user {user} trained on every item of the catalogue: there is nothing to recommend")
    mark = synthetic_mark(synthetic=interactions.card.synthetic)
    screen.explain(f"Data: {card_line(interactions.card)}")
    screen.result(
        plain_table(
            f"{method} after {formatting.count(next_round, 'round')} for user {user}{mark}",
            ("", "item", "title", f"score{mark}", "held out"),
            [
                (str(n), item.item, item.title or "", f"{item.score:.4f}", item.held_out or "")
                for n, item in enumerate(items, start=1)
            ],
        )
    )
    _explain_codes(experiment, interactions, directory, screen)
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


def _explain_codes(experiment: "Experiment", interactions: "Interactions", directory: Path, screen: Screen) -> None:
    from privfed.cli.recommender import item_codes

    if (codes := item_codes(experiment, interactions)) is not None:
        screen.explain(
            f"Scores: bits in which an item's code equals the user's less those in which it differs, {codes.d} in all; "
            f"equal scores stand in the order of item ids.",
            f"Next: privfed export {directory} FILE",
        )
