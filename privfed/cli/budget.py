"""`privfed budget`: from epsilon per upload to epsilon of a run, and back."""

from typing import Annotated

import typer

from privfed.cli import options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

app = typer.Typer(
    help="What noise per upload adds up to over a run, and how much noise a total needs.",
    no_args_is_help=True,
)


@app.command(
    epilog="Example: privfed budget laplace --epsilon0 1 --participations 100 --delta 1e-5. "
    "The other way: privfed budget laplace --epsilon 8 --participations 100"
)
def laplace(
    *,
    participations: Annotated[
        int,
        typer.Option("--participations", metavar="N", help="Uploads of one user in the run.", show_default=False),
    ],
    epsilon0: Annotated[
        float | None,
        typer.Option("--epsilon0", metavar="E0", help="Privacy loss of one upload.", show_default=False),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", metavar="E", help="Total that no user may exceed.", show_default=False),
    ] = None,
    delta: Annotated[
        float, typer.Option("--delta", metavar="D", help="Probability with which epsilon may fail.")
    ] = 1e-5,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = "cpu",
) -> None:
    """Local Laplace noise: epsilon of a run from --epsilon0 per upload, or the epsilon0 for --epsilon."""
    del device
    from privfed.privacy import laplace_budget, solve_laplace
    from privfed.privacy.statements import WEAK_EPSILON, odds

    screen = Screen(as_json, quiet)
    if epsilon0 is not None and epsilon is None:
        budget = laplace_budget(epsilon0, participations, delta)
        screen.document(budget.model_dump(mode="json"))
        screen.result(
            f"{participations:,} uploads at epsilon0 = {epsilon0:g}: epsilon = {budget.epsilon:.4g} at delta "
            f"= {delta:g} ({budget.accountant}); their plain sum is {budget.basic_epsilon:g}."
        )
    elif epsilon is not None and epsilon0 is None:
        solution = solve_laplace(epsilon, participations, delta)
        budget = solution.budget
        screen.document(solution.model_dump(mode="json"))
        screen.result(
            f"To keep epsilon at {solution.target:g} over {participations:,} uploads at delta = {delta:g}: "
            f"epsilon0 = {budget.epsilon0:g} per upload (total {budget.epsilon:.4g}, {budget.accountant}); "
            f"the plain sum would allow {solution.basic_epsilon0:.4g}."
        )
    else:
        raise CommandError("give either --epsilon0 (of one upload) or --epsilon (of the whole run)")
    screen.explain(
        f"Noise: Laplace of scale {budget.noise_scale_per_clip:.4g} x C on every coordinate of an upload "
        "clipped to L1 norm C (2C / epsilon0, because any upload may be replaced by any other).",
        f"Meaning: whatever is concluded from one user's uploads, its odds change by at most a factor of "
        f"{odds(budget.epsilon)}.",
    )
    if budget.epsilon > WEAK_EPSILON:
        screen.explain(f"An epsilon above {WEAK_EPSILON:g} is a weak or vacuous formal guarantee.")
