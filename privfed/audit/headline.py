"""Which of many numbers speak for a cell: one ranking metric, one attack, and what they are compared with.

The choice is fixed here, before any number is seen, and is the same for the page, the statements and the
table of runs. The metric is NDCG at the shortest cut-off on the test part. The attack is the strongest one
seen after the protection has acted, on what a server receives from one client if it receives that, else on the names
of the rows that one client sends, else on the sum, else on the finished model.
"""

from collections.abc import Mapping

from attacks.view import ALL_ITEMS
from privfed.audit.report import POPULARITY, AttackCell, AuditReport, Cell, UtilityCell

AFTER_PROTECTION = ("wire", "support", "sum", "model")
MAIN_GAMES = ("trained vs never seen", "examined vs rest")
"""Private items against everything else: training items, or examinations where training items are public."""
UNPROTECTED = "nothing"


def is_unprotected(plan: Mapping[str, object]) -> bool:
    """Whether a serialised plan is the one that protects nothing."""
    protection = plan.get("protection")
    return isinstance(protection, dict) and protection.get("kind") == UNPROTECTED


def protected_cells(report: AuditReport) -> list[Cell]:
    """Every cell but those of the popularity recommender, which is the yardstick."""
    return [cell for cell in report.aggregates if cell.method != POPULARITY]


def unprotected(report: AuditReport, method: str) -> Cell | None:
    """The cell of a method without any protection."""
    cells = (cell for cell in report.aggregates if cell.method == method)
    return next((cell for cell in cells if is_unprotected(cell.plan)), None)


def main_utility(cell: Cell) -> UtilityCell | None:
    """The cell's test NDCG at the shortest cut-off, or its first test metric where NDCG was not measured."""
    test = [row for row in cell.utility if row.part == "test"]
    ndcg = sorted((row for row in test if row.name == "ndcg"), key=lambda row: row.k)
    return next(iter(ndcg + test), None)


def popularity_utility(report: AuditReport, like: UtilityCell) -> UtilityCell | None:
    """The popularity recommender's value of the same metric on the same part of the data."""
    rows = (row for cell in report.aggregates if cell.method == POPULARITY for row in cell.utility)
    return next((row for row in rows if (row.part, row.name, row.k) == (like.part, like.name, like.k)), None)


def at_main_tap(cell: Cell) -> list[AttackCell]:
    """The cell's attacks, popularity included, at the tap behind the protection closest to a client."""
    for tap in AFTER_PROTECTION:
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
