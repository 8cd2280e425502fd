"""What a node keeps: its record on disk, and in memory what a process makes of it."""

import hashlib
import logging
import secrets
import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from privfed.engines.nodes.account_file import AccountFile
from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.budget import Budget, run_cost
from privfed.engines.nodes.errors import StateError, UnknownRunError
from privfed.engines.nodes.files import locked, read_file, write_file
from privfed.engines.nodes.record import FILE as RECORD
from privfed.engines.nodes.record import ActiveRun, Book, NodeRecord, RunCost
from privfed.privacy import Ledger, LedgerError, PrivacyPlan
from privfed.setup.assembly import Assembly

_log = logging.getLogger("privfed.nodes")
_ROOT, _STATE = "secret.key", "state"


@dataclass(slots=True, eq=False)
class RunMemory:
    """What one process keeps of a run between messages; another process makes it anew from the record.

    Attributes:
        assembly: the clients of the node's users.
        start: their private state as the run began.
        loaded: whether the clients have the private state that the next query starts from.
        ledger: of the run.
        accounts: of releases of the run that share one.
        budget: over all runs.
        version: of the record that it belongs to.
    """

    assembly: Assembly | None = None
    start: dict[str, Tensor] = field(default_factory=dict)
    loaded: bool = False
    ledger: Ledger | None = None
    accounts: AccountFile | None = None
    budget: Budget | None = None
    version: int = 0


class NodeState:
    """The book and the records of a node, and the memory of its process.

    Args:
        folder: the node's own.

    Attributes:
        book: of all runs, as it is on disk, or as the message that is being answered changes it.
        record: of the run that the message is about, likewise.
        entropy: of this process, never written down: noise that was drawn before a restart cannot be drawn again, also
            where the folder was restored from a copy.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.states = folder, folder / _STATE
        self.book, self.record = Book(), NodeRecord()
        self.entropy = secrets.token_bytes(ROOT_BYTES)
        self._name, self._booked = "", ""
        self._memories: dict[str, RunMemory] = {}

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self.states / self._name

    @property
    def memory(self) -> RunMemory:
        """Of the run."""
        return self._memories.setdefault(self._name, RunMemory())

    @property
    def epoch(self) -> str:
        """Name of this process, from which its entropy does not follow."""
        return hashlib.sha256(b"privfed epoch" + self.entropy).hexdigest()[:16]

    def locked(self) -> AbstractContextManager[None]:
        """One message at a time, whichever process serves it."""
        return locked(self.states)

    def open(self, run: str) -> None:
        """Go over to the record of a run, and take over what another process wrote, where one did.

        Raises:
            StateError: the book knows the run and its record is gone, or a file cannot be read.
        """
        self.book, self._name = Book.load(self.states), run
        self._booked = self.book.model_dump_json()
        self.record = NodeRecord.load(self.path)
        if self.record.run is None and run in self.book.active:
            raise StateError(
                f"{self.path / RECORD} is gone although this node takes part in the run: what its users have spent is "
                "not known, so the run is refused; bring that very file back, no older copy, or begin a new run"
            )
        if self.record.run is not None and run not in self.book.active:
            self._finish_leaving()
        # A run that this node takes no part in leaves nothing in memory, however many of them are named.
        self._memories = {name: memory for name, memory in self._memories.items() if name in self.book.active}
        if self.memory.version != self.record.version:
            self._memories[run] = RunMemory(version=self.record.version)

    def _finish_leaving(self) -> None:
        """Remove the record of a run that the book does not have among the active ones.

        A process that joins a run dies between record and book before it has answered, and one that leaves it dies
        between the book and the removal of the record.

        Raises:
            StateError: something was charged in the run, and the book never heard of it.
        """
        if self.record.charges and not any(cost.run == self._name for cost in self.book.ended):
            raise StateError(
                f"the book in {self.states} does not know run {self._name}, in which {self.record.charges} queries "
                "were recorded: it is older than the record, so what this node has spent is not known; bring the file "
                "back, or take a new folder and a new key"
            )
        shutil.rmtree(self.path, ignore_errors=True)
        self.record = NodeRecord()

    def reload(self) -> None:
        """Take back what an unanswered message changed in book and record."""
        with suppress(StateError):
            self.book, self.record = Book.load(self.states), NodeRecord.load(self.path)

    def forget(self) -> None:
        """Begin the next message of the run as a process that has just started."""
        self.book, self.record = Book(), NodeRecord()
        self.reload()
        self._memories[self._name] = RunMemory(version=self.record.version)

    def save(self) -> None:
        """Write record and book."""
        if self.record.run is not None:
            self.record.save(self.path)
            self.memory.version = self.record.version
        if self.book.model_dump_json() != self._booked:
            self.book.save(self.states)
            self._booked = self.book.model_dump_json()

    def begin(self, record: NodeRecord, memory: RunMemory) -> None:
        """Take part in a new run."""
        self.record, self._memories[self._name] = record, memory
        self.book.active[self._name] = ActiveRun(cost=RunCost(run=self._name, epsilon=0.0, delta=0.0, rounds=0))

    def costs_of_other_runs(self) -> list[RunCost]:
        """Costs of all runs but this one."""
        for name, active in self.book.active.items():
            if name != self._name and active.costed < active.entries:
                record = NodeRecord.load(self.states / name)
                if record.run is None:
                    raise StateError(f"the record of run {name} is gone, so what this node has spent is not known")
                active.cost = run_cost(name, self._opened_ledger(record.run, record), record.tier)
                active.costed = active.entries
        return [*self.book.ended, *(active.cost for name, active in self.book.active.items() if name != self._name)]

    def require_ledgers(self) -> None:
        """Refuse a folder in which the ledger of a run is damaged or older than its record.

        Raises:
            LedgerError, StateError: naming it.
        """
        with self.locked():
            for run in Book.load(self.states).active:
                self.open(run)
                self.ledger()

    def audited(self) -> Book:
        """The book with the costs of all its runs, for whoever serves no request of a run."""
        with self.locked():
            self.open("")
            self.costs_of_other_runs()
            self.save()
            return self.book

    def end(self, cost: RunCost) -> None:
        """Leave the run: what it cost stays counted, and its tensors and secrets are removed with the record."""
        del self.book.active[self._name]
        self.book.ended.append(cost)
        self.book.save(self.states)
        self._booked, self.record = self.book.model_dump_json(), NodeRecord()
        self._memories.pop(self._name, None)
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def run(self) -> Announcement:
        """The announced run.

        Raises:
            UnknownRunError: none was announced.
        """
        if self.record.run is None:
            raise UnknownRunError
        return self.record.run

    @property
    def plan(self) -> PrivacyPlan:
        """The plan of the announced run."""
        return self.run.config.privacy

    def root(self) -> bytes:
        """The node's own secret, from which its users' keys follow; drawn once."""
        path = self.folder / _ROOT
        if not path.exists():
            write_file(path, secrets.token_bytes(ROOT_BYTES))
        root = read_file(path)
        if len(root) != ROOT_BYTES:
            raise StateError(f"{path} is no key of {ROOT_BYTES} bytes; restore it from a copy")
        return root

    def ledger(self) -> Ledger:
        """The node's own ledger of the announced run."""
        if self.memory.ledger is None:
            self.memory.ledger = self._opened_ledger(self.run, self.record)
        return self.memory.ledger

    def accounts(self) -> AccountFile:
        """What has left this node's users of the norm that they may send in the announced run."""
        if self.memory.accounts is None:
            path = self.folder / f"account-{self._name}.jsonl"
            self.memory.accounts = AccountFile(path, self.record.account_entries, self.record.account_head)
        return self.memory.accounts

    def record_accounts(self) -> None:
        """Write what the query in progress takes of them, before anything of it leaves."""
        kept = self.accounts()
        kept.record()
        self.record.account_entries, self.record.account_head = kept.entries, kept.head

    def _opened_ledger(self, run: Announcement, record: NodeRecord) -> Ledger:
        path, plan = self.folder / f"ledger-{run.run}.jsonl", run.config.privacy
        booked = self.book.active.get(run.run)
        seen = [("this node's record", record.charges, record.head)]
        seen += [] if booked is None else [("this node's book", booked.entries, booked.head)]
        try:
            if path.exists() or any(charges for _, charges, _ in seen):
                ledger = Ledger.resume(plan, run.n_users, path, run=run.run, same_noise=False)
                for witness, charges, head in seen:
                    if charges:
                        ledger.require(charges, head, witness)
            else:
                ledger = Ledger(plan, run.n_users, path, run=run.run)
        except OSError as error:
            raise LedgerError(f"ledger {path} cannot be written ({error.strerror}); mend the folder") from error
        if ledger.notice is not None:
            _log.warning("%s", ledger.notice)
        return ledger
