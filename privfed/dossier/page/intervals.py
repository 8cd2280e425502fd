"""Values with their intervals as lanes: a line for the interval and a dot for the value, placed in percent."""

from collections.abc import Sequence
from dataclasses import dataclass

from privfed.audit.report import formatting
from privfed.audit.report.records import Interval
from privfed.dossier.evidence import Attack, Utility


@dataclass(frozen=True, slots=True)
class Lane:
    """One value on an axis.

    Attributes:
        label: whose it is.
        number: as people read it.
        left, width: of the interval, in percent of the axis.
        dot: of the value.
        weak: whether it is what the others are compared with.
    """

    label: str
    number: str
    left: float
    width: float
    dot: float
    weak: bool


def quality_lanes(one: Utility, method: str) -> tuple[Lane, ...]:
    """A metric of the method and of popularity, from zero on."""
    values = [(method, one.value, False)]
    if one.popularity is not None:
        values.append(("most popular items", one.popularity, True))
    return _lanes(values, 0.0, max(value.hi for _, value, _ in values) * 1.08 or 1.0)


def attack_lanes(one: Attack) -> tuple[Lane, ...]:
    """An attack and guessing by popularity, from chance or what lies below it to certainty."""
    popular = Interval(value=one.popularity_auc, lo=one.popularity_auc, hi=one.popularity_auc)
    values = [(one.name, one.auc, False), ("guessing by popularity", popular, True)]
    return _lanes(values, min(0.5, *(value.lo for _, value, _ in values)), 1.0)


def _lanes(values: Sequence[tuple[str, Interval, bool]], low: float, high: float) -> tuple[Lane, ...]:
    def at(value: float) -> float:
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    return tuple(
        Lane(
            label,
            formatting.share(value.value),
            at(value.lo),
            round(at(value.hi) - at(value.lo), 2),
            at(value.value),
            weak,
        )
        for label, value, weak in values
    )
