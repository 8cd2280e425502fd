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

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_PARTS = ("server", "clients")


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

    def save(self, folder: Path) -> None:
        """Replace `folder` by this checkpoint."""
        new, old = folder.with_name(folder.name + ".new"), _old(folder)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for part, tensors in zip(_PARTS, (self.server, self.clients), strict=True):
            save_file({k: v.contiguous() for k, v in tensors.items()}, new / f"{part}.safetensors")
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
    def load(cls, folder: Path) -> "Checkpoint":
        """Read the newest whole checkpoint at `folder`.

        Raises:
            CheckpointError: there is none, or a file in it cannot be read.
        """
        place = folder if folder.exists() else _old(folder)
        if not place.exists():
            raise CheckpointError(f"{folder} holds no checkpoint; start again with another --out")
        try:
            state = json.loads((place / "progress.json").read_text())
            next_round, progress = state["next_round"], state["progress"]
            server, clients = (load_file(place / f"{part}.safetensors") for part in _PARTS)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CheckpointError(
                f"the checkpoint in {place} is damaged ({error}); start again with another --out"
            ) from error
        return cls(next_round, server, clients, progress)


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")
