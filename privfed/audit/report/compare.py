"""Two audits side by side: what both have, how it differs, and what keeps the numbers from being comparable.

An interval of a difference of two means is made from their own intervals by squaring and adding the distances (Zou and
Donner 2008, "MOVER"): it assumes independent estimates. Those of the same people rise and fall together, which makes
the true interval narrower, so a difference that this one sets apart from zero stands.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from privfed.audit.report import formatting
from privfed.audit.report.headline import main_utility, measured, protected_cells
from privfed.audit.report.records import AuditReport, Cell, GuaranteeRow, Headline, Interval, ListsRow, UtilityCell

Weight = Literal["measured differently", "run differently"]
Over = Literal["people", "seeds"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that is not the same in both audits.

    Attributes:
        weight: "measured differently" where numbers must not be read side by side (data, split, protocol); "run
            differently" where the difference is part of what is compared (rounds, seeds, versions).
        what: In words.
        a, b: What each audit has.
    """

    weight: Weight
    what: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A number in both audits, and their difference, the second less the first.

    Attributes:
        name: What it is.
        a, b: The numbers.
        difference: With its 95 % interval; None where that cannot be had.
        over: What the interval is over; None for numbers without one.
        note: Why the two are not comparable, or what else a reader must know; "" for nothing.
    """

    name: str
    a: float
    b: float
    difference: Interval | None
    over: Over | None
    note: str = ""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.difference is not None and not self.difference.lo <= 0 <= self.difference.hi


@dataclass(frozen=True, slots=True)
class CellPair:
    """A method under a setting that both audits have.

    Attributes:
        a, b: The cells.
        utility: Of the main metric; None where one audit lacks it.
        coverage: Share of the catalogue that is recommended to somebody; None likewise.
        attack: AUC of the strongest attack; None where one audit has none.
        note: What is not the same in the two plans, or "".
    """

    a: Cell
    b: Cell
    utility: MetricChange | None
    coverage: MetricChange | None
    epsilon: MetricChange
    bound: MetricChange | None
    attack: MetricChange | None
    note: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two audits.

    Attributes:
        names: What to call them.
        mismatches: What is not the same, gravest first.
        pairs: What both have.
        only_a, only_b: Methods and settings that one of them has, in words.
    """

    names: tuple[str, str]
    mismatches: list[Mismatch]
    pairs: list[CellPair]
    only_a: list[str]
    only_b: list[str]

    @property
    def comparable(self) -> bool:
        """Whether both were measured alike."""
        return all(mismatch.weight != "measured differently" for mismatch in self.mismatches)


def compare(a: AuditReport, b: AuditReport, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Lay two concluded reports side by side; methods and settings are matched by name and slug."""
    in_a = {(cell.method, cell.setting.slug): cell for cell in protected_cells(a)}
    in_b = {(cell.method, cell.setting.slug): cell for cell in protected_cells(b)}
    return Comparison(
        names=names,
        mismatches=sorted(_mismatches(a, b), key=lambda mismatch: mismatch.weight),
        pairs=[_pair(cell, in_b[key]) for key, cell in in_a.items() if key in in_b],
        only_a=[_named(cell) for key, cell in in_a.items() if key not in in_b],
        only_b=[_named(cell) for key, cell in in_b.items() if key not in in_a],
    )


def difference(a: Interval, b: Interval) -> Interval:
    """`b` less `a`, with the interval that follows from theirs."""
    value = b.value - a.value
    return Interval(
        value=value,
        lo=value - math.hypot(b.value - b.lo, a.hi - a.value),
        hi=value + math.hypot(b.hi - b.value, a.value - a.lo),
    )


def _named(cell: Cell) -> str:
    return f"{formatting.method_name(cell.method)}, {formatting.setting(cell.setting)}"


def _mismatches(a: AuditReport, b: AuditReport) -> Iterator[Mismatch]:
    labels = {
        "name": "data set",
        "sha256": "digest of the data",
        "users": "users",
        "items": "items",
        "interactions": "interactions",
        "split": "split",
    }
    for key, label in labels.items():
        yield from _unless_equal("measured differently", label, a.dataset.get(key), b.dataset.get(key))
    for key in sorted({*a.protocol.settings, *b.protocol.settings}):
        pair = a.protocol.settings.get(key), b.protocol.settings.get(key)
        yield from _unless_equal("measured differently", f"protocol: {key}", *pair)
    for label, (one, other) in _of_the_runs(a, b).items():
        yield from _unless_equal("run differently", label, one, other)


def _of_the_runs(a: AuditReport, b: AuditReport) -> dict[str, tuple[object, object]]:
    def both(of: str) -> tuple[object, object]:
        one, other = (_values(report, of) for report in (a, b))
        return one, other

    return {
        "rounds": both("rounds"),
        "clients per round": both("clients_per_round"),
        "sampling": both("sampling"),
        "fidelity": both("fidelity"),
        "seeds": both("seed"),
        "inclusion bits": both("inclusion"),
        "privfed": (a.privfed_version, b.privfed_version),
    }


def _values(report: AuditReport, of: str) -> str:
    methods = {cell.method for cell in protected_cells(report)}
    return ", ".join(map(str, sorted({getattr(run, of) for run in report.runs if run.method in methods})))


def _unless_equal(weight: Weight, what: str, a: object, b: object) -> Iterator[Mismatch]:
    if a != b:
        yield Mismatch(weight, what, _shown(a), _shown(b))


def _shown(value: object) -> str:
    if value is None:
        return "not stated"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _pair(a: Cell, b: Cell) -> CellPair:
    plans = [json.dumps(cell.plan, sort_keys=True) for cell in (a, b)]
    return CellPair(
        a=a,
        b=b,
        utility=_utility(main_utility(a), main_utility(b)),
        coverage=_coverage(a.lists, b.lists),
        epsilon=_epsilon(a.guarantee, b.guarantee),
        bound=_bound(a, b),
        attack=_attack(a.headline, b.headline),
        note="" if plans[0] == plans[1] else f"the plans differ: {_difference_of(a.plan, b.plan)}",
    )


def _difference_of(a: Mapping[str, object], b: Mapping[str, object], path: str = "") -> str:
    """The first field that two plans do not share."""
    for key in dict.fromkeys([*a, *b]):
        one, other = a.get(key), b.get(key)
        where = f"{path}{key}"
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if inner := _difference_of(one, other, f"{where}."):
                return inner
        elif one != other:
            return f"{where} is {_shown(one)} and {_shown(other)}"
    return ""


def _utility(a: UtilityCell | None, b: UtilityCell | None) -> MetricChange | None:
    if a is None or b is None or (a.name, a.k) != (b.name, b.k):
        return None
    ends = [cell.seeds for cell in (a, b)]
    over_seeds = [Interval(value=s.mean, lo=s.lo, hi=s.hi) for s in ends if s.lo is not None and s.hi is not None]
    both = len(over_seeds) == 2
    one, other = over_seeds if both else (a.users, b.users)
    note = "" if a.state == b.state else f"model state: {a.state} and {b.state}"
    name = formatting.metric(a.name, a.k)
    return MetricChange(name, a.seeds.mean, b.seeds.mean, difference(one, other), "seeds" if both else "people", note)


def _coverage(a: ListsRow | None, b: ListsRow | None) -> MetricChange | None:
    if a is None or b is None:
        return None
    gap = b.coverage - a.coverage
    note = "" if a.k == b.k else f"lists of {a.k} and {b.k}"
    return MetricChange(
        "catalogue shown", a.coverage, b.coverage, Interval(value=gap, lo=gap, hi=gap) if not note else None, None, note
    )


def _epsilon(a: GuaranteeRow, b: GuaranteeRow) -> MetricChange:
    fields = ("trust", "unit", "neighbours", "delta")
    finite = a.finite and b.finite
    differing = [f"{field}: {getattr(a, field)} and {getattr(b, field)}" for field in fields]
    differing = [text for field, text in zip(fields, differing, strict=True) if getattr(a, field) != getattr(b, field)]
    note = f"not comparable, {'; '.join(differing)}" if finite and differing else ""
    exact = Interval(value=b.epsilon - a.epsilon, lo=b.epsilon - a.epsilon, hi=b.epsilon - a.epsilon)
    return MetricChange("epsilon", a.epsilon, b.epsilon, exact if finite and not note else None, None, note)


def _bound(a: Cell, b: Cell) -> MetricChange | None:
    one, other = measured(a, "lower bound"), measured(b, "lower bound")
    if one is None or other is None:
        return None
    same = (one.unit, one.estimator) == (other.unit, other.estimator)
    note = "" if same else f"{one.estimator} of {one.audited} and {other.estimator} of {other.audited}"
    return MetricChange("measured lower bound", one.value, other.value, None, None, note)


def _attack(a: Headline | None, b: Headline | None) -> MetricChange | None:
    if a is None or b is None:
        return None
    same_view = (a.tap, a.game, a.scope) == (b.tap, b.game, b.scope)
    views = " and ".join(f"{formatting.TAPS[row.tap]} ({row.game}, {row.scope})" for row in (a, b))
    note = "" if same_view else f"not comparable, seen at: {views}"
    if same_view and a.attack != b.attack:
        note = f"{a.attack} and {b.attack}"
    gap = difference(a.auc, b.auc) if same_view else None
    return MetricChange("strongest attack (AUC)", a.auc.value, b.auc.value, gap, "people", note)
