"""What is known of a run, a setting of an audit or a run of nodes or devices: each value with its file, key and digest.

A value that nobody recorded is None here. It is never guessed: who reads the record says who has to fill the gap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from privfed.audit.report.records import (
    AttributeRow,
    Check,
    EmpiricalRow,
    GuaranteeRow,
    Interval,
    LinkRow,
    NotRun,
    ObserverRow,
    SupportLeak,
)
from privfed.dossier.reading import FileRead

Kind = Literal["run", "audit", "node", "devices"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a value stands.

    Attributes:
        file: name of the file in the folder that the dossier is about.
        key: path in it, or what was worked out from it.
        sha256: of the file.
        copied: whether the dossier holds a copy; files that name users are not copied.
    """

    file: str
    key: str
    sha256: str
    copied: bool = True

    def __str__(self) -> str:
        return f"{self.file} · {self.key} · sha256 {self.sha256[:12]}"


@dataclass(frozen=True, slots=True)
class Datum(Generic[T]):
    """A value and where it stands."""

    value: T
    source: Citation


@dataclass(frozen=True, slots=True)
class Utility:
    """One metric on the test part, with what it has to beat.

    Attributes:
        name: for people, such as "NDCG@10".
        value: of the method, with its 95 % interval over people.
        popularity: of ranking by popularity, under the same protocol; None where that was not recorded.
        gain: the difference, paired by person; None where that was not recorded.
        noisy: whether it was read off a noisy sum that epsilon covers.
    """

    name: str
    value: Interval
    popularity: Interval | None
    gain: Interval | None
    noisy: bool = False

    @property
    def useful(self) -> bool | None:
        """Whether it lies above popularity by more than the intervals; None where it cannot be told."""
        if self.gain is not None:
            return self.gain.lo > 0
        return None if self.popularity is None else self.value.lo > self.popularity.hi


@dataclass(frozen=True, slots=True)
class Attack:
    """What one attack reached.

    Attributes:
        name: of the attack.
        tap: where it listened.
        game: what it had to tell apart.
        auc: share of right guesses, with its 95 % interval over people.
        popularity_auc: of guessing by popularity on the same pairs.
        gain: the difference with its interval.
        rounds: rounds that it joined.
        unit: interaction or user.
    """

    name: str
    tap: str
    game: str
    auc: Interval
    popularity_auc: float
    gain: Interval
    rounds: int
    unit: str


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A value for a group of people, with its interval.

    Attributes:
        name: of the group.
        value: of the group.
    """

    name: str
    value: Interval


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """The end of a chain of releases: it depends on every one of them.

    Attributes:
        head: digest of the last line.
        entries: number of queries.
        population: users that the ledger is about.
    """

    head: str
    entries: int
    population: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything a dossier says something from; None where nothing was recorded.

    Attributes:
        kind: what the folder holds.
        folder: the folder.
        name: of what the dossier is about, for people.
        files: copied into the dossier, by name.
        version: of privfed that wrote the folder.
        when: date of the last release, or of the report.
        method: that was trained.
        plan: the privacy plan, in words.
        settings: the plan as it was configured.
        data: card of the data set.
        split: how held-out items were chosen.
        protocol: how quality was measured.
        guarantee: what may be claimed.
        mu: of Gaussian differential privacy.
        mu_missing: why there is none.
        ledger: head of the ledger.
        releases: what was released, a line each.
        randomness: where noise comes from.
        machine: versions and machine that the folder records.
        utility: metrics on the test part.
        utility_groups: quality by tenth of people.
        leak_groups: the main attack by tenth of people.
        strongest: the attack that speaks for leakage, chosen on one half of the people and measured on the other.
        chosen_at: likewise at a place ("uploads", "linked uploads", "model" or "scores"), where anything was measured.
        attacks: what attacks reached over all audited people, popularity left out; a maximum of them is no measurement.
        inclusion: the strongest attack in the game that random inclusion bits decide.
        empirical: measured epsilons.
        attributes: guesses at attributes of people.
        links: how well people are found again from their uploads of one round to those of another.
        observers: who may look, and what they found.
        support: what named rows give away.
        checks: tests of what ran against what is claimed.
        contradictions: claims that numbers deny.
        not_run: what was not done, and why.
        upload_bytes: that a client sends in a round.
        clipped: share of uploads that the clip changed.
        policy: of the node's owner.
        seeds: number of runs that numbers are means of.
    """

    kind: Kind
    folder: Path
    name: str
    files: Mapping[str, FileRead]
    version: Datum[str] | None = None
    when: Datum[str]
    method: Datum[str] | None = None
    plan: Datum[str] | None = None
    settings: Datum[Mapping[str, Any]] | None = None
    data: Datum[Mapping[str, Any]] | None = None
    split: Datum[str] | None = None
    protocol: Datum[str] | None = None
    guarantee: Datum[GuaranteeRow]
    mu: Datum[float] | None = None
    mu_missing: str = ""
    ledger: Datum[LedgerHead] | None = None
    releases: Datum[tuple[str, ...]] | None = None
    randomness: Datum[str] | None = None
    machine: Datum[Mapping[str, Any]] | None = None
    utility: tuple[Datum[Utility], ...] = ()
    utility_groups: Datum[tuple[GroupValue, ...]] | None = None
    leak_groups: Datum[tuple[GroupValue, ...]] | None = None
    strongest: Datum[Attack] | None = None
    chosen_at: Mapping[str, Datum[Attack]] = field(default_factory=dict)
    attacks: tuple[Datum[Attack], ...] = ()
    inclusion: Datum[Attack] | None = None
    empirical: tuple[Datum[EmpiricalRow], ...] = ()
    attributes: tuple[Datum[AttributeRow], ...] = ()
    links: tuple[Datum[LinkRow], ...] = ()
    observers: tuple[Datum[ObserverRow], ...] = ()
    support: Datum[SupportLeak] | None = None
    checks: tuple[Datum[Check], ...] = ()
    contradictions: tuple[Datum[str], ...] = ()
    not_run: tuple[Datum[NotRun], ...] = field(default=())
    upload_bytes: Datum[float] | None = None
    clipped: Datum[float] | None = None
    policy: Datum[Mapping[str, Any]] | None = None
    seeds: Datum[int] | None = None

    @property
    def synthetic(self) -> bool:
        """Whether the data were generated: then nothing here is a measurement on people."""
        return self.data is not None and bool(self.data.value.get("synthetic"))

    @property
    def simulated(self) -> bool:
        """Whether all parties were in one process: then it protected nobody."""
        return self.kind in ("run", "audit")

    @property
    def main(self) -> Datum[Utility] | None:
        """The metric that speaks for quality: NDCG at the shortest cut-off, else the first."""
        return next((one for one in self.utility if one.value.name.startswith("NDCG")), next(iter(self.utility), None))


PLACES: dict[str, Callable[[str, int], bool]] = {
    "uploads": lambda tap, _: tap in ("wire", "support"),
    "linked uploads": lambda tap, rounds: tap in ("wire", "support") and rounds > 1,
    "model": lambda tap, _: tap in ("sum", "model"),
    "scores": lambda tap, _: tap == "scores",
}
"""Where an attack listens, and over how many rounds: each place has a strongest attack of its own."""

MU_OF_OTHERS = "mu and rho are defined for Gaussian releases without sampling alone, and this composition holds others"
MU_OF_NOTHING = "nothing bounds what was released, so no mu describes it"


def cited(file: FileRead, key: str, *, copied: bool = True) -> Citation:
    """Where a value of a file stands."""
    return Citation(file.name, key, file.sha256, copied)
