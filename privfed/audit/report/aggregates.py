"""From runs to cells: one method under one setting, over its seeds.

Intervals over seeds are Student t at 95 % and need five seeds; with fewer there is only the mean and the
range. Intervals over users come from each run's bootstrap and are averaged over the seeds, bound by bound. What a
guarantee is held against is never averaged: of measured epsilons and of claims, the worst seed speaks.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import scipy

from privfed.audit.report import formatting
from privfed.audit.report.headline import chosen
from privfed.audit.report.observers import with_observers
from privfed.audit.report.records import (
    AttackCell,
    AttackRow,
    AttributeRow,
    CeilingRow,
    Cell,
    CodeLeak,
    ControlRow,
    CostRow,
    EmpiricalRow,
    Interval,
    LinkRow,
    ListsRow,
    Run,
    SampleSplitRow,
    SliceRow,
    Spread,
    SupportLeak,
    UtilityCell,
    UtilityRow,
)

SEEDS_FOR_AN_INTERVAL = 5

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def spread(values: Sequence[float]) -> Spread:
    """Mean, range and, from five values on, the 95 % t-interval of the mean of one value per seed."""
    sample = np.asarray(values, dtype=np.float64)
    mean, n = float(sample.mean()), len(sample)
    half = None
    if n >= SEEDS_FOR_AN_INTERVAL:
        half = float(scipy.special.stdtrit(n - 1, 0.975) * sample.std(ddof=1) / np.sqrt(n))
    return Spread(
        mean=mean,
        minimum=float(sample.min()),
        maximum=float(sample.max()),
        lo=None if half is None else mean - half,
        hi=None if half is None else mean + half,
        n_seeds=n,
    )


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Rows by key, keys in the order in which they first appear."""
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def aggregate(runs: Sequence[Run]) -> list[Cell]:
    """Cells in the order in which their first run appears."""
    return [_cell(same) for same in grouped(runs, lambda run: (run.method, run.setting.slug)).values()]


def rate_at(row: AttackRow, fpr: float) -> float | None:
    """The row's true-positive rate at a false-positive rate, or None where it was not resolved."""
    return next((point.tpr.value for point in row.tpr_at_fpr if point.tpr and abs(point.fpr - fpr) < 1e-9), None)


def _cell(runs: list[Run]) -> Cell:
    first = runs[0]
    utility = grouped((row for run in runs for row in run.utility), lambda row: (row.part, row.state, row.name, row.k))
    attacks = grouped(
        (row for run in runs for row in run.attacks),
        lambda row: (row.attack, row.tap, row.game, row.scope, row.membership, tuple(row.rounds)),
    )
    weakest = max(runs, key=lambda run: run.guarantee.epsilon)
    return with_observers(
        Cell(
            method=first.method,
            setting=first.setting,
            plan=first.plan,
            n_seeds=len({run.seed for run in runs}),
            guarantee=weakest.guarantee,
            utility=[_utility_cell(rows) for rows in utility.values()],
            lists=_lists([run.lists for run in runs if run.lists is not None]),
            attacks=_marked([_attack_cell(rows) for rows in attacks.values()]),
            support=_support([run.support for run in runs if run.support is not None]),
            empirical=_empirical([row for run in runs for row in run.empirical]),
            attributes=_attributes([row for run in runs for row in run.attributes]),
            links=_links([row for run in runs for row in run.links]),
            controls=_controls([row for run in runs for row in run.controls]),
            ledger=weakest.ledger,
            cost=_cost(runs),
        )
    )


def _over_users(intervals: Sequence[Interval | UtilityRow]) -> Interval:
    return Interval(
        value=float(np.mean([interval.value for interval in intervals])),
        lo=float(np.mean([interval.lo for interval in intervals])),
        hi=float(np.mean([interval.hi for interval in intervals])),
    )


def _utility_cell(rows: list[UtilityRow]) -> UtilityCell:
    first = rows[0]
    return UtilityCell(
        part=first.part,
        state=first.state,
        name=first.name,
        k=first.k,
        seeds=spread([row.value for row in rows]),
        users=_over_users(rows),
        gain=_over_users([row.gain for row in rows if row.gain]) if all(row.gain for row in rows) else None,
    )


def _lists(rows: list[ListsRow]) -> ListsRow | None:
    if not rows:
        return None
    lifts = [row.popularity_lift for row in rows if row.popularity_lift is not None]
    return ListsRow(
        k=rows[0].k,
        coverage=float(np.mean([row.coverage for row in rows])),
        popularity_lift=_over_users(lifts) if len(lifts) == len(rows) else None,
    )


def _attack_cell(rows: list[AttackRow]) -> AttackCell:
    first = rows[0]
    rates = [rate for row in rows if (rate := rate_at(row, 0.01)) is not None]
    return AttackCell(
        attack=first.attack,
        tap=first.tap,
        game=first.game,
        scope=first.scope,
        rounds=first.rounds,
        auc=spread([row.auc.value for row in rows]),
        users=_over_users([row.auc for row in rows]),
        tpr_at_1pct=spread(rates) if rates else None,
        popularity_auc=float(np.mean([row.popularity_auc for row in rows])),
        gain=_over_users([row.gain for row in rows]),
        chosen=False,
        membership=first.membership,
        ceiling=_ceiling([row.ceiling for row in rows if row.ceiling is not None]),
        slices=_slices([part for row in rows for part in row.slices]),
        sample_split=_sample_split([row.sample_split for row in rows]),
    )


def _sample_split(rows: Sequence[SampleSplitRow | None]) -> SampleSplitRow | None:
    """Means over the seeds; null where one seed has none."""
    some = [row for row in rows if row is not None]
    if len(some) < len(rows):
        return None
    return SampleSplitRow(
        selection_users=round(np.mean([row.selection_users for row in some])),
        selection_gain=float(np.mean([row.selection_gain for row in some])),
        n_users=round(np.mean([row.n_users for row in some])),
        auc=_over_users([row.auc for row in some]),
        popularity_auc=float(np.mean([row.popularity_auc for row in some])),
        gain=_over_users([row.gain for row in some]),
    )


def _ceiling(ceilings: list[CeilingRow]) -> CeilingRow | None:
    """The highest ceiling of the seeds, beaten where any seed's was."""
    if not ceilings:
        return None
    highest = max(ceilings, key=lambda ceiling: ceiling.auc)
    return highest.model_copy(update={"beaten": any(ceiling.beaten for ceiling in ceilings)})


def _slices(parts: list[SliceRow]) -> list[SliceRow]:
    """Means over the seeds, tenth by tenth; its limits are the widest."""
    tenths = grouped(parts, lambda part: (part.by, part.group))
    return [
        SliceRow(
            by=by,
            group=group,
            lowest=min(part.lowest for part in same),
            highest=max(part.highest for part in same),
            n_users=round(np.mean([part.n_users for part in same])),
            n_members=round(np.mean([part.n_members for part in same])),
            auc=_over_users([part.auc for part in same]),
            popularity_auc=float(np.mean([part.popularity_auc for part in same])),
        )
        for (by, group), same in tenths.items()
    ]


def _empirical(rows: list[EmpiricalRow]) -> list[EmpiricalRow]:
    """Of each way of measuring, the seed that denies the claim if one does, else the one with the highest value."""
    ways = grouped(rows, lambda row: (row.estimator, row.kind, row.audited, row.tap, row.unit, row.neighbours))
    return [max(same, key=lambda row: (not row.consistent, row.value)) for same in ways.values()]


def _attributes(rows: list[AttributeRow]) -> list[AttributeRow]:
    """Means over the seeds, by attribute and evidence."""
    ways = grouped(rows, lambda row: (row.attribute, row.classes, row.evidence, row.tap, tuple(row.knowledge)))
    return [
        same[0].model_copy(
            update={
                "auc": _over_users([row.auc for row in same]),
                "balanced_accuracy": _over_users([row.balanced_accuracy for row in same]),
                "majority": float(np.mean([row.majority for row in same])),
                "n_users": round(np.mean([row.n_users for row in same])),
            }
        )
        for same in ways.values()
    ]


def _links(rows: list[LinkRow]) -> list[LinkRow]:
    """Means over the seeds, by place; every attack that a seed chose is named."""
    return [
        same[0].model_copy(
            update={
                "attack": formatting.listed(list(dict.fromkeys(row.attack for row in same))),
                "accuracy": _over_users([row.accuracy for row in same]),
                "auc": _over_users([row.auc for row in same]),
                "chance": float(np.mean([row.chance for row in same])),
                "n_users": round(np.mean([row.n_users for row in same])),
            }
        )
        for same in grouped(rows, lambda row: row.tap).values()
    ]


def _controls(rows: list[ControlRow]) -> list[ControlRow]:
    """Means over the seeds, control by control."""
    return [
        same[0].model_copy(
            update={
                "users": _over_users([row.users for row in same]),
                "gain": _over_users([row.gain for row in same]),
            }
        )
        for same in grouped(rows, lambda row: row.control).values()
    ]


def _marked(cells: list[AttackCell]) -> list[AttackCell]:
    """The same cells with the attack of each tap and game marked that is strongest on the users who choose."""
    best = [chosen(rivals) for rivals in grouped(cells, lambda cell: (cell.tap, cell.game)).values()]
    return [cell.model_copy(update={"chosen": any(cell is other for other in best)}) for cell in cells]


def _support(leaks: list[SupportLeak]) -> SupportLeak | None:
    """Means over seeds, number by number; what any seed lacks is left out."""
    if not leaks:
        return None
    codes = [_averaged(list(guesses)) for guesses in zip(*(leak.codes for leak in leaks), strict=True)]
    return _averaged(leaks).model_copy(update={"codes": codes})


Leak = TypeVar("Leak", SupportLeak, CodeLeak)


def _averaged(leaks: Sequence[Leak]) -> Leak:
    means: dict[str, Interval | float | None] = {}
    for name in type(leaks[0]).model_fields:
        values = [getattr(leak, name) for leak in leaks]
        intervals = [value for value in values if isinstance(value, Interval)]
        numbers = [value for value in values if isinstance(value, float)]
        if len(intervals) == len(values):
            means[name] = _over_users(intervals)
        elif len(numbers) == len(values):
            means[name] = float(np.mean(numbers))
        elif intervals or numbers:
            means[name] = None
    return leaks[0].model_copy(update=means)


def _cost(runs: list[Run]) -> CostRow:
    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    clipped = [run.clipped_fraction for run in runs if run.clipped_fraction is not None]
    return CostRow(
        up_bytes_per_client_round=mean(run.comm.up_bytes_per_client_round for run in runs),
        down_bytes_per_client_round=mean(run.comm.down_bytes_per_client_round for run in runs),
        train_s=mean(run.wall.train_s for run in runs),
        privacy_s=mean(run.wall.privacy_s for run in runs),
        attack_s=mean(run.wall.attack_s for run in runs),
        cpu_s=mean(run.wall.cpu_s for run in runs),
        peak_rss_bytes=max(run.peak_rss_bytes for run in runs),
        clipped_fraction=mean(clipped) if clipped else None,
    )
