"""The verdict of an audit: which settings are guaranteed and useful, and what to do, computed from the numbers.

A setting is *guaranteed* where its epsilon has a grade (10 or below), and *useful* where its main metric lies above
that of the popularity recommender by more than the 95 % interval of the difference over people.
"""

from dataclasses import dataclass
from typing import Literal

from privfed.audit.report import formatting
from privfed.audit.report.aggregates import grouped
from privfed.audit.report.compare import difference
from privfed.audit.report.grades import GRADES, Grade, grade
from privfed.audit.report.headline import main_utility, popularity_utility, protected_cells, unprotected
from privfed.audit.report.names import short_names
from privfed.audit.report.records import AuditReport, Cell, Interval, UtilityCell
from privfed.setup.controls import CONTROLS

Group = Literal["good", "guaranteed", "nothing"]
GROUPS: dict[Group, str] = {
    "good": "Guaranteed, and better than popularity",
    "guaranteed": "Guaranteed, but not shown to be better than popularity",
    "nothing": "Nothing guaranteed",
}
PRIVATE_METHOD = "private-gram"
"""The method that privfed recommends where nothing else is worth deploying."""


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One setting as the verdict sees it.

    Attributes:
        cell: method and setting.
        name: short.
        grade: of its epsilon.
        utility, popularity: its main metric and that of the popularity recommender; None where not measured.
        gain: their difference with its interval over people.
        paired: whether that interval is paired by person; else it is made from the two intervals, and is wider.
        of_unprotected: its main metric as a share of the same method's without a mechanism.
    """

    cell: Cell
    name: str
    grade: Grade
    utility: UtilityCell | None
    popularity: UtilityCell | None
    gain: Interval | None
    paired: bool
    of_unprotected: float | None

    @property
    def useful(self) -> bool:
        """Whether it is above popularity by more than the interval of the difference."""
        return self.gain is not None and self.gain.lo > 0

    @property
    def group(self) -> Group:
        """Where it stands in the verdict table."""
        if self.grade == "none":
            return "nothing"
        return "good" if self.useful else "guaranteed"

    @property
    def relative_gain(self) -> float | None:
        """How far above popularity, as a share of popularity's value."""
        if self.utility is None or self.popularity is None or self.popularity.seeds.mean <= 0:
            return None
        return self.utility.seeds.mean / self.popularity.seeds.mean - 1

    @property
    def quality(self) -> str:
        """Quality against popularity, in words."""
        if self.utility is None:
            return "not measured"
        if self.gain is None or self.relative_gain is None:
            return "popularity was not measured"
        if self.gain.lo <= 0 <= self.gain.hi:
            return "about level"
        return f"{abs(self.relative_gain):.0%} {'above' if self.gain.value > 0 else 'below'}".replace("%", " %")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit comes to.

    Attributes:
        rows: every setting, best first.
        sentence: how many are guaranteed and useful, by name.
        advice: what to do.
        controls: which settings are no better than a control, in one sentence; empty where all are better, or no
            control was run.
        pick: the setting that the advice names; None where it names none.
    """

    rows: list[VerdictRow]
    sentence: str
    advice: str
    controls: str
    pick: VerdictRow | None


def verdict(report: AuditReport) -> Verdict:
    """The verdict of a report whose cells are there."""
    names = short_names(report)
    rows = sorted(
        (_row(report, cell, names[cell.method, cell.setting.slug]) for cell in protected_cells(report)), key=_order
    )
    good = [row for row in rows if row.group == "good"]
    pick = good[0] if good else None
    return Verdict(rows, _sentence(rows, good), _advice(report, rows, good), _controls(rows), pick)


def _row(report: AuditReport, cell: Cell, name: str) -> VerdictRow:
    utility = main_utility(cell)
    popularity = popularity_utility(report, utility) if utility else None
    plain = unprotected(report, cell.method)
    reference = main_utility(plain) if plain is not None and plain is not cell else None
    share = None
    if utility and reference and reference.seeds.mean > 0:
        share = utility.seeds.mean / reference.seeds.mean
    gain = utility.gain if utility else None
    if gain is None and utility and popularity:
        gain = difference(popularity.users, utility.users)
    return VerdictRow(
        cell=cell,
        name=name,
        grade=grade(cell.guarantee.epsilon, cell.guarantee.delta),
        utility=utility,
        popularity=popularity,
        gain=gain,
        paired=bool(utility and utility.gain),
        of_unprotected=share,
    )


def _order(row: VerdictRow) -> tuple[int, int, float]:
    """Groups from the best; within a group the best grade, then the highest quality."""
    grades: list[Grade] = [*GRADES, "none"]
    value = row.utility.seeds.mean if row.utility else 0.0
    return list(GROUPS).index(row.group), grades.index(row.grade), -value


def _sentence(rows: list[VerdictRow], good: list[VerdictRow]) -> str:
    if not rows:
        return "Nothing but popularity was audited."
    both = "guaranteed and better than popularity"
    if len(rows) == 1:
        return f"{rows[0].name} is {'' if good else 'not '}{both}."
    if not good:
        return f"None of {formatting.in_words(len(rows))} settings is {both}."
    names = formatting.listed([_short(method, own) for method, own in grouped(good, _method).items()])
    if len(good) == len(rows):
        return f"All {formatting.in_words(len(rows))} settings are {both}: {names}."
    number = formatting.capital(formatting.in_words(len(good)))
    verb = "is" if len(good) == 1 else "are"
    return f"{number} of {formatting.in_words(len(rows))} settings {verb} {both}: {names}."


def _controls(rows: list[VerdictRow]) -> str:
    """Which settings the 95 % interval over people, paired by person, does not set above a control."""
    found = []
    for row in rows:
        level = [CONTROLS[one.control] for one in row.cell.controls if one.gain.lo <= 0 <= one.gain.hi]
        below = [CONTROLS[one.control] for one in row.cell.controls if one.gain.hi < 0]
        said = [f"cannot be told from {formatting.listed(level)}"] if level else []
        said += [f"is worse than {formatting.listed(below)}"] if below else []
        if said:
            found.append(f"{row.name} {formatting.listed(said)}")
    return f"Under this evaluation {'; '.join(found)}." if found else ""


def _method(row: VerdictRow) -> str:
    return formatting.method_name(row.cell.method)


def _short(method: str, rows: list[VerdictRow]) -> str:
    """A method with the epsilons of its settings, for example "private-gram at epsilon 8 and 1"."""
    values = sorted({row.cell.guarantee.epsilon for row in rows}, reverse=True)
    return f"{method} at epsilon {formatting.listed([formatting.epsilon(value) for value in values])}"


def _advice(report: AuditReport, rows: list[VerdictRow], good: list[VerdictRow]) -> str:
    if report.contradictions:
        return "Use no number of this audit before its contradictions are explained."
    if not rows:
        return "Audit a method, to have something to compare with popularity."
    if not good:
        known = any(row.cell.method == PRIVATE_METHOD for row in rows)
        these = "It is not" if len(rows) == 1 else "None of these is"
        return f"{these} worth deploying: publish popularity{'' if known else f', or use {PRIVATE_METHOD}'}."
    return " ".join([_pick(good[0]), *_caution(good[0])])


def _pick(row: VerdictRow) -> str:
    if row.utility is None:
        raise ValueError(f"{row.name} has no quality and cannot be advised")
    name, value = formatting.metric(row.utility.name, row.utility.k), formatting.share(row.utility.seeds.mean)
    return f"Deploy {row.name}: its guarantee is {row.grade}, and its {name} of {value} is {row.quality} popularity."


def _caution(row: VerdictRow) -> list[str]:
    """What the picked setting still asks for."""
    caution = []
    if row.grade == "weak":
        caution.append("On paper a weak guarantee rules out little: you rely on the attacks that were tried.")
    if row.cell.guarantee.trust == "central":
        caution.append("Its server reads every upload and has to be trusted.")
    if row.cell.headline is not None and row.cell.headline.excess.lo > 0:
        caution.append(f"An attack found {row.cell.headline.leaks}.")
    return caution
