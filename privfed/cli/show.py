"""Results as tables, boxes and sentences for a terminal."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.panel import Panel
from rich.table import Table

from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.headline import main_utility, popularity_utility
from privfed.audit.report.records import POPULARITY, AttackRow, AuditReport, SupportLeak
from privfed.audit.report.support_sentences import BEST_GUESS, BITS, COUNT, EPSILON, POSTERIOR, columns
from privfed.cli.tables import plain_table
from privfed.data import DatasetCard, Interactions, Split
from privfed.evaluation import EvaluationResult, Metric
from privfed.privacy import Forecast, Guarantee
from privfed.setup.controls import CONTROLS

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


def attack_tables(rows: Sequence[AttackRow], *, synthetic: bool) -> list[Table]:
    """One table for each place, question and set of items; the strongest attack first."""
    mark = synthetic_mark(synthetic=synthetic)
    tables = []
    for (tap, game, scope), group in grouped(rows, lambda row: (row.tap, row.game, row.scope)).items():
        table = Table(title=f"{formatting.capital(formatting.named(formatting.TAPS, tap))}: {game}, {scope}{mark}")
        table.add_column("attack")
        table.add_column("rounds")
        table.add_column(f"AUC{mark}", justify="right", no_wrap=True)
        for column in ("TPR at 1% FPR", "AUC of popularity"):
            table.add_column(column, justify="right")
        for row in sorted(group, key=lambda row: -row.auc.value):
            table.add_row(
                row.attack,
                formatting.rounds(row.rounds),
                f"{formatting.share(row.auc.value)} [{formatting.share(row.auc.lo)}, {formatting.share(row.auc.hi)}]",
                _rate(row),
                formatting.share(row.popularity_auc),
            )
        tables.append(table)
    return tables


def leak_table(leak: SupportLeak, rows: Sequence[AttackRow], *, synthetic: bool) -> Table:
    """What the rows that clients send give away, a number a line."""
    title = f"What the rows sent give away: {leak.claim.padding}{synthetic_mark(synthetic=synthetic)}"
    lines = [(name, *values) for name, values in columns(leak, rows).items()]
    return plain_table(title, ("", formatting.count(leak.n_users, "audited user"), ""), lines)


def statement_lines(report: AuditReport, *, synthetic: bool) -> list[str]:
    """The statements of an audit: what was tested, then each method and setting under its name, then the limits."""
    mark = synthetic_mark(synthetic=synthetic)
    names = {(cell.method, cell.setting.slug): cell.setting.name for cell in report.aggregates}
    lines = []
    groups = grouped(report.statements, lambda s: (s.method, s.setting, s.topic == "limit"))
    for (method, slug, is_limit), group in groups.items():
        if method and slug:
            lines.append(f"{method}, {names.get((method, slug), slug)}{mark}:")
        elif is_limit:
            lines.append("Limits:")
        lines += [f"- {statement.text}" + (f" ({statement.detail})" if statement.detail else "") for statement in group]
    return lines


def audit_table(report: AuditReport, *, synthetic: bool) -> Group:
    """One line for each method and setting of an audit; where rows are sent, what they give away below."""
    mark = synthetic_mark(synthetic=synthetic)
    table = Table(title=f"Utility, guarantee and leakage{mark}")
    table.add_column("method")
    table.add_column("mechanism")
    for column in ("utility", "popularity", "epsilon", "strongest attack (AUC)", "upload per round"):
        table.add_column(f"{column}{mark if column in ('utility', 'popularity') else ''}", justify="right")
    for cell in report.aggregates:
        if cell.method == POPULARITY:
            continue
        utility, attack = main_utility(cell), cell.headline
        popular = popularity_utility(report, utility) if utility else None
        table.add_row(
            cell.method,
            cell.setting.name,
            f"{formatting.metric(utility.name, utility.k)} {formatting.share(utility.seeds.mean)}"
            if utility
            else "not measured",
            formatting.share(popular.seeds.mean) if popular else "not measured",
            f"{cell.guarantee.epsilon:.4g}",
            f"{formatting.share(attack.auc.value)} ({attack.attack})" if attack else "none was run",
            formatting.volume(cell.cost.up_bytes_per_client_round),
        )
    return Group(table, *_controls(report, synthetic=synthetic), *_leaks(report, synthetic=synthetic))


def _controls(report: AuditReport, *, synthetic: bool) -> list[Table]:
    """What methods gain over controls, where these were run."""
    rows = [
        [
            f"{cell.method}, {cell.setting.name}",
            CONTROLS[row.control],
            f"{formatting.metric(row.name, row.k)} {formatting.share(row.users.value)}",
            f"{formatting.signed(row.gain.value)} [{formatting.signed(row.gain.lo)}, {formatting.signed(row.gain.hi)}]",
        ]
        for cell in report.aggregates
        for row in cell.controls
    ]
    title = f"Beside controls{synthetic_mark(synthetic=synthetic)}"
    return [plain_table(title, ("method, mechanism", "control", "of the control", "gain"), rows)] if rows else []


def _leaks(report: AuditReport, *, synthetic: bool) -> list[Table]:
    heads = (EPSILON, POSTERIOR, BEST_GUESS, COUNT, BITS)
    rows = []
    for cell in report.aggregates:
        if cell.support is not None:
            utility = main_utility(cell)
            quality = formatting.share(utility.seeds.mean) if utility else "not measured"
            texts = columns(cell.support, cell.attacks)
            padding = cell.support.claim.padding if cell.guarantee.support else cell.setting.name
            leaked = ["\n".join(filter(None, texts[head])) for head in heads]
            rows.append([f"{cell.method}, {padding}", quality, *leaked])
    title = f"What the rows sent give away{synthetic_mark(synthetic=synthetic)}"
    return [plain_table(title, ("method, padding", "utility", *heads), rows)] if rows else []


def _metric(metric: Metric) -> str:
    """For example "NDCG@10", "RMSE" or "RMSE by user"."""
    if metric.k:
        return formatting.metric(metric.name, metric.k)
    return _ERRORS[metric.name.removeprefix("user_")] + (" by user" if metric.name.startswith("user_") else "")


def _interval(metric: Metric) -> str:
    noise = "" if metric.noise is None else f" ± {metric.noise:.4f}"
    return f"{metric.value:.4f}{noise} [{metric.lo:.4f}, {metric.hi:.4f}]"


def _rate(row: AttackRow) -> str:
    rate = next((rate.tpr for rate in row.tpr_at_fpr if rate.fpr == 0.01), None)
    return "too few items" if rate is None else formatting.share(rate.value)
