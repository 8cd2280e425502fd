"""Which of many numbers speak for a cell: one ranking metric, one attack, and what they are compared with.

The choice is fixed here, before any number is seen, and is the same for the page, the statements and the
table of runs. The metric is NDCG at the shortest cut-off on the test part. The attack is the strongest one
seen after the mechanism has acted, on what a server receives from one client if it receives that, else on the names
of the rows that one client sends, else on the sum, else on the finished model. Beside it stand the strongest attack in
the inclusion game, and of measured epsilons the highest of its kind, for the unit of the claim where that was
measured.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from attacks.evaluation import ALL_ITEMS
from privfed.audit.report.records import (
    POPULARITY,
    AttackCell,
    AttackRow,
    AttributeRow,
    AuditReport,
    Cell,
    EmpiricalRow,
    Run,
    UtilityCell,
)

PROTECTED_TAPS = ("wire", "support", "sum", "model")
MAIN_GAMES = ("trained vs never seen", "examined vs rest")
"""Private items against everything else: training items, or examinations where training items are public."""
UNPROTECTED = "unprotected"
MAX_CELLS = 6
"""Up to this many cells are shown one by one; of more, each shows its strongest attack and its numbers only."""

R = TypeVar("R", AttackRow, AttackCell)


def is_unprotected(plan: Mapping[str, object]) -> bool:
    """Whether a serialised plan is the one that protects nothing."""
    mechanism = plan.get("mechanism")
    return isinstance(mechanism, dict) and mechanism.get("kind") == UNPROTECTED


def protected_cells(report: AuditReport) -> list[Cell]:
    """Every cell but those of the popularity recommender, which is the baseline."""
    return [cell for cell in report.aggregates if cell.method != POPULARITY]


def is_large(report: AuditReport) -> bool:
    """Whether there are too many cells to show each in full."""
    return len(protected_cells(report)) > MAX_CELLS


def unprotected(report: AuditReport, method: str) -> Cell | None:
    """The cell of a method without a privacy mechanism."""
    cells = (cell for cell in report.aggregates if cell.method == method)
    return next((cell for cell in cells if is_unprotected(cell.plan)), None)


def main_utility(cell: Cell) -> UtilityCell | None:
    """The cell's test NDCG at the shortest cut-off, or its first test metric where NDCG was not measured."""
    test = [row for row in cell.utility if row.part == "test"]
    ndcg = sorted((row for row in test if row.name == "ndcg"), key=lambda row: row.k)
    return next(iter(ndcg + test), None)


def metrics_on_test(report: AuditReport) -> list[tuple[str, int]]:
    """Name and cut-off of every metric on the test part, in the order of the report."""
    rows = (row for cell in report.aggregates for row in cell.utility if row.part == "test")
    return list(dict.fromkeys((row.name, row.k) for row in rows))


def popularity_utility(report: AuditReport, like: UtilityCell) -> UtilityCell | None:
    """The popularity recommender's value of the same metric on the same part of the data."""
    rows = (row for cell in report.aggregates if cell.method == POPULARITY for row in cell.utility)
    return next((row for row in rows if (row.part, row.name, row.k) == (like.part, like.name, like.k)), None)


def at_main_tap(cell: Cell) -> list[AttackCell]:
    """The cell's attacks, popularity included, at the tap behind the mechanism closest to a client."""
    for tap in PROTECTED_TAPS:
        rows = [row for row in cell.attacks if row.tap == tap]
        if rows:
            return rows
    return []


def main_attack(cell: Cell, *, single_round: bool = False) -> AttackCell | None:
    """The strongest attack at the main tap, in the main game on all items where that was played.

    Args:
        cell: Method and setting.
        single_round: Look only at attacks that saw one round.
    """
    rivals = [row for row in at_main_tap(cell) if row.attack != POPULARITY]
    if single_round:
        rivals = [row for row in rivals if len(row.rounds) == 1]
    main = [row for row in rivals if row.game in MAIN_GAMES and row.scope.startswith(ALL_ITEMS)]
    return max(main or rivals, key=lambda row: row.auc.mean, default=None)


def inclusion_attack(rows: Sequence[R]) -> R | None:
    """The strongest attack behind the mechanism in the inclusion game, under a claim where there is one."""
    rivals = [
        row for row in rows if row.membership == "randomised" and row.tap in PROTECTED_TAPS and row.attack != POPULARITY
    ]
    bounded = [row for row in rivals if row.ceiling is not None]
    return max(bounded or rivals, key=auc, default=None)


def auc(row: AttackRow | AttackCell) -> float:
    """AUC of a row, or its mean over the seeds of a cell."""
    return row.auc.value if isinstance(row, AttackRow) else row.auc.mean


def sliced_attack(cell: Cell) -> AttackCell | None:
    """The attack whose tenths of items and users are shown: the main one, or the strongest that has any."""
    main = main_attack(cell)
    if main is not None and main.slices:
        return main
    rivals = [row for row in cell.attacks if row.slices and row.tap in PROTECTED_TAPS and row.attack != POPULARITY]
    return max(rivals, key=auc, default=None)


def measured(record: Run | Cell, kind: str) -> EmpiricalRow | None:
    """The highest measured epsilon of a kind behind the mechanism, for the unit of the claim where there is one."""
    rows = [row for row in record.empirical if row.kind == kind and row.tap in PROTECTED_TAPS]
    same_unit = [row for row in rows if row.unit == record.guarantee.unit]
    whole_run = [row for row in rows if row.unit != "upload"]
    return max(same_unit or whole_run or rows, key=lambda row: row.value, default=None)


def attribute_guess(cell: Cell, attribute: str) -> tuple[AttributeRow | None, AttributeRow | None]:
    """How well an attribute is guessed behind the mechanism, by the best evidence, and from true interactions."""
    rows = [row for row in cell.attributes if row.attribute == attribute]
    seen = [row for row in rows if row.tap in PROTECTED_TAPS]
    truth = [row for row in rows if row.tap is None]
    return (
        max(seen, key=lambda row: row.auc.value, default=None),
        max(truth, key=lambda row: row.auc.value, default=None),
    )
