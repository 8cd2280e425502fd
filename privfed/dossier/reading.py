"""Files that may come from anybody: read once, whole, within a bound, never through a link, and JSON without doubts.

JSON in which a key stands twice means two things to two readers, so it is refused, and so is a number that JSON has no
word for.
"""

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from privfed.dossier.errors import DossierError
from privfed.privacy import PlanError, configure

Model = TypeVar("Model", bound=BaseModel)

MAX_BYTES = 1 << 29
"""Largest file that is read: 512 MiB."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file as it was read, once.

    Attributes:
        name: below its folder.
        content: all bytes.
        modified: when it was last written, in seconds since 1970, as the file system says.
    """

    name: str
    content: bytes
    modified: float

    @property
    def sha256(self) -> str:
        """Digest of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def json(self) -> Any:
        """The content as JSON.

        Raises:
            DossierError: it is not JSON, has a key twice, or a number that is none.
        """
        try:
            return json.loads(self.content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise DossierError(f"{self.name} is damaged ({why}): bring back the file as it was written") from error

    def record(self, kind: type[Model]) -> Model:
        """The content as a record.

        Raises:
            DossierError: it is none of this kind.
        """
        content = self.json()
        try:
            if not isinstance(content, dict):
                raise DossierError(f"{self.name} holds no record: bring back the file as it was written")
            return configure(kind, content)
        except PlanError as error:
            raise DossierError(f"{self.name} is damaged or of another version: {error}") from error

    def lines(self) -> list[str]:
        """The content as whole lines of text."""
        return self.content.decode("utf-8", errors="replace").splitlines()


def read(folder: Path, name: str) -> FileRead:
    """A file below a folder.

    Raises:
        DossierError: it is missing, a link, no plain file, or too large.
    """
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise DossierError(f"{path} is not there: give a folder that holds it") from None
    except OSError as error:
        why = "is a link, and links lead elsewhere" if path.is_symlink() else f"cannot be read ({error.strerror})"
        raise DossierError(f"{path} {why}: give the folder with the files themselves") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise DossierError(f"{path} is no plain file: give the folder with the files themselves")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > MAX_BYTES:
            raise DossierError(f"{path} has {status.st_size:,} bytes and {MAX_BYTES:,} are read: give the right folder")
        return FileRead(name, file.read(MAX_BYTES + 1), status.st_mtime)


def read_if_there(folder: Path, name: str) -> FileRead | None:
    """The same, None where there is no such file.

    Raises:
        DossierError: it is there and cannot be read.
    """
    return read(folder, name) if os.path.lexists(folder / name) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} stands twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")
