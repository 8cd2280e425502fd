"""What a node remembers between two messages: one small record, replaced as a whole, and the tensors that it names.

The record holds the session of the masked sum with its secrets, so it is readable by its owner alone. A file that it
does not name is left over from a message that was never finished, and is removed.
"""

from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from privfed.engines.nodes.announcement import Announcement
from privfed.engines.nodes.codec import Array, Packet
from privfed.engines.nodes.errors import MessageError, StateError
from privfed.engines.nodes.files import read_file, write_file

FILE = "record.json"
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


class NodeRecord(BaseModel):
    """The state of a node.

    Attributes:
        version: counts up with every change.
        serial: of the last request that was accepted.
        run: the announced run it takes part in.
        node: its number there.
        seat: its id in masked sums there.
        session: the last masked sum that it advertised keys for; -1 before the first.
        invited: SHA-256 of the invitation to it.
        advertised: the public keys that answered it.
        masking: the masked sum's state, secrets in it; empty where there is none.
        cohort_id: of the latest query; -1 before the first.
        query: number of queries of that cohort that it has answered.
        calls: files of these queries, where a cohort gets several, to be repeated by a process that starts in between.
        base: file of private tensors before the first query of the cohort; null is the start of the run.
        current: file of private tensors now.
        staged: the last query whose outcome is not known.
        before: file to go back to where its release did not come about.
        charges: number of entries of the run's own ledger.
        head: of that ledger's hash chain; empty before the first entry.
        salt: 64 hexadecimal digits that this node drew for the run: its users' keys follow from its root and from them.
        calls_digest: of the queries of the latest cohort that something left for, by number.
        earlier: costs of earlier runs.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = 0
    serial: int = -1
    run: Announcement | None = None
    node: int = -1
    seat: int = -1
    session: int = -1
    invited: str = ""
    advertised: str = ""
    masking: str = ""
    cohort_id: int = -1
    query: int = 0
    calls: list[str] = Field(default_factory=list)
    base: str | None = None
    current: str | None = None
    staged: QueryAddress | None = None
    before: str | None = None
    charges: int = 0
    head: str = ""
    salt: str = ""
    calls_digest: dict[int, str] = Field(default_factory=dict)
    earlier: list[RunCost] = Field(default_factory=list)

    @classmethod
    def load(cls, folder: Path) -> "NodeRecord":
        """The record in a node's folder; a fresh one where there is none yet.

        Raises:
            StateError: it is there and cannot be read.
        """
        if not (folder / FILE).exists():
            return cls()
        try:
            return cls.model_validate_json(read_file(folder / FILE))
        except ValidationError as error:
            raise StateError(
                f"{folder / FILE} is damaged ({error.error_count()} values); restore it, or take a new folder and a "
                "new node number"
            ) from error

    def save(self, folder: Path) -> None:
        """Write it, then remove what it no longer names.

        Raises:
            StateError: it cannot be written; what was there stays.
        """
        self.version += 1
        write_file(folder / FILE, self.model_dump_json().encode())
        named = {self.base, self.current, self.before, *self.calls}
        for kind in (_TENSORS, _QUERIES):
            for path in folder.glob(f"{kind}*"):
                if path.name not in named:
                    path.unlink(missing_ok=True)


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
