"""`privfed.compare`: two audits side by side."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from privfed import __version__
from privfed.api.errors import UseError
from privfed.api.report import Report
from privfed.audit.page.comparison import render_comparison
from privfed.audit.report.compare import Comparison, MetricChange
from privfed.audit.report.compare import compare as lay_side_by_side
from privfed.audit.report.conclusions import conclude
from privfed.audit.report.records import AuditReport, read_report

_WHAT = ("utility", "coverage", "epsilon", "bound", "attack")


@dataclass(frozen=True, slots=True)
class AuditComparison:
    """What two audits have in common, and how it differs.

    Attributes:
        record: everything that was compared.
    """

    record: Comparison

    @property
    def comparable(self) -> bool:
        """Whether both were measured alike: on the same data, split and protocol."""
        return self.record.comparable

    @property
    def mismatches(self) -> list[str]:
        """What is not the same, a sentence each, gravest first."""
        return [f"{one.weight}: {one.what} {one.a} and {one.b}" for one in self.record.mismatches]

    def to_frame(self) -> pd.DataFrame:
        """A line for each number that both audits have: method, setting, what, a, b, difference, low, high."""
        return pd.DataFrame(
            [
                (pair.a.method, pair.a.setting.name, *_numbers(change))
                for pair in self.record.pairs
                for change in (getattr(pair, what) for what in _WHAT)
                if change is not None
            ],
            columns=["method", "setting", "what", "a", "b", "difference", "low", "high"],
        )

    def save_html(self, file: str | PathLike[str]) -> Path:
        """Write the page of the comparison, complete in one file."""
        Path(file).write_text(render_comparison(self.record, __version__), encoding="utf-8")
        return Path(file)

    def __repr__(self) -> str:
        head = [] if self.comparable else ["These two audits were not measured alike; differences are no effect."]
        return "\n".join([*head, *self.mismatches, self.to_frame().to_string(index=False)])

    def _repr_html_(self) -> str:
        return f"<div>{'<br>'.join(self.mismatches)}{self.to_frame().to_html(index=False, border=0)}</div>"


def compare(a: Report | str | PathLike[str], b: Report | str | PathLike[str]) -> AuditComparison:
    """Lay two audits side by side: quality, epsilon, strongest attack, with the difference, b less a.

    Args:
        a: a report, or the folder of one.
        b: another.

    Raises:
        ValueError: something is neither a report nor the folder of one.

    Example:
        >>> import privfed
        >>> report = privfed.audit("private-gram", "synthetic-small", epsilon=8, workers=1)
        >>> privfed.compare(report, report).comparable
        True
    """
    return AuditComparison(lay_side_by_side(record_of(a), record_of(b)))


def record_of(given: Any) -> AuditReport:
    """The report that is meant, with what follows from its runs.

    Raises:
        UseError: it is neither a report nor the folder of one.
    """
    if isinstance(given, Report):
        return given.record
    if not isinstance(given, str | PathLike):
        raise UseError(f"{type(given).__name__} is no audit: give what privfed.audit gave, or the folder of an audit")
    file = Path(given) / "report.json"
    if not file.exists():
        raise UseError(f"{Path(given)} holds no report.json: give the folder of a finished audit")
    return conclude(read_report(file))


def _numbers(change: MetricChange) -> tuple[object, ...]:
    gap = change.difference
    return (change.name, change.a, change.b, *((None,) * 3 if gap is None else (gap.value, gap.lo, gap.hi)))
