"""Checkpoints: everything a killed run needs to continue to a bit-identical result.

There is no generator state: randomness is addressed. A checkpoint is a folder that is swapped in whole once the disk
has all of it, so a kill or a power cut leaves the previous one. Private tensors are written, and where they live in
files read again, range by range: a checkpoint looks the same wherever they live, and none of them has to fit into
memory for it.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, JsonValue
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from privfed.compute.processes import ALONE, Processes
from privfed.engines.nodes.files import sync_folder
from privfed.engines.tensor_file import write_tensors
from privfed.evaluation import EvaluationResult, Part, RoundEvaluation
from privfed.evaluation.result import Ratio
from privfed.federation import Ranges

_SERVER = "server.safetensors"


class SavedEvaluation(BaseModel):
    """Quality after one round, as a checkpoint keeps it."""

    round: int
    results: dict[Part, EvaluationResult]
    gain: Ratio | None = None

    @classmethod
    def from_history(cls, history: Sequence[RoundEvaluation]) -> "list[SavedEvaluation]":
        """All evaluated rounds."""
        return [cls(round=one.round, results=one.results, gain=one.gain) for one in history]

    def evaluation(self) -> RoundEvaluation:
        """The quality after the round."""
        return RoundEvaluation(self.round, dict(self.results), gain=self.gain)


class CheckpointError(ValueError):
    """A checkpoint is missing or damaged."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """State between two rounds.

    Attributes:
        next_round: first round still to run.
        server: public tensors.
        clients: private tensors of all simulated users.
        progress: JSON-ready counters: cohorts, ledger, costs, metric history.
    """

    next_round: int
    server: Mapping[str, Tensor]
    clients: Mapping[str, Ranges]
    progress: Mapping[str, JsonValue]

    def save(self, folder: Path, processes: Processes = ALONE) -> None:
        """Replace `folder` by this checkpoint.

        Args:
            folder: of the checkpoint.
            processes: processes that save at the same time, each the private tensors of its own users.
        """
        new, old = folder.with_name(folder.name + ".new"), _old(folder)
        if processes.first:
            shutil.rmtree(new, ignore_errors=True)
            new.parent.mkdir(parents=True, exist_ok=True)
            new.mkdir(mode=0o700)  # private tensors of users
        processes.wait()
        write_tensors(new / _clients(processes.rank, processes.size), self.clients)
        processes.wait()
        if processes.first:
            write_tensors(new / _SERVER, self.server)
            self._swap_in(new, old, folder)
        processes.wait()

    def _swap_in(self, new: Path, old: Path, folder: Path) -> None:
        state = {"next_round": self.next_round, "progress": dict(self.progress)}
        (new / "progress.json").write_text(json.dumps(state))
        for path in new.iterdir():
            path.chmod(0o600)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(new)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        new.rename(folder)
        # What the old one had a journal for is forgotten next, so the new name has to be there first.
        sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)

    @staticmethod
    def remove_former(folder: Path) -> None:
        """Remove the checkpoint before this one, which a kill after the swap leaves with its private tensors."""
        if folder.exists():
            shutil.rmtree(_old(folder), ignore_errors=True)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether `load` would find a checkpoint."""
        return folder.exists() or _old(folder).exists()

    @classmethod
    def load(cls, folder: Path, processes: Processes = ALONE, *, ranged: bool = False) -> "Checkpoint":
        """Read the newest whole checkpoint at `folder`, whatever number of processes saved it.

        Args:
            folder: of the checkpoint.
            processes: processes that load it, each the private tensors of its own users.
            ranged: leave private tensors where they are, to be read range by range.

        Raises:
            CheckpointError: there is none, or a file in it cannot be read.
        """
        place = folder if folder.exists() else _old(folder)
        if not place.exists():
            raise CheckpointError(f"{folder} holds no checkpoint; start again in another folder")
        try:
            state = json.loads((place / "progress.json").read_text())
            next_round, progress = state["next_round"], state["progress"]
            # A file's tensors lie at any address, and products of unaligned ones may round otherwise.
            server = {name: value.clone() for name, value in load_file(place / _SERVER).items()}
            clients = _ranged(place, processes) if ranged else _private(place, processes)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise CheckpointError(
                f"the checkpoint in {place} is damaged ({error}); start again in another folder"
            ) from error
        return cls(next_round, server, clients, progress)


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def _clients(rank: int, size: int) -> str:
    """File of the private tensors of the users of one process."""
    return "clients.safetensors" if size == 1 else f"clients-{rank + 1:05d}-of-{size:05d}.safetensors"


class _SavedRows:
    """A range of the rows of one tensor that lies in several files, one behind the other."""

    def __init__(self, parts: Sequence[Any], first: int, stop: int) -> None:
        self._parts, self._first = parts, first
        self._ends = list(accumulate(part.get_shape()[0] for part in parts))
        self.shape = (stop - first, *parts[0].get_shape()[1:])

    def __getitem__(self, rows: slice, /) -> Tensor:
        low, high, _ = (self._first + end for end in rows.indices(self.shape[0]))
        starts = [0, *self._ends]
        ranges = [
            torch.from_numpy(part[max(low - start, 0) : min(high, end) - start])
            for part, start, end in zip(self._parts, starts, self._ends, strict=False)
            if max(low, start) < min(high, end)
        ]
        return torch.cat(ranges) if len(ranges) > 1 else ranges[0]


def _ranged(place: Path, processes: Processes) -> dict[str, Ranges]:
    """Private tensors of the users of this process, left in the files of however many processes saved them."""
    own = place / _clients(processes.rank, processes.size)
    files = [own] if own.exists() else sorted(place.glob("clients*.safetensors"))
    if not files:
        raise OSError(f"{own.name} is missing")
    opened: list[Any] = [safe_open(file, framework="numpy") for file in files]
    tensors: dict[str, Ranges] = {}
    for name in opened[0].keys():  # noqa: SIM118 (not a mapping)
        parts = [file.get_slice(name) for file in opened]
        total = sum(part.get_shape()[0] for part in parts)
        hosted = range(total) if own.exists() else processes.hosted(total)
        tensors[name] = _SavedRows(parts, int(hosted[0]), int(hosted[-1]) + 1)
    return tensors


def _private(place: Path, processes: Processes) -> dict[str, Tensor]:
    """Private tensors of the users of this process, from the files of however many processes saved them."""
    own = place / _clients(processes.rank, processes.size)
    if own.exists():
        return load_file(own)
    files = sorted(place.glob("clients*.safetensors"))
    if not files:
        raise OSError(f"{own.name} is missing")
    parts = [load_file(file) for file in files]
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return {name: values[processes.hosted(len(values))] for name, values in whole.items()}
