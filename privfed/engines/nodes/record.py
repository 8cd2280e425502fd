"""What a node remembers between two messages: a small record of every run, and a book of what all runs cost.

    state/book.json            runs that it takes part in, runs that have ended, the receipt of everything recorded
    state/<run>/record.json    one run

A record holds the session of the masked sum with its secrets, so it is readable by its owner alone. A file that it does
not name is left over from a message that was never finished, and is removed. The book is written after the record: it
may lag behind by the message in which a process died, and never runs ahead.
"""

import hashlib
from pathlib import Path
from typing import Self, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import MessageError, StateError
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.engines.nodes.protocol import OLDEST

FILE, BOOK = "record.json", "book.json"
_TENSORS, _QUERIES = "private-", "query-"

QueryAddress = tuple[int, int]
"""Cohort and query."""


class RunCost(BaseModel):
    """What an earlier run cost this node's users.

    Attributes:
        run: its name.
        epsilon: of the worst-off user; null where nothing was guaranteed.
        delta: at which epsilon was computed; 1, which no policy allows, where a record does not say it.
        pure: epsilon at a delta of 0; null where there is none.
        counted: unit, neighbours and trust that epsilon is about (`counted_as`); empty where nothing left.
        rounds: in which anything left.
    """

    model_config = ConfigDict(extra="forbid")
    run: str
    epsilon: float | None = Field(ge=0, allow_inf_nan=False)
    delta: float = Field(1.0, ge=0, le=1)
    pure: float | None = Field(None, ge=0, allow_inf_nan=False)
    counted: str = ""
    rounds: int = Field(ge=0)


class ActiveRun(BaseModel):
    """A run that a node takes part in, as the book has it.

    Attributes:
        entries: number of entries of the run's ledger.
        head: of that ledger's hash chain; empty before the first entry.
        cost: of the first `costed` entries.
        costed: how many of them.
    """

    model_config = ConfigDict(extra="forbid")

    entries: int = 0
    head: str = ""
    cost: RunCost
    costed: int = 0


class Book(BaseModel):
    """What a node knows of all its runs.

    Attributes:
        version: counts up with every change.
        federation: highest version of the federation file that was pinned here.
        sequence: number of entries of all ledgers together.
        head: of the hash chain over all of them.
        active: runs that it takes part in.
        ended: costs of the others.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = 0
    federation: int = 0
    sequence: int = 0
    head: str = ""
    active: dict[str, ActiveRun] = Field(default_factory=dict)
    ended: list[RunCost] = Field(default_factory=list)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The book in a node's folder of states; a fresh one where there is none yet.

        Raises:
            StateError: it is there and cannot be read, or it is gone although queries were recorded.
        """
        return _load(cls, folder / BOOK) or cls._fresh(folder)

    @classmethod
    def _fresh(cls, folder: Path) -> Self:
        # A ledger's first line is its header: one that is longer was written when there was a book.
        for ledger in folder.parent.glob("ledger-*.jsonl"):
            if read_file(ledger).count(b"\n") > 1:
                raise StateError(
                    f"{folder / BOOK} is gone and {ledger.name} has entries: what this node has spent over all runs is "
                    "not known, so it answers nothing; bring that very file back, no older copy, or take a new folder "
                    "and a new key"
                )
        return cls()

    def save(self, folder: Path) -> None:
        """Write it.

        Raises:
            StateError: it cannot be written; what was there stays.
        """
        self.version += 1
        write_file(folder / BOOK, self.model_dump_json().encode())

    def add(self, run: str, entries: int, head: str, epoch: str) -> None:
        """Note the latest entry of a run's ledger, recorded by the process of this name.

        A node that was restored from a copy and is sent the same queries again records the same entries; the name of
        its process makes another chain of them, so that receipts tell.
        """
        self.sequence += 1
        self.head = hashlib.sha256(f"{self.head} {run} {head} {epoch}".encode()).hexdigest()
        self.active[run].entries, self.active[run].head = entries, head


class NodeRecord(BaseModel):
    """The state of a node in one run.

    Attributes:
        version: counts up with every change.
        counter: of the last request that was accepted.
        nonce: that requests of the run have to carry, drawn when it was last announced.
        protocol: version of the messages that was chosen then.
        run: the announcement; None before it.
        session: the last masked sum that it advertised keys for; -1 before the first.
        invited: SHA-256 of the invitation to it.
        advertised: the public keys that answered it.
        masking: the masked sum's state, secrets in it; empty where there is none.
        summed: round whose cohort the latest masked input is of; null where it is everybody, as for metrics.
        round: of the latest cohort; -1 before the first.
        cohort_id: of the latest query; -1 before the first.
        query: number of queries of that cohort that it has answered.
        calls: files of these queries, where a cohort gets several, to be repeated by a process that starts in between.
        base: file of private tensors before the first query of the cohort; null is the start of the run.
        current: file of private tensors now.
        staged: the last query whose outcome is not known.
        before: file to go back to where its release did not come about.
        charges: number of entries of the run's own ledger.
        head: of that ledger's hash chain; empty before the first entry.
        account_entries: number of lines of the file of norms that have left users of the run.
        account_head: digest of the last of these.
        salt: 64 hexadecimal digits that this node drew for the run: its users' keys follow from its root and from them.
        tier: of the node's users, as its policy named it when the node joined; empty where the plan has none.
        epoch: of the process that drew the noise of the latest query.
        calls_digest: of the queries of the latest cohort that something left for, by number.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = 0
    counter: int = -1
    nonce: str = ""
    tier: str = ""
    protocol: int = OLDEST
    run: Announcement | None = None
    session: int = -1
    invited: str = ""
    advertised: str = ""
    masking: str = ""
    summed: int | None = None
    round: int = -1
    cohort_id: int = -1
    query: int = 0
    calls: list[str] = Field(default_factory=list)
    base: str | None = None
    current: str | None = None
    staged: QueryAddress | None = None
    before: str | None = None
    charges: int = 0
    head: str = ""
    account_entries: int = 0
    account_head: str = ""
    salt: str = ""
    epoch: str = ""
    calls_digest: dict[int, str] = Field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "NodeRecord":
        """The record in a run's folder; a fresh one where there is none yet.

        Raises:
            StateError: it is there and cannot be read.
        """
        return _load(cls, folder / FILE) or cls()

    def save(self, folder: Path) -> None:
        """Write it, then remove what it no longer names.

        Raises:
            StateError: it cannot be written; what was there stays.
        """
        self.version += 1
        make_folder(folder)
        write_file(folder / FILE, self.model_dump_json().encode())
        named = {self.base, self.current, self.before, *self.calls}
        for kind in (_TENSORS, _QUERIES):
            for path in folder.glob(f"{kind}*"):
                if path.name not in named:
                    path.unlink(missing_ok=True)


Saved = TypeVar("Saved", bound=BaseModel)


def _load(kind: type[Saved], path: Path) -> Saved | None:
    if not path.exists():
        return None
    try:
        return kind.model_validate_json(read_file(path))
    except ValidationError as error:
        raise StateError(
            f"{path} is damaged ({error.error_count()} values): what this node has spent is not known, so it answers "
            "nothing; take a new folder and have the operator add a new key"
        ) from error


def save_tensors(folder: Path, name: str, tensors: dict[str, Tensor], start: dict[str, Tensor]) -> str | None:
    """Write the rows in which private tensors differ from those of the run's start; returns the file's name.

    Where there are no tensors there is no file.

    Raises:
        StateError: they cannot be written.
    """
    if not tensors:
        return None
    arrays: dict[str, Array] = {}
    for key, values in tensors.items():
        moved = (values != start[key]).flatten(1).any(1) if values.dim() > 1 else values != start[key]
        ids = moved.nonzero().squeeze(1) if values.dim() else torch.empty(0, dtype=torch.int64)
        arrays |= {f"ids/{key}": ids.numpy(), f"rows/{key}": (values[ids] if values.dim() else values).numpy()}
    file = f"{_TENSORS}{name}.pfn"
    write_file(folder / file, Packet({}, arrays).encode())
    return file


def load_tensors(folder: Path, file: str | None, start: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that `save_tensors` wrote.

    Raises:
        StateError: they cannot be read.
    """
    tensors = {name: values.clone() for name, values in start.items()}
    if file is None:
        return tensors
    try:
        packet = Packet.decode(read_file(folder / file))
        for key, values in tensors.items():
            rows = torch.tensor(packet.arrays[f"rows/{key}"])
            if values.dim():
                values[torch.tensor(packet.arrays[f"ids/{key}"])] = rows
            else:
                values.copy_(rows)
    except (MessageError, KeyError, IndexError, RuntimeError) as error:
        raise StateError(f"{folder / file} is damaged ({type(error).__name__}); restore it from a copy") from error
    return tensors


def save_call(folder: Path, name: str, request: bytes) -> str:
    """Keep the request of a query; returns the file's name.

    Raises:
        StateError: it cannot be written.
    """
    file = f"{_QUERIES}{name}.pfn"
    write_file(folder / file, request)
    return file
