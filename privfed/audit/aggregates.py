"""From runs to cells: one method under one setting, over its seeds.

Intervals over seeds are Student t at 95 % and need five seeds; with fewer there is only the mean and the
range. Intervals over users come from each run's bootstrap and are averaged over the seeds, bound by bound.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from scipy import stats

from privfed.audit.report import (
    POPULARITY,
    AttackCell,
    AttackRow,
    Cell,
    CodeLeak,
    Cost,
    Interval,
    Run,
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
        half = float(stats.t.ppf(0.975, n - 1) * sample.std(ddof=1) / np.sqrt(n))
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
        lambda row: (row.attack, row.tap, row.game, row.scope, tuple(row.rounds)),
    )
    return Cell(
        method=first.method,
        setting=first.setting,
        plan=first.plan,
        n_seeds=len({run.seed for run in runs}),
        guarantee=max((run.guarantee for run in runs), key=lambda guarantee: guarantee.epsilon),
        utility=[_utility_cell(rows) for rows in utility.values()],
        attacks=_marked([_attack_cell(rows) for rows in attacks.values()]),
        support=_support([run.support for run in runs if run.support is not None]),
        cost=_cost(runs),
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
        worst=False,
    )


def _marked(cells: list[AttackCell]) -> list[AttackCell]:
    """The same cells with the strongest real attack of each tap and game marked."""
    real = grouped((cell for cell in cells if cell.attack != POPULARITY), lambda cell: (cell.tap, cell.game))
    worst = [max(rivals, key=lambda cell: cell.auc.mean) for rivals in real.values()]
    return [cell.model_copy(update={"worst": any(cell is other for other in worst)}) for cell in cells]


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


def _cost(runs: list[Run]) -> Cost:
    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    clipped = [run.clipped_fraction for run in runs if run.clipped_fraction is not None]
    return Cost(
        up_bytes_per_client_round=mean(run.comm.up_bytes_per_client_round for run in runs),
        down_bytes_per_client_round=mean(run.comm.down_bytes_per_client_round for run in runs),
        train_s=mean(run.wall.train_s for run in runs),
        privacy_s=mean(run.wall.privacy_s for run in runs),
        attack_s=mean(run.wall.attack_s for run in runs),
        cpu_s=mean(run.wall.cpu_s for run in runs),
        peak_rss_bytes=max(run.peak_rss_bytes for run in runs),
        clipped_fraction=mean(clipped) if clipped else None,
    )
