"""What past releases about the same people add up to, by the heads of their ledgers, and what is left.

Epsilons of one unit, between the same two worlds and against the same adversary add up, and so do their deltas (basic
composition, which holds whatever was chosen after what). Where every release was Gaussian, mu adds up in squares too,
which says less of an epsilon. It is an upper bound: everybody is taken to have been in every run.

A ledger has no dates. The day of a run is the last change of its file, as the file system says, which nobody signs.
"""

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import Citation, Datum, Evidence, cited
from privfed.dossier.ledgers import read_ledger
from privfed.dossier.reading import read
from privfed.dossier.sources.node import is_node, ledger_names, node_ledger, read_book
from privfed.dossier.sources.run import date_of
from privfed.engines.nodes.budget import counted_as
from privfed.engines.nodes.record import RunCost
from privfed.experiment.folder import CHARGES, DEVICES, GUARANTEE, FolderRecord
from privfed.experiment.record_file import RECORD
from privfed.privacy import Ledger
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.gaussian_dp import GaussianDp

MAX_FOLDERS = 1000


@dataclass(frozen=True, slots=True)
class PastRun:
    """What one run cost the people it is about.

    Attributes:
        name: of its folder, or of the run of a node.
        date: of its last release; empty where nothing says it.
        head: of its ledger; empty where only a node's book remembers it.
        entries: queries in that ledger.
        population: users that it is about.
        epsilon: of the worst-off user; inf where nothing was guaranteed.
        delta: at which.
        mu: where all noise was Gaussian.
        counted: unit, neighbours and trust that epsilon is about.
        data_sha256: digest of the data; empty where it is not recorded.
        source: where this stands.
        current: whether the dossier is about this run.
    """

    name: str
    date: str
    head: str
    entries: int
    population: int
    epsilon: float
    delta: float
    mu: float | None
    counted: str
    data_sha256: str
    source: Citation
    current: bool


@dataclass(frozen=True, slots=True)
class BudgetTotal:
    """Several runs together.

    Attributes:
        runs: how many.
        epsilon: sum; inf where one guaranteed nothing; None where they do not count the same.
        delta: sum.
        mu: root of the sum of squares; None where one of them has none.
        epsilon_by_mu: of that, at the largest of the deltas; None likewise.
        why_none: why they cannot be added up; empty where they can.
    """

    runs: int
    epsilon: float | None
    delta: float
    mu: float | None
    epsilon_by_mu: float | None
    why_none: str = ""


@dataclass(frozen=True, slots=True)
class YearlyBudget:
    """All runs about some people, and the bound on them.

    Attributes:
        year: that the sum is of.
        past: every run that was found, oldest first.
        uncounted: runs on the same data that lie near a run and were not given, so may have been published or not.
        searched: where they were looked for.
        this_year: runs of the year, and those without a date.
        ever: all of them.
        allowed: epsilon that may be spent; None where nobody said.
        allowed_delta: likewise.
        for_all_years: whether these bound all runs there ever were, as a node's policy does, and not those of the year.
        remarks: what a reader of the sums has to know.
    """

    year: str
    past: tuple[PastRun, ...]
    uncounted: tuple[PastRun, ...]
    searched: tuple[str, ...]
    this_year: BudgetTotal
    ever: BudgetTotal
    allowed: Datum[float] | None
    allowed_delta: Datum[float] | None
    for_all_years: bool
    remarks: tuple[str, ...]

    @property
    def remark_on_uncounted(self) -> str:
        """What is to be done about runs that nobody counted."""
        number = len(self.uncounted)
        lie = "1 further run on the same data lies" if number == 1 else f"{number} further runs on the same data lie"
        verb = "is" if number == 1 else "are"
        return f"{lie} near this one and {verb} not counted: name with --past what was published."

    @property
    def left(self) -> float | None:
        """Epsilon that is left of what is allowed; None where no bound is known, or nothing adds up."""
        if self.allowed is None or self.bounded.epsilon is None:
            return None
        return self.allowed.value - self.bounded.epsilon

    @property
    def bounded(self) -> BudgetTotal:
        """The sum that the bound is on."""
        return self.ever if self.for_all_years else self.this_year

    @property
    def period(self) -> str:
        """When the runs of that sum were, in words."""
        return "all years" if self.for_all_years else self.year


def yearly_budget(
    evidence: Evidence, folders: Sequence[Path], year: str, allowed: Datum[float] | None = None
) -> YearlyBudget:
    """What is known of all runs about the people of a dossier.

    Args:
        evidence: what the dossier is about.
        folders: of runs, of nodes, or of folders of runs, whose releases count; what the dossier is about counts, too.
        year: such as "2026".
        allowed: epsilon that may be spent in a year.

    Raises:
        DossierError: one of them is damaged, or holds no runs.
    """
    found: dict[str, PastRun] = {}
    searched, own_data = list(folders), _data_of(evidence)
    if evidence.kind != "audit":
        searched.insert(0, evidence.folder)
    for folder in searched:
        for one in _runs_in(folder, evidence):
            found[one.source.sha256 + one.name] = one
    near = _siblings(evidence, own_data) if evidence.kind == "run" else []
    past = tuple(sorted(found.values(), key=lambda one: (one.date, one.name)))
    policy = evidence.policy
    own_policy = allowed is None and policy is not None and policy.value.get("max_epsilon") is not None
    if policy is not None and own_policy:
        allowed = Datum(float(policy.value["max_epsilon"]), policy.source)
    delta = None if policy is None else Datum(float(policy.value["max_delta"]), policy.source)
    return YearlyBudget(
        year=year,
        past=past,
        uncounted=tuple(one for one in near if one.source.sha256 + one.name not in found),
        searched=tuple(folder.name or str(folder) for folder in searched),
        this_year=_total([one for one in past if one.date[:4] in ("", year)]),
        ever=_total(past),
        allowed=allowed,
        allowed_delta=delta,
        for_all_years=own_policy,
        remarks=_remarks(evidence, past, own_data),
    )


def _total(runs: Sequence[PastRun]) -> BudgetTotal:
    counted = sorted({run.counted for run in runs if run.counted})
    delta = math.fsum(run.delta for run in runs)
    if len(counted) > 1 and not any(math.isinf(run.epsilon) for run in runs):
        why = f"these epsilons count different things and do not add up: {'; '.join(counted)}"
        return BudgetTotal(len(runs), None, delta, None, None, why)
    epsilon = math.fsum(run.epsilon for run in runs) if all(math.isfinite(run.epsilon) for run in runs) else math.inf
    mus = [run.mu for run in runs]
    if not runs or len(counted) > 1 or any(mu is None for mu in mus):
        return BudgetTotal(len(runs), epsilon, delta, None, None)
    mu = math.hypot(*(mu for mu in mus if mu is not None))
    return BudgetTotal(len(runs), epsilon, delta, mu, gaussian_epsilon(mu, max(run.delta for run in runs)))


def _runs_in(folder: Path, evidence: Evidence) -> list[PastRun]:
    """Runs in a folder: a node's, a run, or those below it."""
    if not folder.is_dir():
        raise DossierError(f"{folder} is not there: give folders of past runs, of nodes, or folders that hold such")
    if is_node(folder):
        return _of_node(folder, evidence)
    if (folder / CHARGES).exists():
        return [_of_run(folder, evidence)]
    below = [path for path in sorted(folder.iterdir()) if (path / CHARGES).exists()]
    if not below:
        raise DossierError(f"{folder} holds no ledger of a run: give folders of past runs, or a folder of such")
    if len(below) > MAX_FOLDERS:
        raise DossierError(f"{folder} holds {len(below):,} runs and {MAX_FOLDERS:,} are read: name the years apart")
    return [_of_run(path, evidence) for path in below]


def _siblings(evidence: Evidence, data: str) -> list[PastRun]:
    """Finished runs in the folder of a run's folder that were about the same data; what cannot be read is left out."""
    above = evidence.folder.resolve().parent
    found = []
    for path in sorted(above.iterdir())[:MAX_FOLDERS]:
        own = path == evidence.folder.resolve() or path.is_symlink()
        if own or not data or not all((path / name).is_file() for name in (RECORD, CHARGES, GUARANTEE)):
            continue
        with suppress(DossierError):
            if read(path, RECORD).record(FolderRecord).data_sha256 == data:
                found.append(_of_run(path, evidence))
    return found


def _of_run(folder: Path, evidence: Evidence) -> PastRun:
    file = read(folder, CHARGES)
    # What devices hold nobody can digest.
    over_devices = os.path.lexists(folder / DEVICES)
    data = None if over_devices else read(folder, RECORD).record(FolderRecord).data_sha256
    ledger = read_ledger(file)
    return _past(
        folder.name, ledger, date_of(file), data or "", cited(file, "entries", copied=False),
        current=evidence.kind in ("run", "devices") and folder.resolve() == evidence.folder.resolve(),
    )  # fmt: skip


def _of_node(folder: Path, evidence: Evidence) -> list[PastRun]:
    """Every run of a node: by its ledger, and by the book alone where the ledger is gone."""
    kept = read_book(folder)
    book = None if kept is None else kept[0]
    found, chosen = [], evidence.ledger
    for run in ledger_names(folder):
        ledger, file = node_ledger(folder, run, book)
        current = evidence.kind == "node" and chosen is not None and chosen.value.head == ledger.head
        found.append(_past(run, ledger, date_of(file), "", cited(file, "entries", copied=False), current=current))
    if kept is not None:
        known = {one.name for one in found}
        found += [
            _remembered(cost, cited(kept[1], f"ended[{number}]"))
            for number, cost in enumerate(kept[0].ended)
            if cost.run not in known
        ]
    return found


def _remembered(cost: RunCost, source: Citation) -> PastRun:
    """A run of which a node's book knows the cost, and nothing else is left."""
    return PastRun(
        name=cost.run,
        date="",
        head="",
        entries=0,
        population=0,
        epsilon=math.inf if cost.epsilon is None else cost.epsilon,
        delta=cost.delta,
        mu=None,
        counted=cost.counted,
        data_sha256="",
        source=source,
        current=False,
    )


def _past(name: str, ledger: Ledger, date: str, data: str, source: Citation, *, current: bool) -> PastRun:
    claim, gaussian = ledger.guarantee(), GaussianDp.from_composition(ledger.composition())
    released = bool(ledger.entries)
    return PastRun(
        name=name,
        date=date,
        head=ledger.head,
        entries=len(ledger.entries),
        population=ledger.population,
        epsilon=claim.epsilon if released else 0.0,
        delta=claim.delta if released else 0.0,
        mu=None if gaussian is None else gaussian.mu,
        counted=counted_as(ledger.plan) if released else "",
        data_sha256=data,
        source=source,
        current=current,
    )


def _data_of(evidence: Evidence) -> str:
    file = evidence.files.get(RECORD)
    if evidence.kind != "run" or file is None:
        return ""
    return file.record(FolderRecord).data_sha256 or ""


def _remarks(evidence: Evidence, past: Sequence[PastRun], data: str) -> tuple[str, ...]:
    sizes = {one.population for one in past if one.population}
    other = sum(1 for one in past if data and one.data_sha256 and one.data_sha256 != data)
    return (
        *(
            ["The runs of an audit are experiments and are not in these sums; one that was published counts."]
            if evidence.kind == "audit"
            else []
        ),
        *(
            [f"{other} of these runs were made of data with another digest, as a population's data change."]
            if other
            else []
        ),
        *([f"These runs are about populations of {_range(sizes)} users."] if len(sizes) > 1 else []),
        *(
            ["Runs of one seed on the same data share their noise: publishing two of them voids both guarantees."]
            if evidence.kind == "run" and len(past) > 1
            else []
        ),
    )


def _range(sizes: set[int]) -> str:
    return f"{min(sizes):,} to {max(sizes):,}"
