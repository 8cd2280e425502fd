"""The folder of a run or an audit on the command line: found, claimed, refused.

A folder in another format is refused, because what its files mean may have changed.
"""

import fcntl
import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from privfed import __version__
from privfed.cli.early import refuse_absent
from privfed.cli.failures import CommandError
from privfed.experiment.folder import CHECKPOINT, FORMAT, FolderRecord, Kind
from privfed.experiment.record_file import RECORD
from privfed.privacy import configure

if TYPE_CHECKING:
    from privfed.data import Interactions

_A: dict[Kind, str] = {"run": "a run", "audit": "an audit"}


class DirectoryRecord(FolderRecord):
    """What a folder holds, read and checked for the command line."""

    @classmethod
    def read(cls, folder: Path, kind: Kind) -> "DirectoryRecord":
        """The record of `folder`.

        Raises:
            CommandError: there is none, or it is damaged, of another kind or in another format.
        """
        refuse_absent(folder, kind)
        try:
            content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{folder / RECORD} is damaged ({error}): start again with another --out") from error
        version = content.get("format") if isinstance(content, dict) else None
        if version != FORMAT:
            writer = content.get("privfed", "unknown") if isinstance(content, dict) else "unknown"
            raise CommandError(
                f"{folder} was written in format {version} by privfed {writer}, and privfed {__version__} "
                f"reads format {FORMAT}: use the version that wrote it, or start again with another --out"
            )
        record = configure(cls, content)
        if record.kind != kind:
            raise CommandError(f"{folder} holds {_A[record.kind]}, not {_A[kind]}: give the folder of {_A[kind]}")
        return record

    def check_data(self, interactions: "Interactions", folder: Path) -> None:
        """Refuse data other than the run was trained on.

        Raises:
            CommandError: the digests differ.
        """
        if interactions.card.sha256 != self.data_sha256:
            raise CommandError(
                f"the data set {interactions.name} is not the one that {folder} was made from (its digest "
                "differs): bring back the former data, or start again with another --out"
            )


def checkpointed(folder: Path) -> None:
    """Make sure that a run has reached a checkpoint.

    Raises:
        CommandError: it has not.
    """
    from privfed.engines.checkpoint import Checkpoint

    if not Checkpoint.exists(folder / CHECKPOINT):
        raise CommandError(f"{folder} has no checkpoint yet: let 'privfed run --out {folder} --resume' go on")


def free_folder(method_name: str) -> Path:
    """Folder of a new run below `runs`, named after its method, and numbered where there is one already."""
    named = Path("runs") / re.sub(r"[^\w-]+", "-", Path(method_name).name.replace(".py:", "-"))
    numbered = (named.with_name(f"{named.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in itertools.chain([named], numbered) if not folder.exists())


def refuse_foreign(folder: Path, kind: Kind) -> None:
    """Make sure that a new run or audit would not mix with what is in `folder`.

    Raises:
        CommandError: it holds something already.
    """
    _refuse_begun(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty and holds no {kind} of privfed: choose another --out")


def _refuse_begun(folder: Path) -> None:
    if (folder / RECORD).exists():
        raise CommandError(f"{folder} holds a run already: add --resume to continue it, or choose another --out")


def claim(folder: Path) -> None:
    """Make `folder`, and make sure that it can be written.

    Raises:
        CommandError: it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the folder {folder} ({error.strerror}): choose another --out") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(f"the folder {folder} cannot be written: choose another --out")


@contextmanager
def held(folder: Path, *, new: bool) -> Iterator[None]:
    """Train in `folder` as the only process: two would write one checkpoint, each its own half.

    Args:
        folder: of the run.
        new: whether the run begins, so that nobody else's may have begun there in the meantime.

    Raises:
        CommandError: another process trains there, or a run has begun.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another process trains in {folder} right now: wait for it, or choose another --out"
            ) from None
        except OSError:
            # Some network file systems lock no folders.
            pass
        if new:
            _refuse_begun(folder)
        yield
    finally:
        os.close(descriptor)
