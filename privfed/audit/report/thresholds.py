"""Thresholds that an audit has to keep, for continuous integration: "excess_auc > .05" fails a setting above it.

A rule is a name, a comparison and a number, and nothing else; it is read by one regular expression and never executed.
A number that was not measured fails every rule about it: silence is no evidence.
"""

import math
import operator
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from privfed.audit.report import formatting
from privfed.audit.report.records import AuditReport
from privfed.audit.report.verdict import VerdictRow, verdict

NAMES: dict[str, tuple[str, Callable[[VerdictRow], float | None]]] = {
    "epsilon": ("the epsilon claimed; inf where nothing is guaranteed", lambda row: row.cell.guarantee.epsilon),
    "delta": ("the delta claimed", lambda row: row.cell.guarantee.delta),
    "auc": (
        "share of right guesses of the strongest attack (chosen on half of the audited users, measured on the others)",
        lambda row: None if row.cell.headline is None else row.cell.headline.auc.value,
    ),
    "excess_auc": (
        "the same, less what popularity explains",
        lambda row: None if row.cell.headline is None else row.cell.headline.excess.value,
    ),
    "excess_auc_low": (
        "lower end of the 95 % interval of excess_auc",
        lambda row: None if row.cell.headline is None else row.cell.headline.excess.lo,
    ),
    "utility": (
        "the main metric (NDCG at the shortest cut-off)",
        lambda row: None if row.utility is None else row.utility.seeds.mean,
    ),
    "gain": (
        "the main metric less that of popularity",
        lambda row: None if row.gain is None else row.gain.value,
    ),
    "gain_low": (
        "lower end of the 95 % interval of gain over people",
        lambda row: None if row.gain is None else row.gain.lo,
    ),
    "of_unprotected": ("the main metric as a share of the unprotected method's", lambda row: row.of_unprotected),
}
"""What a rule may be about -> what it is, and where it is read."""

_COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_RULE = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<than>>=|<=|>|<)\s*(?P<number>[-+.\w]+)\s*")
_FORM = "write a name, a comparison and a number, such as 'excess_auc > .05'"


class ThresholdError(ValueError):
    """A rule or a policy that cannot be read, with one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One rule: a setting fails where the named number stands in this relation to the limit."""

    name: str
    than: str
    limit: float

    def __str__(self) -> str:
        return f"{self.name} {self.than} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> "Threshold":
        """Read a rule such as "epsilon > 8".

        Raises:
            ThresholdError: it has another form, an unknown name, or no number.
        """
        found = _RULE.fullmatch(text)
        if found is None:
            raise ThresholdError(f"the threshold '{text}' cannot be read: {_FORM}")
        if found["name"] not in NAMES:
            raise ThresholdError(f"the threshold '{text}' is about an unknown name: use one of {', '.join(NAMES)}")
        try:
            limit = float(found["number"])
        except ValueError:
            limit = math.nan
        if math.isnan(limit):
            raise ThresholdError(f"the threshold '{text}' has no number on its right: {_FORM}")
        return cls(found["name"], found["than"], limit)

    def broken_by(self, row: VerdictRow) -> str | None:
        """Why a setting fails, in one sentence; None where it does not."""
        value = NAMES[self.name][1](row)
        if value is None or math.isnan(value):
            return f"{row.name}: {self.name} was not measured, so '{self}' cannot be ruled out."
        if _COMPARISONS[self.than](value, self.limit):
            return f"{row.name}: {self.name} is {_shown(value)}, and the audit has to fail if {self}."
        return None


@dataclass(frozen=True, slots=True)
class ThresholdPolicy:
    """Rules, and the settings they are about.

    Attributes:
        rules: each of which every setting has to keep.
        only: patterns of "method:slug of the setting", as file names have them; none means every setting.
    """

    rules: tuple[Threshold, ...]
    only: tuple[str, ...] = ()

    @classmethod
    def read(cls, texts: Sequence[str] = (), file: Path | None = None) -> "ThresholdPolicy":
        """Rules from the command line and from a TOML file with `fail_if` and, if wanted, `only`.

        Raises:
            ThresholdError: one of them cannot be read.
        """
        content = _content(file) if file is not None else {}
        fail_if, only = (_texts(content, key, file) for key in ("fail_if", "only"))
        return cls(tuple(Threshold.parse(text) for text in (*texts, *fail_if)), tuple(only))

    def failures(self, report: AuditReport) -> list[str]:
        """Every setting of a concluded report that breaks a rule, in one sentence each."""
        if not self.rules:
            return []
        rows = [row for row in verdict(report).rows if self._is_about(row)]
        if not rows:
            what = f" that fits {formatting.listed(list(self.only))}" if self.only else ""
            return [f"The audit has no setting{what}, so no threshold was tested."]
        return [why for row in rows for rule in self.rules if (why := rule.broken_by(row)) is not None]

    def _is_about(self, row: VerdictRow) -> bool:
        key = f"{row.cell.method}:{row.cell.setting.slug}"
        return not self.only or any(fnmatchcase(key, pattern) for pattern in self.only)


def _content(file: Path) -> dict[str, object]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ThresholdError(f"the policy {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ThresholdError(f"the policy {file} is not TOML: {' '.join(str(error).split())}") from error
    if unknown := sorted(set(content) - {"fail_if", "only"}):
        raise ThresholdError(f"the policy {file} has an unknown key {unknown[0]}: use fail_if and only")
    return content


def _texts(content: dict[str, object], key: str, file: Path | None) -> list[str]:
    value = content.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ThresholdError(f"{key} in the policy {file} has to be a list of texts")
    return [str(text) for text in value]


def _shown(value: float) -> str:
    return formatting.epsilon(value) if math.isinf(value) else f"{value:.4g}"
