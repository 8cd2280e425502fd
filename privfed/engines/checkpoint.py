"""Checkpoints: everything a killed run needs to continue to a bit-identical result.

There is no generator state: randomness is addressed. A checkpoint is a folder that is swapped in whole, so a kill
while writing leaves the previous one.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from privfed.engines.processes import ALONE, Processes

_SERVER = "server.safetensors"


class CheckpointError(ValueError):
    """A checkpoint is missing or damaged."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """State between two rounds.

    Attributes:
        next_round: first round still to run.
        server: public tensors.
        clients: private tensors of all simulated users.
        progress: JSON-ready counters: draws, ledger, costs, metric history.
    """

    next_round: int
    server: Mapping[str, Tensor]
    clients: Mapping[str, Tensor]
    progress: Mapping[str, Any]

    def save(self, folder: Path, processes: Processes = ALONE) -> None:
        """Replace `folder` by this checkpoint.

        Args:
            folder: of the checkpoint.
            processes: processes that save at the same time, each the private tensors of its own users.
        """
        new, old = folder.with_name(folder.name + ".new"), _old(folder)
        if processes.first:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
        processes.wait()
        _write(self.clients, new / _clients(processes.rank, processes.size))
        processes.wait()
        if processes.first:
            _write(self.server, new / _SERVER)
            self._swap_in(new, old, folder)
        processes.wait()

    def _swap_in(self, new: Path, old: Path, folder: Path) -> None:
        state = {"next_round": self.next_round, "progress": dict(self.progress)}
        (new / "progress.json").write_text(json.dumps(state))
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether `load` would find a checkpoint."""
        return folder.exists() or _old(folder).exists()

    @classmethod
    def load(cls, folder: Path, processes: Processes = ALONE) -> "Checkpoint":
        """Read the newest whole checkpoint at `folder`, whatever number of processes saved it.

        Args:
            folder: of the checkpoint.
            processes: processes that load it, each the private tensors of its own users.

        Raises:
            CheckpointError: there is none, or a file in it cannot be read.
        """
        place = folder if folder.exists() else _old(folder)
        if not place.exists():
            raise CheckpointError(f"{folder} holds no checkpoint; start again with another --out")
        try:
            state = json.loads((place / "progress.json").read_text())
            next_round, progress = state["next_round"], state["progress"]
            server, clients = load_file(place / _SERVER), _private(place, processes)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CheckpointError(
                f"the checkpoint in {place} is damaged ({error}); start again with another --out"
            ) from error
        return cls(next_round, server, clients, progress)


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def _clients(rank: int, size: int) -> str:
    """File of the private tensors of the users of one process."""
    return "clients.safetensors" if size == 1 else f"clients-{rank + 1:05d}-of-{size:05d}.safetensors"


def _write(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: values.contiguous() for name, values in tensors.items()}, path)


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
