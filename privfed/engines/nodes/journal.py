"""Releases since the last checkpoint, on the server's disk: what was opened once is never queried again.

A release is written down before the method sees it. A server that is killed and started again repeats the rounds after
its last checkpoint from here, without a node; a round that was aborted is written down too and stays aborted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from privfed.contracts import Schema, schema_digest
from privfed.engines.nodes.codec import Packet
from privfed.engines.nodes.errors import MessageError, StateError
from privfed.engines.nodes.files import make_folder, read_file, write_file
from privfed.privacy import LedgerError
from privfed.privacy.user_ranges import from_ranges, to_ranges

_ABORTED = "aborted"


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The release of one query.

    Attributes:
        step: of the clients.
        schema: SHA-256 of the blocks.
        nodes: whose users are in it.
        members: these users, ascending.
        blocks: sums, or single uploads in the order of the members.
        clip_norms: of every step after it, where the plan adapts them.
    """

    step: str
    schema: str
    nodes: tuple[int, ...]
    members: Int64[np.ndarray, " members"]
    blocks: Mapping[str, Tensor]
    clip_norms: Mapping[str, float]


class _SavedRelease(BaseModel):
    """The small values of a release, as its file has them."""

    model_config = ConfigDict(extra="forbid")

    step: str
    schema_digest: str
    nodes: tuple[int, ...]
    members: str
    clip_norms: dict[str, float]


class Journal:
    """Releases by cohort and query.

    Args:
        folder: its own; None keeps nothing, for runs that are not resumed.
        population: users of the federation.
    """

    def __init__(self, folder: Path | None, population: int) -> None:
        self._folder, self._population = folder, population
        if folder is not None:
            make_folder(folder)

    def write(self, cohort_id: int, query_id: int, release: Release) -> None:
        """Write a release down; only then may a method see it.

        Raises:
            StateError: it cannot be written.
        """
        if self._folder is None:
            return
        saved = _SavedRelease(
            step=release.step,
            schema_digest=release.schema,
            nodes=release.nodes,
            members=to_ranges(release.members),
            clip_norms=dict(release.clip_norms),
        )
        arrays = {name: values.numpy() for name, values in release.blocks.items()}
        write_file(
            self._folder / f"{cohort_id}-{query_id}.pfn",
            Packet(saved.model_dump(mode="json"), arrays).encode(),
        )

    def find(self, cohort_id: int, query_id: int, step: str, schema: Schema) -> Release | None:
        """The release of a query, where it was opened before.

        Raises:
            StateError: it is damaged, or is of another query.
        """
        path = None if self._folder is None else self._folder / f"{cohort_id}-{query_id}.pfn"
        if path is None or not path.exists():
            return None
        try:
            packet = Packet.decode(read_file(path), 2**40)
            saved = _SavedRelease.model_validate(packet.fields)
            members = from_ranges(saved.members, limit=self._population)
        except (MessageError, ValidationError, LedgerError) as error:
            raise StateError(f"{path} is damaged ({error}); begin the run again in another folder") from error
        release = Release(
            saved.step,
            saved.schema_digest,
            saved.nodes,
            members,
            {name: torch.tensor(values) for name, values in packet.arrays.items()},
            saved.clip_norms,
        )
        if (release.step, release.schema) != (step, schema_digest(schema)):
            raise StateError(f"{path} is the release of another query; begin the run again in another folder")
        return release

    def abort(self, cohort_id: int) -> None:
        """Write down that a cohort's round was aborted.

        Raises:
            StateError: it cannot be written.
        """
        if self._folder is not None:
            write_file(self._folder / f"{cohort_id}.{_ABORTED}", b"")

    def aborted(self, cohort_id: int) -> bool:
        """Whether a cohort's round was aborted."""
        return self._folder is not None and (self._folder / f"{cohort_id}.{_ABORTED}").exists()

    def clear(self) -> None:
        """Forget everything: a checkpoint holds it now."""
        if self._folder is not None:
            for path in self._folder.iterdir():
                path.unlink()
