"""Private state in files: clients bounded by disk, not by memory.

The tensors of some whole users lie together in a shard, a file of bounded size that is mapped into memory while it is
in use. Every row is there twice, and a byte per user and tensor says which of the two is committed. A step stages into
the other one, a commit turns the bytes over, and an aborted round turns nothing over: nothing is copied, and what a
round staged takes no memory.

The folder belongs to one running process, and nobody resumes from it. A checkpoint streams what is committed into the
file that a run in memory would write, and a run that goes on fills its shards from there, or with first values if no
checkpoint was reached. So there is nothing that a kill could leave half done here, whenever it comes, and a run may go
on in memory that was begun in files, or the other way round.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO
from weakref import WeakSet, finalize

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from privfed.federation.private_state import ClientStateError, PrivateState, Ranges, Start, refuse_other_state

SHARD_BYTES = 256 * 2**20
"""Largest size of a shard, both copies of its users together; a single user's rows are never split."""
_MAPPED = 4
"""Shards that a state keeps mapped, those used last: the kernel counts their pages as memory of the process."""
_AT_ONCE = 16 * 2**20
"""Bytes that are drawn or copied at once."""
_ALIGNED = 64
_OWNER, _SHARDS = "owner.json", "*.shard"


class ShardFolder:
    """A folder for the private state of one run. Nothing is written before `claim`, or before a state is first used.

    Args:
        path: of the folder.
        run: digest of what decides the run's result; a folder of another run is refused.
        shard_bytes: largest size of a shard.

    Raises:
        ClientStateError: the folder cannot be used.
    """

    in_memory = False

    def __init__(self, path: Path, run: str, shard_bytes: int | None = None) -> None:
        self.path, self.run, self.shard_bytes = path, run, shard_bytes or SHARD_BYTES
        self.states: WeakSet[ShardedState] = WeakSet()
        self._lock: TextIO | None = None
        self._refuse_foreign()

    def keep(self, name: str, count: int, start: Start) -> PrivateState:
        """The state of `count` users, in files `NAME-00000.shard` and so on."""
        state = ShardedState(self, name, count, start)
        if not state.names:
            return PrivateState({})
        self.states.add(state)
        self._refuse_full()
        if self._lock is not None:
            self._reserve([state])
        return state

    def claim(self) -> None:
        """Take the folder for this process and reserve all the disk that is needed.

        Raises:
            ClientStateError: it cannot be written, another process uses it, or the disk is full.
        """
        if self._lock is not None:
            return
        self._refuse_foreign()
        self._refuse_full()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # "a+" leaves the file as it is until the lock is held: another process may own it.
            lock = (self.path / _OWNER).open("a+", encoding="utf-8")
            finalize(self, lock.close)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Written once: a process that dies in between must leave no shards without the name of their run.
            if os.fstat(lock.fileno()).st_size:
                self._refuse_foreign()
            else:
                lock.write(json.dumps({"run": self.run}))
                lock.flush()
        except BlockingIOError:
            raise ClientStateError(
                f"another run keeps client state in {self.path} right now: wait for it, or choose another folder"
            ) from None
        except OSError as error:
            raise self._refused(error) from error
        # What a killed process left: no run resumes from shards.
        for left in self.path.glob(_SHARDS):
            left.unlink()
        try:
            self._reserve(self.states)
        except ClientStateError:
            lock.close()
            raise
        self._lock = lock

    def remove(self) -> None:
        """Delete the files of this process, and the folder where nothing else is in it."""
        if self._lock is None:
            return
        for file in (*self.path.glob(_SHARDS), self.path / _OWNER):
            file.unlink()
        self._lock.close()
        self._lock = None
        if not any(self.path.iterdir()):
            self.path.rmdir()

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum(state.nbytes for state in self.states)

    def _reserve(self, states: Iterable["ShardedState"]) -> None:
        """Files whose every byte the disk has room for: writing to them through a mapping cannot fail later."""
        try:
            for state in states:
                for shard in range(state.shards):
                    with state.path(shard).open("wb") as file:
                        os.posix_fallocate(file.fileno(), 0, state.bytes_of(shard))
        except OSError as error:
            for partial in self.path.glob(_SHARDS):
                partial.unlink()
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> ClientStateError:
        return ClientStateError(
            f"client state needs {self.nbytes / 2**30:.2f} GiB in {self.path}, and the operating system refused "
            f"({error.strerror}): see to its permissions and free space, or choose another folder"
        )

    def _refuse_foreign(self) -> None:
        """A folder that holds anything but client state of this run is somebody else's."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise ClientStateError(f"{self.path} is a file: give a folder for client state")
        owner_file = self.path / _OWNER
        if all(file == owner_file and not file.stat().st_size for file in self.path.iterdir()):
            return
        try:
            owner = json.loads(owner_file.read_text(encoding="utf-8"))["run"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise ClientStateError(
                f"{self.path} is not empty and holds no client state: choose another folder for it"
            ) from None
        if owner != self.run:
            raise ClientStateError(
                f"{self.path} holds client state of another run: choose another folder, or delete this one once that "
                f"run is over"
            )

    def _refuse_full(self) -> None:
        """The disk must have room, what a former process of this run left there not counted."""
        there = next(place for place in (self.path, *self.path.absolute().parents) if place.exists())
        free = shutil.disk_usage(there).free + sum(left.stat().st_size for left in self.path.glob(_SHARDS))
        if self._lock is None and self.nbytes > free:
            raise ClientStateError(
                f"client state needs {self.nbytes / 2**30:.2f} GiB in {self.path}, and {free / 2**30:.2f} GiB are free "
                f"there: free space, or choose another folder"
            )


class ShardedState(PrivateState):
    """`PrivateState` in the shards of a folder.

    Args:
        folder: where.
        name: of what there is a row each.
        count: how many users there are.
        start: where they start; called for some users at a time, when their shard is first used.
    """

    def __init__(self, folder: ShardFolder, name: str, count: int, start: Start) -> None:
        self._folder, self._name, self._count, self._start = folder, name, count, start
        self._kinds = start(torch.arange(0))
        self._row = sum(_row_bytes(kind) for kind in self._kinds.values())
        # Two copies of every user's rows, and up to `_ALIGNED` bytes before each tensor.
        self._per_shard = max(1, (folder.shard_bytes - _ALIGNED * len(self._kinds)) // (2 * self._row or 1))
        self._current = {kind: torch.zeros(count, dtype=torch.uint8) for kind in self._kinds}
        self._waiting: list[tuple[Int64[Tensor, " n"], tuple[str, ...]]] = []
        self._mapped: dict[int, dict[str, Tensor]] = {}
        self._filled: set[int] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of a user's tensors."""
        return tuple(self._kinds)

    @property
    def shards(self) -> int:
        """Number of files."""
        return -(-self._count // self._per_shard)

    @property
    def nbytes(self) -> int:
        """Bytes of all shards; the last one has what is left of the users."""
        return (self.shards - 1) * self.bytes_of(0) + self.bytes_of(self.shards - 1) if self.shards else 0

    def path(self, shard: int) -> Path:
        """File of a shard."""
        return self._folder.path / f"{self._name}-{shard:05d}.shard"

    def bytes_of(self, shard: int) -> int:
        """Size of the file of a shard."""
        return self._places(shard)[-1]

    def rows(self, users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Committed values of `users`, copies `[n, *shape]`."""
        return self._read(users, self.names, staged=False)

    def staged(self, users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """Values that the latest step of exactly these `users` staged; their committed ones if there was none.

        A step of other users that came later and had some of them replaces theirs: each user's latest is kept.
        """
        for owners, names in reversed(self._waiting):
            if owners.equal(users):
                return self._read(users, names, staged=True)
        return self.rows(users)

    def stage(self, users: Int64[Tensor, " n"], values: Mapping[str, Tensor]) -> None:
        """Stage new values, which stay apart from the committed ones until `commit`."""
        for shard, at in self._by_shard(users):
            copies, inside = self._copies(shard), users[at]
            for name, new in values.items():
                copies[name].index_copy_(0, self._rows(name, shard, inside, staged=True), new[at])
        self._waiting.append((users, tuple(values)))

    def commit(self) -> None:
        """Make staged values current."""
        # Turned from what is committed, not from one another: a user that two steps staged turns once.
        turned = {name: self._current[name].clone() for name in {name for _, names in self._waiting for name in names}}
        for users, names in self._waiting:
            for name in names:
                turned[name][users] = 1 - self._current[name][users]
        self._current |= turned
        self._waiting.clear()

    def discard(self) -> None:
        """Forget staged values."""
        self._waiting.clear()

    def state(self) -> dict[str, Tensor]:
        """Committed tensors, all of them in memory."""
        return {name: values[:] for name, values in self.ranges().items()}

    def ranges(self) -> Mapping[str, Ranges]:
        """Committed tensors as they are until the next commit, to be read range by range."""
        return {name: _Committed(self, name, (self._count, *kind.shape[1:])) for name, kind in self._kinds.items()}

    def load(self, state: Mapping[str, Ranges]) -> None:
        """Replace committed tensors and forget staged ones.

        Raises:
            ClientStateError: they are of other users, or of other settings.
        """
        refuse_other_state(state, {name: (self._count, *kind.shape[1:]) for name, kind in self._kinds.items()})
        self._waiting.clear()

        # A shard's users follow one another, so a range of the checkpoint holds them.
        def saved(users: Int64[Tensor, " n"]) -> dict[str, Tensor]:
            return {name: values[int(users[0]) : int(users[-1]) + 1] for name, values in state.items()}

        for shard in range(self.shards):
            self._fill(shard, self._map(shard), saved)

    def read(self, name: str, rows: slice) -> Tensor:
        """Committed values of a range of users."""
        return self._read(torch.arange(self._count)[rows], (name,), staged=False)[name]

    def _read(self, users: Int64[Tensor, " n"], names: Sequence[str], *, staged: bool) -> dict[str, Tensor]:
        found = {name: self._kinds[name].new_empty(len(users), *self._kinds[name].shape[1:]) for name in names}
        for shard, at in self._by_shard(users):
            copies, inside = self._copies(shard), users[at]
            for name, values in found.items():
                values[at] = copies[name].index_select(0, self._rows(name, shard, inside, staged=staged))
        return found

    def _by_shard(self, users: Int64[Tensor, " n"]) -> Iterator[tuple[int, slice | Int64[Tensor, " k"]]]:
        """Shards that hold some of the users, and which of the users each holds."""
        if not len(users):
            return
        shards = users.div(self._per_shard, rounding_mode="floor")
        first, last = (int(end) for end in shards.aminmax())
        if first == last:
            # All in one shard is the usual case: no index tensor, and rows are copied in one piece.
            yield first, slice(None)
            return
        for shard in np.unique(shards.numpy()).tolist():
            yield shard, (shards == shard).nonzero().squeeze(1)

    def _rows(self, name: str, shard: int, users: Int64[Tensor, " k"], *, staged: bool) -> Int64[Tensor, " k"]:
        """Positions in a shard of the committed, or the staged, rows of its users."""
        copy = self._current[name][users].long()
        # A tensor of a shard is [2 x users, *shape]: copy 0 of all users, then copy 1.
        return (1 - copy if staged else copy) * len(self._users(shard)) + users - shard * self._per_shard

    def _users(self, shard: int) -> range:
        first = shard * self._per_shard
        return range(first, min(first + self._per_shard, self._count))

    def _places(self, shard: int) -> list[int]:
        """Offsets of the tensors in a shard, in order, and the end of the last one."""
        places, rows = [0], len(self._users(shard))
        for kind in self._kinds.values():
            ends = places[-1] + 2 * rows * _row_bytes(kind)
            # Aligned, because a view of another dtype must begin at a multiple of its size.
            places.append(-(-ends // _ALIGNED) * _ALIGNED)
        return places

    def _copies(self, shard: int) -> dict[str, Tensor]:
        """The tensors of a shard, `[2 x users, *shape]` each; whoever comes first fills them with first values."""
        # Taken out and put back last: the dictionary's order is then that of use, and its first entry the oldest.
        found = self._mapped.pop(shard, None)
        if found is None:
            found = self._map(shard)
            if shard not in self._filled:
                self._fill(shard, found, self._start)
        self._mapped[shard] = found
        if len(self._mapped) > _MAPPED:
            del self._mapped[next(iter(self._mapped))]
        return found

    def _map(self, shard: int) -> dict[str, Tensor]:
        self._folder.claim()
        mapped = np.memmap(self.path(shard), np.uint8, "r+")
        tensors, places = {}, self._places(shard)
        for (name, kind), first in zip(self._kinds.items(), places, strict=False):
            rows = 2 * len(self._users(shard))
            # A view of the mapped file: what is written to the tensor is in the file.
            flat: UInt8[Tensor, " bytes"] = torch.from_numpy(mapped[first : first + rows * _row_bytes(kind)])
            tensors[name] = flat.view(kind.dtype).view(rows, *kind.shape[1:])
        return tensors

    def _fill(self, shard: int, copies: Mapping[str, Tensor], start: Start) -> None:
        """Make what `start` gives the committed values of a shard."""
        users, step = self._users(shard), max(1, _AT_ONCE // self._row)
        for first in range(users.start, users.stop, step):
            some = torch.arange(first, min(first + step, users.stop))
            for name, values in start(some).items():
                # Copy 0; copy 1 stays as the file was made until a step stages into it.
                copies[name][some - users.start] = values
        for name in self.names:
            self._current[name][users.start : users.stop] = 0
        self._filled.add(shard)


class _Committed:
    """One committed tensor of a `ShardedState`, read range by range."""

    def __init__(self, state: ShardedState, name: str, shape: tuple[int, ...]) -> None:
        self._state, self._name, self.shape = state, name, shape

    def __getitem__(self, rows: slice, /) -> Tensor:
        return self._state.read(self._name, rows)


def _row_bytes(kind: Tensor) -> int:
    return kind[:0].new_empty(1, *kind.shape[1:]).numel() * kind.element_size()
