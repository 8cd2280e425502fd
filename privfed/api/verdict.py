"""An audit in one sentence, and as lines of a table: all that the front door reads of a report's headline."""

import math

import pandas as pd

from privfed.audit.report import formatting
from privfed.audit.report.headline import main_attack, main_utility, popularity_utility, protected_cells
from privfed.audit.report.records import AuditReport, Cell

_NUMBERS = ("None", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
COLUMNS = (
    "method", "setting", "epsilon", "delta", "trust", "metric", "value", "low", "high", "popularity", "attack",
    "seen_by", "auc", "auc_low", "auc_high", "auc_popularity",
)  # fmt: skip


def verdict(report: AuditReport) -> str:
    """How many settings are guaranteed and better than popularity, and which."""
    cells = protected_cells(report)
    good = [cell for cell in cells if cell.guarantee.finite and _above(report, cell)]
    total = f"{_number(len(cells)).lower()} setting{'s' if len(cells) != 1 else ''}"
    if not good:
        return f"None of {total} is guaranteed and better than popularity."
    by_method: dict[str, list[str]] = {}
    for cell in good:
        by_method.setdefault(cell.method, []).append(formatting.epsilon(cell.guarantee.epsilon))
    names = [f"{method} at epsilon {formatting.listed(budgets)}" for method, budgets in by_method.items()]
    return (
        f"{_number(len(good))} of {total} {'is' if len(good) == 1 else 'are'} guaranteed and better than popularity: "
        f"{'; '.join(names)}."
    )


def as_frame(report: AuditReport) -> pd.DataFrame:
    """A line for each method and setting."""
    return pd.DataFrame([_line(report, cell) for cell in protected_cells(report)], columns=list(COLUMNS))


def _line(report: AuditReport, cell: Cell) -> list[object]:
    utility, attack, claim = main_utility(cell), main_attack(cell), cell.guarantee
    popular = popularity_utility(report, utility) if utility else None
    quality: list[object] = [None] * 4 if utility is None else [
        formatting.metric(utility.name, utility.k), utility.seeds.mean, utility.users.lo, utility.users.hi
    ]  # fmt: skip
    seen: list[object] = [None] * 6 if attack is None else [
        attack.attack, formatting.named(formatting.TAPS, attack.tap), attack.auc.mean, attack.users.lo,
        attack.users.hi, attack.popularity_auc,
    ]  # fmt: skip
    about = [cell.method, cell.setting.name, claim.epsilon, claim.delta, claim.trust]
    return [*about, *quality, math.nan if popular is None else popular.seeds.mean, *seen]


def _above(report: AuditReport, cell: Cell) -> bool:
    """Whether the interval of the cell's quality lies above popularity."""
    utility = main_utility(cell)
    popular = popularity_utility(report, utility) if utility else None
    return utility is not None and popular is not None and utility.users.lo > popular.seeds.mean


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)
