"""Attacks and reports of audits as tables and sentences for a terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.headline import main_utility, popularity_utility
from privfed.audit.report.records import POPULARITY, AttackRow, AuditReport, SupportLeak
from privfed.audit.report.support_sentences import BEST_GUESS, BITS, COUNT, EPSILON, POSTERIOR, columns
from privfed.cli.show import synthetic_mark
from privfed.cli.tables import plain_table
from privfed.setup.controls import CONTROLS


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


def _rate(row: AttackRow) -> str:
    rate = next((rate.tpr for rate in row.tpr_at_fpr if rate.fpr == 0.01), None)
    return "too few items" if rate is None else formatting.share(rate.value)
