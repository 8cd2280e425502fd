"""Which of many numbers speak for a cell: one ranking metric, one attack, and what they are compared with.

The choice is fixed here, before any number is seen, and is the same for the page, the statements and the
table of runs. The metric is NDCG at the shortest cut-off on the test part. The attack is the strongest one that anybody
within the guarantee can run (`observers`): chosen on one group of audited users, measured on the other (`choose`).
Nothing that is shown is a maximum over noisy numbers. Beside it stand the strongest attack in the inclusion game,
chosen in the same way, and of measured epsilons the highest of its kind, for the unit of the claim where that was
measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from attacks.evaluation import ALL_ITEMS
from privfed.audit.report.ceilings import wider
from privfed.audit.report.records import (
    POPULARITY,
    AttackCell,
    AttackRow,
    AttributeRow,
    AuditReport,
    Cell,
    EmpiricalRow,
    Headline,
    Interval,
    Leak,
    Run,
    UtilityCell,
)
from privfed.privacy.mechanisms.registry import protects

PROTECTED_TAPS = ("wire", "support", "sum", "model")
MAIN_GAMES = ("trained vs never seen", "examined vs rest")
"""Private items against everything else: training items, or examinations where training items are public."""
EVERYTHING, NEARLY_EVERYTHING = 0.995, 0.95
"""Shares of right guesses that are called so, where popularity explains less."""
MAX_CELLS = 6
"""Up to this many cells are shown one by one; of more, each shows its strongest attack and its numbers only."""

R = TypeVar("R", AttackRow, AttackCell)


def is_unprotected(plan: Mapping[str, object]) -> bool:
    """Whether a serialised plan is the one that protects nothing."""
    mechanism = plan.get("mechanism")
    return isinstance(mechanism, dict) and not protects(mechanism.get("kind"))


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


def in_main_game(rows: Iterable[R]) -> list[R]:
    """Attacks that may speak for a place: in the main game on all items, else in another one on all items.

    Games of inclusion bits come last; they are about epsilon and have a part of their own.
    """
    rivals = [row for row in rows if row.attack != POPULARITY and row.scope.startswith(ALL_ITEMS)]
    natural = [row for row in rivals if row.membership == "natural"]
    main = [row for row in natural if row.game in MAIN_GAMES]
    return main or natural or rivals


def chosen(rows: Iterable[R]) -> R | None:
    """The strongest attack on the users who choose: the first of the highest gains over popularity there."""
    rivals = [
        (row.sample_split.selection_gain, row)
        for row in rows
        if row.sample_split is not None and row.attack != POPULARITY
    ]
    return max(rivals, key=lambda pair: pair[0], default=(0.0, None))[1]


def choose(rows: Sequence[AttackCell], n_seeds: int) -> Headline | None:
    """The headline of some attacks: chosen on one group of users, measured on the other. The only way to one."""
    rivals = in_main_game(rows)
    best = chosen(rivals)
    if best is None or best.sample_split is None:
        return None
    sample_split = best.sample_split
    return Headline(
        attack=best.attack,
        tap=best.tap,
        game=best.game,
        scope=best.scope,
        rounds=best.rounds,
        auc=sample_split.auc,
        popularity_auc=sample_split.popularity_auc,
        excess=sample_split.gain,
        leaks=leak(sample_split.auc.value, sample_split.gain),
        candidates=len(rivals),
        selection_users=sample_split.selection_users,
        n_users=sample_split.n_users,
        n_seeds=n_seeds,
    )


def leak(auc: float, excess: Interval) -> Leak:
    """In words how much an attack finds; what popularity explains is no leak."""
    if excess.lo <= 0:
        return "no more than popularity"
    if auc >= EVERYTHING:
        return "everything"
    return "nearly everything" if auc >= NEARLY_EVERYTHING else "more than popularity"


def headline_row(cell: Cell) -> AttackCell | None:
    """The row of the headline's attack, with its numbers over all audited users, curves and tenths."""
    return None if cell.headline is None else row_of(cell, cell.headline)


def row_of(cell: Cell, headline: Headline) -> AttackCell | None:
    """The row of an attack on all audited users."""
    return next((row for row in cell.attacks if row.membership == "natural" and same_attack(row, headline)), None) or (
        next((row for row in cell.attacks if same_attack(row, headline)), None)
    )


def same_attack(row: AttackRow | AttackCell, other: AttackRow | AttackCell | Headline) -> bool:
    """Whether both are about one attack at one place in one game."""
    return (row.attack, row.tap, row.game, row.scope, row.rounds) == (
        other.attack,
        other.tap,
        other.game,
        other.scope,
        other.rounds,
    )


def single_round(cell: Cell) -> Headline | None:
    """The same at the headline's place, for an adversary who saw one round only."""
    if cell.headline is None:
        return None
    there = [row for row in cell.attacks if row.tap == cell.headline.tap and len(row.rounds) == 1]
    return choose(there, cell.n_seeds)


def at_main_tap(cell: Cell) -> list[AttackCell]:
    """The cell's attacks, popularity included, at the place of its headline."""
    return [] if cell.headline is None else [row for row in cell.attacks if row.tap == cell.headline.tap]


def inclusion_attack(rows: Sequence[R]) -> R | None:
    """The attack behind the mechanism that is strongest on the users who choose, in the inclusion game.

    Among those under a claim, where there is one.
    """
    rivals = [row for row in rows if row.membership == "randomised" and row.tap in PROTECTED_TAPS]
    bounded = [row for row in rivals if row.ceiling is not None]
    return chosen(bounded or rivals)


def auc(row: AttackRow | AttackCell) -> float:
    """AUC of a row, or its mean over the seeds of a cell."""
    return row.auc.value if isinstance(row, AttackRow) else row.auc.mean


def sliced_attack(cell: Cell) -> AttackCell | None:
    """The attack whose tenths of items and users are shown: the main one, or the strongest that has any."""
    main = headline_row(cell)
    if main is not None and main.slices:
        return main
    return chosen(row for row in cell.attacks if row.slices and row.tap in PROTECTED_TAPS)


def measured(record: Run | Cell, kind: str) -> EmpiricalRow | None:
    """The highest measured epsilon of a kind behind the mechanism, for the unit of the claim where there is one."""
    rows = [row for row in record.empirical if row.kind == kind and row.tap in PROTECTED_TAPS]
    same_unit = [row for row in rows if row.unit == record.guarantee.unit]
    whole_run = [row for row in rows if row.unit != "upload"]
    return max(same_unit or whole_run or rows, key=lambda row: row.value, default=None)


def attribute_guess(cell: Cell, attribute: str) -> tuple[AttributeRow | None, AttributeRow | None]:
    """How well an attribute is guessed behind the mechanism, by the best evidence, and from true interactions.

    The interval of the best is as much wider as it takes to hold for every kind of evidence at once: where nothing is
    to be learnt, its lower end is above 0.5 with a chance of about 2.5 %, however many kinds were tried.
    """
    rows = [row for row in cell.attributes if row.attribute == attribute]
    seen = [row for row in rows if row.tap in PROTECTED_TAPS]
    truth = [row for row in rows if row.tap is None]
    best = max(seen, key=lambda row: row.auc.value, default=None)
    return (
        best and best.model_copy(update={"auc": _widened(best.auc, wider(len(seen), best.n_users))}),
        max(truth, key=lambda row: row.auc.value, default=None),
    )


def _widened(auc: Interval, factor: float) -> Interval:
    """An interval that reaches `factor` times as far to either side, within [0, 1]."""
    lo, hi = (auc.value + (end - auc.value) * factor for end in (auc.lo, auc.hi))
    return Interval(value=auc.value, lo=max(lo, 0.0), hi=min(hi, 1.0))
