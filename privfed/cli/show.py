"""Data and results of a run as tables, boxes and sentences for a terminal."""

import math
from collections.abc import Mapping, Sequence

from rich.panel import Panel
from rich.table import Table

from privfed.audit.report import formatting
from privfed.data import DatasetCard, Interactions, Split
from privfed.evaluation import EvaluationResult, Metric
from privfed.privacy import Forecast, Guarantee

_ERRORS = {"mse": "MSE", "rmse": "RMSE", "mae": "MAE"}


def card_line(card: DatasetCard) -> str:
    """A data set in one line."""
    touched = "" if card.distinct_items == card.items else f", {card.distinct_items:,} of them touched"
    repeated = f"; {card.duplicates_dropped:,} repeated rows dropped" if card.duplicates_dropped else ""
    mark = synthetic_mark(synthetic=card.synthetic)
    return (
        f"{card.name}{mark}: {card.users:,} users, {card.items:,} items{touched}, "
        f"{card.interactions:,} interactions ({card.density:.2%} of all pairs){repeated}"
    )


def split_line(parts: Split, interactions: Interactions) -> str:
    """How held-out items were chosen, and why not the newest where nothing says which are."""
    timeless = " There are no times to tell the newest by." if interactions.time is None else ""
    return f"Split: {parts.describe()}{timeless}"


def card_rows(card: DatasetCard) -> list[tuple[str, str]]:
    """Every field of a data set's card, for people."""

    def shown(value: float | str | None) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if value is None:
            return "unknown"
        return f"{value:,}" if isinstance(value, int) else str(value)

    fields = card.model_dump() | {"density": f"{card.density:.2%}"}
    return [(name.replace("_", " "), shown(value)) for name, value in fields.items()]


def synthetic_mark(*, synthetic: bool) -> str:
    """What stands beside every number from generated data."""
    return " (synthetic)" if synthetic else ""


def forecast_lines(forecast: Forecast) -> list[str]:
    """What a run will cost, in sentences."""
    claim = forecast.guarantee
    if math.isinf(claim.epsilon):
        privacy = f"epsilon = inf, because {claim.reason_if_inf}"
    else:
        hidden = claim.trust == "central"
        after = (
            formatting.count(forecast.rounds, "round") if hidden else formatting.count(forecast.uploads_bound, "upload")
        )
        who = "every user" if hidden else "the worst-off user"
        privacy = f"{who} ends at epsilon = {claim.epsilon:.4g} (delta {claim.delta:g}) after {after}"
        if forecast.uploads_likely < forecast.uploads_bound:
            privacy += (
                f" at most; more likely {forecast.epsilon_likely:.4g} after "
                f"{formatting.count(forecast.uploads_likely, 'upload')}"
            )
    if claim.tiers:
        privacy += f"; by what each person chose: {formatting.tiers(claim.tiers)}"
    up, down = forecast.up_bytes_per_client_round, forecast.down_bytes_per_client_round
    lost = forecast.aborted_share * forecast.rounds
    return [
        f"Privacy: {privacy}.",
        *(
            [f"About {lost:.0f} of {forecast.rounds} rounds will have too few clients and be aborted."]
            if lost >= 0.5
            else []
        ),
        f"Traffic: about {formatting.volume(up)} up and {formatting.volume(down)} down per client and round; in the "
        f"whole run {formatting.volume(forecast.up_bytes)} up and {formatting.volume(forecast.down_bytes)} down.",
    ]


def utility_table(
    name: str, result: EvaluationResult, baselines: Mapping[str, Sequence[Metric]], *, rounds: int, synthetic: bool
) -> Table:
    """Utility of a method, with 95 % intervals by user; `beside` has the same metrics of what it has to beat."""
    mark = synthetic_mark(synthetic=synthetic)
    users, trained = formatting.count(result.n_users, "user"), formatting.count(rounds, "round")
    held_out = "ratings" if result.protocol.task == "rating" else "items"
    table = Table(title=f"Test {held_out} of {users} after {trained}{mark}")
    table.add_column("metric")
    for column in (name, *baselines):
        table.add_column(f"{column}{mark}", justify="right")
    for number, metric in enumerate(result.metrics):
        others = (metrics[number] for metrics in baselines.values())
        table.add_row(_metric(metric), *(_interval(each) for each in (metric, *others)))
    return table


def beyond_lines(result: EvaluationResult) -> list[str]:
    """What is recommended, whatever its accuracy, and for whom it is accurate."""
    beyond = result.beyond
    if beyond is None:
        return []
    top = f"the most popular tenth of the catalogue takes {formatting.share(beyond.exposure[0])} of all recommendations"
    if beyond.coverage is None or beyond.popularity_lift is None:
        noise = "" if beyond.exposure_noise is None else f" ± {beyond.exposure_noise:.3f}"
        return [f"Beyond accuracy: {top}{noise}."]
    lift = beyond.popularity_lift
    tenths = ", ".join(f"{metric.value:.3f}" for metric in beyond.by_activity)
    return [
        f"Beyond accuracy: lists of {beyond.k} cover {formatting.share(beyond.coverage)} of the catalogue; what they "
        f"show is {lift.value:.2f} [{lift.lo:.2f}, {lift.hi:.2f}] times as popular as what is held out; {top}.",
        *([f"NDCG@{beyond.k} by tenth of people, the least active first: {tenths}."] if tenths else []),
    ]


def choice_lines(result: EvaluationResult) -> list[str]:
    """Candidates of a choice with their noisy metrics, a line each, the best first."""
    choice = result.choice
    if choice is None:
        return []
    order = sorted(range(len(choice.values)), key=lambda number: -choice.values[number].value)
    lines = [
        f"{'chosen' if number == choice.chosen else '      '}  "
        f"{_metric(choice.values[number])} {_interval(choice.values[number])}  "
        + ", ".join(f"{name} = {value}" for name, value in choice.candidates[number].items())
        for number in order
    ]
    return [
        f"Choice among {len(order)} settings of one release, on the validation part, for mu = {choice.mu:g} of the "
        "budget (the best of noisy numbers is a little too high; the test below is measured afresh):",
        *lines,
    ]


def live(result: EvaluationResult) -> str:
    """The first cut-off of a result, or its errors over all ratings, in a few words."""
    if result.protocol.task == "rating":
        metrics = [result.metric(name) for name in ("rmse", "mae")]
    else:
        k = result.metrics[0].k
        metrics = [result.metric(name, k) for name in ("hr", "ndcg")]
    return f"{result.part} " + " ".join(f"{_metric(metric)} {metric.value:.3f}" for metric in metrics)


def guarantee_box(guarantee: Guarantee) -> Panel:
    """A guarantee and everything a reader must be told with it."""
    if math.isinf(guarantee.epsilon):
        head = "Epsilon = inf: there is no formal guarantee."
    else:
        unit = formatting.named(formatting.UNITS, guarantee.unit)
        head = (
            f"Epsilon = {guarantee.epsilon:.4g} at delta = {guarantee.delta:g} for {unit}, over "
            f"{formatting.count(guarantee.rounds_counted, 'round')}.\n"
            f"Compares: {formatting.compared(guarantee.neighbours, guarantee.unit)}. "
            f"Trusts: {formatting.named(formatting.TRUST, guarantee.trust)}."
        )
    statements = "\n".join(f"- {statement}" for statement in guarantee.statements)
    return Panel(f"{head}\n\n{statements}", title="What is guaranteed", title_align="left")


def _metric(metric: Metric) -> str:
    """For example "NDCG@10", "RMSE" or "RMSE by user"."""
    if metric.k:
        return formatting.metric(metric.name, metric.k)
    return _ERRORS[metric.name.removeprefix("user_")] + (" by user" if metric.name.startswith("user_") else "")


def _interval(metric: Metric) -> str:
    noise = "" if metric.noise is None else f" ± {metric.noise:.4f}"
    return f"{metric.value:.4f}{noise} [{metric.lo:.4f}, {metric.hi:.4f}]"
