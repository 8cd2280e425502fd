"""`privfed budget`: from noise to epsilon of a run or of a year of releases, and back."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privfed.cli import options
from privfed.cli.failures import CommandError
from privfed.cli.screen import Screen

if TYPE_CHECKING:
    from privfed.privacy.gaussian_budget import GaussianBudget
    from privfed.privacy.gaussian_placement import Placement
    from privfed.privacy.refreshes import Refresh

_GROWTH = (0.1, 0.25, 0.5, 1.0, 2.0)
_BAR = 40
_DELTA_HELP = "Probability with which epsilon may fail."

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
    delta: Annotated[float, typer.Option("--delta", metavar="D", help=_DELTA_HELP)] = 1e-5,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Local Laplace noise: epsilon of a run from --epsilon0 per upload, or the epsilon0 for --epsilon."""
    from privfed.privacy import laplace_budget, solve_laplace

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
        *_meaning(budget.epsilon, delta),
    )


@app.command(
    epilog="Example: privfed budget gaussian --clients 943 --rounds 100 --rate 0.1 --epsilon 8. "
    "The other way: privfed budget gaussian --clients 943 --rounds 100 --rate 0.1 --noise-multiplier 1. "
    "Nobody trusted: privfed budget gaussian --clients 943 --rounds 100 --trust local --epsilon 8"
)
def gaussian(
    *,
    clients: Annotated[
        int, typer.Option("--clients", metavar="N", help="Users of the federation.", show_default=False)
    ],
    rounds: Annotated[int, typer.Option("--rounds", metavar="T", help="Rounds of the run.", show_default=False)],
    rate: Annotated[
        float,
        typer.Option("--rate", metavar="Q", help="Probability with which each user secretly takes part in a round."),
    ] = 1.0,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            metavar="E",
            help="Total that no user may exceed; the answer is the noise it needs.",
            show_default=False,
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            "--noise-multiplier",
            metavar="Z",
            help="Standard deviation of the noise over the L2 clip norm C; the answer is the total. For central and "
            "distributed trust it is the noise on the sum of a round, for local trust that on each upload.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option("--delta", metavar="D", help=_DELTA_HELP, show_default="clients^-1.1"),
    ] = None,
    trust: Annotated[
        str,
        typer.Option(
            "--trust",
            metavar="central|distributed|local",
            help="Who adds the noise: the server to the sum; every client a share inside a secure sum; or every "
            "client to its own upload, which protects against the server too and needs the most.",
        ),
    ] = "central",
    honest: Annotated[
        int | None,
        typer.Option(
            "--honest",
            metavar="N",
            help="For distributed trust: honest clients that remain in every round that is completed. Each of them "
            "adds a "
            "share of the noise, sized for them alone.",
            show_default="half of the expected cohort",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Use the finer grid of a run's ledger, and one check more: Opacus' PRV, or a closed form where nobody "
            "is sampled.",
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Gaussian noise on clipped uploads: the noise for --epsilon of a run, or epsilon for --noise-multiplier."""
    from privfed.privacy.gaussian_budget import epsilon_by_rounds, gaussian_budget, solve_gaussian
    from privfed.privacy.gaussian_placement import Placement

    placement = Placement.model_validate({"trust": trust, "clients": clients, "rate": rate, "honest": honest})
    delta = clients**-1.1 if delta is None else delta
    counted = placement.accounted_rate
    if noise_multiplier is not None and epsilon is None:
        budget = gaussian_budget(noise_multiplier / placement.sensitivity, rounds, counted, delta, thorough=check)
        z = noise_multiplier
    elif epsilon is not None and noise_multiplier is None:
        budget = solve_gaussian(epsilon, rounds, counted, delta, thorough=check).budget
        z = budget.noise_multiplier * placement.sensitivity
    else:
        raise CommandError("give either --epsilon (of the whole run) or --noise-multiplier (of one round)")
    counts = sorted({max(1, round(share * rounds)) for share in _GROWTH})
    growth = epsilon_by_rounds(budget.noise_multiplier, counts, counted, delta)
    explained = [
        *_placed(placement, z, rounds),
        _checked(budget),
        *_meaning(budget.epsilon, delta),
        *_delta(delta, clients),
    ]
    screen = Screen(as_json, quiet)
    screen.document(
        {
            "target": epsilon,
            "noise_multiplier": z,
            "epsilon": budget.epsilon,
            "delta": delta,
            "accounted": budget.model_dump(mode="json"),
            "placement": placement.model_dump(mode="json")
            | {
                "honest": placement.survivors,
                "cohort": placement.cohort,
                "neighbours": placement.neighbours,
                "client_deviation_per_clip": placement.of_a_client(z),
                "sum_deviation_per_clip": placement.of_the_sum(z),
            },
            "growth": [{"rounds": count, "epsilon": total} for count, total in growth.items()],
            "statements": explained,
        }
    )
    where = f"{rounds:,} rounds with {trust} trust at delta = {delta:.4g}"
    total = f"epsilon = {budget.epsilon:.4g}, {budget.accountant}"
    screen.result(
        f"To keep epsilon at {epsilon:g} over {where}: noise multiplier z = {z:g} ({total})."
        if epsilon is not None
        else f"Noise multiplier z = {z:g} over {where}: {total}."
    )
    screen.explain(*explained, _growth_table(growth, rounds))


@app.command(
    epilog="Example: privfed budget refreshes --epsilon 8 --refreshes 12 --clients 6040. "
    "Where half of a release is out of date at the next one: "
    "privfed budget refreshes --epsilon 8 --refreshes 12 --clients 6040 --kept 0.5"
)
def refreshes(
    *,
    epsilon: Annotated[
        float,
        typer.Option("--epsilon", metavar="E", help="Total of all refreshes for one user.", show_default=False),
    ],
    number: Annotated[
        int,
        typer.Option("--refreshes", metavar="K", help="Number of releases, of equal noise.", show_default=False),
    ],
    clients: Annotated[
        int, typer.Option("--clients", metavar="N", help="Users of the federation.", show_default=False)
    ],
    kept: Annotated[
        float,
        typer.Option(
            "--kept",
            metavar="S",
            help="Part of what a release holds that is still true at the next one, 0 to 1: how much pooling gains.",
        ),
    ] = 1.0,
    delta: Annotated[
        float | None,
        typer.Option("--delta", metavar="D", help=_DELTA_HELP, show_default="clients^-1.1"),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """A model that is released again and again: the noise of each refresh, and what all of them together cost."""
    from privfed.privacy.refreshes import running_total_factor, year

    delta = clients**-1.1 if delta is None else delta
    releases = year(epsilon, delta, number, kept)
    each = releases[0]
    factors = {noise: running_total_factor(number, noise) for noise in ("increments", "tree", "square_root")}
    explained = [
        f"Noise: the server adds Gaussian noise of standard deviation {each.noise_multiplier:g} x C to every "
        "coordinate of the sum of uploads clipped to L2 norm C, at every refresh, and every user takes part in all of "
        "them.",
        f"Pooling: where a part of {kept:g} of a release is still true at the next one, the best pool of all "
        f"{number:,} releases is worth one release of noise multiplier {1 / releases[-1].pooled_mu:.4g}.",
        "Running totals: where a device spends one clip norm over all refreshes together, the noisiest total has "
        + ", ".join(f"{factor:.3g} ({noise.replace('_', ' ')})" for noise, factor in factors.items())
        + " times the noise of a single release of the same total epsilon.",
        *_meaning(releases[-1].epsilon, delta),
        *_delta(delta, clients),
    ]
    screen = Screen(as_json, quiet)
    screen.document(
        {
            "target": epsilon,
            "delta": delta,
            "kept": kept,
            "refreshes": [asdict(release) for release in releases],
            "running_total_factors": factors,
            "statements": explained,
        }
    )
    screen.result(
        f"To keep epsilon at {epsilon:g} over {number:,} refreshes at delta = {delta:.4g}: noise multiplier "
        f"z = {each.noise_multiplier:g} each (epsilon = {releases[-1].epsilon:.4g} after the last)."
    )
    screen.explain(*explained, _refresh_table(releases))


def _refresh_table(releases: Sequence["Refresh"]) -> Table:
    """What was spent after each refresh, and what a pool of all releases so far is worth."""
    table = Table(title="Refresh by refresh", title_justify="left")
    for column in ("refresh", "epsilon so far", "noise multiplier of the pool"):
        table.add_column(column, justify="right")
    for release in releases:
        table.add_row(f"{release.number:,}", f"{release.epsilon:.4g}", f"{1 / release.pooled_mu:.4g}")
    return table


def _placed(placement: "Placement", z: float, rounds: int) -> list[str]:
    """Who adds which noise, in words."""
    cohort = f"{placement.cohort:,.4g} of {placement.clients:,} clients"
    client, total = placement.of_a_client(z), placement.of_the_sum(z)
    if placement.trust == "central":
        inclusion = (
            "Everybody takes part in every round, so no amplification by sampling is claimed."
            if placement.rate == 1.0
            else f"Cohorts: each user joins a round secretly with probability {placement.rate:g} ({cohort} on "
            "average), and only the server sees who did; amplification by sampling is claimed for that."
        )
        return [
            f"Noise: the server adds Gaussian noise of standard deviation z x C = {z:g} x C to every coordinate of the "
            "sum of uploads clipped to L2 norm C; clients add none.",
            inclusion,
            "Compared: the data with one user and without.",
        ]
    visible = (
        f"Participation is visible, so no amplification by sampling is claimed: a user may take part in all {rounds:,} "
        "rounds, and each counts in full. The ledger of a run counts the rounds that each user really took part in."
    )
    if placement.survivors is not None:
        honest = f"N = {placement.survivors:,} honest survivors"
        if placement.honest is None:
            honest += f", half of the expected cohort ({cohort}); choose with --honest"
        elif placement.honest > placement.cohort:
            honest += f", more than the expected cohort ({cohort}), so most rounds would be aborted"
        return [
            f"Noise: every client adds Gaussian noise of standard deviation z x C / sqrt(N) = {client:.4g} x C to its "
            f"upload, clipped to L2 norm C, inside a secure sum; {honest}.",
            f"On the sum: z x C = {z:g} x C from N clients, and {total:.4g} x C where the whole expected cohort adds "
            "its share.",
            visible,
            "A secure sum needs integer noise, which the ledger accounts by RDP: for a user of all rounds that is "
            "RDP's number below, or a little more.",
            "Compared: a sum in which a user's vector counts, and one in which it is zero.",
        ]
    return [
        f"Noise: every client adds Gaussian noise of standard deviation z x C = {z:g} x C to every coordinate of its "
        "own upload, clipped to L2 norm C.",
        f"On the sum of the expected cohort ({cohort}): {total:.4g} x C, sqrt({placement.cohort:,.4g}) = "
        f"{total / client:.3g} times the noise of one client.",
        visible,
        "Compared: any upload replaced by any other, at a distance of up to 2C; z is twice what a distance of C needs.",
    ]


_TIGHTER = {"PRV": "Opacus' PRV", "closed form": "the closed form"}
"""The check that a thorough budget has besides RDP, with sampling and without, as people read it."""


def _checked(budget: "GaussianBudget") -> str:
    """What the other accountants say, and what was not computed."""
    totals = ", ".join(f"{name} {total:.4g}" for name, total in budget.cross_check.items())
    tighter = "PRV" if budget.rate < 1 else "closed form"
    if tighter in budget.cross_check:
        return f"Checks: {totals}; PLD is on the grid of a run's ledger."
    return (
        f"Checks: {totals}, which is looser. For speed, {_TIGHTER[tighter]} was not computed and PLD's grid is coarser "
        "than that of a run's ledger, which only makes epsilon larger: --check uses both."
    )


def _meaning(epsilon: float, delta: float) -> list[str]:
    """What an epsilon is worth."""
    from privfed.privacy.statements import WEAK_EPSILON, odds

    sentences = [
        "Meaning: whatever is concluded from one user's uploads, its odds change by at most a factor of "
        f"{odds(epsilon)}, except with probability {delta:.4g}."
    ]
    if epsilon > WEAK_EPSILON:
        sentences.append(f"An epsilon above {WEAK_EPSILON:g} is no meaningful guarantee.")
    return sentences


def _delta(delta: float, clients: int) -> list[str]:
    """A warning where publishing one user in full would satisfy delta."""
    if delta * clients < 1.0:
        return []
    return [
        f"delta = {delta:g} is too large for {clients:,} users: publishing one random user in full could satisfy it. "
        f"Choose delta well below 1 / {clients:,}."
    ]


def _growth_table(growth: dict[int, float], rounds: int) -> Table:
    """Epsilon after some rounds of the same noise, with bars."""
    table = Table(title="How epsilon grows with rounds at this noise", title_justify="left")
    table.add_column("rounds", justify="right")
    table.add_column("epsilon", justify="right")
    table.add_column("")
    largest = max(growth.values())
    for count, epsilon in growth.items():
        bar = "█" * round(_BAR * epsilon / largest) if largest > 0 else ""
        table.add_row(f"{count:,}", f"{epsilon:.4g}", f"{bar} this run" if count == rounds else bar)
    return table
