"""An audit's settings as lines of a table."""

import math

import pandas as pd

from privfed.audit.report import formatting
from privfed.audit.report.records import AuditReport
from privfed.audit.report.verdict import VerdictRow, verdict

COLUMNS = (
    "method", "setting", "epsilon", "delta", "trust", "metric", "value", "low", "high", "popularity", "leaks", "attack",
    "seen_by", "auc", "auc_popularity", "auc_excess", "excess_low", "excess_high",
)  # fmt: skip


def as_frame(report: AuditReport) -> pd.DataFrame:
    """A line for each method and setting, in the order of the report.

    The attack was chosen on one half of the audited users and measured on the other.
    """
    order = [(cell.method, cell.setting.slug) for cell in report.aggregates]
    rows = sorted(verdict(report).rows, key=lambda row: order.index((row.cell.method, row.cell.setting.slug)))
    return pd.DataFrame([_line(row) for row in rows], columns=list(COLUMNS))


def _line(row: VerdictRow) -> list[object]:
    claim, utility, attack = row.cell.guarantee, row.utility, row.cell.headline
    quality: list[object] = [None] * 4 if utility is None else [
        formatting.metric(utility.name, utility.k), utility.seeds.mean, utility.users.lo, utility.users.hi
    ]  # fmt: skip
    seen: list[object] = [None] * 7 if attack is None else [
        attack.leaks, attack.attack, formatting.named(formatting.TAPS, attack.tap), attack.auc.value,
        attack.popularity_auc, attack.excess.value, attack.excess.lo,
    ]  # fmt: skip
    popular = math.nan if row.popularity is None else row.popularity.seeds.mean
    about = [row.cell.method, row.cell.setting.name, claim.epsilon, claim.delta, claim.trust]
    return [*about, *quality, popular, *seen, None if attack is None else attack.excess.hi]
