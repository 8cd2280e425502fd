"""`Ledger`: what every query of a run costs, written down before its release is opened.

Rules:

* One query, one entry, one event. Which event is derived here from the plan and the names of the
  blocks, so a caller cannot record something else than what the plan makes the device do.
* `record` returns only after the entry is on disk (append, flush, fsync). A process killed while it writes
  has not opened the release, so a last line cut short is dropped and reported; other damage is refused.
* Lines form a chain of digests (`hash_chain`), whose head is in every checkpoint: lines that were removed, edited,
  moved or rolled back are noticed and refused.
* A line goes where the last one known ended: two processes that continue one ledger would release one query twice,
  under noise of their own each, so the second to write is refused.
* One cohort per round. A second one would be a way to compose queries outside one sampling event.
* A resumed run repeats the rounds after its last checkpoint. The same query of the same run repeats the same
  noise (randomness is addressed), so it shows nothing new and is not counted twice. This holds for a
  simulation resumed on the same build and kind of machine. Where noise is fresh, say so: a repeated query is
  then refused.

File format, JSON lines: a header {format, run, population, plan, digest}, then {previous, one `Entry`, digest} per
line. Participants are written as ranges of user numbers, `0-941,943`: exact, short for everybody and readable for a
few. What had to be dropped stands in a text file next to it, `ledger.notices` for `ledger.jsonl`.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privfed.privacy.composition import Composition, ParticipationCounts, compose
from privfed.privacy.configuring import explain
from privfed.privacy.errors import EntryRefused, LedgerError
from privfed.privacy.events import Bounded, Event, SchemaSummary, SharedAccount, Shares
from privfed.privacy.guarantee import Guarantee, guarantee_for
from privfed.privacy.hash_chain import link, unlink
from privfed.privacy.plan import PrivacyPlan, event_for
from privfed.privacy.user_ranges import all_of, from_ranges, to_ranges

if TYPE_CHECKING:
    from dp_accounting import DpEvent

FORMAT = "privfed-ledger/2"

NEWLINE = b"\n"

Address = tuple[int, str, int]


class Entry(BaseModel):
    """One query as it was recorded.

    Attributes:
        cohort_id: number of the cohort; the key of composition.
        round: round that the cohort belongs to.
        step: name of the client step.
        index: number of the query within its round.
        event: what the query did to each participant's data.
        participants: ranges of user numbers that took part; None where participation is hidden.
        share: of the squared clip norm that the query may use.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    cohort_id: int = Field(ge=0)
    round: int = Field(ge=0)
    step: str = Field(min_length=1)
    index: int = Field(ge=0)
    event: Event
    participants: str | None
    share: float = Field(default=1.0, gt=0, le=1)

    @property
    def address(self) -> Address:
        """What makes a query unique in a run: (cohort, step, index)."""
        return self.cohort_id, self.step, self.index

    def members(self) -> Int64[np.ndarray, " members"] | None:
        """User numbers that took part, ascending; None where hidden.

        An entry that a ledger holds names users of its population, which it has compared before.
        """
        return None if self.participants is None else all_of(self.participants)


class Ledger:
    """The record of one run's queries.

    Args:
        plan: the run's privacy plan.
        population: number of users.
        path: JSON-lines file to append to; None keeps the ledger in memory.
        run: name of the run's key, so that a ledger is never continued by a run with other noise.

    Attributes:
        notice: a sentence about a last line that was cut short and has been dropped by this resume; None otherwise.
        notices: such sentences of all resumes of this run.

    Raises:
        PlanError: the sampling rule does not fit the population.
        LedgerError: the file exists already.
    """

    def __init__(self, plan: PrivacyPlan, population: int, path: str | Path | None = None, *, run: str = "") -> None:
        plan.check(population)
        self.plan, self.population, self.run = plan, population, run
        self.path = None if path is None else Path(path)
        self.notice: str | None = None
        self.notices: tuple[str, ...] = ()
        self._digests = [link(None, self._header())[1]]
        self._entries: list[Entry] = []
        self._addresses: dict[Address, Entry] = {}
        self._cohort_of: dict[int, int] = {}
        self._round_of: dict[int, int] = {}
        self._repeatable: set[Address] = set()
        self._tally = ParticipationCounts(population)
        self._accounts: Counter[Event] = Counter()
        self._latest: tuple[NDArray[Any], str] | None = None
        self._size = 0
        if self.path is not None:
            if self.path.exists():
                raise LedgerError(f"ledger {self.path} exists already: resume it, or choose another folder")
            self._append(link(None, self._header())[0])
            _sync_folder(self.path.parent)

    @classmethod
    def resume(
        cls,
        plan: PrivacyPlan,
        population: int,
        path: str | Path,
        *,
        run: str = "",
        same_noise: bool = True,
    ) -> "Ledger":
        """Continue the ledger at `path`.

        Args:
            plan: must equal the plan of the file.
            population: must equal the population of the file.
            path: the JSON-lines file.
            run: must equal the run of the file.
            same_noise: whether a query that is repeated gets the very same noise again (a simulation with
                addressed randomness). False refuses to repeat a recorded query.

        Raises:
            LedgerError: missing, damaged or foreign file.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                # Whoever writes a line holds the file until it is whole, so one cut short has nobody to finish it.
                fcntl.flock(file, fcntl.LOCK_SH)
                content = file.read()
        except OSError as error:
            raise LedgerError(f"ledger {path} cannot be read ({error.strerror}): no run resumes without it") from error
        whole, newline, cut = content.rpartition(NEWLINE)
        ledger = cls(plan, population, run=run)
        ledger.path, ledger._size = path, len(whole) + len(newline)
        header = link(None, ledger._header())[0]
        if not newline and not header.encode().startswith(cut):
            raise LedgerError(f"ledger {path} does not begin with the header of this run: no run resumes without it")
        if cut:
            ledger.notice = (
                f"the last line of {path.name} was cut short ({len(cut)} bytes, after {whole.count(NEWLINE)} "
                "entries) and has been dropped: its recording had not returned, so nothing had been released for it"
            )
            _add_notice(_notices(path), ledger.notice)
            with path.open("r+b") as file:
                file.truncate(ledger._size)
        ledger.notices = _read_notices(_notices(path))
        lines = whole.decode("utf-8", errors="replace").split("\n") if newline else []
        if not lines:
            ledger._append(header)
            return ledger
        ledger._read(lines, f"ledger {path}")
        if same_noise:
            ledger._repeatable = set(ledger._addresses)
        return ledger

    def _read(self, lines: Sequence[str], where: str) -> None:
        """Take over the lines of a file.

        Raises:
            LedgerError: they are of another run or format, or no longer what was written.
        """
        _check_format(_header_of(lines[0]), where)
        header, digest = unlink(None, lines[0], f"{where}, line 1")
        self._check_header(header, where)
        self._digests = [digest]
        for number, line in enumerate(lines[1:], start=2):
            place = f"{where}, line {number}"
            data, digest = unlink(self.head, line, place)
            self._record(_entry(data, place), digest)

    @property
    def head(self) -> str:
        """Digest of the last line: it depends on every entry, their order, and the header."""
        return self._digests[-1]

    @property
    def entries(self) -> Sequence[Entry]:
        """Recorded queries in order."""
        return tuple(self._entries)

    @property
    def participations(self) -> Int64[np.ndarray, " population"]:
        """Releases that each user took part in (everybody, where participation is hidden)."""
        return self._tally.participations.copy()

    def record(
        self,
        *,
        cohort_id: int,
        round: int,
        step: str,
        index: int,
        schema: SchemaSummary,
        participants: Int64[np.ndarray, " members"] | None,
    ) -> Entry:
        """Record one query; only when this has returned may its release be opened.

        Args:
            cohort_id: number of the cohort.
            round: round of the cohort.
            step: name of the client step.
            index: number of the query within the round.
            schema: names of the blocks that the plan clips and noises, and of those that leave exactly.
            participants: distinct user numbers that take part; None only where a trusted aggregator hides
                them.

        Returns:
            The entry, as written.

        Raises:
            LedgerError: second cohort of a round, a query recorded before, participants that do not fit the plan,
                or a file that cannot be written. Nothing may be released then.
        """
        entry = Entry(
            cohort_id=cohort_id,
            round=round,
            step=step,
            index=index,
            event=event_for(self.plan, schema, self.population),
            participants=self._participants(participants),
            share=schema.share,
        )
        earlier = self._addresses.get(entry.address)
        if earlier is not None:
            self._repeat(earlier, entry)
            return earlier
        self._check_cohort(entry)
        self._check_account(entry.event)
        line, digest = link(self.head, entry.model_dump(mode="json"))
        self._append(line)
        self._record(entry, digest)
        return entry

    def copy(self) -> "Ledger":
        """The same entries in memory, to try further ones out."""
        copied = Ledger(self.plan, self.population, run=self.run)
        for entry, digest in zip(self._entries, self._digests[1:], strict=True):
            copied._record(entry, digest)
        return copied

    def composition(self) -> Composition:
        """What all recorded queries amount to for the worst-off user."""
        return self._tally.composition(self.plan.mechanism.trust, self.plan.sampling)

    def composition_of(self, weight: float) -> Composition:
        """What they amount to for the worst-off user of a tier whose uploads count so much."""
        return compose(
            ((entry.cohort_id, self._event(entry, weight), self._known(entry)) for entry in self._entries),
            trust=self.plan.mechanism.trust,
            sampling=self.plan.sampling,
            population=self.population,
        )

    def event(self) -> "DpEvent":
        """The composition as a `dp_accounting.DpEvent` tree."""
        return self.composition().event()

    def guarantee(self, *, seeded: bool = True) -> Guarantee:
        """What may be claimed now.

        Args:
            seeded: whether the noise follows from a seed that someone holds (every simulation).

        Raises:
            AccountingError: no accountant covers what was recorded, or two disagree.
        """
        return guarantee_for(
            self.plan, self.composition(), self.population, seeded=seeded, of_weight=self.composition_of
        )

    def state(self) -> dict[str, Any]:
        """The ledger as a JSON dictionary, for a checkpoint."""
        entries = [entry.model_dump(mode="json") for entry in self._entries]
        return {**self._header(), "entries": entries, "head": self.head}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a checkpoint's `state`.

        An empty ledger without a file becomes that state. A resumed one must begin with exactly the
        checkpoint's entries; what it holds beyond them was recorded after the checkpoint, stays recorded, and
        may be repeated.

        Raises:
            LedgerError: another run, plan or population, a checkpoint that was edited, or a ledger file that was
                rolled back, edited or lost entries.
        """
        where = "the checkpoint's ledger"
        _check_format(state, where)
        self._check_header(state, where)
        saved = Ledger(self.plan, self.population, run=self.run)
        for number, item in enumerate(state.get("entries", ())):
            entry = _entry(item, f"{where}, entry {number}")
            saved._record(entry, link(saved.head, entry.model_dump(mode="json"))[1])
        if saved.head != state.get("head"):
            raise LedgerError(
                f"{where} was edited, for its head does not fit its {len(saved._entries)} entries: no guarantee could "
                "be honest, so begin again in another folder"
            )
        if self.path is None and not self._entries:
            for entry, digest in zip(saved._entries, saved._digests[1:], strict=True):
                self._record(entry, digest)
            return
        self.require(len(saved._entries), saved.head, "the checkpoint")
        self._repeatable -= set(saved._addresses)

    def require(self, entries: int, head: str, witness: str) -> None:
        """Return quietly where the first entries are those that somebody has seen.

        Args:
            entries: number of entries there were then.
            head: of the chain then.
            witness: who has seen them, for the error.

        Raises:
            LedgerError: the ledger was rolled back, or these entries are others.
        """
        name = self.path or "in memory"
        if len(self._entries) < entries:
            raise LedgerError(
                f"ledger {name} holds {len(self._entries)} entries where {witness} has seen {entries}: it was rolled "
                "back or lost entries, so no guarantee could be honest; restore the file, or begin again elsewhere"
            )
        if self._digests[entries] != head:
            raise LedgerError(
                f"ledger {name} does not begin with the {entries} entries that {witness} has seen: it was edited or "
                "belongs to another run, so no guarantee could be honest; restore the file, or begin again elsewhere"
            )

    def _header(self) -> dict[str, Any]:
        return {"format": FORMAT, "run": self.run, "population": self.population, "plan": self.plan.to_dict()}

    def _check_header(self, found: Mapping[str, Any], where: str) -> None:
        for key, wanted in self._header().items():
            if found.get(key) != wanted:
                raise LedgerError(
                    f"{where} has {key} = {found.get(key)!r} where this run has {wanted!r}: entries of "
                    "different runs cannot be mixed"
                )

    def _participants(self, members: NDArray[Any] | None) -> str | None:
        sampling = self.plan.sampling
        if members is None:
            if (trust := self.plan.mechanism.trust) != "central":
                raise EntryRefused(
                    f"participants are missing: under trust '{trust}' the server sees who answers, so they are counted"
                )
            return None
        if members.ndim != 1 or not np.issubdtype(members.dtype, np.integer):
            raise EntryRefused(
                f"participants have shape {members.shape} and type {members.dtype}: expected a list of user numbers"
            )
        if self._latest is not None and np.array_equal(self._latest[0], members):
            return self._latest[1]
        ordered = np.sort(members)
        outside = ((ordered < 0) | (ordered >= self.population)).any()
        if outside or (np.diff(ordered) == 0).any():
            raise EntryRefused(f"participants must be distinct user numbers from 0 to {self.population - 1}")
        if len(ordered) > sampling.max_cohort(self.population):
            raise EntryRefused(
                f"{len(ordered)} users take part where sampling '{sampling.label}' allows "
                f"{sampling.max_cohort(self.population)}"
            )
        self._latest = members.copy(), to_ranges(ordered)
        return self._latest[1]

    def _repeat(self, earlier: Entry, again: Entry) -> None:
        """A query recorded before: allowed once after a resume, when it is the very same query."""
        address = f"step '{again.step}', index {again.index} of cohort {again.cohort_id}"
        if again != earlier:
            raise EntryRefused(f"{address} was recorded as a different query: a resumed run must repeat itself exactly")
        if again.address not in self._repeatable:
            raise EntryRefused(f"{address} was recorded before: number the queries of a round with a fresh index")
        self._repeatable.discard(again.address)

    def _check_cohort(self, entry: Entry) -> None:
        cohort_id, round_ = self._cohort_of.get(entry.round), self._round_of.get(entry.cohort_id)
        if cohort_id is not None and cohort_id != entry.cohort_id:
            raise EntryRefused(
                f"round {entry.round} has cohort {cohort_id} and a query of cohort {entry.cohort_id}: one cohort per "
                "round, so that queries of one round compose inside one sampling event"
            )
        if round_ is not None and round_ != entry.round:
            raise EntryRefused(
                f"cohort {entry.cohort_id} belongs to round {round_}, not {entry.round}: number cohorts afresh"
            )

    def _record(self, entry: Entry, digest: str) -> None:
        if entry.address in self._addresses:
            raise LedgerError(f"the query {entry.address} (cohort, step, index) is recorded twice")
        self._check_cohort(entry)
        self._check_mechanism(entry)
        if isinstance(entry.event, SharedAccount):
            self._accounts[entry.event] += 1
        self._tally.add(entry.cohort_id, entry.event, self._known(entry))
        self._entries.append(entry)
        self._digests.append(digest)
        self._addresses[entry.address] = entry
        self._cohort_of[entry.round], self._round_of[entry.cohort_id] = entry.cohort_id, entry.round

    def _check_account(self, event: Event) -> None:
        """An account covers so many releases: noise and rounding were sized for these."""
        if isinstance(event, SharedAccount) and (made := self._accounts[event]) >= event.queries:
            raise EntryRefused(
                f"the account of {event.name} covers {event.queries} releases and {made} were made: begin a new year"
            )

    def _check_mechanism(self, entry: Entry) -> None:
        """A bounded mechanism must be what this plan makes devices do: a file may have been edited."""
        if not isinstance(entry.event, Bounded):
            return
        own = self._event(entry, 1.0)
        if entry.event != own:
            raise LedgerError(
                f"cohort {entry.cohort_id} is recorded as {entry.event!r} where the plan makes it {own!r}: the "
                "ledger does not belong to this plan"
            )

    def _event(self, entry: Entry, weight: float) -> Event:
        """What a recorded query is under this plan for somebody whose uploads count so much."""
        if not isinstance(entry.event, Bounded):
            return entry.event
        account = entry.event if isinstance(entry.event, SharedAccount) else None
        name, refreshes = ("any", 1) if account is None else (account.name, account.queries)
        event = entry.event if account is None else account.whole
        coordinates = event.coordinates // refreshes if isinstance(event, Shares) else 1
        schema = SchemaSummary((name,), (), coordinates, entry.share, refreshes)
        return event_for(self.plan, schema, self.population, weight)

    def _known(self, entry: Entry) -> Int64[np.ndarray, " members"] | None:
        """Who took part, bounded by the population before a number of them is made."""
        return None if entry.participants is None else from_ranges(entry.participants, limit=self.population)

    def _append(self, text: str) -> None:
        """Write one line and wait until the disk has it; a failed write leaves the file as it was."""
        if self.path is None:
            return
        line = text.encode() + NEWLINE
        try:
            if not self._size:
                self.path.touch(0o600)  # it names users
            # Not in a mode that makes the file: one that is gone must not begin anew.
            with self.path.open("r+b") as file:
                # Held until the file is closed: nobody writes between the look at its size and the line.
                fcntl.flock(file, fcntl.LOCK_EX)
                if (size := os.fstat(file.fileno()).st_size) != self._size:
                    raise LedgerError(
                        f"ledger {self.path} has {size} bytes and had {self._size}: another process writes it, and "
                        "both would release the same queries; stop one, then resume"
                    )
                file.seek(size)
                try:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    os.ftruncate(file.fileno(), size)
                    raise
                self._size = size + len(line)
        except OSError as error:
            raise LedgerError(
                f"ledger {self.path} cannot be written ({error.strerror}): nothing may be released uncharged"
            ) from error


def _header_of(line: str) -> Any:
    """What the first line says, before anything in it is believed; None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _check_format(found: Any, where: str) -> None:
    if not isinstance(found, Mapping):
        raise LedgerError(f"{where} does not begin with the header of a ledger")
    if (given := found.get("format")) != FORMAT:
        raise LedgerError(
            f"{where} has format = {given!r} where this version reads {FORMAT!r} only (older ones have no chain of "
            "digests): finish the run with the version that began it, or begin again in another folder"
        )


def _notices(path: Path) -> Path:
    """The file of sentences about what had to be dropped from a ledger."""
    return path.with_suffix(".notices")


def _read_notices(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(errors="replace").splitlines()) if path.exists() else ()


def _add_notice(path: Path, notice: str) -> None:
    path.touch(0o600)
    with path.open("a") as file:
        file.write(f"{notice}\n")
        file.flush()
        os.fsync(file.fileno())


def _entry(data: Any, where: str) -> Entry:
    try:
        return Entry.model_validate(data)
    except ValidationError as error:
        raise LedgerError(f"{where} is not an entry: {explain(error, Entry)}") from error


def _sync_folder(folder: Path) -> None:
    """Make a new file's name survive a power cut, where the system offers it."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
