"""What a node keeps: its record on disk, and in memory what a process makes of it."""

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.budget import Budget
from privfed.engines.nodes.errors import StateError, UnknownRunError
from privfed.engines.nodes.files import make_folder, private, read_file, write_file
from privfed.engines.nodes.record import NodeRecord
from privfed.privacy import Ledger, LedgerError, PrivacyPlan
from privfed.setup.assembly import Assembly

_log = logging.getLogger("privfed.nodes")
_ROOT, _LOCK, _STATE = "secret.key", "lock", "state"


@dataclass(slots=True, eq=False)
class RunMemory:
    """What one process keeps of a run between messages; another process makes it anew from the record.

    Attributes:
        assembly: the clients of the node's users.
        start: their private state as the run began.
        loaded: whether the clients have the private state that the next query starts from.
        ledger: of the run.
        budget: over all runs.
    """

    assembly: Assembly | None = None
    start: dict[str, Tensor] = field(default_factory=dict)
    loaded: bool = False
    ledger: Ledger | None = None
    budget: Budget | None = None


class NodeState:
    """The record of a node and the memory of its process.

    Args:
        folder: the node's own.

    Attributes:
        path: of the record and the tensors that it names.
        record: as it is on disk, or as the message that is being answered changes it.
        memory: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / _STATE
        self.record = NodeRecord()
        self.memory = RunMemory()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One message at a time, whichever process serves it."""
        make_folder(self.path)
        try:
            file = os.fdopen(private(self.path / _LOCK, os.O_RDWR | os.O_CREAT), "ab")
        except OSError as error:
            raise StateError(
                f"{self.path} cannot be written ({error.strerror}); mend the folder, then go on"
            ) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def refresh(self) -> None:
        """Take over what another process wrote, where one did."""
        saved = NodeRecord.load(self.path)
        if saved.version != self.record.version:
            self.forget()
            self.record = saved

    def reload(self) -> None:
        """Take back what an unanswered message changed in the record."""
        with suppress(StateError):
            self.record = NodeRecord.load(self.path)

    def forget(self) -> None:
        """Begin the next message as a process that has just started."""
        self.record, self.memory = NodeRecord(), RunMemory()
        self.reload()

    def save(self) -> None:
        """Write the record."""
        self.record.save(self.path)

    def replace(self, record: NodeRecord, memory: RunMemory) -> None:
        """Go over to another run."""
        self.record, self.memory = record, memory

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
            self.memory.ledger = self._opened_ledger(self.run)
        return self.memory.ledger

    def _opened_ledger(self, run: Announcement) -> Ledger:
        record, path, plan = self.record, self.folder / f"ledger-{run.run}.jsonl", run.config.privacy
        try:
            if path.exists() or record.charges:
                ledger = Ledger.resume(plan, run.population, path, run=run.run, same_noise=False)
                if record.charges:
                    ledger.require(record.charges, record.head, "this node's record")
            else:
                ledger = Ledger(plan, run.population, path, run=run.run)
        except OSError as error:
            raise LedgerError(f"ledger {path} cannot be written ({error.strerror}); mend the folder") from error
        if ledger.notice is not None:
            _log.warning("node %d: %s", record.node, ledger.notice)
        return ledger
